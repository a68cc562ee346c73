"""Calls of EC2 and of the services beside it, in each region. Their errors are refusals."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tradewind.errors import GatewayError
from tradewind.fleet.aws.refusals import LOGIN, refusal_of
from tradewind.fleet.libraries import load_libraries
from tradewind.fleet.provider import CallRefused, Refusal
from tradewind.fleet.tool_errors import words_of
from tradewind.model.aws import AwsSettings

__all__ = ["AwsApi"]

CONNECT_S, READ_S = 10, 40
#: Attempts of boto3 itself, which repeats only what is safe to repeat. The fleet repeats launches.
ATTEMPTS = 3
#: Pages that are read of one list, of up to a thousand entries each.
PAGES_MAX = 1000
#: Service → prefix of its permissions, where they differ.
PREFIXES = {"service-quotas": "servicequotas"}
#: Errors of boto3 about credentials, and about other settings of this machine. None of them goes away by a retry.
CREDENTIAL_ERRORS = (
    "CredentialRetrievalError",
    "InfiniteLoopConfigError",
    "InvalidConfigError",
    "NoCredentialsError",
    "PartialCredentialsError",
    "RefreshWithMFAUnsupportedError",
    "SSOError",
    "SSOTokenLoadError",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
    "UnknownCredentialError",
)
SETTING_ERRORS = (
    "ConfigNotFound",
    "ConfigParseError",
    "InvalidRegionError",
    "ParamValidationError",
    "ProfileNotFound",
    "UnknownServiceError",
)
#: Region of calls that are not about a region.
ANY_REGION = "us-east-1"


class AwsApi:
    """The account of a profile. Its methods raise CallRefused, and GatewayError without boto3."""

    def __init__(self, settings: AwsSettings) -> None:
        self._settings = settings
        self._clients: dict[tuple[str, str], Any] = {}
        self._session: Any = None
        #: boto3's session must not be used by two threads at once; its clients may be.
        self._making = threading.Lock()

    def call(self, service: str, region: str, operation: str, **arguments: Any) -> dict[str, Any]:
        """Call an operation, such as `run_instances`, and return its answer."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        client = self._client(service, region)
        action = f"{PREFIXES.get(service, service)}:{client.meta.method_to_api_mapping[operation]}"
        try:
            answer: dict[str, Any] = getattr(client, operation)(**arguments)
        except ClientError as error:
            found = error.response.get("Error", {})
            wait = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("retry-after", "")
            retry_after_s = float(wait) if str(wait).isdecimal() else None
            raise CallRefused(
                refusal_of(str(found.get("Code", "")), str(found.get("Message", "")), action, retry_after_s)
            ) from None
        except ResponseParserError:
            # It has the whole answer in its words: the page of a proxy or of a server that is broken.
            words = f"{service} in {region} sent an answer that AWS's API does not have"
            raise CallRefused(Refusal("transient", words)) from None
        except BotoCoreError as error:
            raise CallRefused(_without_answer(error)) from None
        except (ValueError, OSError) as error:
            # A file, a program or an address of the credentials cannot be used.
            raise CallRefused(_no_credentials(error)) from None
        return answer

    def ec2(self, region: str, operation: str, **arguments: Any) -> dict[str, Any]:
        """Call an operation of EC2."""
        return self.call("ec2", region, operation, **arguments)

    def pages(self, region: str, operation: str, key: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Yield the entries of a listing of EC2, from all its pages."""
        token: dict[str, str] = {}
        for _ in range(PAGES_MAX):
            page = self.ec2(region, operation, **arguments, **token)
            yield from page.get(key, ())
            if not page.get("NextToken"):
                return
            token = {"NextToken": page["NextToken"]}
        raise CallRefused(Refusal("bad request", f"{region}: {operation} has more than {PAGES_MAX} pages"))

    def regions(self) -> tuple[str, ...]:
        """Return the regions that the account may use."""
        found = self.ec2(ANY_REGION, "describe_regions").get("Regions", ())
        return tuple(sorted(region["RegionName"] for region in found))

    def _client(self, service: str, region: str) -> Any:
        key = (service, region)
        with self._making:
            if key not in self._clients:
                self._clients[key] = self._made(service, region)
            return self._clients[key]

    def _made(self, service: str, region: str) -> Any:
        try:
            load_libraries("boto3")
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError:
            raise GatewayError("the aws provider needs boto3", hint="pip install 'tradewind[aws]'") from None
        config = Config(
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        )
        try:
            if self._session is None:
                self._session = _new_session(self._settings.profile)
            endpoint: Mapping[str, str] = {}
            if self._settings.endpoint is not None:
                endpoint = {"endpoint_url": self._settings.endpoint}
            return self._session.client(service, region_name=region, config=config, **endpoint)
        except BotoCoreError as error:
            raise CallRefused(_without_answer(error)) from None
        except (ValueError, OSError) as error:
            raise CallRefused(_no_credentials(error)) from None


def _new_session(profile: str | None) -> Any:
    import boto3
    from botocore.session import Session

    core = Session()
    core.set_config_variable("profile", profile)
    descriptions = _descriptions(core.get_config_variable("data_path"))
    core.register_component("data_loader", descriptions)
    session = boto3.Session(botocore_session=core, profile_name=profile)
    # Each session of boto3 adds its own folder.
    descriptions.search_paths[:] = dict.fromkeys(descriptions.search_paths)
    return session


@cache
def _descriptions(folders: str | None) -> Any:
    """Return the reader of the services' descriptions for all sessions of this process. It keeps what it has read: that
    of EC2 alone takes half a second.
    """
    from botocore.loaders import create_loader

    return create_loader(folders)


def _without_answer(error: Exception) -> Refusal:
    """Return the refusal for a call that got no answer, or could not be made."""
    reason = " ".join(str(error).split())
    name = type(error).__name__
    if name in CREDENTIAL_ERRORS:
        return _no_credentials(error)
    if name in SETTING_ERRORS:
        return Refusal("bad request", reason)
    if name in ("EndpointConnectionError", "ConnectTimeoutError"):
        return Refusal("transient", reason, "a region that exists, and a network that reaches it")
    return Refusal("transient", reason)


def _no_credentials(error: Exception) -> Refusal:
    return Refusal("permission", f"no AWS credentials: {words_of(error)}", LOGIN)
