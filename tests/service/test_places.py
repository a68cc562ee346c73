"""What jobs with wildcards in their source may use, and which jobs they exclude."""

from pathlib import Path

import pytest

from tradewind.errors import UsageError
from tradewind.service.places import allowed_place, conflict, owned_places
from tradewind.service.settings import ServiceSettings


def settings_for(folder: Path) -> ServiceSettings:
    state = folder / "data" / "state"
    state.mkdir(parents=True)
    return ServiceSettings(state=state, allow_paths=(str(folder / "data"),))


@pytest.mark.parametrize(
    "pattern", ["*/admin.token", "stat?/admin.toke?", "**", "s[t]ate/../*", "a/b*/../../s*/admin.token", "state/*"]
)
def test_no_pattern_reaches_the_state_folder(tmp_path: Path, pattern: str) -> None:
    settings = settings_for(tmp_path)
    with pytest.raises(UsageError, match="not below an allowed folder"):
        allowed_place(f"{tmp_path}/data/{pattern}", settings)
    assert allowed_place(f"{tmp_path}/data/a/*", settings) == f"{tmp_path}/data/a/*"


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize("root", ["/data", "s3://bucket"])
def test_a_move_of_a_pattern_excludes_all_jobs_that_write_what_it_may_match(root: str, recursive: bool) -> None:
    moves = owned_places([f"{root}/in*/*.csv"], [f"{root}/to/"], recursive=recursive, with_sources=True)
    copy = owned_places([f"{root}/in*/*.csv"], [f"{root}/to/"], recursive=recursive, with_sources=False)
    for other in (f"{root}/in2", f"{root}/in2/1.csv", f"{root}/to/in2/1.csv", f"{root}/to"):
        assert conflict(moves, [other])
    assert conflict(copy, [f"{root}/to/in2/1.csv"])
    assert not conflict(copy, [f"{root}/in2"])
