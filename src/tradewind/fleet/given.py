"""Credentials that a caller gives to one job, in place of those of this machine.

The processes of such a job get an environment that is made for them: settings of the machine, and these credentials.
S3 keys are in a file in memory, as one profile for each store, so that the two sides of a job may have different ones.
Nothing is written to a disk or passed as an argument.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from tradewind.errors import UsageError
from tradewind.gateway.task import HERE, Surroundings
from tradewind.model.records import dataclass, field

__all__ = ["AwsKey", "GivenCredentials", "surroundings"]

#: Where a process finds its own descriptors. Each opening of a file in memory has its own position.
DESCRIPTORS = "/proc/self/fd/"
#: Variables that keep the libraries of the clouds away from this machine's own credentials and endpoints.
ALONE = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
    "AZURE_USE_AZURE_CLI": "false",
    "CLOUDSDK_CONFIG": os.devnull,
}


@dataclass(frozen=True)
class AwsKey:
    """An access key of S3 or a compatible server. None of its texts has a blank or line break."""

    key_id: str = field(repr=False)
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    def lines(self, profile: str) -> str:
        """Return the key as a section of AWS's credentials file."""
        token = "" if self.token is None else f"aws_session_token = {self.token}\n"
        return f"[{profile}]\naws_access_key_id = {self.key_id}\naws_secret_access_key = {self.secret_key}\n{token}"


@dataclass(frozen=True)
class GivenCredentials:
    """The credentials of one job. Secret: never printed, and never kept.

    - `aws`: keys by profile, which the job's stores name
    - `google`: JSON of a service account
    - `azure_key`, `azure_sas`: an account key in Base64, or the query of a shared access signature
    """

    aws: Mapping[str, AwsKey] = field(default_factory=dict, repr=False)
    google: str | None = field(default=None, repr=False)
    azure_key: str | None = field(default=None, repr=False)
    azure_sas: str | None = field(default=None, repr=False)

    @contextmanager
    def opened(self) -> Iterator[Surroundings]:
        """Return the environment of a process that is started in the block, and the descriptors that it inherits.

        Raises UsageError on a system without files in memory.
        """
        from tradewind.fleet.processes import machine_environment

        if not hasattr(os, "memfd_create"):
            raise UsageError("a job with its own credentials needs Linux")
        descriptor = os.memfd_create("tradewind-credentials")
        try:
            text = "".join(key.lines(profile) for profile, key in sorted(self.aws.items())).encode()
            while text:
                text = text[os.write(descriptor, text) :]
            variables = {
                "AWS_SHARED_CREDENTIALS_FILE": f"{DESCRIPTORS}{descriptor}",
                "GOOGLE_SERVICE_ACCOUNT_KEY": self.google,
                "AZURE_STORAGE_ACCOUNT_KEY": self.azure_key,
                "AZURE_STORAGE_SAS_KEY": self.azure_sas,
            }
            given = {name: text for name, text in variables.items() if text is not None}
            yield {**machine_environment(os.environ), **ALONE, **given}, (descriptor,)
        finally:
            os.close(descriptor)


def surroundings(credentials: GivenCredentials | None) -> AbstractContextManager[Surroundings]:
    """Return the environment and descriptors of a process with these credentials; None: those of this machine."""
    return nullcontext(HERE) if credentials is None else credentials.opened()
