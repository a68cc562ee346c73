"""A job that gives its run back, because its plan has other links, is started again only with these. One whose plan is
replaced while it runs counts for the new links.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete, insert, update

from tests.service.local import copy_request, new_database, scheduler
from tests.service.server import eventually
from tradewind.service.auth import Sender
from tradewind.service.database import ServiceDatabase
from tradewind.service.job_routes import JobRoutes
from tradewind.service.jobs import JobQueue
from tradewind.service.machines import MachineRules
from tradewind.service.scheduling_tables import resource_limits
from tradewind.service.tables import jobs

SENDER = Sender("admin", "default", "service_admin", frozenset())
DIRECT, RELAYED, OTHER = "site:local>site:local", ("site:a>site:r", "site:r>site:b"), "site:a>site:b"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ServiceDatabase]:
    database = new_database(tmp_path)
    yield database
    database.close()


def close_link(database: ServiceDatabase, link: str) -> None:
    with database.write() as connection:
        connection.execute(insert(resource_limits).values(kind="link", name=link, active=0))


def test_a_planned_job_waits_for_its_links_and_others_run(database: ServiceDatabase, tmp_path: Path) -> None:
    queue, server = JobQueue(database), scheduler(database, tmp_path, "one", 1)
    first, second = (queue.submit(SENDER, key, "", copy_request(tmp_path / key), [key])[0].id for key in "ab")

    def states() -> list[str]:
        return [queue.get("default", one).state for one in (first, second)]

    def planned(links: tuple[str, ...]) -> None:
        assert queue.move(first, ("running",), "waiting", routes=JobRoutes(links, 3.0).text())

    server.step()
    assert states() == ["running", "waiting"]
    close_link(database, RELAYED[1])
    server.step()
    planned(RELAYED)
    server.step()
    assert states() == ["waiting", "running"], "the other job has the slot meanwhile"
    server.step()
    why = server.answer(first)
    assert why is not None and f"link {RELAYED[1]}" in (why[0] or "")
    with database.write() as connection:
        connection.execute(delete(resource_limits))
    assert queue.move(second, ("running",), "done")
    server.step()
    assert states() == ["running", "done"]
    granted = json.loads(queue.get("default", first).granted or "")
    assert tuple(granted["links"]) == RELAYED
    planned((*RELAYED, DIRECT))
    server.step()
    assert states() == ["running", "done"], "it starts again at once"
    assert json.loads(queue.get("default", first).granted or "")["links"] == [*RELAYED, DIRECT]
    assert queue.events(first, 0, 100)[-1][1]["state"] == "running"


def test_only_a_ban_on_the_link_of_its_stores_holds_a_job_that_is_to_be_planned(
    database: ServiceDatabase, tmp_path: Path
) -> None:
    """A link of regions may not be on its routes. That of the stores counts with any plan, so no plan avoids it."""
    rules = MachineRules(via="auto", usd_max=1.0)
    queue, server = JobQueue(database), scheduler(database, tmp_path, "one", rules=rules)
    stores = {"source": "https://one.s3.us-east-1.amazonaws.com/x/", "destination": ["gs://two/"]}
    close_link(database, "aws:us-east-1>gcp:us-east1")
    first, second = (
        queue.submit(SENDER, key, "", copy_request(tmp_path) | stores, [f"gs://two/{key}"])[0].id for key in "ab"
    )
    server.step()
    assert [queue.get("default", one).state for one in (first, second)] == ["running", "running"]
    named = "s3://one>gs://two"
    close_link(database, named)
    assert queue.move(first, ("running",), "waiting")
    assert queue.move(second, ("running",), "waiting", routes=JobRoutes((*RELAYED, named), 3.0).text())
    server.step()
    server.step()
    for one in (first, second):
        why = server.answer(one)
        assert why is not None and f"link {named}" in (why[0] or "")
        assert why[1] is None, "only people can open it"


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_the_links_of_a_replaced_plan_count_and_the_others_are_given_back(
    database: ServiceDatabase, tmp_path: Path, is_taken_over: bool
) -> None:
    """Also if another server schedules from then on."""
    queue, servers = JobQueue(database), [scheduler(database, tmp_path, name) for name in ("one", "two")]
    with database.write() as connection:
        for link in (*RELAYED, OTHER):
            connection.execute(insert(resource_limits).values(kind="link", name=link, active=1))
    names = "abc"
    first, old, new = (queue.submit(SENDER, key, "", copy_request(tmp_path / key), [key])[0].id for key in names)
    plan(database, first, RELAYED)
    server = servers[0]
    server.step()
    assert queue.get("default", first).state == "running"
    plan(database, old, RELAYED)
    plan(database, new, (OTHER,))
    assert queue.move(old, ("running",), "waiting") and queue.move(new, ("running",), "waiting")
    plan(database, first, (OTHER,))
    if is_taken_over:
        server.leave()
        server = servers[1]
    server.step()
    server.step()
    assert [queue.get("default", one).state for one in (first, old, new)] == ["running", "running", "waiting"]
    assert json.loads(queue.get("default", first).granted or "")["links"] == [OTHER]
    why = server.answer(new)
    assert why is not None and f"link {OTHER}" in (why[0] or "")
    assert queue.move(first, ("running",), "done")
    server.step()
    assert queue.get("default", new).state == "running"


def plan(database: ServiceDatabase, job_id: str, links: tuple[str, ...]) -> None:
    """Record the routes of a job, as the server that runs it does."""
    with database.write() as connection:
        text = JobRoutes(links, 3.0).text()
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(routes=text))


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_stopped_job_waits_for_its_routes_only_if_they_are_open(
    database: ServiceDatabase, tmp_path: Path, is_taken_over: bool
) -> None:
    """It is planned again when it starts, around what is closed. A job that has not run has the plan of its quote."""
    queue, servers = JobQueue(database), [scheduler(database, tmp_path, name) for name in ("one", "two")]
    first, other = (queue.submit(SENDER, key, "", copy_request(tmp_path / key), [key])[0].id for key in "ab")
    for job_id in (first, other):
        plan(database, job_id, RELAYED)
    server = servers[0]
    server.step()
    assert json.loads(queue.get("default", first).granted or "")["links"] == list(RELAYED)
    with database.write() as connection:
        connection.execute(update(jobs).where(jobs.c.id == first).values(engine_job="job-1"))
        connection.execute(insert(resource_limits).values(kind="site", name="site:r", active=0))
    for job_id in (first, other):
        assert queue.move(job_id, ("running",), "stopping")
    server.step()
    for job_id in (first, other):
        assert queue.move(job_id, ("stopping",), "waiting")
    if is_taken_over:
        server.leave()
        server = servers[1]
    for _ in range(2):
        server.step()
    assert [queue.get("default", one).routes is None for one in (first, other)] == [True, False]
    assert [queue.get("default", one).state for one in (first, other)] == ["running", "waiting"]
    assert json.loads(queue.get("default", first).granted or "")["links"] == [DIRECT]


def test_a_job_that_is_tried_again_is_planned_again_if_its_routes_are_closed(
    database: ServiceDatabase, tmp_path: Path
) -> None:
    queue, server = JobQueue(database), scheduler(database, tmp_path, "one")
    job_id = queue.submit(SENDER, "a", "", copy_request(tmp_path / "a"), ["a"])[0].id
    plan(database, job_id, RELAYED)
    server.step()
    assert json.loads(queue.get("default", job_id).granted or "")["links"] == list(RELAYED)
    with database.write() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(engine_job="job-1"))
        connection.execute(insert(resource_limits).values(kind="site", name="site:r", active=0))
    assert queue.move(job_id, ("running",), "waiting", failures='{"transient": 1}', failure="transient", granted=None)

    def is_running() -> bool:
        server.step()
        return queue.get("default", job_id).state == "running"

    eventually(is_running)
    assert json.loads(queue.get("default", job_id).granted or "")["links"] == [DIRECT]
