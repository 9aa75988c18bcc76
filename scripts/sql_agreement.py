"""Compares our answers to SQL expressions with Flink's, which `scripts/sql-oracle` recorded in tests/fixtures/sql.

Each expression is parsed, bound and computed twice: unchanged, and with every literal replaced by a column of three
rows (the value, NULL, the value), so that kernels process columns. Values are compared as text that both sides write
alike; types without NOT NULL (`is_nullability_equal` says whether that agrees, too). Where Flink rejects an expression,
we must reject it; whether at planning or at run time is not compared.

`differences.toml` next to the lists names the known differences.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.errors import MillstreamError
from millstream.expressions.coercion import arrow_value
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowType
from millstream.expressions.row_expressions import Column, Literal, RowExpression, transform
from millstream.expressions.types import (
    BinaryType,
    BitmapType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    LocalZonedTimestampType,
    NullType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VariantType,
    is_text,
)
from millstream.planner.binder import Scope, bind_expression
from millstream.planner.session import PlannerSession
from millstream.runtime.expressions.bitmap_texts import bitmap_text
from millstream.runtime.expressions.calendar_days import civil
from millstream.runtime.expressions.compile import compile_program
from millstream.runtime.expressions.expression_errors import ExpressionError
from millstream.runtime.expressions.kernel import SessionFacts
from millstream.sql.parser import parse_expression

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "tests" / "sql_cases"
ANSWERS = ROOT / "tests" / "fixtures" / "sql"
NOW_US = 1_790_000_000_000_000  # September 2026


@dataclass(frozen=True)
class Answer:
    """A type and a value as text, or an error."""

    type: str | None = None
    value: Any = None
    error: str | None = None

    def __str__(self) -> str:
        return f"an error ({self.error})" if self.error is not None else f"{self.value!r} of {self.type}"


@dataclass(frozen=True)
class Comparison:
    """One expression: Flink's answer and ours; `reason` if they differ and that is known."""

    family: str
    sql: str
    zone: str
    in_columns: bool
    flink: Answer
    ours: Answer
    reason: str | None = None

    @property
    def agrees(self) -> bool:
        if self.flink.error is not None or self.ours.error is not None:
            return self.flink.error is not None and self.ours.error is not None
        return _plain_type(self.flink.type) == _plain_type(self.ours.type) and _equal(self)

    @property
    def is_nullability_equal(self) -> bool:
        return (
            self.flink.type is None or self.ours.type is None or _nullable(self.flink.type) == _nullable(self.ours.type)
        )

    def __str__(self) -> str:
        where = (f" in {self.zone}" if self.zone != "UTC" else "") + (" over columns" if self.in_columns else "")
        return f"{self.sql}{where}\n    Flink: {self.flink}\n    ours:  {self.ours}"


_VALUELESS = object()


def _equal(comparison: Comparison) -> bool:
    theirs, ours = comparison.flink.value, comparison.ours.value
    if theirs is _VALUELESS:
        return True
    return _alike(theirs, ours, comparison.flink.type or "")


def _alike(theirs: Any, ours: Any, type_: str) -> bool:
    if type_.startswith(("MAP", "MULTISET")) and isinstance(theirs, list) and isinstance(ours, list):
        theirs, ours = sorted(theirs, key=repr), sorted(ours, key=repr)  # entries have no order
        type_ = type_.removeprefix("MAP").removeprefix("MULTISET")
    if isinstance(theirs, list) and isinstance(ours, list):
        return len(theirs) == len(ours) and all(_alike(a, b, type_) for a, b in zip(theirs, ours, strict=True))
    if isinstance(theirs, str) and isinstance(ours, str) and ("DOUBLE" in type_ or "FLOAT" in type_) and theirs != ours:
        try:
            first, second = float(theirs), float(ours)
        except ValueError:
            return False
        # Java's and C's mathematics may differ in the last bit.
        close = 2e-7 if "FLOAT" in type_ else 1e-15
        return (math.isnan(first) and math.isnan(second)) or math.isclose(first, second, rel_tol=close)
    return bool(theirs == ours)


def _nullable(type_: str) -> bool:
    return not type_.endswith("NOT NULL")


def _plain_type(type_: str | None) -> str | None:
    """A type without NOT NULL, in one notation; intervals only by their kind."""
    if type_ is None:
        return None
    text = type_.replace(" NOT NULL", "").replace("`", "").replace("VARCHAR(2147483647)", "STRING")
    text = text.replace("VARBINARY(2147483647)", "BYTES")
    text = re.sub(r"TIMESTAMP\((\d)\) WITH LOCAL TIME ZONE", r"TIMESTAMP_LTZ(\1)", text)
    text = re.sub(r"INTERVAL (?:DAY|HOUR|MINUTE|SECOND)[^,>]*", "INTERVAL OF TIME", text)
    return re.sub(r"INTERVAL (?:YEAR|MONTH)[^,>]*", "INTERVAL OF MONTHS", text)


# --- Flink's ------------------------------------------------------------------------------------------------------


def families() -> list[str]:
    """The families that Flink has answered."""
    return sorted(path.stem for path in ANSWERS.glob("*.json"))


def _flinks(family: str) -> Iterator[tuple[dict[str, Any], bool]]:
    for answer in json.loads((ANSWERS / f"{family}.json").read_text())["answers"]:
        yield answer, False
        in_columns = answer.get("column")
        if "value" not in answer and "error" not in answer:
            continue  # only its type was requested
        if in_columns is None:
            yield answer, True
        elif in_columns.get("error") != "plan" and in_columns.get("type") == answer.get("type"):
            # If the type depends on a constant (a precision), ours is bound with it: no comparison.
            yield {"sql": answer["sql"], "zone": answer.get("zone", "UTC")} | in_columns, True


def _answer(written: dict[str, Any]) -> Answer:
    if "EnforcerException" in written.get("message", ""):
        # The value was NULL, though its type is NOT NULL: only Flink's result conversion failed.
        return Answer(written.get("type"), None)
    if "error" in written:
        return Answer(written.get("type"), None, written.get("message", written["error"]))
    return Answer(written["type"], written.get("value", _VALUELESS))


# --- ours ---------------------------------------------------------------------------------------------------------


def ours(sql: str, zone: str = "UTC", in_columns: bool = False) -> Answer:
    """Our answer to an expression."""
    session = PlannerSession(config={"table.local-time-zone": zone})
    try:
        bound = bind_expression(parse_expression(sql), Scope(), session)
        columns: list[pa.Array] = []
        if in_columns:
            bound = _over_columns(bound, columns)
        program = compile_program([bound], [_Typed(column.type) for column in columns])
        facts = SessionFacts(zone=zone, now_us=NOW_US, database=session.database)
        rows = 3 if columns else 1
        try:
            result = program.run(columns, rows, facts).columns[0]
        except ExpressionError as error:
            if error.row != 1:
                raise
            # Only the NULL has no result (a key of a map): skip it.
            result = program.run([column.take([0, 0, 0]) for column in columns], rows, facts).columns[0]
        values = [_plain(result, row, bound.type) for row in range(rows)]
        if len(result) != rows or (rows == 3 and str(values[0]) != str(values[2])):
            return Answer(type="DEFECT", value=f"rows with equal values gave {values}")
        return Answer(str(bound.type), values[0])
    except MillstreamError as error:
        return Answer(error=str(error).splitlines()[0])
    except Exception as error:  # a bug of ours: reported as such, and compared as one
        return Answer(type="DEFECT", value=f"{type(error).__name__}: {error}")


class _Typed(NullType):
    """The type of a column, of which only Arrow's is needed."""

    def __init__(self, arrow: pa.DataType) -> None:
        super().__init__()
        self._arrow = arrow

    @property
    def arrow(self) -> pa.DataType:
        return self._arrow


def _over_columns(bound: RowExpression, columns: list[pa.Array]) -> RowExpression:
    def turned(part: RowExpression) -> RowExpression:
        if not isinstance(part, Literal) or part.value is None:
            return part
        value = arrow_value(part)
        columns.append(pa.concat_arrays([pa.array([value, None, value], value.type)]))
        return Column(part.type, len(columns) - 1)

    return transform(bound, turned)


def _plain(column: pa.Array, row: int, type_: DataType) -> Any:
    """A value in JSON's form, as the oracle writes Java's."""
    value = column[row]
    if not value.is_valid:
        return None
    if isinstance(type_, BitmapType):
        return bitmap_text(value.as_py())
    if isinstance(type_, BooleanType | IntegralType | VariantType) or is_text(type_):
        return value.as_py()
    if isinstance(type_, DoubleType):
        return java_double(value.as_py())
    if isinstance(type_, FloatType):
        return java_double(float(str(np.float32(value.as_py()))))
    if isinstance(type_, DecimalType):
        return format(value.as_py(), "f")
    if isinstance(type_, BinaryType | VarBinaryType):
        return bytes(value.as_py()).hex()
    if isinstance(type_, ArrayType):
        return [_plain(value.values, i, type_.element_type) for i in range(len(value.values))]
    if isinstance(type_, MapType | MultisetType):
        return _plain_map(value, type_)
    if isinstance(type_, RowType):
        return [_plain(column.field(i), row, each) for i, each in enumerate(type_.types)]
    if isinstance(type_, NullType):
        return None
    return _plain_time(value, type_)


def _plain_map(value: Any, type_: MapType | MultisetType) -> list[Any]:
    from millstream.expressions.types import IntType

    key, item = (type_.key_type, type_.value_type) if isinstance(type_, MapType) else (type_.element_type, IntType())
    pairs = value.values
    keys, items = pairs.field(0), pairs.field(1)
    return [[_plain(keys, i, key), _plain(items, i, item)] for i in range(len(pairs))]


def _plain_time(value: Any, type_: DataType) -> Any:
    number = value.value if hasattr(value, "value") else value.as_py()
    if isinstance(type_, DateType):
        return _date_text(number)
    if isinstance(type_, TimeType):
        return _time_text(number * 1_000_000)
    if isinstance(type_, TimestampType | LocalZonedTimestampType):
        rate = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[value.type.unit]
        day, rest = divmod(number, 86_400 * rate)
        nano = rest * (1_000_000_000 // rate)
        is_moment = isinstance(type_, LocalZonedTimestampType)
        return f"{_date_text(day)}T{_time_text(nano, is_moment)}{'Z' if is_moment else ''}"
    return number


def _date_text(day: int) -> str:
    year, month, day_of_month = (int(part[0]) for part in civil(np.array([day])))
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day_of_month:02d}"


def _time_text(nano: int, with_seconds: bool = False) -> str:
    seconds, fraction = divmod(nano, 1_000_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    if seconds % 60 or fraction or with_seconds:
        text += f":{seconds % 60:02d}"
    if fraction:
        digits = 3 if fraction % 1_000_000 == 0 else 6 if fraction % 1_000 == 0 else 9
        text += "." + f"{fraction:09d}"[:digits]
    return text


def java_double(number: float) -> str:
    """A number as Java writes it, sufficiently for a comparison by value."""
    return "Infinity" if number == math.inf else "-Infinity" if number == -math.inf else repr(number)


# --- both ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """A known difference: a pattern that matches whole expressions, and the reason.

    `only` is "columns", "constants" or a zone; `flink` and `ours` are patterns for the error of that side.
    """

    pattern: re.Pattern[str]
    reason: str
    only: str | None = None
    flink: str | None = None
    ours: str | None = None


@cache
def differences() -> tuple[Difference, ...]:
    """The table of known differences."""
    table = tomllib.loads((CASES / "differences.toml").read_text())
    return tuple(
        Difference(
            re.compile(each.get("match", ".*")), each["reason"], each.get("only"), each.get("flink"), each.get("ours")
        )
        for each in table.get("difference", [])
    )


def _known(comparison: Comparison) -> Difference | None:
    for each in differences():
        if each.only == ("constants" if comparison.in_columns else "columns"):
            continue
        if each.only not in (None, "columns", "constants", comparison.zone):
            continue
        if each.flink is not None and not re.search(each.flink, comparison.flink.error or ""):
            continue
        if each.ours is not None and not re.search(each.ours, comparison.ours.error or ""):
            continue
        if each.pattern.fullmatch(comparison.sql):
            return each
    return None


def comparisons(family: str) -> Iterator[Comparison]:
    """All expressions of a family, each with its reason if it is a known difference."""
    for written, in_columns in _flinks(family):
        sql, zone = written["sql"], written.get("zone", "UTC")
        found = Comparison(family, sql, zone, in_columns, _answer(written), ours(sql, zone, in_columns))
        known = None if found.agrees else _known(found)
        yield replace(found, reason=known.reason) if known is not None else found
