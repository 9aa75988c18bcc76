"""Schema histories of states that subtasks register at different times: random runs compared with a plain
dictionary.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.common import Types
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.jobs.epochs.rounds import next_round
from millstream.runtime.keyed.declared_states import task_codec
from millstream.runtime.task.spec import EpochSpec
from millstream.state.keys.key_columns import key_column, key_group_range
from millstream.state.schemas.evolution import Evolution
from millstream.state.schemas.schema_history import history_from_json, history_to_json, joined
from millstream.state.schemas.state_schemas import last_schemas, stored_tables, with_shared_schemas
from millstream.state.segments.compaction import plan_full_compaction
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.segment_merge import compact
from millstream.state.segments.version import Refs
from millstream.state.stored.accounts import AccountReader, StoredTables, SubtaskAccount, tables_of, to_json
from millstream.state.tables.state_table import StateTable, TableSetting, last_versions
from millstream.storage.memory import MemoryStore

_STORES = itertools.count()
KEYS = "abcdefgh"


def as_text(value: int) -> str:
    return f"{value}."


def as_number(value: str) -> int:
    return int(value.rstrip(".")) + 100 * value.count(".")


@dataclass(frozen=True)
class Form:
    """How a program declares the state: as strings or numbers, with or without a TTL."""

    is_text: bool
    expires: bool

    def values(self, epoch: int, keys: str) -> dict[str, Any]:
        """The values that an epoch writes to keys."""
        numbers = {key: 10_000 * epoch + ord(key) for key in keys}
        return {key: str(number) if self.is_text else number for key, number in numbers.items()}


@dataclass(frozen=True)
class Epoch:
    """The keys whose records use the state, and the subtasks that rewrite all their rows."""

    requested_keys: str
    whole: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Run:
    """A run of the program on the store of the previous run."""

    form: Form
    parallelism: int
    epochs: tuple[Epoch, ...]


class Operator:
    """The subtasks of one operator; each registers the state when a record of its keys uses it."""

    def __init__(self) -> None:
        self.segments = OpenSegments(MemoryStore(f"shared-{next(_STORES)}"))
        self.accounts: Mapping[int, SubtaskAccount] = {}
        self.epoch = 0

    def begin(self, run: Run) -> None:
        """Starts the program, with no state declared."""
        evolution = Evolution(upgrade={Types.INT(): as_text, Types.STRING(): as_number})
        kind, ttl_ms = Types.STRING() if run.form.is_text else Types.INT(), 10**12 if run.form.expires else None
        codec = task_codec(kind, "state 'total' of 'count'", None)
        self.tables = [
            StateTable("total", Types.STRING(), 128, codec, ttl_ms=ttl_ms, evolution=evolution)
            for _ in range(run.parallelism)
        ]

    def step(self, run: Run, epoch: Epoch) -> dict[str, Any]:
        """The values that an epoch reads for the keys that use the state, before it sets them."""
        self.epoch += 1
        shared = with_shared_schemas(self.accounts)
        owners = key_column(list(KEYS), Types.STRING()).partitions(run.parallelism, 128).tolist()
        read: dict[str, Any] = {}
        written: dict[int, Any] = {}
        for subtask, table in enumerate(self.tables):
            groups = key_group_range(subtask, run.parallelism, 128)
            tables = tables_of({subtask: shared[subtask]} if len(shared) == run.parallelism else shared)
            schemas, refs = last_schemas(tables), last_versions(tables, groups).get("total", ())
            keys = [
                key for key, owner in zip(KEYS, owners, strict=True) if owner == subtask and key in epoch.requested_keys
            ]
            if keys:
                nonce = f"n{self.epoch}s{subtask}"
                place = TableSetting("uid", self.epoch, 0, nonce, groups, self.epoch, self.segments, schemas=schemas)
                table.begin(place, refs)
                read.update(zip(keys, table.read(keys), strict=True))
                table.put(keys, list(run.form.values(self.epoch, "".join(keys)).values()))
                refs = self._rewritten(table, table.end(), nonce) if subtask in epoch.whole else table.end()
            stored = stored_tables({"total": refs}, schemas, {"total": table.schema} if keys else {})
            written[subtask] = to_json(SubtaskAccount(tables=stored))
        reader = AccountReader()
        self.accounts = {subtask: reader.subtask(account, "count") for subtask, account in written.items()}
        return read

    def _rewritten(self, table: StateTable, refs: Refs, nonce: str) -> Refs:
        step = plan_full_compaction(refs)
        if step is None:
            return refs
        name = f"segments/whole-{nonce}.arrow"
        return compact(self.segments, table.layout, refs, step, self.epoch, name=name, epoch=self.epoch)


class Reference:
    """The reference: one dictionary, rewritten as soon as any record uses the state in another form."""

    def __init__(self) -> None:
        self.is_text = False
        self.values: dict[str, Any] = {}

    def step(self, form: Form, number: int, requested_keys: str) -> dict[str, Any]:
        """The values that epoch `number` reads for the keys that use the state, before it sets them."""
        if requested_keys and self.is_text != form.is_text:
            convert: Any = as_text if form.is_text else as_number
            self.values = {key: convert(value) for key, value in self.values.items()}
            self.is_text = form.is_text
        read = {key: self.values.get(key) for key in requested_keys}
        self.values.update(form.values(number, requested_keys))
        return read


def history_entry(since: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"since": since, "since_ms": 0, "type": kind, "shape": "value", "key": "string", **more}


def joined_in_both_orders(left: list[Any], right: list[Any]) -> list[Any]:
    histories = [history_from_json(written, "state 'total'") for written in (left, right)]
    first, second = joined(*histories), joined(*reversed(histories))
    assert first == second
    return history_to_json(first)


def test_entries_of_one_change_merge_to_its_first_registration() -> None:
    old, early, late = history_entry(1, "INT"), history_entry(10, "LONG"), history_entry(500, "LONG")
    assert joined_in_both_orders([early], [old]) == [old, early]
    assert joined_in_both_orders([old, late], [early]) == [old, early]


def test_a_type_that_is_restored_is_a_new_entry() -> None:
    first, second, third = history_entry(1, "INT"), history_entry(10, "LONG"), history_entry(20, "INT", upgrade="int")
    assert joined_in_both_orders([first], [second, third]) == [first, second, third]


def test_a_ttl_of_another_length_is_not_a_change() -> None:
    early, late = history_entry(10, "LONG", ttl_ms=50), history_entry(20, "LONG", ttl_ms=70)
    assert joined_in_both_orders([history_entry(1, "LONG"), early], [late]) == [history_entry(1, "LONG"), early]


@pytest.mark.parametrize("explained", [{"upgrade": "to_text"}, {"renames": {"a": "b"}}], ids=["upgrade", "renames"])
def test_a_change_is_explained_by_a_subtask_with_older_rows(explained: dict[str, Any]) -> None:
    old, fresh, changed = history_entry(1, "INT"), history_entry(7, "STRING"), history_entry(10, "STRING", **explained)
    assert joined_in_both_orders([old, changed], [fresh]) == [old, fresh | explained]


def test_a_later_phase_of_an_epoch_shares_what_the_previous_one_registered() -> None:
    old, new = (
        history_from_json([entry], "state 'total'") for entry in (history_entry(1, "INT"), history_entry(10, "LONG"))
    )
    accounts = {
        number: SubtaskAccount(tables=StoredTables({}, {"total": known})) for number, known in enumerate((old, new))
    }
    accounts[2] = SubtaskAccount(tables=StoredTables({}))
    spec = EpochSpec(10, 0, 0, False, reads={}, floors={}, watermarks={}, states={})
    shared = next_round(spec, EpochOutcome(states={"count": accounts})).states["count"]
    assert [account.tables for account in shared.values()] == [StoredTables({}, {"total": old + new})] * 3


FORMS = st.builds(Form, st.booleans(), st.booleans())
EPOCHS = st.builds(Epoch, st.sets(st.sampled_from(KEYS), max_size=4).map("".join), st.frozensets(st.integers(0, 3)))
RUNS = st.builds(Run, FORMS, st.integers(1, 4), st.lists(EPOCHS, min_size=1, max_size=4).map(tuple))
NUMBER, TEXT = Form(False, False), Form(True, False)


@pytest.mark.slow
@given(st.lists(RUNS, min_size=2, max_size=5))
@example([Run(NUMBER, 2, (Epoch("ae"),)), Run(TEXT, 2, (Epoch("a"),)), Run(NUMBER, 2, (Epoch("e"), Epoch("ae")))])
@example([Run(NUMBER, 2, (Epoch("a"),)), Run(TEXT, 2, (Epoch("e"), Epoch("a")))])
@settings(deadline=None)
def test_values_read_do_not_depend_on_registration_order_compaction_or_parallelism(
    runs: list[Run],
) -> None:
    operator, reference = Operator(), Reference()
    for run in runs:
        operator.begin(run)
        for epoch in run.epochs:
            read = operator.step(run, epoch)
            assert read == reference.step(run.form, operator.epoch, epoch.requested_keys)
