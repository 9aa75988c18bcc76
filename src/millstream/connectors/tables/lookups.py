"""Lookup tables: the right side of a lookup join, looked up by key as rows arrive.

A `LookupSource` is queried for many keys at once. A source that `is_whole` is small: it returns all its rows, which are
cached and reloaded at an interval. For other sources `LookupSettings` defines the cache, its expiry and the retries,
from options that all these connectors share.

A third-party connector is a `TableFactory` whose `lookup` returns a source, or a function with `'connector' =
'python'`.
"""

from __future__ import annotations

import importlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millstream.connectors.contracts import Source, SourceContext
from millstream.connectors.tables.factory import TableDefinition, TableFactory, TableOption
from millstream.connectors.tables.options import TableOptions
from millstream.errors import ProgramError
from millstream.expressions.nested_types import RowType
from millstream.records.batch import Batch
from millstream.storage.memory import MemoryStore

__all__ = [
    "LOOKUP_OPTIONS",
    "LookupSettings",
    "LookupSource",
    "PythonFactory",
    "TableLookup",
    "WholeTable",
    "lookup_settings",
]

_RELOAD = "lookup.full-cache.periodic-reload.interval"
LOOKUP_OPTIONS = (
    TableOption("lookup.cache", "NONE, PARTIAL (rows of requested keys) or FULL (the whole table)", default="NONE"),
    TableOption("lookup.partial-cache.max-rows", "maximum number of cached rows", default="10000"),
    TableOption("lookup.partial-cache.expire-after-write", "how long a row is cached"),
    TableOption("lookup.partial-cache.expire-after-access", "how long an unused row is cached"),
    TableOption("lookup.partial-cache.cache-missing-key", "whether keys without rows are cached, too", default="true"),
    TableOption(_RELOAD, "reload interval of a whole table; default: never"),
    TableOption("lookup.max-retries", "how often a failed request is retried", default="3"),
    TableOption("lookup.async", "accepted as in Flink; requests are concurrent", default="true"),
    TableOption("lookup.requests", "number of concurrent requests", default="4"),
    TableOption("lookup.request-keys", "number of keys per request", default="500"),
)


@dataclass(frozen=True)
class LookupSettings:
    """Cache limits and request limits. `miss_attempts`: how often a key without rows is requested."""

    cache: str = "NONE"
    rows_max: int = 10_000
    write_ms: int | None = None
    access_ms: int | None = None
    keeps_missing: bool = True
    reload_ms: int | None = None
    retries_max: int = 3
    requests: int = 4
    request_keys: int = 500
    miss_attempts: int = 1
    miss_pause_ms: int = 0


def lookup_settings(options: TableOptions) -> LookupSettings:
    """The settings from a table's options."""
    return LookupSettings(
        cache=str(options.choice("lookup.cache", ("NONE", "PARTIAL", "FULL"))),
        rows_max=options.integer("lookup.partial-cache.max-rows") or 0,
        write_ms=options.duration_ms("lookup.partial-cache.expire-after-write"),
        access_ms=options.duration_ms("lookup.partial-cache.expire-after-access"),
        keeps_missing=bool(options.boolean("lookup.partial-cache.cache-missing-key")),
        reload_ms=options.duration_ms(_RELOAD),
        retries_max=options.integer("lookup.max-retries") or 0,
        requests=max(1, options.integer("lookup.requests") or 1),
        request_keys=max(1, options.integer("lookup.request-keys") or 1),
    )


class LookupSource(ABC):
    """Rows of a table, by key. Pickled and sent to the tasks, opened there, and used by several threads."""

    is_whole: bool = False
    """Whether `rows` always returns the whole, small table."""

    @abstractmethod
    def rows(self, keys: pa.RecordBatch | None) -> pa.RecordBatch:
        """All rows with one of these distinct keys; None: all rows. May include rows of other keys.
        An error other than `MillstreamError` counts as transient."""

    def close(self) -> None:
        """Release resources; no further calls follow."""


@dataclass(frozen=True)
class TableLookup:
    """A lookup table with these columns."""

    source: LookupSource
    row_type: RowType
    settings: LookupSettings = field(default_factory=LookupSettings)


class WholeTable(LookupSource):
    """All rows of a bounded source."""

    is_whole = True

    def __init__(self, source: Source, row_type: RowType) -> None:
        self._source, self._schema = source, row_type.schema

    def rows(self, keys: pa.RecordBatch | None) -> pa.RecordBatch:
        source = self._source.opened(MemoryStore(f"lookup-{secrets.token_hex(8)}"), None)
        context = SourceContext(now_ms=0, run_started_ms=0, parallelism=1)
        batches: list[pa.RecordBatch] = []
        try:
            for split in source.splits(context):
                offset = split.start
                while not source.finished(split, offset):
                    stop = source.reach(split, offset, 1 << 20, context)
                    reading = source.read(split, offset, stop)
                    while True:
                        try:
                            item = next(reading)
                        except StopIteration as end:
                            offset = stop if end.value is None else end.value
                            break
                        batches.append(item.columns() if isinstance(item, Batch) else item)
        finally:
            source.close()
        whole = pa.Table.from_batches([each.cast(self._schema) for each in batches], self._schema)
        # Combining a table would split a column with too much text into several pieces: this raises instead.
        return pa.concat_batches(whole.to_batches()) if whole.num_rows else _no_rows(self._schema)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


class PythonFactory(TableFactory):
    """Rows returned by a function of the program for keys."""

    name = "python"
    options = (
        TableOption(
            "function",
            "module:function. It receives the keys as a pyarrow RecordBatch, and returns rows: a RecordBatch, or a "
            "list of dicts",
            required=True,
        ),
        *LOOKUP_OPTIONS,
    )

    def lookup(self, table: TableDefinition, columns: Sequence[int], keys: Sequence[int]) -> TableLookup:
        options = TableOptions(table.name, table.options, self.options)
        row_type = RowType([table.physical.fields[at] for at in columns], nullable=False)
        place = str(options.text("function"))
        _function(place, table.name)
        return TableLookup(_PythonRows(place, row_type, table.name), row_type, lookup_settings(options))


class _PythonRows(LookupSource):
    def __init__(self, place: str, row_type: RowType, table: str) -> None:
        self._place, self._row_type, self._table = place, row_type, table

    def rows(self, keys: pa.RecordBatch | None) -> pa.RecordBatch:
        answer: Any = _function(self._place, self._table)(keys)
        schema = self._row_type.schema
        if isinstance(answer, pa.RecordBatch | pa.Table):
            arrays = [answer.column(name) for name in schema.names]
            whole = [each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each for each in arrays]
            return pa.RecordBatch.from_arrays(
                [each.cast(kind) for each, kind in zip(whole, schema.types, strict=True)], schema=schema
            )
        rows = list(answer)
        arrays = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _function(place: str, table: str) -> Callable[[Any], Any]:
    module, _, name = place.partition(":")
    try:
        function: Callable[[Any], Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ProgramError(
            f"table {table!r}: option 'function' is {place!r}, expected module:function of an importable function "
            f"({error})"
        ) from None
    assert callable(function)
    return function
