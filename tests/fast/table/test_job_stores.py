"""Which store each INSERT of a program uses again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from millstream.checkpoint.job_record import claim
from millstream.storage.store import open_store
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.table.operations.job_stores import (
    free_rebuild,
    newest_rebuild,
    note_rebuild,
    rebuilt_store,
    store_of_job,
)
from millstream.testing.local_jobs import jobs_in_memory


def start_jobs(folder: Path, jobs: list[str]) -> list[str]:
    """The names of the stores that jobs get in this order; each creates its own."""
    urls: list[str] = []
    for job in jobs:
        url = store_of_job(str(folder / "store"), job, urls)
        claim(open_store(url), job, job_id=f"id-{len(urls)}", now_ms=0)
        urls.append(url)
    return [Path(url).name for url in urls]


def test_the_first_job_uses_the_configured_store_and_others_one_named_after_them(tmp_path: Path) -> None:
    first, second, third = start_jobs(tmp_path, ["insert-into_c.d.a", "insert-into_c.d.b", "insert-into_c.e.b"])
    assert first == "store" and second.startswith("store-b-") and third.startswith("store-b-") and second != third


@pytest.mark.parametrize("order", [[1, 0, 2], [2, 1, 0], [1, 2], [2]])
def test_each_job_reuses_its_own_store_in_any_order_and_without_the_others(order: list[int], tmp_path: Path) -> None:
    jobs = [f"insert-into_c.d.{name}" for name in "abc"]
    before = start_jobs(tmp_path, jobs)
    assert start_jobs(tmp_path, [jobs[place] for place in order]) == [before[place] for place in order]


def test_jobs_of_one_name_are_distinguished_by_their_order(tmp_path: Path) -> None:
    jobs = ["same", "same", "same", "other"]
    before = start_jobs(tmp_path, jobs)
    assert len(set(before)) == 4 and start_jobs(tmp_path, jobs) == before


def test_numbered_stores_of_older_versions_are_reused(tmp_path: Path) -> None:
    for ending, job in (("", "a"), ("-2", "b")):
        claim(open_store(str(tmp_path / f"store{ending}")), job, job_id="x", now_ms=0)
    assert start_jobs(tmp_path, ["a", "b"]) == ["store", "store-2"]


def test_inserts_in_another_order_continue_with_their_own_state(tmp_path: Path) -> None:
    def run(names: str, last: int) -> None:
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        t_env.get_config().set("millstream.store", str(tmp_path / "store"))
        t_env.execute_sql(
            "CREATE TABLE numbers (n INT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
            f"'fields.n.start' = '1', 'fields.n.end' = '{last}')"
        )
        for name in names:
            t_env.execute_sql(
                f"CREATE TABLE {name} (n INT) WITH ('connector' = 'filesystem', 'format' = 'csv', "
                f"'path' = '{tmp_path}/{name}')"
            )
            t_env.execute_sql(f"INSERT INTO {name} SELECT n FROM numbers").wait()

    with jobs_in_memory():
        run("ab", 5)
        run("ba", 5)
    for name in "ab":
        lines = [line for path in (tmp_path / name).glob("[!._]*") for line in path.read_text().split()]
        assert sorted(lines) == list("12345")


def test_the_newest_existing_store_of_a_table_is_used(tmp_path: Path) -> None:
    program, job = str(tmp_path / "store"), "totals"

    def begun(rebuilds: int) -> None:
        claim(open_store(rebuilt_store(program, job, rebuilds)), job, job_id=f"id-{rebuilds}", now_ms=0)

    assert newest_rebuild(program, job) == 0 and free_rebuild(program, job, 1) == 1
    begun(1)
    assert newest_rebuild(program, job) == 0, "until it is marked as the newest"
    assert free_rebuild(program, job, 1) == 2, "the state begun there is not continued"
    note_rebuild(program, job, 1)
    assert newest_rebuild(program, job) == 1 and newest_rebuild(program, "other") == 0
    begun(2)
    note_rebuild(program, job, 2)
    assert newest_rebuild(program, job) == 2
    shutil.rmtree(rebuilt_store(program, job, 2))
    assert newest_rebuild(program, job) == 0, "its store is removed"
