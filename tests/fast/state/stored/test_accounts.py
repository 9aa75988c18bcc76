"""Accounts are read as they were written: those of every fixture, and any that can be made; damaged ones are not."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.checkpoint.manifest import Manifest, decode, encode
from millstream.common import Types
from millstream.errors import StoreDamagedError
from millstream.state.schemas.schema_history import SavedAs
from millstream.state.segments.version import SegmentRef
from millstream.state.stored.accounts import (
    AccountReader,
    FunctionAccount,
    ListEntry,
    ListSchema,
    LoopTail,
    OperatorAccount,
    RecordedFile,
    RecordedSplit,
    SplitAccount,
    StoredTables,
    SubtaskAccount,
    accounts_of,
    to_json,
)
from millstream.state.stored.queryable import Queryable
from millstream.state.stored.times import EventTimeState

FIXTURES = Path(__file__).resolve().parents[3] / "compatibility"


def stored_manifests() -> Iterator[Any]:
    for archive in sorted(FIXTURES.glob("*.zip")):
        with zipfile.ZipFile(archive) as files:
            for name in sorted(files.namelist()):
                if name.startswith("manifests/"):
                    yield pytest.param(name, files.read(name), id=f"{archive.stem}/{Path(name).stem}")


@pytest.mark.parametrize(("name", "data"), list(stored_manifests()))
def test_accounts_of_older_stores_are_read_and_written_again_as_they_were(name: str, data: bytes) -> None:
    manifest = decode(data, name)
    accounts = accounts_of(manifest)
    assert any(account.subtasks for account in accounts.values())
    assert json.loads(json.dumps({uid: to_json(account) for uid, account in accounts.items()})) == manifest.states
    again = Manifest(**{**fields_of(manifest), "states": {uid: to_json(account) for uid, account in accounts.items()}})
    assert encode(again) == data


def fields_of(manifest: Manifest) -> dict[str, Any]:
    return {name: getattr(manifest, name) for name in manifest.__dataclass_fields__}


# --- any account --------------------------------------------------------------------------------------------------

numbers = st.integers(min_value=-(2**63), max_value=2**63 - 1)
counts = st.integers(min_value=0, max_value=10**12)
names = st.text(max_size=6)
own_json = st.recursive(
    st.none() | st.booleans() | numbers | names,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def by_name(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(names, strategy, max_size=2)


def by_subtask(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.integers(min_value=0, max_value=5000), strategy, max_size=3)


refs = st.builds(
    lambda file, epoch, start, width, rows: SegmentRef(file, epoch, start, start + width, 0, 128, rows, rows * 9),
    *(names, counts, st.integers(0, 60), st.integers(1, 60), counts),
)
types = st.sampled_from([Types.LONG(), Types.STRING(), Types.ROW_NAMED(["a"], [Types.DOUBLE()])])
saved = st.builds(
    SavedAs,
    *(counts, counts, types, st.sampled_from(["value", "list", "map"]), names),
    map_key=maybe(st.just("STRING")),
    version=maybe(counts),
    ttl_ms=maybe(counts),
    renames=by_name(names),
    upgrade=maybe(names),
)
tables = st.builds(
    StoredTables,
    by_name(st.lists(refs, max_size=2).map(tuple)),
    by_name(st.lists(saved, min_size=1, max_size=2).map(tuple)),
)
entries = st.builds(
    lambda inline, file, **more: ListEntry(**more, inline=inline if file is None else None, file=file),
    inline=names,
    file=maybe(names),
    mode=st.sampled_from(["split", "union", "broadcast"]),
    type=names,
    items=counts,
    bytes=counts,
    sha256=names,
    schema=st.builds(ListSchema, maybe(st.just("LONG")), maybe(counts), maybe(st.just({"list": "LONG"}))),
)
windows = st.tuples(counts, counts, counts, maybe(counts))
queryables = st.builds(
    Queryable, names, st.sampled_from(["value", "window"]), st.just("STRING"), st.just("LONG"), merges=st.booleans()
)
times = st.builds(EventTimeState, numbers, maybe(counts), st.booleans(), own_json)
subtasks = st.builds(
    SubtaskAccount,
    *(maybe(tables), maybe(tables), by_name(counts), by_name(counts), counts, by_name(queryables), maybe(numbers)),
    *(maybe(windows), maybe(windows), maybe(st.tuples(counts, counts)), maybe(numbers), maybe(times)),
    *(maybe(st.builds(LoopTail, counts, names, maybe(entries))), maybe(st.booleans())),
    by_clock=maybe(st.booleans()),
)
functions = st.builds(FunctionAccount, counts, names, counts, by_name(entries), maybe(st.booleans()))
recorded_files = st.lists(st.builds(RecordedFile, names, counts, counts), max_size=2).map(tuple)
accounts = st.builds(
    OperatorAccount,
    *(maybe(numbers), st.lists(numbers, max_size=3).map(tuple), by_subtask(subtasks), by_subtask(functions)),
    by_name(st.builds(SplitAccount, maybe(counts), maybe(counts), st.booleans(), own_json)),
    *(counts, maybe(counts), maybe(by_name(st.builds(RecordedSplit, recorded_files, counts, counts, maybe(numbers))))),
    own_json,
    by_time=st.booleans(),
)


@given(accounts)
def test_what_is_written_is_read_as_its_equal(account: OperatorAccount) -> None:
    written = json.loads(json.dumps(to_json(account)))
    again = AccountReader().operator(written, "count")
    assert again == account
    assert json.loads(json.dumps(to_json(again))) == written


def test_what_says_nothing_is_left_out_and_an_empty_version_is_not() -> None:
    assert to_json(OperatorAccount()) == {}
    assert to_json(SubtaskAccount()) == {}
    assert to_json(SubtaskAccount(tables=StoredTables({}), holds=False)) == {"tables": {}, "holds": False}
    assert to_json(SubtaskAccount(broadcast=StoredTables({}))) == {"broadcast": {}}
    assert to_json(SubtaskAccount(time=EventTimeState())) == {"watermark": -(2**63)}
    assert to_json(OperatorAccount(recorded={})) == {"recorded": {}}


# --- damage -------------------------------------------------------------------------------------------------------

REF = SegmentRef("f", 1, 0, 9, 0, 9, 1, 1)
HISTORY = {"since": 1, "since_ms": 0, "type": "LONG", "shape": "value", "key": "string"}
ODD_FIELDS: dict[str, list[Any]] = {
    "since": ["1", 1.0, [], None],
    "since_ms": [True, 2**63],
    "type": [1, None, [], {}, {"row": [["", "LONG"]] * 2}, {"list": 7}],
    "shape": [None, 1, []],
    "key": [None, 1],
    "version": ["1", []],
    "ttl_ms": ["1", False],
    "renames": [[], {"a": 1}, "ab"],
    "defaults": [1, {"a": 1}, "?", {"a": "AAAA"}],
    "upgrade": [1, []],
    "of tomorrow": [1],
}


@pytest.mark.parametrize(
    ("written", "field", "expected"),
    [
        ({"watermark": "late"}, "'watermark' is 'late'", "a whole number"),
        ({"watermark": True}, "'watermark' is True", "a whole number"),
        ({"waterline": 7}, "'waterline' is 7", "one of the fields watermark, "),
        ({"event_times": 7}, "'event_times' is 7", "a list"),
        ({"subtasks": [{}]}, "'subtasks' is [{}]", "a JSON object"),
        ({"subtasks": {"zero": {}}}, "'subtasks.zero' is 'zero'", "a number"),
        ({"subtasks": {"3": {"wake_ms": []}}}, "'subtasks.3.wake_ms' is []", "a whole number"),
        ({"subtasks": {"3": {"pane_ms": [1]}}}, "'subtasks.3.pane_ms' is [1]", "a list of 2"),
        ({"subtasks": {"3": {"tables": 1}}}, "'subtasks.3.tables' is 1", "a JSON object"),
        ({"subtasks": {"3": {"tables": {"total": 1}}}}, "state 'total' of 'count'", "a list"),
        ({"subtasks": {"3": {"tables": {"total": [{}]}}}}, "state 'total' of 'count'", "the fields file, epoch"),
        ({"subtasks": {"3": {"schemas": {"total": [{}]}}}}, "state 'total' of 'count'", "cannot read"),
        ({"subtasks": {"3": {"queryable": {"totals": {}}}}}, "'subtasks.3.queryable.totals' is {}", "all fields"),
        ({"subtasks": {"3": {"records": 1}}}, "'subtasks.3' is {'records': 1}", "all fields of it"),
        ({"functions": {"0": {"lists": {}}}}, "'functions.0' is {'lists': {}}", "all fields of it"),
        ({"functions": {"0": {"lists": {"seen": {"mode": "own"}}}}}, "'functions.0.lists.seen.mode' is 'own'", "split"),
        ({"recorded": {"0": {"files": [{"file": 1}]}}}, "'recorded.0.files.file' is 1", "a string"),
        ([], "'' is []", "a JSON object"),
        ({"watermark": 2**63}, "'watermark' is 9223372036854775808", "a whole number"),
        ({"subtasks": {"9" * 5_000: {}}}, "'subtasks.999", "a number"),
        ({"subtasks": {"00": {}}}, "'subtasks.00' is '00'", "a number"),
        *(
            ({"subtasks": {"3": {"tables": {"total": [{**vars(REF), name: odd}]}}}}, "state 'total' of 'count'", name)
            for name in vars(REF)
            for odd in ([], 1.0 if name != "file" else 1, True, None, 2**64, "7" if name != "file" else {})
        ),
        *(
            (
                {"subtasks": {"3": {"schemas": {"total": [{**HISTORY, name: odd}]}}}},
                "state 'total' of 'count'",
                "another",
            )
            for name, odds in ODD_FIELDS.items()
            for odd in odds
        ),
    ],
)
def test_a_damaged_account_names_the_operator_and_the_field(written: Any, field: str, expected: str) -> None:
    manifest = Manifest(job="j", job_id="j1", epoch=1, parent=0, created_ms=0, run="a", states={"count": written})
    with pytest.raises(StoreDamagedError) as caught:
        accounts_of(manifest)
    assert field in caught.value.message and expected in caught.value.message
    assert "'count'" in caught.value.message


def test_long_values_are_cut() -> None:
    with pytest.raises(StoreDamagedError, match=r"'wake_ms' is 'x{199}…, expected"):
        AccountReader().subtask({"wake_ms": "x" * 10_000}, "count")


def test_accounts_are_read_once_per_manifest_and_equal_schemas_once_per_reading() -> None:
    history = (SavedAs(1, 0, Types.LONG(), "value", "string"),)
    account = SubtaskAccount(tables=StoredTables({"total": (REF,)}, {"total": history}))
    states = {"count": to_json(OperatorAccount(subtasks={0: account, 1: account}))}
    manifest = Manifest(job="j", job_id="j1", epoch=1, parent=0, created_ms=0, run="a", states=states)
    both = accounts_of(manifest)["count"].subtasks
    assert accounts_of(manifest)["count"].subtasks is both
    assert both == {0: account, 1: account}
    assert both[0].tables is not None and both[1].tables is not None
    assert both[0].tables.schemas["total"] is both[1].tables.schemas["total"]
