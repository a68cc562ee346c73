"""Google's own descriptions of the Compute Engine API and of questions about permissions. The stand-in checks requests
and its own answers with them.

The discovery documents are part of the package google-api-python-client, which is installed into an environment of its
own, only for this file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from testbed.servers.install import python_environment

__all__ = ["PREFIX", "Discovery", "Method", "compute_discovery", "permission_discoveries"]

VERSION = "2.202.0"
"""Version of google-api-python-client. Its document of compute.v1 is of 2026-11-06."""
PREFIX = "/compute/v1/"
RESOURCES = (
    "addresses",
    "disks",
    "firewalls",
    "globalOperations",
    "images",
    "instances",
    "machineTypes",
    "projects",
    "regionInstances",
    "regionOperations",
    "regions",
    "zoneOperations",
    "zones",
)
"""Resources of the document of compute.v1 that are read. It has a hundred others."""
_PYTHON_TYPES = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
}
_WHOLE_NUMBERS = ("int64", "uint64", "int32", "uint32")


@dataclass(frozen=True)
class Method:
    """A method of the API, such as `instances.delete`."""

    id: str
    verb: str
    pattern: re.Pattern[str]
    parameters: Mapping[str, Mapping[str, Any]]
    request: Mapping[str, Any] | None
    response: Mapping[str, Any] | None


class Discovery:
    """The document: finds the method of a request, and checks values against schemas."""

    def __init__(self, document: Mapping[str, Any], resources: Mapping[str, Any]) -> None:
        self.revision: str = document["revision"]
        self._schemas: Mapping[str, Any] = document["schemas"]
        self._common: Mapping[str, Any] = document["parameters"]
        self.methods = {
            f"{resource}.{name}": _method(f"{resource}.{name}", method)
            for resource, of in resources.items()
            for name, method in of.get("methods", {}).items()
        }

    def find(self, verb: str, path: str) -> tuple[Method, dict[str, str]] | None:
        """Return the method of a request's verb and path (without PREFIX), and the values in the path."""
        for method in self.methods.values():
            if method.verb == verb and (found := method.pattern.fullmatch(path)):
                return method, found.groupdict()
        return None

    def query_problems(self, method: Method, query: Mapping[str, str]) -> Iterator[str]:
        """Yield what is wrong with the query of a request."""
        for name, value in query.items():
            parameter = {**self._common, **method.parameters}.get(name)
            if parameter is None or parameter["location"] != "query":
                yield f"Unknown name '{name}': Cannot bind query parameter."
            elif parameter["type"] == "boolean" and value not in ("true", "false"):
                yield f"Invalid value at '{name}' (boolean)"
            elif parameter["type"] == "integer" and not re.fullmatch(r"-?\d+", value):
                yield f"Invalid value at '{name}' (integer)"

    def problems(self, value: Any, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
        """Yield what Google's parser would refuse: an unknown name, a wrong type, an unknown enum value."""
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"]]
        kind = schema.get("type")
        if kind in (None, "any"):
            return
        if schema.get("format") in _WHOLE_NUMBERS and kind == "string" and isinstance(value, int):
            value = str(value)
        allowed: Any = _PYTHON_TYPES[kind]  # As a tuple it would change the declared type of the value.
        if not isinstance(value, allowed) or (kind in ("integer", "number") and isinstance(value, bool)):
            yield f"Invalid value at '{path}' ({kind}): {value!r}"
        elif kind == "string" and schema.get("format") in _WHOLE_NUMBERS and not re.fullmatch(r"-?\d+", value):
            yield f"Invalid value at '{path}' ({schema['format']}): {value!r}"
        elif "enum" in schema and value not in schema["enum"]:
            yield f"Invalid value at '{path}': {value!r} is not one of {', '.join(schema['enum'])}"
        elif "pattern" in schema and kind == "string" and not re.fullmatch(schema["pattern"], value):
            yield f"Invalid value for field '{path}': '{value}'. Must be a match of regex '{schema['pattern']}'"
        elif kind == "array":
            for number, item in enumerate(value):
                yield from self.problems(item, schema["items"], f"{path}[{number}]")
        elif kind == "object":
            for name, inner in value.items():
                of = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
                if of is None:
                    yield f"Unknown name '{name}' at '{path}': Cannot find field."
                else:
                    yield from self.problems(inner, of, f"{path}.{name}".lstrip("."))


def _method(name: str, method: Mapping[str, Any]) -> Method:
    """Return a method. Its pattern does not match a path whose values Google would refuse."""
    parameters = method.get("parameters", {})

    def group(found: re.Match[str]) -> str:
        pattern = parameters.get(found[1], {}).get("pattern", "[^/]+")
        return f"(?P<{found[1]}>{pattern})"

    path = re.sub(r"\{\+?(\w+)\}", group, method.get("flatPath", method["path"]))
    return Method(
        name, method["httpMethod"], re.compile(path), parameters, method.get("request"), method.get("response")
    )


def _document(name: str) -> Any:
    environment = python_environment(f"google-api-python-client-{VERSION}", [f"google-api-python-client=={VERSION}"])
    (path,) = environment.glob(f"lib/*/site-packages/googleapiclient/discovery_cache/documents/{name}.json")
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def compute_discovery() -> Discovery:
    """Return the document of compute.v1."""
    document = _document("compute.v1")
    return Discovery(document, {name: document["resources"][name] for name in RESOURCES})


@cache
def permission_discoveries() -> tuple[Discovery, Discovery]:
    """Return the documents of cloudresourcemanager.v1 for projects, and of iam.v1 for the identities of projects."""
    projects, accounts = _document("cloudresourcemanager.v1"), _document("iam.v1")
    within = accounts["resources"]["projects"]["resources"]
    return (
        Discovery(projects, {"projects": projects["resources"]["projects"]}),
        Discovery(accounts, {"serviceAccounts": within["serviceAccounts"]}),
    )
