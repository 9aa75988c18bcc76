"""The schema of one state in a task: its history, its declaration, and the conversion between them.

When an epoch begins, the table's history (`state.schemas.schema_history`) is the history of the last manifest plus the
program's declaration, if that is new. Incompatible declarations are rejected here, before the epoch does any work. At
the end, the entries that segments need are written to the operator's account next to the versions.

Values converted by user functions are decoded with their old type, converted by one change after the other, and encoded
with the current type, once per chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa

from millstream.errors import PickledValueError, StateSchemaError
from millstream.state.schemas.evolution import Evolution, IncompatibleChange
from millstream.state.schemas.history_repair import covering, entry_of_file
from millstream.state.schemas.past import Converter, Past, projected
from millstream.state.schemas.ready_upgrades import ready_upgrade, shown_upgrade
from millstream.state.schemas.saved_types import shown_types, written_type
from millstream.state.schemas.schema_history import (
    History,
    SavedAs,
    entry_at,
    extended,
    joined,
    refused,
    still_needed,
    upgrade_from,
    with_data_defaults,
)
from millstream.state.schemas.stored_defaults import PickledDefaults
from millstream.state.segments.segment import layout_document
from millstream.state.segments.version import Refs, SegmentRef
from millstream.state.stored.accounts import StoredTables, SubtaskAccount, tables_of
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.layout import TableLayout

__all__ = ["TableSchema", "ValueChanges", "last_schemas", "stored_tables", "with_shared_schemas"]

_VALUE_CHARACTERS_MAX = 200


def last_schemas(tables: Iterable[StoredTables | None]) -> dict[str, History]:
    """The history of every state by name, from the tables in each subtask's last account."""
    distinct: dict[str, dict[int, History]] = {}  # by identity: most subtasks share one object
    for several in tables:
        for name, history in ({} if several is None else several.schemas).items():
            distinct.setdefault(name, {})[id(history)] = history
    return {name: reduce(joined, histories.values()) for name, histories in distinct.items()}


def with_shared_schemas(accounts: Mapping[int, SubtaskAccount]) -> Mapping[int, SubtaskAccount]:
    """The subtasks' accounts of an operator, each with the merged history of every state.

    So a state changes for all its keys at once, when the first record of any key uses it, and the conversion of its
    values depends neither on the subtask nor on compaction. Subtasks without rows get the histories too: the entry of a
    change records how older rows are converted, and older rows may be reassigned to this subtask.
    """
    shared = last_schemas(tables_of(accounts))
    return {subtask: _with_schemas(account, shared) for subtask, account in accounts.items()} if shared else accounts


def _with_schemas(account: SubtaskAccount, schemas: Mapping[str, History]) -> SubtaskAccount:
    if account.tables is None or account.tables.schemas == schemas:
        return account
    return replace(account, tables=StoredTables(account.tables.versions, schemas))


def stored_tables(
    versions: Mapping[str, Refs], before: Mapping[str, History], schemas: Mapping[str, TableSchema | None]
) -> StoredTables:
    """The account of these tables, if they have rows: their segments and schema histories. Histories of states that the
    program has not declared (yet) are copied from `before`."""
    histories = {**before, **{name: schema.history for name, schema in schemas.items() if schema is not None}}
    return StoredTables(
        {name: refs for name, refs in versions.items() if refs},
        {
            name: still_needed(history, [ref.epoch for ref in versions[name]])
            for name, history in histories.items()
            if versions.get(name) and history
        },
    )


@dataclass(frozen=True)
class ValueChanges:
    """Conversion of one state's values to the current schema. `evolution` is None without a descriptor; `map_key` is
    the written type of a map's keys."""

    codec: StateCodec
    evolution: Evolution | None
    map_key: Any = None

    @property
    def what(self) -> str:
        return self.codec.what

    def function(self, history: History, at: int) -> Callable[[Any], Any] | None:
        """The function that converts values of `history[at]` to the next entry: the program's or, if there is no
        program or no declared function, the Python built-in that the history names."""
        return self._function_of_program(history, at) or ready_upgrade(history[at + 1].upgrade)

    def _function_of_program(self, history: History, at: int) -> Callable[[Any], Any] | None:
        if self.evolution is None:
            return None
        named = upgrade_from(self.evolution, history[at])
        if named is not None or not callable(self.evolution.upgrade):
            return named
        # An untyped function belongs to the newest change that had a function.
        newest = max(number for number, entry in enumerate(history) if entry.upgrade is not None)
        return self.evolution.upgrade if newest == at + 1 else None

    def check_functions(self, history: History, start: int) -> None:
        """Reject the history if values of `history[start]` need a function that the program no longer has."""
        for at in range(start, len(history) - 1):
            if history[at + 1].upgrade is not None and self.function(history, at) is None:
                was, _ = shown_types(history[at].type, history[at + 1].type)
                raise StateSchemaError(
                    f"{self.what} still has values saved as {was}, for which "
                    f"upgrade={shown_upgrade(history[at + 1].upgrade)} was "
                    "given, and the program has it no more. Give it again, by the type it is from: "
                    "upgrade={Types.LONG(): function, ...}. It is needed until compaction has rewritten them all."
                )

    def converter(self, history: History, start: int) -> Converter:
        """A converter from values saved as `history[start]` to current values. It is built with the first values, so
        readers that do not read values are not affected by data that only tasks may read."""
        return _LateConverter(self, history, start)

    def made_converter(self, history: History, start: int) -> Converter:
        """As `converter`, built at once; PickledValueError if defaults are pickled and the codec refuses pickles."""
        self.check_functions(history, start)
        steps: list[Callable[[_Held], _Held]] = []
        for at in range(start, len(history) - 1):
            if history[at + 1].upgrade is not None:
                steps.append(self._upgrading(history, at))
            elif written_type(history[at].type) != written_type(history[at + 1].type):
                self._check_defaults(history[at + 1])
                steps.append(self._projecting(projected(history, at), history[at + 1]))

        def convert(column: pa.Array) -> pa.Array:
            held = _Held(history[start], column)
            for step in steps:
                held = step(held)
            last = history[-1]
            if held.column is not None and held.saved.version == last.version:
                return held.column
            return self.codec.encode(self._values(held))

        return convert

    def _check_defaults(self, saved: SavedAs) -> None:
        """Reject pickled defaults: only tasks may open them, and have converted them."""
        if isinstance(saved.defaults, PickledDefaults):
            raise PickledValueError(
                f"{self.what} has values from before epoch {saved.since}, when it got a new field with a default. "
                "Default not shown: an older Millstream stored it as a pickle. Opening a pickle runs code that is in "
                "it, so only the job does. Let the job commit an epoch with this Millstream, which stores it as data"
            )

    def _projecting(self, projected: Converter, new: SavedAs) -> Callable[[_Held], _Held]:
        def step(held: _Held) -> _Held:
            column = held.column
            if column is None:
                column = StateCodec(held.saved.type, self.what).encode(held.values)
            return _Held(new, projected(column))

        return step

    def _upgrading(self, history: History, at: int) -> Callable[[_Held], _Held]:
        function, new = self.function(history, at), history[at + 1]

        def step(held: _Held) -> _Held:
            assert function is not None  # ensured by `check_functions`
            return _Held(new, None, [self._upgraded(function, held.saved, value) for value in self._values(held)])

        return step

    def _upgraded(self, function: Callable[[Any], Any], saved: SavedAs, value: Any) -> Any:
        if value is None:
            return None
        try:
            return function(value)
        except Exception as error:
            was, _ = shown_types(saved.type, saved.type)
            raise StateSchemaError(
                f"{self.what}: upgrade= raised {type(error).__name__}: {error}; the value is {_shown(value)}, saved as "
                f"{was}. Let it take every value that was saved. Nothing was changed."
            ) from error

    def _values(self, held: _Held) -> list[Any]:
        if held.column is None:
            return held.values
        if held.saved.version is None:
            return self._codec_of(held.saved).decode(held.column)
        return self._reader(held.saved).decode(held.column, held.saved.version)

    def _reader(self, saved: SavedAs) -> StateCodec:
        """The codec with the serialiser that reads values of an older version, or of a retired serialiser."""
        if self.codec.version is not None:
            return self.codec
        upgrade = self.evolution.upgrade if self.evolution is not None else None
        upgrades = upgrade if isinstance(upgrade, Mapping) else {}
        serializer = next((old for old in upgrades if hasattr(old, "deserialize")), None)
        assert serializer is not None  # plain functions are rejected for serialised values
        return StateCodec(None, self.what, serializer)

    def _codec_of(self, saved: SavedAs) -> StateCodec:
        """The codec of an older type, with the unpickling rights of the current one."""
        return StateCodec(saved.type, self.what, open_pickle=self.codec.open_pickle)

    def column(self, column: pa.Array, saved: SavedAs, now: SavedAs) -> pa.Array:
        """Converts a saved column in one step: for state that is rewritten whole in every epoch."""
        history = extended((saved,), now, self.evolution, self.what)
        if len(history) == 1:
            return column
        self.check_functions(history, 0)
        return self.converter(history, 0)(column)


@dataclass(frozen=True)
class _Held:
    """Values under conversion: a column in the form of `saved`, or Python values."""

    saved: SavedAs
    column: pa.Array | None
    values: list[Any] = field(default_factory=list)


class TableSchema:
    """The schema of one table. `evolves` is False for tables whose operator cannot handle missing fields."""

    def __init__(
        self,
        codec: StateCodec,
        *,
        shape: str,
        map_key: StateCodec | None = None,
        ttl_ms: int | None = None,
        evolution: Evolution | None = None,
        evolves: bool = True,
    ) -> None:
        self._changes = ValueChanges(codec, evolution)
        self._shape, self._map_key, self._ttl_ms, self._evolves = shape, map_key, ttl_ms, evolves
        self.history: History = ()
        self._past: Past | None = None

    def opened(self, layout: TableLayout, refs: Sequence[SegmentRef], place: Any) -> TableLayout:
        """The layout for reading these segments in this epoch."""
        history = self._with_now(layout, refs, place)
        oldest = min((ref.epoch for ref in refs), default=place.epoch)
        self._changes.check_functions(history, entry_at(history, oldest))
        if history != self.history:
            self.history = history
            self._past = self._made_past() if len(history) > 1 else None
        return layout if layout.past is self._past else replace(layout, past=self._past)

    @property
    def upgraded_since(self) -> int:
        """The first epoch from which values are readable without a function; 0 if no function was ever needed."""
        return max((entry.since for entry in self.history[1:] if entry.upgrade is not None), default=0)

    def _made_past(self) -> Past:
        converters = [self._changes.converter(self.history, at) for at in range(len(self.history) - 1)]
        return Past(self._changes.what, self.history, converters)

    def _with_now(self, layout: TableLayout, refs: Sequence[SegmentRef], place: Any) -> History:
        """The history of the table with the current declaration, even if all its rows are in other subtasks."""
        now, what, evolution = self._declared(layout, place), self._changes.what, self._changes.evolution
        stored = with_data_defaults(place.schemas.get(layout.state, ()), self._changes.codec.open_pickle)
        if not stored and not refs:
            return (now,)
        if not stored:
            # Manifests of the first versions have no history: all segments have the same schema.
            stored = (entry_of_file(self._stored_layout(layout, refs[0], place), now, what),)
        elif min((ref.epoch for ref in refs), default=stored[0].since) < stored[0].since:
            stored = covering(stored, refs, lambda ref: self._stored_layout(layout, ref, place), evolution, what)
        history = extended(stored, now, evolution, what)
        if not self._evolves and len(history) > len(stored):
            raise refused(what, _misfit(stored[-1], now), has_descriptor=False)
        return history

    def _declared(self, layout: TableLayout, place: Any) -> SavedAs:
        codec = self._changes.codec
        return SavedAs(
            since=place.epoch,
            since_ms=place.now_ms,
            type=codec.saved_type,
            shape=self._shape,
            key=layout_document(layout)["key"],
            map_key=None if self._map_key is None else written_type(self._map_key.saved_type),
            version=codec.version,
            ttl_ms=self._ttl_ms,
        )

    def _stored_layout(self, layout: TableLayout, ref: SegmentRef, place: Any) -> TableLayout:
        """The layout of a segment from its file; StateSchemaError if its key types differ from the declaration."""
        stored: TableLayout = place.segments.stored_layout(ref, layout.state)
        saved, declared = layout_document(stored), layout_document(layout)
        for part in ("key", "sub", "due", "max_parallelism"):
            if saved[part] != declared[part]:
                raise StateSchemaError(
                    f"{self._changes.what} was saved with {part} {saved[part]}, is now {declared[part]}. "
                    "Declare it as it was, or give it a new name."
                )
        return stored


def _misfit(was: SavedAs, now: SavedAs) -> IncompatibleChange:
    """The error for a change of a state that does not support evolution."""
    if written_type(was.type) != written_type(now.type) or (was.ttl_ms is None) == (now.ttl_ms is None):
        was_type, is_now = shown_types(was.type, now.type)
        return IncompatibleChange(f" was saved as {was_type}, is now {is_now}", "")
    lifetimes = (
        "forever" if ttl_ms is None else f"for {ttl_ms} ms of the clock" for ttl_ms in (was.ttl_ms, now.ttl_ms)
    )
    return IncompatibleChange(" was retained {}, and is now to be retained {}".format(*lifetimes), "")


@dataclass
class _LateConverter:
    """A converter that is built on first use. It is shipped to Spark's tasks with a reader's row source."""

    changes: ValueChanges
    history: History
    start: int
    _made: Converter | None = None

    def __call__(self, column: pa.Array) -> pa.Array:
        if self._made is None:
            self._made = self.changes.made_converter(self.history, self.start)
        return self._made(column)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr() raised {type(error).__name__}>"
    return text if len(text) <= _VALUE_CHARACTERS_MAX else text[:_VALUE_CHARACTERS_MAX] + "…"
