"""`'connector' = 'nexmark'`: the columns event_type, person, auction and bid.

A definition names the columns it wants, and the fields of the rows person, auction and bid, in any order;
other columns are not generated. With 'events.num' the table is bounded and read at full speed. Otherwise events arrive
at the 'next-event.rate'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millstream.connectors.program_sources import ColumnGeneratorSource
from millstream.connectors.tables.factory import TableDefinition, TableFactory, TableOption, TableSource
from millstream.connectors.tables.nexmark.columns import KINDS
from millstream.connectors.tables.nexmark.events import EventRules
from millstream.connectors.tables.options import TableOptions
from millstream.connectors.tables.random_numbers import Int64s
from millstream.errors import ProgramError, did_you_mean
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowField, RowType
from millstream.expressions.row_expressions import RowExpression
from millstream.expressions.types import IntType
from millstream.records.table_type import TableRowType

__all__ = ["NexmarkEvents", "NexmarkFactory"]

_EVENT_TYPE = "event_type"


class NexmarkFactory(TableFactory):
    """People, auctions and bids, unbounded or a fixed number."""

    name = "nexmark"
    options = (
        TableOption("events.num", "number of events; 0: unbounded", default="0"),
        TableOption("first-event.rate", "events per second of event time", default="10000"),
        TableOption("next-event.rate", "events per second, if unbounded", default="10000"),
        TableOption("person.proportion", "people per round", default="1"),
        TableOption("auction.proportion", "auctions per round", default="3"),
        TableOption("bid.proportion", "bids per round", default="46"),
        TableOption("base-time", "time of the first event, in ms since 1970", default="1436918400000"),
    )

    def prunes_fields(self, options: Mapping[str, str]) -> bool:
        return True

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        options = TableOptions(table.name, table.options, self.options)
        fields = table.physical.fields
        for field in fields:
            _check_field(table.name, field)
        chosen = tuple(range(len(fields)) if columns is None else columns)
        row_type = RowType([fields[at] for at in chosen], nullable=False)
        count = self._whole(options, "events.num", 0)
        source = ColumnGeneratorSource(
            NexmarkEvents(row_type, self._rules(options)),
            count=count or None,
            rate_per_second=None if count else self._whole(options, "next-event.rate", 1),
            type_info=TableRowType(row_type),
        )
        return TableSource(source, columns=chosen, bounded=count > 0)

    def _rules(self, options: TableOptions) -> EventRules:
        return EventRules(
            self._whole(options, "person.proportion", 1),
            self._whole(options, "auction.proportion", 1),
            self._whole(options, "bid.proportion", 0),
            self._whole(options, "first-event.rate", 1),
            self._whole(options, "base-time", 0),
        )

    def _whole(self, options: TableOptions, name: str, least: int) -> int:
        value = options.integer(name)
        if value is None or value < least:
            raise options.wrong(name, f"a whole number of at least {least}")
        return value


def _check_field(table: str, field: RowField) -> None:
    known = {_EVENT_TYPE, *KINDS}
    if field.name not in known:
        raise ProgramError(
            f"table {table!r}: nexmark has no column {field.name!r}.{did_you_mean(field.name, known)} Its columns: "
            f"{', '.join(sorted(known))}"
        )
    if field.name == _EVENT_TYPE:
        _check_type(table, field.name, field.data_type, IntType())
        return
    if not isinstance(field.data_type, RowType):
        raise ProgramError(f"table {table!r}: column {field.name!r} of nexmark is a ROW, not {field.data_type}")
    for inner in field.data_type.fields:
        if inner.name not in KINDS[field.name]:
            raise ProgramError(
                f"table {table!r}: {field.name!r} of nexmark has no field {inner.name!r}."
                f"{did_you_mean(inner.name, KINDS[field.name])} Its fields: {', '.join(KINDS[field.name])}"
            )
        _check_type(table, f"{field.name}.{inner.name}", inner.data_type, KINDS[field.name][inner.name][0])


def _check_type(table: str, name: str, declared: DataType, computed: DataType) -> None:
    if not declared.is_like(computed):
        raise ProgramError(f"table {table!r}: {name!r} of nexmark is {computed}, but the table declares {declared}")


@dataclass(frozen=True)
class NexmarkEvents:
    """Computes the columns of a row type for any events, by their numbers."""

    row_type: RowType
    rules: EventRules

    def __call__(self, numbers: Int64s) -> pa.RecordBatch:
        kinds = self.rules.kinds(numbers)
        columns = [
            pa.array(kinds.astype(np.int32))
            if field.name == _EVENT_TYPE
            else self._rows(field, numbers, kinds == list(KINDS).index(field.name))
            for field in self.row_type.fields
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.row_type.schema)

    def _rows(self, field: RowField, numbers: Int64s, is_kind: np.ndarray) -> pa.Array:
        """A column of rows, NULL for events of other kinds. Values are computed for events of its own kind only."""
        assert isinstance(field.data_type, RowType)
        computed = [self._column(field.name, inner.name, numbers[is_kind]) for inner in field.data_type.fields]
        # Row i of the result is row place[i] of the computed ones, or NULL for another kind.
        place = np.cumsum(is_kind) - 1
        positions = pa.array(place, mask=~is_kind)
        spread = [column.take(positions) for column in computed]
        return pa.StructArray.from_arrays(spread, type=field.data_type.arrow, mask=pa.array(~is_kind))

    def _column(self, kind: str, name: str, numbers: Int64s) -> pa.Array:
        return KINDS[kind][name][1](self.rules, numbers)
