"""Options of generated tables, and the field for each column, by its type and options."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context

from millstream.connectors.tables.datagen import fields
from millstream.connectors.tables.datagen.fields import GeneratedField
from millstream.connectors.tables.datagen.source import DatagenSource
from millstream.connectors.tables.factory import TableDefinition, TableFactory, TableOption, TableSource
from millstream.connectors.tables.options import TableOptions
from millstream.connectors.tables.random_numbers import salt_of
from millstream.errors import ProgramError, did_you_mean
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowType
from millstream.expressions.row_expressions import RowExpression
from millstream.expressions.types import (
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    IntType,
    LocalZonedTimestampType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.records.bounded_numbers import bounded_decimal

__all__ = ["DatagenFactory"]

_COLUMN_OPTIONS = ("kind", "min", "max", "max-past", "length", "var-len", "start", "end", "null-rate")
_TEXT_LENGTH, _COLLECTION_LENGTH = 100, 3
_WIDE = Context(prec=100, Emax=100)
_FLOAT_MAX, _DOUBLE_MAX = 3.4028234663852886e38, 1.7976931348623157e308
_PREFIX = "fields."


class DatagenFactory(TableFactory):
    """Random rows and sequences, as Flink's `datagen`."""

    name = "datagen"
    options = (
        TableOption("rows-per-second", "number of rows per second", default="10000"),
        TableOption("number-of-rows", "number of rows; unbounded without it"),
        TableOption("scan.parallelism", "number of generating tasks"),
        TableOption(
            _PREFIX, "per column: kind, min, max, max-past, length, var-len, start, end, null-rate", prefix=True
        ),
    )

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        options = TableOptions(table.name, table.options, self.options)
        _check_columns(table, options)
        all_fields = table.physical.fields
        sequences = [_sequence_length(options, f"{_PREFIX}{each.name}") for each in all_fields]
        counts = [length for length in (*sequences, options.integer("number-of-rows")) if length is not None]
        if (options.integer("number-of-rows") or 0) < 0:
            raise options.wrong("number-of-rows", "0 or more; unbounded without it")
        rate = options.number("rows-per-second")
        if rate is None or not 0 < rate < math.inf:
            raise options.wrong("rows-per-second", "a number above 0")
        chosen = tuple(range(len(all_fields)) if columns is None else columns)
        made = [
            _FieldBuilder(options, f"{_PREFIX}{all_fields[at].name}").field(all_fields[at].data_type) for at in chosen
        ]
        row_type = RowType([all_fields[at] for at in chosen], nullable=False)
        count = min(counts, default=None)
        return TableSource(DatagenSource(row_type, made, count, rate), columns=chosen, bounded=count is not None)


def _check_columns(table: TableDefinition, options: TableOptions) -> None:
    """Check that every column option is known and belongs to an existing column."""
    for name in options.below(_PREFIX):
        path, _, word = name.rpartition(".")
        columns = table.physical.names
        if path.split(".")[0] not in columns:
            raise ProgramError(
                f"table {table.name!r}: option {_PREFIX + name!r} is for a column {path.split('.')[0]!r} that the "
                f"table does not have.{did_you_mean(path, columns)} Its columns: {', '.join(columns)}"
            )
        if word not in _COLUMN_OPTIONS:
            raise ProgramError(
                f"table {table.name!r}: option {_PREFIX + name!r}: a column has no option {word!r}."
                f"{did_you_mean(word, _COLUMN_OPTIONS)} Known: {', '.join(_COLUMN_OPTIONS)}"
            )


def _sequence_length(options: TableOptions, path: str) -> int | None:
    """The number of values in the sequence of a column; None if it is not a sequence."""
    if options.choice(f"{path}.kind", ("random", "sequence")) != "sequence":
        return None
    start, end = options.integer(f"{path}.start"), options.integer(f"{path}.end")
    if start is None or end is None:
        raise ProgramError(f"table {options.table!r}: a sequence needs {path + '.start'!r} and {path + '.end'!r}")
    if end < start:
        raise options.wrong(f"{path}.end", f"a number of at least {start}, its start")
    return end - start + 1


@dataclass(frozen=True)
class _FieldBuilder:
    """Builds the field of one column from its options, which start with `path`."""

    options: TableOptions
    path: str

    def field(self, type_: DataType) -> GeneratedField:
        """The field for a column of this type."""
        salt, null_rate = salt_of(self.options.table, self.path), self._null_rate()
        if _sequence_length(self.options, self.path) is not None:
            if not isinstance(type_, IntegralType | VarCharType | CharType | DecimalType | DoubleType | FloatType):
                raise self.options.wrong(f"{self.path}.kind", f"random: {type_} has no sequences")
            return fields.SequenceField(type_, salt, null_rate, self.options.integer(f"{self.path}.start") or 0)
        make = next((make for kinds, make in _MAKERS if isinstance(type_, kinds)), None)
        if make is None:
            raise ProgramError(f"table {self.options.table!r}: datagen cannot generate {type_} ({self.path[7:]})")
        return make(self, type_, salt, null_rate)

    def _null_rate(self) -> float:
        rate = self.options.number(f"{self.path}.null-rate") or 0.0
        if not 0 <= rate <= 1:
            raise self.options.wrong(f"{self.path}.null-rate", "a number from 0 to 1")
        return rate

    def length(self, usual: int) -> int:
        length = self.options.integer(f"{self.path}.length")
        if length is not None and length < 1:
            raise self.options.wrong(f"{self.path}.length", "a whole number of at least 1")
        return usual if length is None else length

    def inner(self, name: str) -> _FieldBuilder:
        return _FieldBuilder(self.options, f"{self.path}.{name}")

    def boolean(self, type_: DataType, salt: int, null_rate: float) -> GeneratedField:
        return fields.BooleanField(type_, salt, null_rate)

    def whole(self, type_: DataType, salt: int, null_rate: float) -> GeneratedField:
        bits = type_.bits if isinstance(type_, IntegralType) else 32
        least, greatest = -(1 << bits - 1), (1 << bits - 1) - 1
        if isinstance(type_, YearMonthIntervalType | DayTimeIntervalType):
            least, greatest = 0, 120_000 if isinstance(type_, YearMonthIntervalType) else 10_000 * 365 * 86_400_000
        low, high = self.options.integer(f"{self.path}.min"), self.options.integer(f"{self.path}.max")
        low, high = least if low is None else low, greatest if high is None else high
        if not least <= low <= high <= greatest:
            raise self.options.wrong(f"{self.path}.max", f"{least} ≤ min ≤ max ≤ {greatest}, the range of {type_}")
        return fields.IntegerField(type_, salt, null_rate, low, high)

    def fraction(self, type_: DataType, salt: int, null_rate: float) -> GeneratedField:
        largest = _FLOAT_MAX if isinstance(type_, FloatType) else _DOUBLE_MAX
        low, high = self.options.number(f"{self.path}.min"), self.options.number(f"{self.path}.max")
        low, high = -largest if low is None else low, largest if high is None else high
        if not -largest <= low <= high <= largest:
            raise self.options.wrong(f"{self.path}.max", f"a number of at least {low}, within {type_}")
        return fields.FloatField(type_, salt, null_rate, low, high)

    def decimal(self, type_: DataType, salt: int, null_rate: float) -> GeneratedField:
        assert isinstance(type_, DecimalType)
        largest = 10**type_.precision - 1
        low, high = (self._units(name, type_) for name in ("min", "max"))
        low, high = -largest if low is None else low, largest if high is None else high
        if not -largest <= low <= high <= largest:
            raise self.options.wrong(f"{self.path}.max", f"numbers of {type_}, min before max")
        return fields.DecimalField(type_, salt, null_rate, low, high)

    def _units(self, name: str, type_: DecimalType) -> int | None:
        text = self.options.text(f"{self.path}.{name}")
        try:
            return None if text is None else round(bounded_decimal(text, type_.scale).scaleb(type_.scale, _WIDE))
        except (ValueError, ArithmeticError):
            raise self.options.wrong(f"{self.path}.{name}", f"a number of {type_}") from None

    def text(self, type_: DataType, salt: int, null_rate: float) -> GeneratedField:
        kind = fields.TextField if isinstance(type_, CharType | VarCharType) else fields.BytesField
        declared: int = type_.length  # type: ignore[attr-defined]
        is_fixed = isinstance(type_, CharType | BinaryType)
        length = declared if is_fixed else self.length(min(declared, _TEXT_LENGTH))
        if length > declared:
            raise self.options.wrong(f"{self.path}.length", f"at most {declared}, the length of {type_}")
        varies = bool(self.options.boolean(f"{self.path}.var-len")) and not is_fixed
        return kind(type_, salt, null_rate, length, varies)

    def moment(self, type_: DataType, salt: int, null_rate: float) -> GeneratedField:
        return fields.MomentField(type_, salt, null_rate, self.options.duration_ms(f"{self.path}.max-past") or 0)

    def array(self, type_: DataType, salt: int, null_rate: float) -> GeneratedField:
        assert isinstance(type_, ArrayType)
        element = self.inner("element").field(type_.element_type)
        return fields.ListField(type_, salt, null_rate, element, self.length(_COLLECTION_LENGTH))

    def map(self, type_: DataType, salt: int, null_rate: float) -> GeneratedField:
        assert isinstance(type_, MapType)
        key, value = self.inner("key").field(type_.key_type), self.inner("value").field(type_.value_type)
        return fields.MapField(type_, salt, null_rate, key, value, self.length(_COLLECTION_LENGTH))

    def multiset(self, type_: DataType, salt: int, null_rate: float) -> GeneratedField:
        assert isinstance(type_, MultisetType)
        element = self.inner("element").field(type_.element_type)
        times = fields.IntegerField(IntType(), salt + 5, 0.0, 1, 9)
        return fields.MapField(type_, salt, null_rate, element, times, self.length(_COLLECTION_LENGTH))

    def row(self, type_: DataType, salt: int, null_rate: float) -> GeneratedField:
        assert isinstance(type_, RowType)
        made = tuple(self.inner(each.name).field(each.data_type) for each in type_.fields)
        return fields.RowsField(type_, salt, null_rate, made)


_Make = Callable[[_FieldBuilder, DataType, int, float], GeneratedField]
_MAKERS: tuple[tuple[tuple[type, ...], _Make], ...] = (
    ((BooleanType,), _FieldBuilder.boolean),
    ((IntegralType, YearMonthIntervalType, DayTimeIntervalType), _FieldBuilder.whole),
    ((FloatType, DoubleType), _FieldBuilder.fraction),
    ((DecimalType,), _FieldBuilder.decimal),
    ((CharType, VarCharType, BinaryType, VarBinaryType), _FieldBuilder.text),
    ((DateType, TimeType, TimestampType, LocalZonedTimestampType), _FieldBuilder.moment),
    ((ArrayType,), _FieldBuilder.array),
    ((MapType,), _FieldBuilder.map),
    ((MultisetType,), _FieldBuilder.multiset),
    ((RowType,), _FieldBuilder.row),
)
