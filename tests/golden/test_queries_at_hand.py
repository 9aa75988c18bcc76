"""Queries answered in the event loop: the fast path returns the same answer as the application.

Three fast paths are compared with their references: reading a key's subkeys against a scan, tiled windows against
general windows, and cached answers against the application's.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.queryable import NAME, PAIR, PLAIN, Keeps, check_windows, ms, record, stamped

from millstream import query
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.query.job_view import ListedFolder
from millstream.query.server import Limits, Reader, Rights, ServerSettings
from millstream.query.server.application import application
from millstream.query.server.connections import WholeAnswers
from millstream.state.keys.key_columns import key_column
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.tables.changes import TableChanges
from millstream.state.tables.layout import TableLayout
from millstream.state.tables.table import TableView
from millstream.storage import open_store
from millstream.testing import EPOCH, Collect, Script, run

STORES = count()
PANES = TableLayout("panes", None, pa.int64(), pa.int64())
CHANGE = st.tuples(
    st.sampled_from(["put", "put", "delete", "clear"]), st.sampled_from("abc"), st.integers(-3, 3), st.integers(0, 99)
)
QUICK = ("total", "place", "largest", "mean")
VALUES = (*QUICK, "seen")
UNTYPED = "by-number"
JSON_KEYS = ('"a"', "1", "5.0", "true", "null", "[1]", '{"a":1}', "9" * 30, "1e400", "NaN", '"\\ud800"', "no JSON", "")


@settings(deadline=None)
@given(st.lists(st.lists(CHANGE, min_size=1, max_size=6), min_size=1, max_size=4))
def test_reading_one_keys_subkeys_matches_a_scan(epochs: list[list[tuple[str, str, int, int]]]) -> None:
    store, refs = open_store(f"memory://at-hand-{next(STORES)}"), []
    for number, made in enumerate(epochs, start=1):
        changes = TableChanges(PANES)
        for what, key, sub, value in made:
            column, subs = key_column([key], None), pa.array([sub])
            if what == "put":
                changes.put(column, pa.array([value]), subs=subs)
            elif what == "delete":
                changes.delete(column, subs=subs)
            else:
                changes.clear(column)
        refs.append(changes.write(store, f"segments/{number}.arrow", number, range(128), chunk_rows=2))
    view = TableView(OpenSegments(store), PANES, [ref for ref in refs if ref is not None], range(128), now_ms=0)
    points = view.points
    assert points is not None
    for key in "abcd":
        rows = view.scan_keys(key_column([key], None))
        expected = list(zip(rows.column("sub").to_pylist(), rows.column("value").to_pylist(), strict=True))
        assert points.get_subs(key) == expected
        assert [points.group(key)] == key_column([key], None).groups(128).tolist()


@settings(deadline=None, max_examples=5)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60), st.integers(1, 5)), min_size=1, max_size=5),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([0, 15]),
)
def test_tiled_windows_are_read_by_the_fast_path_and_match_the_records(
    epochs: list[list[tuple[str, int, int]]], lateness: int
) -> None:
    check_windows("columns that are their results", epochs, "tumbling", lateness, 2)


# --- the server -------------------------------------------------------------------------------------------------


def program(env: StreamExecutionEnvironment) -> None:
    pairs = env.add_source(Script([("a", 1), ("b/c", 2), EPOCH, ("a", 5), EPOCH, ("a", 1)], type_info=PAIR))
    pairs.key_by(lambda pair: pair[0], Types.STRING()).process(Keeps()).sink_to(Collect())
    pairs.key_by(lambda pair: pair[1]).as_queryable_state(UNTYPED)
    windows = stamped(env, [record("a", 3), record("a", 25, 4), EPOCH]).key_by("key")
    windows.window(TumblingEventTimeWindows.of(ms(20))).queryable(NAME).aggregate(PLAIN).sink_to(Collect())


@pytest.fixture(scope="module")
def job() -> query.JobView:
    store = f"at-hand-{next(STORES)}"
    run(program, store=store, epochs=2)
    return query.open(f"memory://{store}")


def responses(
    job: query.JobView, paths: list[str], headers: dict[str, str], **changes: Any
) -> list[tuple[int, Any, Any]]:
    """Status, ETag and body of each path."""
    app = application(job, ServerSettings(**changes), now_ms=lambda: job.newest().committed_ms + 7)

    async def ask() -> list[tuple[int, Any, Any]]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            found = [await client.get(f"/v1/jobs/{job.job}/states/{path}", headers=headers) for path in paths]
        return [(one.status_code, one.headers.get("etag"), one.json()) for one in found]

    job.newest()  # so that it is cached
    return asyncio.run(ask())


PATHS = [
    *(f"{state}/keys/{key}" for state in VALUES for key in ("a", "b/c", "nobody", "%E2%82%AC")),
    *(f"{NAME}/windows/{key}" for key in ("a", "nobody")),
    *(f"{state}/keys/{quote(key)}?key_format=json" for state in ("total", "seen", UNTYPED) for key in JSON_KEYS),
    *(f"{NAME}/windows/{quote(key)}?key_format=json" for key in JSON_KEYS),
    "total/keys/a?key_format=text",
    "total/keys/a?key_format=json&epoch=1",
    f"{NAME}/keys/a",
    "total/windows/a",
    "total/keys/",
    "unknown/keys/a",
    "total/series/a",
]


def test_a_fast_path_answer_equals_the_applications(job: query.JobView) -> None:
    # Conditional requests (If-None-Match) are handled only by the application.
    expected = responses(job, PATHS, {"If-None-Match": '"another"'})
    assert responses(job, PATHS, {}) == responses(job, PATHS, {"If-Min-Epoch": str(job.newest().epoch)}) == expected


def test_text_and_json_keys_bypass_the_framework(job: query.JobView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("millstream.query.server.job_answers.JobAnswers.epoch")  # which the slow path needs
    still = query.open(job.store.url, follow=False)  # no newer epoch is checked for, so that time does not matter
    paths = ["total/keys/a", "total/keys/%22a%22?key_format=json", f"{UNTYPED}/keys/1?key_format=json"]
    assert [status for status, _, _ in responses(still, [*paths, "total/keys/a?epoch=1"], {})] == [200, 200, 200, 500]


@pytest.mark.parametrize("asked", ["999999", "-1", "1e3", "9" * 30])
def test_an_uncached_or_invalid_epoch_is_answered_by_the_application(job: query.JobView, asked: str) -> None:
    limits = Limits(min_epoch_wait_s=0.01)
    (status, _, said), *_ = responses(job, ["total/keys/a"], {"If-Min-Epoch": asked}, limits=limits)
    assert (status, said["error"]) == ((412, "too-old") if asked == "999999" else (422, "bad-question"))


def test_only_plain_values_and_tiled_windows_have_a_fast_path(job: query.JobView) -> None:
    newest = job.newest()
    assert {state.name for state in newest.states() if newest.is_quick(state.name or "")} == {*QUICK, NAME, UNTYPED}


def test_the_fast_path_enforces_token_rights(job: query.JobView) -> None:
    rights = Rights({hashlib.sha256(b"secret").digest(): Reader("one", ("total",))})
    headers = {"Authorization": "Bearer secret"}
    found = responses(job, ["total/keys/a", "largest/keys/a"], headers, rights=rights)
    assert [status for status, _, _ in found] == [200, 403]


def test_a_server_of_some_key_groups_answers_only_their_keys(job: query.JobView) -> None:
    paths = [f"total/keys/{key}" for key in ("a", "b/c")]
    held = [responses(job, paths, {}, key_groups=groups) for groups in (range(64), range(64, 128))]
    assert sorted(status for found in held for status, _, _ in found) == [200, 200, 421, 421]


def test_a_newer_epoch_is_served_shortly_after_its_commit() -> None:
    store = f"at-hand-{next(STORES)}"
    run(program, store=store, epochs=1)
    job = query.open(f"memory://{store}")
    app = application(job, ServerSettings())

    async def ask() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            epochs = []
            for turn in range(1000):
                answer = (await client.get(f"/v1/jobs/{job.job}/states/total/keys/a")).json()
                epochs.append(answer["epoch"])
                if turn == 3:
                    run(program, store=store)
                if epochs[-1] > epochs[0]:
                    return epochs
                await asyncio.sleep(0.001)
            return epochs

    epochs = asyncio.run(ask())
    assert epochs == sorted(epochs) and epochs[-1] > epochs[0]


# --- detecting a newer epoch --------------------------------------------------------------------------------------


def test_a_folder_is_unchanged_until_a_file_is_added(tmp_path: Path) -> None:
    for age_ms in (1, 1_000):  # it has just changed, so that its mtime is ambiguous, or is at rest
        folder = tmp_path / str(age_ms)
        folder.mkdir()
        (folder / "manifest-1").write_text("")
        listed, now_ms = ListedFolder(), int(os.stat(folder).st_mtime * 1000) + age_ms
        listed.note(folder, now_ms)
        assert listed.has_nothing_new(now_ms)
        (folder / "manifest-2").write_text("")
        assert not listed.has_nothing_new(now_ms)


def test_a_removed_file_is_no_news_and_a_file_added_later_is(tmp_path: Path) -> None:
    for name in ("manifest-1", "manifest-2"):
        (tmp_path / name).write_text("")
    listed, now_ms = ListedFolder(), int(os.stat(tmp_path).st_mtime * 1000) + 1_000
    listed.note(tmp_path, now_ms)
    (tmp_path / "manifest-1").unlink()
    assert listed.has_nothing_new(now_ms) and listed.has_nothing_new(now_ms + 2_000)
    (tmp_path / "manifest-3").write_text("")
    assert not listed.has_nothing_new(now_ms)


def test_a_moved_or_missing_folder_is_listed_again(tmp_path: Path) -> None:
    listed, now_ms = ListedFolder(), int(os.stat(tmp_path).st_mtime * 1000) + 1_000
    listed.note(None, now_ms)
    assert not listed.has_nothing_new(now_ms)
    listed.note(tmp_path / "absent", now_ms)
    assert not listed.has_nothing_new(now_ms)
    (tmp_path / "folder").mkdir()
    listed.note(tmp_path / "folder", now_ms)
    (tmp_path / "folder").rmdir()
    assert not listed.has_nothing_new(now_ms)


def test_epochs_of_a_local_store_are_cached_until_a_newer_one_exists(tmp_path: Path) -> None:
    source, target = open_store("memory://" + (store := f"at-hand-{next(STORES)}")), open_store(str(tmp_path))

    def resume(epochs: int | None) -> None:
        run(program, store=store, epochs=epochs)
        for name in source.list(""):
            if not target.exists(name):
                target.put(name, source.get(name))

    resume(1)
    job = query.open(str(tmp_path))
    first = job.newest()
    time.sleep(0.12)  # the folder comes to rest
    job.newest()  # and is listed
    time.sleep(0.05)
    assert job.known_newest() is first
    resume(None)
    time.sleep(0.05)
    assert job.known_newest() is None and job.newest().epoch > first.epoch


# --- writes to the transport --------------------------------------------------------------------------------------


class Written:
    """A transport that records each write."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.parts.append(data)

    def is_closing(self) -> bool:
        return False


def test_an_answer_of_known_length_is_one_write_and_a_streams_head_is_sent_immediately() -> None:
    known, stream = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"
    for head, parts in ((known, [known + b"ab"]), (stream, [stream, b"ab"])):
        transport = Written()
        answer = WholeAnswers(transport)  # type: ignore[arg-type]
        for part in (head, b"ab"):
            answer.write(part)
        assert transport.parts == parts
