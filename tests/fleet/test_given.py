"""The environment of a job's own credentials: those, settings of the machine, and nothing else."""

import os
import subprocess
import sys

import pytest

from tradewind.fleet.given import AwsKey, GivenCredentials, surroundings


def test_a_child_reads_the_keys_from_memory_and_has_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AZURE_STORAGE_ACCOUNT_KEY", "HOME", "STORAGE_EMULATOR_HOST"):
        monkeypatch.setenv(name, "the-server")
    given = GivenCredentials(
        {"one": AwsKey("id1", "word1"), "two": AwsKey("id2", "word2", "token2")}, azure_sas="sig=x"
    )
    assert "word" not in repr(given) and "sig" not in repr(given)
    with given.opened() as (environment, descriptors):
        assert environment is not None
        assert "the-server" not in environment.values() and environment["AZURE_STORAGE_SAS_KEY"] == "sig=x"
        code = "import os; print(open(os.environ['AWS_SHARED_CREDENTIALS_FILE']).read())"
        words = [sys.executable, "-c", code]
        for _ in range(2):  # Each reader begins at the start.
            shown = subprocess.run(words, env=environment, pass_fds=descriptors, capture_output=True, check=True).stdout
            assert b"[one]\naws_access_key_id = id1\naws_secret_access_key = word1\n[two]\n" in shown
            assert b"aws_session_token = token2" in shown
    with pytest.raises(OSError):
        os.fstat(descriptors[0])


def test_without_credentials_a_child_has_the_environment_of_this_process() -> None:
    with surroundings(None) as around:
        assert around == (None, ())
