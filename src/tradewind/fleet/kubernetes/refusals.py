"""Why a cluster refused something: answers of the API server, events, and states of pods, as typed refusals.

An unknown error is `transient`. A `permission` refusal names verb, resource and namespace, as in a rule of a Role.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tradewind.fleet.kubernetes.access import UnsupportedSetting
from tradewind.fleet.provider import CallRefused, Refusal

__all__ = ["answered", "of_event", "of_status", "of_unschedulable", "of_waiting"]

#: The words of RBAC: User "x" cannot create resource "jobs" in API group "batch" in the namespace "y".
_FORBIDDEN = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<resource>[^"]+)"(?: in API group "(?P<group>[^"]*)")?'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)
#: Words of a scheduler if a node could run the pod but has no room.
_NO_ROOM = ("Insufficient ", "free ports", "Too many pods", "No preemption victims")
#: States of a container that does not start because of its image.
IMAGE_STATES = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
)
#: States of a container that does not start because of its settings.
SETTING_STATES = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
#: An image that could not be pulled is pulled again after these states.
RETRIED_STATES = ("ErrImagePull", "RegistryUnavailable")
REASON_CHARACTERS_MAX = 400
LOGIN_ACTION = "a valid login: `kubectl --context {context} auth whoami` must work"


@contextmanager
def answered(context: str) -> Iterator[None]:
    """Raise CallRefused for every error of lightkube, and of the connection, within the block."""
    import httpx2
    import msgspec
    import yaml
    from lightkube.core.exceptions import ApiError, ConfigError, LoadResourceError

    try:
        yield
    except ApiError as error:
        headers = {} if error.response is None else error.response.headers
        raise CallRefused(of_status(context, error.status.code or 0, error.status.message or "", headers)) from error
    except httpx2.HTTPStatusError as error:
        text = error.response.reason_phrase
        raise CallRefused(of_status(context, error.response.status_code, text, error.response.headers)) from error
    except httpx2.HTTPError as error:
        raise CallRefused(_of_connection(context, error)) from error
    except UnsupportedSetting as error:
        raise CallRefused(Refusal("bad request", _line(context, f"the kubeconfig cannot be used: {error}"))) from error
    except (msgspec.MsgspecError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise CallRefused(_not_understood(context, error)) from error
    except (ConfigError, LoadResourceError, ssl.SSLError, yaml.YAMLError, httpx2.InvalidURL) as error:
        words = f"the kubeconfig cannot be used: {str(error).rstrip(': ')}"
        raise CallRefused(_without_login(context, words)) from error
    except OSError as error:
        # The program that gets a login for the context, or a file of the kubeconfig, is missing.
        raise CallRefused(_without_login(context, f"the kubeconfig cannot be used: {error}")) from error


def _not_understood(context: str, error: Exception) -> Refusal:
    # lightkube reads what a login program prints without a check: JSON with the token in its status.
    if isinstance(error, (json.JSONDecodeError, TypeError)) or error.args in (("status",), ("token",)):
        return Refusal("bad request", _line(context, "the login program of the kubeconfig gives no token"))
    return Refusal("transient", _line(context, f"an answer is not understood: {error}"))


def _without_login(context: str, words: str) -> Refusal:
    return Refusal("bad request", _line(context, words), action=LOGIN_ACTION.format(context=context))


def of_status(context: str, code: int, message: str, headers: Mapping[str, str]) -> Refusal:
    """Return the refusal of an answer with an HTTP status code."""
    said = _line(context, message or f"HTTP status {code}")
    if code == 401:
        return Refusal("permission", said, action=LOGIN_ACTION.format(context=context))
    if code == 403:
        return _of_forbidden(said, message)
    if code == 429:
        return Refusal("throttled", said, retry_after_s=_seconds(headers.get("Retry-After")))
    if code in (400, 404, 405, 413, 415, 422) or _is_policy(message):
        return Refusal("bad request", said)
    # With 409, somebody else has changed an object at the same time, such as the quota that counts what is made.
    return Refusal("transient", said, retry_after_s=_seconds(headers.get("Retry-After")))


def _of_forbidden(said: str, message: str) -> Refusal:
    if "exceeded quota" in message:
        return Refusal("quota", said)
    # A quota of something that the pod does not state is for the namespace's owner to solve: fewer pods do not help.
    if "failed quota" in message or "PodSecurity" in message or _is_policy(message):
        return Refusal("bad request", said)
    if "is being terminated" in message:
        return Refusal("bad request", said)
    found = _FORBIDDEN.search(message)
    if found is None:
        return Refusal("permission", said)
    where = f" in namespace {found['namespace']}" if found["namespace"] else ""
    group = f".{found['group']}" if found["group"] else ""
    return Refusal("permission", said, action=f"{found['verb']} {found['resource']}{group}{where}")


def _is_policy(message: str) -> bool:
    """Return whether a policy of the cluster refuses the object, whoever makes it."""
    return ("admission webhook" in message and "denied the request" in message) or "AdmissionPolicy" in message


def _of_connection(context: str, error: Exception) -> Refusal:
    text = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        # Waiting does not help. The reason says if a clock is wrong: `certificate is not yet valid`, `has expired`.
        return Refusal("bad request", _line(context, f"the certificate of the API server is not accepted: {text}"))
    return Refusal("transient", _line(context, f"the API server does not answer: {text}"))


def of_event(context: str, reason: str, message: str) -> Refusal | None:
    """Return why a controller did not make a pod, from an event of its Job; None for other events."""
    if reason not in ("FailedCreate", "FailedMount"):
        return None
    said = _line(context, message)
    if reason == "FailedMount":
        return Refusal("transient", said)
    if "exceeded quota" in message:
        return Refusal("quota", said)
    if "violates PodSecurity" in message or "forbidden" in message or _is_policy(message):
        return Refusal("bad request", said)
    return Refusal("transient", said)


def of_unschedulable(context: str, message: str) -> Refusal:
    """Return the refusal of a pod for which the scheduler finds no node."""
    said = _line(context, f"no node can run the gateway: {message}")
    if any(words in message for words in _NO_ROOM):
        return Refusal("capacity", said)
    if "affinity/selector" in message or "untolerated taint" in message:
        return Refusal("bad request", said)
    return Refusal("capacity" if message.startswith("0/") else "transient", said)


def of_waiting(context: str, image: str, reason: str, message: str, is_late: bool) -> Refusal | None:
    """Return why a container does not start; None if it may still start. `is_late` allows no further attempt."""
    if reason in IMAGE_STATES and (reason not in RETRIED_STATES or is_late):
        return Refusal("bad request", _line(context, f"the image {image} cannot be pulled: {message or reason}"))
    if reason in SETTING_STATES:
        return Refusal("bad request", _line(context, f"the gateway cannot start: {message or reason}"))
    return None


def _line(context: str, message: str) -> str:
    """Return a message as one line of limited length, with the name of its cluster."""
    return f"{context}: {' '.join(message.split())[:REASON_CHARACTERS_MAX]}"


def _seconds(text: Any) -> float | None:
    return float(text) if isinstance(text, str) and text.isdecimal() else None
