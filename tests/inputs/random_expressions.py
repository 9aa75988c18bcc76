"""Random typed expressions over a few columns, random rows for them, and a comparison of both ways to compute them."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from millstream.expressions.coercion import as_type, stored_value
from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import NOT_CONSTANT, Arguments, definition_of
from millstream.expressions.nested_types import ArrayType, MapType, RowType
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression
from millstream.expressions.types import (
    LENGTH_MAX,
    BigIntType,
    BinaryType,
    BooleanType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    SmallIntType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.runtime.expressions.compile import compile_program
from millstream.runtime.expressions.expression_errors import ExpressionError
from millstream.runtime.expressions.kernel import SessionFacts
from millstream.runtime.expressions.reference import evaluate

STRING = VarCharType(LENGTH_MAX)
COLUMNS: tuple[DataType, ...] = (
    IntType(),
    BigIntType(),
    DoubleType(),
    DecimalType(10, 2),
    BooleanType(),
    STRING,
    DateType(),
    TimestampType(3),
    TinyIntType(),
    DecimalType(38, 10),
    FloatType(),
    SmallIntType(False),
    LocalZonedTimestampType(3),
    TimeType(3),
    VarBinaryType(LENGTH_MAX),
    ArrayType(IntType()),
    RowType.of(["a", "b"], [IntType(), STRING]),
    MapType(STRING.not_null(), IntType()),
    DayTimeIntervalType(),
    YearMonthIntervalType(),
)
BY_KIND = {
    "number": (0, 1, 2, 3, 8, 9, 10, 11),
    "exact": (0, 1, 3, 8, 9, 11),
    "truth": (4,),
    "text": (5,),
    "time": (6, 7, 12),
    "clock": (13,),
    "bytes": (14,),
    "array": (15,),
    "row": (16,),
    "map": (17,),
    "interval": (18, 19),
}
MADE = ("number", "exact", "truth", "text", "time")
"""Kinds that have functions of their own; the others are only cast, compared and chosen."""
NESTED_TARGETS: dict[str, tuple[DataType, ...]] = {
    "array": (ArrayType(BigIntType()), ArrayType(STRING), ArrayType(TinyIntType())),
    "row": (RowType.of(["x", "y"], [DoubleType(), IntType()]), RowType.of(["x", "y"], [STRING, STRING])),
    "map": (MapType(STRING.not_null(), DoubleType()), MapType(STRING.not_null(), STRING)),
    "bytes": (VarBinaryType(2), BinaryType(3)),
    "clock": (TimeType(0), TimeType(1)),
    "interval": (DayTimeIntervalType(), YearMonthIntervalType()),
}


TEXTS = (
    "",
    "1",
    " 12 ",
    "-7",
    "1.5",
    "abc",
    "true",
    "F",
    "2020-02-03",
    "2020-02-03 10:11:12.5",
    "1e3",
    "ä",
    "+3",
    "9" * 11,
)
NUMERIC = ("+", "-", "*", "/", "negative", "ABS", "FLOOR", "CEIL", "ROUND", "TRUNCATE", "SIGN", "CAST", "GREATEST")
NUMERIC += ("LEAST", "exact")
NULL = Literal(NullType(), None)


def call(name: str, *arguments: RowExpression) -> Call:
    """A call as the planner builds it."""
    definition = definition_of(name)
    assert definition is not None, name
    constants = tuple(each.value if isinstance(each, Literal) else NOT_CONSTANT for each in arguments)
    binding = definition.bind(Arguments(tuple(each.type for each in arguments), constants))
    cast = tuple(as_type(each, type_) for each, type_ in zip(arguments, binding.arguments, strict=True))
    return Call(binding.result, name, cast)


def cast(expression: RowExpression, type_: DataType, name: str = "CAST") -> Call:
    """CAST or TRY_CAST."""
    return Call(type_.with_nullability(expression.type.is_nullable or name == "TRY_CAST"), name, (expression,))


def column(index: int) -> Column:
    """One of `COLUMNS`."""
    return Column(COLUMNS[index], index)


class Dice:
    """Random values, rows and expressions of one seed. Plain Python: Hypothesis draws only the seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def chance(self, share: float) -> bool:
        """True with this probability."""
        return self.random.random() < share

    def value(self, type_: DataType) -> Any:
        """A value of a type, often at its bounds."""
        random = self.random
        if isinstance(type_, BooleanType):
            return self.chance(0.5)
        if isinstance(type_, TinyIntType | SmallIntType | IntType | BigIntType):
            limit = 1 << (type_.bits - 1)
            if self.chance(0.4):
                return random.choice([0, 1, -1, 2, 10, limit - 1, -limit])
            return random.randint(-100, 100) if self.chance(0.5) else random.randint(-limit, limit - 1)
        if isinstance(type_, FloatType | DoubleType):
            number = self.float()
            return struct.unpack("f", struct.pack("f", number))[0] if isinstance(type_, FloatType) else number
        if isinstance(type_, DecimalType):
            digits = random.randint(1, type_.precision)
            whole = random.randint(0, 10**digits - 1)
            return Decimal((int(self.chance(0.5)), tuple(map(int, str(whole))), -type_.scale))
        if isinstance(type_, DateType):
            return dt.date.fromordinal(random.randint(400, 3_650_000))
        if isinstance(type_, TimestampType):
            return dt.datetime(2, 1, 2) + dt.timedelta(milliseconds=random.randint(0, 314_900_000_000_000))
        if isinstance(type_, LocalZonedTimestampType):
            days = random.randint(300_000, 1_000_000)
            if self.chance(0.5):
                days = 719_163 + random.randint(0, 25_000)
            moment = dt.datetime.fromordinal(days) + dt.timedelta(milliseconds=random.randint(0, 86_399_999))
            return moment.replace(tzinfo=dt.UTC)
        return self.other_value(type_)

    def other_value(self, type_: DataType) -> Any:
        """A value of a type that is only cast."""
        random = self.random
        if isinstance(type_, TimeType):
            return (dt.datetime.min + dt.timedelta(milliseconds=random.randint(0, 86_399_999))).time()
        if isinstance(type_, VarBinaryType):
            return random.choice((b"", b"a", b"\xff\x00", "ä".encode(), b"abcd"))
        if isinstance(type_, YearMonthIntervalType):
            return random.randint(-100, 100)
        if isinstance(type_, DayTimeIntervalType):
            return dt.timedelta(milliseconds=random.randint(-(10**10), 10**10))
        if isinstance(type_, ArrayType):
            return [self.perhaps(type_.element_type) for _ in range(random.randint(0, 3))]
        if isinstance(type_, RowType):
            return tuple(self.perhaps(each) for each in type_.types)
        if isinstance(type_, MapType):
            return {str(key): self.perhaps(type_.value_type) for key in range(random.randint(0, 2))}
        return random.choice(TEXTS) if self.chance(0.7) else "".join(random.choices("ab1.- ", k=random.randint(0, 4)))

    def perhaps(self, type_: DataType) -> Any:
        """A value, or NULL."""
        return None if self.chance(0.2) else self.value(type_)

    def float(self) -> float:
        """Zeros, numbers that are hard to round, and infinities."""
        random = self.random
        if self.chance(0.3):
            return random.choice([0.0, -0.0, 1.5, 2.675, 1.005, 1e7, 1e-3, 0.5, math.inf, -math.inf, math.nan, 1e300])
        if self.chance(0.5):
            return random.randint(-10_000, 10_000) / random.choice([1, 2, 10, 100, 1000])
        return random.uniform(-1, 1) * 10.0 ** random.randint(-20, 20)

    def columns(self, rows_max: int = 8) -> list[list[Any]]:
        """For each column its values, some of them NULL."""
        rows = self.random.randint(0, rows_max)
        empty = self.random.choice([0.0, 0.2, 0.5])
        return [
            [None if type_.is_nullable and self.chance(empty) else self.value(type_) for _ in range(rows)]
            for type_ in COLUMNS
        ]

    def expression(self, kind: str | None = None, depth: int = 3) -> RowExpression:
        """An expression of a kind (any: None), at most this deep."""
        kind = kind or self.random.choice(tuple(BY_KIND))
        if depth == 0 or self.chance(0.2):
            return self.leaf(kind)
        if self.chance(0.2):
            return self.chosen(kind, depth - 1)
        makers = {"number": self.number, "exact": self.exact, "truth": self.truth, "text": self.text, "time": self.time}
        return makers[kind](depth - 1) if kind in makers else self.other(kind, depth - 1)

    def other(self, kind: str, depth: int) -> RowExpression:
        """A cast of a kind that has no functions here."""
        if kind == "clock" and self.chance(0.5):
            return cast(
                self.expression(self.random.choice(("clock", "text")), depth), self.random.choice(NESTED_TARGETS[kind])
            )
        if kind == "bytes" and self.chance(0.5):
            return cast(self.expression("text", depth), VarBinaryType(LENGTH_MAX))
        operand = self.leaf(kind)
        if kind == "interval":
            return operand
        return cast(operand, self.random.choice(NESTED_TARGETS[kind]), self.random.choice(("CAST", "TRY_CAST")))

    def leaf(self, kind: str) -> RowExpression:
        """A column or a constant."""
        index = self.random.choice(BY_KIND[kind])
        if self.chance(0.65):
            return column(index)
        type_ = COLUMNS[index]
        if self.chance(0.15):
            return Literal(type_.nullable(), None)
        return Literal(type_.not_null(), self.value(type_))

    def chosen(self, kind: str, depth: int) -> RowExpression:
        """CASE, IF, COALESCE, NULLIF of values of a kind with a common type."""
        first, second = self.expression(kind, depth), self.expression(kind, depth)
        if kind not in MADE or kind == "time":
            if kind in ("array", "row", "map", "interval", "bytes"):
                first, second = self.leaf(kind), self.leaf(kind)
            second = first if kind == "interval" else cast(second, first.type)
        shape = self.random.choice(("CASE", "CASE2", "IF", "COALESCE", "IFNULL", "NULLIF"))
        if shape in ("CASE", "IF"):
            return call(shape, self.expression("truth", depth), first, second)
        if shape == "CASE2":
            conditions = [self.expression("truth", depth) for _ in range(2)]
            return call("CASE", conditions[0], first, conditions[1], second, Literal(NullType(), None))
        return call(shape, first, second)

    def number(self, depth: int) -> RowExpression:
        """A number."""
        name = self.random.choice(NUMERIC)
        if name == "exact":
            return self.exact(depth)
        operand = self.expression("number", depth)
        if name == "negative":
            return call("-", operand)
        if name in ("ROUND", "TRUNCATE"):
            return call(name, operand, Literal(IntType(False), self.random.randint(-3, 4)))
        if name == "CAST":
            target = COLUMNS[self.random.choice(BY_KIND["number"])].nullable()
            source = self.expression(self.random.choice(("number", "number", "text", "truth")), depth)
            return cast(source, target, self.random.choice(("CAST", "TRY_CAST")))
        if name in ("+", "-", "*", "/", "GREATEST", "LEAST"):
            return call(name, operand, self.expression("number", depth))
        return call(name, operand)

    def exact(self, depth: int) -> RowExpression:
        """An integer or decimal."""
        name = self.random.choice(("%", "MOD", "+", "*"))
        return call(name, self.expression("exact", min(depth, 1)), self.leaf("exact"))

    def truth(self, depth: int) -> RowExpression:
        """A condition."""
        choice = self.random.choice
        shape = choice(("compare", "compare", "AND", "OR", "NOT", "IS", "IN", "NULL", "DISTINCT"))
        if shape in ("AND", "OR"):
            return call(shape, *(self.expression("truth", depth) for _ in range(self.random.randint(2, 3))))
        if shape == "NOT":
            return call("NOT", self.expression("truth", depth))
        if shape == "IS":
            name = choice(("IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN"))
            return call(name, self.expression("truth", depth))
        if shape == "NULL":
            return call(choice(("IS NULL", "IS NOT NULL")), self.expression(None, depth))
        kind = choice(("number", "text", "truth", "clock", "time"))
        first, second = self.expression(kind, depth), self.expression(kind, depth)
        if shape == "IN":
            return call("IN", first, second, self.leaf(kind), *([NULL] if self.chance(0.3) else []))
        if shape == "DISTINCT":
            return call(choice(("IS DISTINCT FROM", "IS NOT DISTINCT FROM")), first, second)
        return call(choice(("=", "<>", "<", "<=", ">", ">=")), first, second)

    def text(self, depth: int) -> RowExpression:
        """Text of anything."""
        source = self.expression(None, depth)
        return cast(source, self.random.choice((STRING, VarCharType(3))))

    def time(self, depth: int) -> RowExpression:
        """A date or timestamp."""
        source = self.expression(self.random.choice(("time", "time", "text")), depth)
        target = self.random.choice((DateType(), TimestampType(3), TimestampType(1), LocalZonedTimestampType(3)))
        return cast(source, target, self.random.choice(("CAST", "TRY_CAST")))


def both_agree_for(seed: int, rows_max: int = 8) -> None:
    """Random outputs, perhaps a condition, random rows: both ways agree."""
    dice = Dice(seed)
    outputs = [dice.expression() for _ in range(dice.random.randint(1, 2))]
    condition = dice.expression("truth") if dice.chance(0.5) else None
    try:
        both_agree(outputs, condition, dice.columns(rows_max))
    except OverflowError as error:
        # Python has no year 0: a timestamp of the first day of year 1, east of Greenwich.
        assert "date value out of range" in str(error)


SESSION = SessionFacts(zone="Europe/Berlin")


def both_agree(outputs: Sequence[RowExpression], condition: RowExpression | None, columns: list[list[Any]]) -> None:
    """The program and the reference return the same rows, or fail at a row that fails."""
    arrays = [
        pa.array([stored_value(value, type_) for value in each], type_.arrow)
        for each, type_ in zip(columns, COLUMNS, strict=True)
    ]
    stored = [array.to_pylist() for array in arrays]
    # Batches are often slices of larger ones: no kernel may read before the first row.
    arrays = [pa.concat_arrays([array[-3:], array]).slice(min(3, len(array))) for array in arrays]
    rows = [list(row) for row in zip(*stored, strict=True)]
    expected: list[tuple[int, list[Any]]] = []
    failing: set[int] = set()
    for number, row in enumerate(rows):
        try:
            if condition is None or evaluate(condition, row, SESSION) is True:
                expected.append((number, [evaluate(output, row, SESSION) for output in outputs]))
        except ExpressionError:
            failing.add(number)
    program = compile_program(outputs, COLUMNS, condition)
    try:
        result = program.run(arrays, len(rows), SESSION)
    except ExpressionError as error:
        assert error.row in failing, f"{error}, but the slow way fails at {sorted(failing)}"
        return
    assert not failing, f"the slow way fails at {sorted(failing)}"
    selected = range(len(rows)) if result.selected is None else result.selected.tolist()
    assert list(selected) == [number for number, _ in expected]
    for position, (output, got) in enumerate(zip(outputs, result.columns, strict=True)):
        assert got.type == output.type.arrow
        got.validate(full=True)
        wanted = pa.array([row[position] for _, row in expected], output.type.arrow).to_pylist()
        assert same(got.to_pylist(), wanted), f"{output}:\n{got.to_pylist()}\n{wanted}"


def same(left: Any, right: Any) -> bool:
    """Equal, with NaN equal to NaN and signed zeros."""
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return bool(left == right)
