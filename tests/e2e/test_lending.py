"""Credentials of gateways on other machines: limited to their part of a transfer, renewed, and in memory only.

The gateways run on this host behind a real SSH server, so for Tradewind they are elsewhere. A token service issues
sessions, and a proxy in front of a real S3 server enforces their policies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.drive import Command, Finished
from testbed.s3 import S3, S3Error
from testbed.servers import Server
from testbed.sessions import PolicedStore, Session, Sessions, TokenService
from testbed.sshd import local_ssh_server, sshd_unavailable
from tests.fleet.worlds import wait_until

SITES = ("a", "b")
LINKS = "src,dst,gbps\nsite:a,site:b,1\n"
ROLE = "arn:aws:iam::111122223333:role/transfers"
MIB = 1 << 20
OBJECTS = 12
OBJECT_BYTES = MIB
READ = {"s3:GetObject"}


class Stage:
    """The command, configured for a host in each of two sites, and the two buckets of a policed store."""

    def __init__(self, command: Command, server: Server, store: PolicedStore, tokens: TokenService, run: str) -> None:
        self.command, self.server, self.store, self.tokens = command, server, store, tokens
        self.source, self.copies = f"src-{run}", f"dst-{run}"
        self.own = S3(server.endpoint, server.access_key, server.secret_key)
        self.words = [
            *("cp", "-r", f"s3://{self.source}/data/", f"s3://{self.copies}/copy/", "--via", "fleet"),
            *("--src-region", "site:a", "--dst-region", "site:b", "--chunk-size", "5MiB"),
            *("--src-endpoint", store.endpoint, "--dst-endpoint", store.endpoint),
        ]

    def run(self, *more: str) -> Finished:
        return self.command.run(*self.words, *more)

    def use_session(self) -> Session:
        """Give the command a temporary key in place of a long-lived one."""
        session = self.store.sessions.issue(None, 3600)
        self.command.environment |= {
            "AWS_ACCESS_KEY_ID": session.key_id,
            "AWS_SECRET_ACCESS_KEY": session.secret_key,
            "AWS_SESSION_TOKEN": session.token,
        }
        return session

    def lent(self, action: str) -> list[Session]:
        """Return the sessions of gateways whose policy names an action of S3."""
        issued = [session for session in self.store.sessions.issued if session.policy is not None]
        return [session for session in issued if f'"{action}"' in json.dumps(session.policy)]

    def client(self, session: Session) -> S3:
        return S3(self.store.endpoint, session.key_id, session.secret_key, token=session.token)

    def copied(self) -> dict[str, int]:
        return self.own.sizes(self.copies)


@pytest.fixture
def stage(command: Command, s3_server: Server, tmp_path: Path) -> Iterator[Stage]:
    if reason := sshd_unavailable() or (None if os.geteuid() == 0 else "the test's SSH server needs root"):
        pytest.skip(reason)
    sessions = Sessions()
    keys = (s3_server.access_key, s3_server.secret_key)
    with (
        TemporaryDirectory(prefix="tw-ssh-") as short,
        local_ssh_server(Path(short, "ssh")) as ssh,
        PolicedStore(s3_server.endpoint, *keys, sessions) as store,
        TokenService(*keys, sessions) as tokens,
    ):
        names = "".join(f"Host {site}\n  HostName 127.0.0.1\n" for site in SITES)
        ssh.config.write_text(ssh.config.read_text(encoding="utf-8") + names, encoding="utf-8")
        command.environment |= {**s3_server.environment, "AWS_ENDPOINT_URL_STS": tokens.endpoint}
        del command.environment["AWS_ENDPOINT_URL_S3"]
        write_config(command, ssh.config, tmp_path)
        made = Stage(command, s3_server, store, tokens, os.urandom(4).hex())
        for bucket in (made.source, made.copies):
            made.own.create_bucket(bucket)
        for number in range(OBJECTS):
            made.own.put(made.source, f"data/{number}", os.urandom(OBJECT_BYTES))
        made.own.put(made.source, "other", b"not of the job")
        links = tmp_path / "links.csv"
        links.write_text(LINKS, encoding="utf-8")
        command.run("catalog", "import", links).expect(0)
        yield made
        command.wait_until_alone()
        wait_until(lambda: list(tmp_path.glob("on */machines/*")) == [])


def write_config(command: Command, ssh_config: Path, folder: Path) -> None:
    lines = ["[ssh]", f'config = "{ssh_config}"']
    for site in SITES:
        lines += ["[[ssh.hosts]]", f'name = "{site}"', f'region = "site:{site}"', 'address = "127.0.0.1"']
        lines += [f'folder = "{folder}/on {site}"']
    command.configure(*lines)


def places_with(secrets: list[str], folder: Path) -> list[str]:
    """Return the files below a folder, and the arguments of all processes, that contain one of the secrets."""
    files = [path for path in folder.rglob("*") if path.is_file() and "programs" not in path.parts]
    found = []
    for path in (*files, *Path("/proc").glob("[0-9]*/cmdline")):
        with suppress(OSError):
            content = path.read_bytes()
            if any(secret.encode() in content for secret in secrets):
                found.append(str(path))
    return found


def gateway_environments(folder: Path) -> bytes:
    """Return the environments of the gateways on the hosts."""
    pids = [int(path.read_text()) for path in folder.glob("on */machines/*/pid")]
    assert len(pids) == len(SITES)
    return b"".join(Path(f"/proc/{pid}/environ").read_bytes() for pid in pids)


def refused(call: object) -> int:
    """Return the status with which a call is refused."""
    assert callable(call)
    with pytest.raises(S3Error) as error:
        call()
    return error.value.status


def test_each_gateway_gets_what_its_role_needs_and_nothing_is_written(stage: Stage, tmp_path: Path) -> None:
    running = stage.command.start(*stage.words, "--limit-rate", "4MB/s")
    running.wait_for_bytes(OBJECT_BYTES)
    secrets = [stage.server.secret_key]
    for session in stage.store.sessions.issued:
        secrets += [session.secret_key, session.token]
    assert places_with(secrets, tmp_path) == []
    environments = gateway_environments(tmp_path)
    assert not any(secret.encode() in environments for secret in secrets)
    running.finish().expect(0)
    assert places_with(secrets, tmp_path) == []
    assert len(stage.copied()) == OBJECTS
    assert {call["Action"] for call in stage.tokens.calls} == {"GetFederationToken"}
    (sink,) = stage.lent("s3:PutObject")
    (source,) = (session for session in stage.lent("s3:GetObject") if session != sink)
    assert {action for key, action in stage.store.used if key == source.key_id} == READ
    assert {action for key, action in stage.store.used if key == sink.key_id} <= {"s3:PutObject", "s3:GetObject"}

    reads, writes = stage.client(source), stage.client(sink)
    assert len(reads.get(stage.source, "data/0")) == OBJECT_BYTES
    assert refused(lambda: reads.get(stage.source, "other")) == 403
    assert refused(lambda: reads.put(stage.source, "data/new", b"")) == 403
    writes.put(stage.copies, "copy/new", b"")
    assert refused(lambda: writes.get(stage.source, "data/0")) == 403
    assert refused(lambda: writes.put(stage.copies, "elsewhere", b"")) == 403
    assert refused(lambda: writes.delete(stage.copies, "copy/0")) == 403
    for client, bucket in ((reads, stage.source), (writes, stage.copies)):
        assert refused(lambda client=client, bucket=bucket: client.sizes(bucket)) == 403


@pytest.mark.slow
def test_temporary_credentials_are_limited_by_a_role_and_otherwise_stay_here(stage: Stage, tmp_path: Path) -> None:
    session = stage.use_session()
    done = stage.run()
    assert done.code == 7, done.stderr
    assert "cannot be limited to this transfer, so they were not sent" in done.stderr
    assert "--src-role" in done.stderr and "--share-keys" in done.stderr and "Traceback" not in done.stderr
    assert stage.copied() == {} and stage.tokens.calls == []
    wait_until(lambda: list(tmp_path.glob("on */machines/*")) == [])

    stage.run("--src-role", ROLE, "--dst-role", ROLE).expect(0)
    assert {(call["Action"], call["RoleArn"]) for call in stage.tokens.calls} == {("AssumeRole", ROLE)}
    assert not any(key == session.key_id and action == "s3:PutObject" for key, action in stage.store.used)
    assert len(stage.copied()) == OBJECTS


@pytest.mark.slow
def test_a_server_without_a_token_service_needs_share_keys(stage: Stage) -> None:
    del stage.command.environment["AWS_ENDPOINT_URL_STS"]
    done = stage.run()
    assert done.code == 7, done.stderr
    assert "no token service" in done.stderr and "--share-keys" in done.stderr
    stage.run("--share-keys").expect(0)
    assert len(stage.copied()) == OBJECTS and stage.store.sessions.issued == []


def test_a_user_who_may_not_ask_for_a_session_is_told_the_missing_action(stage: Stage) -> None:
    stage.tokens.refused = frozenset({"GetFederationToken"})
    done = stage.run()
    assert done.code == 7, done.stderr
    assert "not authorized to perform: sts:GetFederationToken" in done.stderr


@pytest.mark.parametrize(
    "removed",
    ["s3:GetObject", *(pytest.param(name, marks=pytest.mark.slow) for name in ("s3:PutObject", "s3:PutObjectTagging"))],
)
def test_without_one_of_its_actions_a_transfer_fails_and_names_it(stage: Stage, removed: str) -> None:
    stage.store.removed = frozenset({removed})
    done = stage.run("--tag", "a=b")
    assert done.code == 7, done.stderr
    assert f"allows the {removed} action" in done.stderr, done.stderr


@pytest.mark.slow
def test_sessions_that_expire_while_none_are_issued_delay_a_transfer(stage: Stage) -> None:
    """The token service is out of order for longer than the sessions live. Then the transfer goes on by itself."""
    stage.tokens.life_s = 4.0
    running = stage.command.start(*stage.words, "--limit-rate", "1MB/s")
    running.wait_for_bytes(OBJECT_BYTES)
    stage.tokens.refused = frozenset({"GetFederationToken"})
    wait_until(lambda: stage.store.refused["ExpiredToken"] > 0)
    stage.tokens.refused = frozenset()
    running.finish().expect(0)
    assert len(stage.copied()) == OBJECTS
    assert len(stage.store.sessions.issued) > len(SITES)
    assert set(stage.store.refused) == {"ExpiredToken"}
