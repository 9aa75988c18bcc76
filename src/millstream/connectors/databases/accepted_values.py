"""Checks values against the column types of a table, so that a bad value is refused before its epoch is committed.

    text            no NUL (PostgreSQL); no longer than varchar(n), except for trailing spaces; a UUID for a uuid
    whole numbers   within the column's type
    decimals        within its digits, after rounding to its scale
    floats          no NaN and no infinity (MySQL, and DECIMAL columns)
    JSON            no NaN and no infinity within a ROW, TUPLE or MAP, which become JSON (in MySQL a LIST, too)
    all types       no null in a NOT NULL column

These rules are cheap: Arrow checks whole columns. Only the database can check the others (a
constraint, a trigger, an enum, JSON), when the epoch is published; see `refused_by_database.py`. So every rule
here may accept a value that the table refuses, but never refuses one that it would accept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.databases.dialect import TableName, TableShape
from millstream.connectors.databases.postgres_session import quoted

__all__ = ["AcceptedValues", "RefusedValue", "accepted_values"]

_CHARACTERS = re.compile(r"(?:character varying|varchar|character|char)\((\d+)\)")
_DECIMAL = re.compile(r"(?:numeric|decimal)\((\d+),(\d+)\)( unsigned)?")
_INTEGER = re.compile(r"(tinyint|smallint|mediumint|int|integer|bigint)(?:\(\d+\))?( unsigned)?")
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64}
_UUID = r"^\{?[0-9a-fA-F]{4}(-?[0-9a-fA-F]{4}){7}\}?$"
_REAL_MOST = 3.4028235677973366e38


@dataclass(frozen=True)
class RefusedValue:
    """The value of `column` in this row is refused."""

    row: int
    column: str
    reason: str


@dataclass(frozen=True)
class AcceptedValues:
    """The rules of a table: its column types as the database writes them, as far as known, the NOT NULL columns, those
    without a default, and the computed columns."""

    kind: str
    types: Mapping[str, str] = field(default_factory=dict)
    needed: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    computed: frozenset[str] = frozenset()

    def missing(self, names: Sequence[str]) -> list[str]:
        """The names for which the table has no column."""
        return self._without(names, self.types)

    def omitted_columns(self, names: Sequence[str]) -> list[str]:
        """Required columns that are not among the names: every row would be refused."""
        return sorted(self._without(self.required, names))

    def computed_columns(self, names: Sequence[str]) -> list[str]:
        """The names of columns that the database computes and that cannot be written."""
        return [name for name in names if not self._without([name], self.computed)]

    def _without(self, names: Iterable[str], others: Iterable[str]) -> list[str]:
        """Names that are not among the others; MySQL ignores their case."""

        def folded(name: str) -> str:
            return name if self.kind == "postgresql" else name.casefold()

        known = set(map(folded, others))
        return [name for name in names if folded(name) not in known]

    def refused(self, columns: pa.RecordBatch, deletes: pa.Array | None = None) -> Iterator[RefusedValue]:
        """The values that would be refused, column by column. `deletes`: rows for which only the key is checked."""
        if not columns.num_rows:
            return
        put = None if deletes is None else pc.invert(deletes)
        for number, name in enumerate(columns.schema.names):
            for wrong, reason in self._rules(name, columns.column(number)):
                if put is not None and (self.kind != "postgresql" or reason == _NULL):
                    wrong = pc.and_(wrong, put)
                if pc.any(wrong).as_py():
                    rows = pc.indices_nonzero(pc.fill_null(wrong, False)).to_pylist()
                    yield from (RefusedValue(row, name, reason) for row in rows)

    def _rules(self, name: str, column: pa.Array) -> Iterator[tuple[pa.Array, str]]:
        """The rows of the column that break a rule, with the text of the rule."""
        if name in self.needed and column.null_count:
            yield column.is_null(), _NULL
        declared, kind = self.types.get(name, ""), column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            yield from self._text_rules(column, declared)
        elif pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            yield from _number_rules(column, declared)
        elif pa.types.is_floating(kind):
            yield from self._float_rules(column, declared)
        elif pa.types.is_nested(kind) and _holds_no_json(column, is_json=self.kind != "postgresql"):
            wrong = [
                _holds_no_json(column.slice(row, 1), is_json=self.kind != "postgresql") for row in range(len(column))
            ]
            yield pa.array(wrong), "a value with NaN or infinity, which JSON does not have"

    def _text_rules(self, column: pa.Array, declared: str) -> Iterator[tuple[pa.Array, str]]:
        if self.kind == "postgresql":
            if declared != "bytea":
                yield pc.match_substring(column, "\0"), "a string with the character NUL, which PostgreSQL lacks"
            if declared == "uuid":
                yield pc.invert(pc.match_substring_regex(column, _UUID)), "not a UUID, the column's type"
        match = _CHARACTERS.fullmatch(declared)
        if match:
            length = pc.utf8_length(pc.utf8_rtrim(column, " "))
            yield pc.greater(length, int(match[1])), f"longer than the column, which is {declared}"

    def _float_rules(self, column: pa.Array, declared: str) -> Iterator[tuple[pa.Array, str]]:
        is_finite = pc.is_finite(column)
        if self.kind != "postgresql":
            yield pc.invert(is_finite), "not a number or infinite, which MySQL does not support"
        elif _DECIMAL.fullmatch(declared):
            yield pc.is_inf(column), f"infinite, but the column is {declared}"
        if declared in ("real", "float"):
            yield (
                pc.and_(is_finite, pc.greater(pc.abs(column), _REAL_MOST)),
                f"outside of the column, which is {declared}",
            )


_NULL = "null, but the column is NOT NULL"


def _holds_no_json(column: pa.Array, *, is_json: bool) -> bool:
    """Finds NaN and infinite numbers nested in values that become JSON."""
    kind = column.type
    if pa.types.is_floating(kind):
        return is_json and bool(pc.any(pc.invert(pc.is_finite(column))).as_py())
    if pa.types.is_struct(kind):
        return any(_holds_no_json(part, is_json=True) for part in column.flatten())
    if pa.types.is_map(kind):
        first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
        return any(
            _holds_no_json(part.slice(first, last - first), is_json=True) for part in (column.keys, column.items)
        )
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return is_list and _holds_no_json(column.flatten(), is_json=is_json)


def _number_rules(column: pa.Array, declared: str) -> Iterator[tuple[pa.Array, str]]:
    bounds = _bounds(declared)
    if bounds is None:
        return
    below, above, scale = bounds
    kind = column.type
    if pa.types.is_integer(kind):
        # A narrower type cannot exceed the bounds, and may not even be able to represent them.
        width = kind.bit_width - 1
        least, greatest = max(math.floor(below) + 1, -(1 << width)), min(math.ceil(above) - 1, (1 << width) - 1)
        outside = pc.or_(pc.less(column, pa.scalar(least, kind)), pc.greater(column, pa.scalar(greatest, kind)))
    else:
        try:
            widest = pa.decimal256(76, max(scale, kind.scale))
            values = column.cast(widest)
            outside = pc.or_(
                pc.less_equal(values, pa.scalar(below, widest)), pc.greater_equal(values, pa.scalar(above, widest))
            )
        except pa.ArrowInvalid:
            return  # too many digits to compare here: the database checks
    yield outside, f"outside of the column, which is {declared}"


def _bounds(declared: str) -> tuple[Decimal, Decimal, int] | None:
    """The lower and upper bound of a column's values, and their number of decimal places."""
    match = _INTEGER.fullmatch(declared)
    if match:
        bits = _BITS[match[1]]
        least, greatest = (0, 1 << bits) if match[2] else (-(1 << (bits - 1)), 1 << (bits - 1))
        return Decimal(least - 1), Decimal(greatest), 0
    match = _DECIMAL.fullmatch(declared)
    if match:
        digits, scale = int(match[1]), int(match[2])
        half = Decimal(5).scaleb(-scale - 1)  # a greater value would be rounded up to one with more digits
        above = Decimal(10) ** (digits - scale) - half
        return -half if match[3] else -above, above, scale + 1
    return None


def accepted_values(kind: str, connection: Any, table: TableName, shape: TableShape) -> AcceptedValues:
    """The table's rules from the database's catalogue. A trigger may replace a null, so it disables that rule."""
    if kind == "postgresql":
        question = (
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnotnull AND attnum > 0 "
            "AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = attrelid AND NOT tgisinternal AND tgtype & 2 = 2)"
        )
        computed = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attgenerated <> ''"
        parameters: list[Any] = [quoted(table)]
    else:
        question = (
            "SELECT column_name FROM information_schema.columns WHERE table_schema = COALESCE(%s, DATABASE()) "
            "AND table_name = %s AND is_nullable = 'NO' AND extra = '' AND data_type <> 'timestamp' "
            "AND NOT EXISTS (SELECT 1 FROM information_schema.triggers WHERE event_object_schema = table_schema "
            "AND event_object_table = table_name AND action_timing = 'BEFORE')"
        )
        computed = (
            "SELECT column_name FROM information_schema.columns WHERE table_schema = COALESCE(%s, DATABASE()) "
            "AND table_name = %s AND COALESCE(generation_expression, '') <> ''"
        )
        parameters = [table.parts[0] if len(table.parts) == 2 else None, table.parts[-1]]
    with connection.cursor() as cursor:
        cursor.execute(question, parameters)
        needed = frozenset(name for (name,) in cursor.fetchall())
        cursor.execute(computed, parameters)
        filled = frozenset(name for (name,) in cursor.fetchall())
    types = {name: text.lower() for name, text in shape.columns.items()}
    return AcceptedValues(kind, types, needed - filled, (needed & shape.needed) - filled, filled)
