"""`/v1/connections`: places of a tenant with credentials of their own."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from tradewind.errors import UsageError
from tradewind.service.api.pages import Limit
from tradewind.service.auth import Sender, needs
from tradewind.service.connections import CONNECTION_NAME, checked_place
from tradewind.service.limits import PAGE_DEFAULT, SECRET_BYTES_MAX
from tradewind.service.problems import ApiProblem
from tradewind.service.regions import known_regions, require_region

if TYPE_CHECKING:
    from tradewind.service.app import Service

__all__ = ["router"]

router = APIRouter(prefix="/v1/connections", tags=["connections"])
READ, MANAGE = needs("jobs:read"), needs("connections")
Name = Annotated[str, Path(pattern=CONNECTION_NAME)]
#: Members of a service account's file that the gateway needs. Others could name files and servers.
GOOGLE_MEMBERS = ("type", "client_email", "private_key", "private_key_id")


class SecretRequest(BaseModel):
    """The secret of a connection: of S3 and R2 an access key, of Google a service account, of Azure a key or a SAS."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    access_key_id: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[!-~]+$")] | None = None
    secret_access_key: SecretStr | None = Field(None, description="S3 and R2, with access_key_id")
    session_token: SecretStr | None = Field(None, description="S3: session token of a temporary key")
    service_account: SecretStr | None = Field(None, description="gs: the JSON file of a service account, as text")
    account_key: SecretStr | None = Field(None, description="az: key of the storage account, in Base64")
    sas: SecretStr | None = Field(None, description="az: query of a shared access signature")


class ConnectionRequest(BaseModel):
    """A new connection: its place is a bucket or prefix, and jobs may use what is below."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: Annotated[str, Field(pattern=CONNECTION_NAME)]
    place: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^\x00-\x1f\x7f]+$")] = Field(
        description="s3://BUCKET/PREFIX/, gs://BUCKET/, az://ACCOUNT/CONTAINER/ or r2://ACCOUNT/BUCKET/"
    )
    endpoint: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[!-~]+$")] | None = Field(
        None, description="a server that the operator allows; null for the public cloud"
    )
    region: Annotated[str, Field(pattern=r"^([a-z0-9-]{1,20}:)?[a-z0-9-]{1,40}$")] | None = None
    secret: SecretRequest


class ConnectionView(BaseModel):
    """A connection, without its secret. `replaced_unix_ms` is the time of the latest secret."""

    name: str
    kind: Literal["s3", "gs", "az", "r2"]
    place: str
    endpoint: str | None
    region: str | None
    created_unix_ms: int
    replaced_unix_ms: int


class ConnectionPage(BaseModel):
    """Connections by name. `next` is the cursor of the next page; null on the last one."""

    connections: list[ConnectionView]
    next: str | None


@router.post("", status_code=201, response_model=ConnectionView)
def make(body: ConnectionRequest, request: Request, response: Response, sender: Sender = MANAGE) -> dict[str, Any]:
    """Make a connection. The secret is sealed, and no answer ever has it. Whether it is right shows the first job."""
    place = checked_place(body.place)
    service = request.app.state.service
    book, kind = service.connections, place.partition("://")[0]
    _require_region(body, kind, service)
    secret = _checked(body.secret, kind)
    response.headers["Location"] = f"/v1/connections/{body.name}"
    return _view(book.make(sender, body.name, place, body.endpoint, body.region, secret))


@router.get("", response_model=ConnectionPage)
def list_connections(
    request: Request,
    cursor: Annotated[str | None, Query(pattern=CONNECTION_NAME)] = None,
    limit: Limit = PAGE_DEFAULT,
    sender: Sender = READ,
) -> dict[str, Any]:
    """List the connections of the tenant, without their secrets."""
    rows = request.app.state.service.connections.page(sender.tenant, cursor or "", limit + 1)
    shown = [_view(row) for row in rows[:limit]]
    return {"connections": shown, "next": shown[-1]["name"] if len(rows) > limit else None}


@router.get("/{connection}", response_model=ConnectionView)
def show(connection: Name, request: Request, sender: Sender = READ) -> dict[str, Any]:
    """Show a connection, without its secret."""
    return _view(request.app.state.service.connections.get(sender.tenant, connection))


@router.put("/{connection}", response_model=ConnectionView)
def replace(connection: Name, body: SecretRequest, request: Request, sender: Sender = MANAGE) -> dict[str, Any]:
    """Replace the secret of a connection. Runs that have begun keep the old one; its place never changes."""
    book = request.app.state.service.connections
    row = book.get(sender.tenant, connection)
    return _view(book.replace(sender, connection, _checked(body, row["place"].partition("://")[0])))


@router.delete("/{connection}", status_code=204, response_class=Response)
def remove(connection: Name, request: Request, sender: Sender = MANAGE) -> Response:
    """Delete a connection and its secret. Refused while a schedule, or a job that has not ended, uses it."""
    request.app.state.service.connections.remove(sender, connection)
    return Response(status_code=204)


def _require_region(body: ConnectionRequest, kind: str, service: Service) -> None:
    """Raise ApiProblem 422 for a region that nobody knows."""
    ends = (end for row in service.grid.rows() for end in (row.src, row.dst))
    try:
        require_region(body.region, kind, body.endpoint, known_regions(service.settings.machines.sites, ends))
    except UsageError as error:
        raise ApiProblem(422, str(error), hint=error.hint, field="body.region") from None


def _checked(given: SecretRequest, kind: str) -> dict[str, Any]:
    """Return the secret for a kind of store. Raises ApiProblem, whose text never has a part of the secret."""
    found = {
        name: text.get_secret_value() if isinstance(text, SecretStr) else text
        for name, text in dict(given).items()
        if text is not None
    }
    forms = {
        "gs": [{"service_account"}],
        "az": [{"account_key"}, {"sas"}],
        "r2": [{"access_key_id", "secret_access_key"}],
    }
    keys = {"access_key_id", "secret_access_key"}
    if found.keys() not in forms.get(kind, [keys, keys | {"session_token"}]):
        words = {"gs": "service_account", "az": "account_key or sas"}
        raise ApiProblem(422, f"the secret of {kind}:// is {words.get(kind, 'access_key_id and secret_access_key')}")
    if kind == "gs":
        return {"service_account": _service_account(found["service_account"])}
    for name, text in found.items():
        if not (0 < len(text) <= SECRET_BYTES_MAX and all("!" <= letter <= "~" for letter in text)):
            raise ApiProblem(422, f"{name}: not one word of ASCII characters", field=f"body.{name}")
    if "account_key" in found and not _is_base64(found["account_key"]):
        raise ApiProblem(422, "account_key: not Base64", field="body.account_key")
    if "sas" in found:
        found["sas"] = found["sas"].removeprefix("?")
        if "sig=" not in found["sas"]:
            raise ApiProblem(422, "sas: it has no signature", field="body.sas")
    return found


def _service_account(text: str) -> Mapping[str, str]:
    """Return the members of a service account that are needed: its other members could name files and servers."""
    try:
        document = json.loads(text) if len(text) <= SECRET_BYTES_MAX else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("type") != "service_account":
        raise ApiProblem(422, "service_account: not the JSON file of a service account", field="body.service_account")
    account = {name: document.get(name, "") for name in GOOGLE_MEMBERS}
    if not all(isinstance(member, str) for member in account.values()) or not account["private_key"]:
        raise ApiProblem(422, "service_account: no private key", field="body.service_account")
    return account


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return False


def _view(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: row[name] for name in ConnectionView.model_fields if name != "kind"}
    return {**shown, "kind": row["place"].partition("://")[0]}
