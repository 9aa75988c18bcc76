"""The syntax of Flink's SQL as frozen data: constructs and their positions in the text, with names unresolved.

The parser creates these nodes from text, the Table API from Python calls, and `planner` binds both. A node's `span` is
its position in the text (None if created by a call); equality ignores it, so two notations of one construct are equal.

Operators are calls: `a + b` is `Call("+", (a, b))`, `a IS NULL` is `Call("IS NULL", (a,))`. The names are those of
`expressions.functions`. Constructs with special syntax (CAST, CASE, subqueries, windows) have separate node classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.sql.query_syntax import Query, Relation

__all__ = [
    "Aggregated",
    "Argument",
    "As",
    "Between",
    "Call",
    "Case",
    "Cast",
    "Descriptor",
    "Exists",
    "Expression",
    "FieldAccess",
    "Frame",
    "FrameBound",
    "In",
    "Interval",
    "ItemAccess",
    "Like",
    "Literal",
    "Name",
    "Node",
    "OrderItem",
    "Over",
    "RowValue",
    "Scalar",
    "Span",
    "Star",
    "TableArgument",
    "TypeName",
    "WindowSpec",
]


@dataclass(frozen=True)
class Span:
    """A span of the text, as character offsets; `source` is the whole text."""

    start: int
    stop: int
    source: str = field(repr=False)

    @property
    def line(self) -> int:
        """The line in which the span starts, from 1."""
        return self.source.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int:
        """The column in which the span starts, from 1."""
        return self.start - (self.source.rfind("\n", 0, self.start) + 1) + 1

    @property
    def text(self) -> str:
        """The text of the span."""
        return self.source[self.start : self.stop]


@dataclass(frozen=True)
class Node:
    """Any syntactic construct. `span` is always passed by keyword."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


# --- types ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TypeName(Node):
    """A data type as written: `DECIMAL(10, 2) NOT NULL` is TypeName("DECIMAL", (10, 2), nullable=False).

    `elements` are the nested types: one for ARRAY and MULTISET, key and value for MAP, one per field for ROW.
    TIMESTAMP WITH LOCAL TIME ZONE is named TIMESTAMP_LTZ; intervals are "INTERVAL DAY TO SECOND" and similar.
    """

    name: str
    arguments: tuple[int, ...] = ()
    elements: tuple[TypeName, ...] = ()
    fields: tuple[str, ...] = ()
    comments: tuple[str | None, ...] = ()
    nullable: bool = True


# --- expressions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expression(Node):
    """An expression with a value."""


@dataclass(frozen=True)
class Literal(Expression):
    """A constant as written. `kind`: NULL, BOOLEAN, NUMBER (value: its digits, as text), TEXT, BYTES, DATE, TIME,
    TIMESTAMP, TIMESTAMP_LTZ (the text between the quotes), or VALUE: a Python value of the Table API, of `type`."""

    kind: str
    value: Any = None
    type: Any = None


@dataclass(frozen=True)
class Interval(Expression):
    """INTERVAL '1-2' YEAR TO MONTH: the text, the first and the last unit, and optional precisions."""

    value: str
    unit: str
    unit_to: str | None = None
    precision: int | None = None
    fraction: int | None = None
    negative: bool = False


@dataclass(frozen=True)
class Name(Expression):
    """A column, optionally qualified: `b.auction`. Quotes are removed, case is preserved."""

    parts: tuple[str, ...]


@dataclass(frozen=True)
class Star(Expression):
    """`*`, or `t.*`."""

    qualifier: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call(Expression):
    """A function or an operator. `name` is upper-case for operators, otherwise as written; `path` is (catalog,
    database) of a qualified name. `options` are keywords in the call: TRIM(LEADING …), EXTRACT(YEAR FROM …), JSON
    clauses."""

    name: str
    arguments: tuple[Expression, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Argument(Expression):
    """A named argument: `size => INTERVAL '1' MINUTE`."""

    name: str
    value: Expression


@dataclass(frozen=True)
class TableArgument(Expression):
    """A table as an argument: `TABLE t PARTITION BY a ORDER BY b`, or a query in parentheses."""

    relation: Relation
    partition_by: tuple[Expression, ...] = ()
    order_by: tuple[OrderItem, ...] = ()


@dataclass(frozen=True)
class Descriptor(Expression):
    """DESCRIPTOR(a, b)."""

    columns: tuple[str, ...]


@dataclass(frozen=True)
class Cast(Expression):
    """CAST(x AS t), or TRY_CAST."""

    operand: Expression
    target: Any  # a TypeName, or a DataType of the Table API
    is_try: bool = False


@dataclass(frozen=True)
class Case(Expression):
    """CASE [operand] WHEN … THEN … ELSE … END."""

    whens: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None = None
    operand: Expression | None = None


@dataclass(frozen=True)
class Between(Expression):
    """a [NOT] BETWEEN [SYMMETRIC] b AND c."""

    operand: Expression
    low: Expression
    high: Expression
    negated: bool = False
    symmetric: bool = False


@dataclass(frozen=True)
class In(Expression):
    """a [NOT] IN (values), or IN (query)."""

    operand: Expression
    values: tuple[Expression, ...] = ()
    query: Query | None = None
    negated: bool = False


@dataclass(frozen=True)
class Like(Expression):
    """a [NOT] LIKE b [ESCAPE c], or SIMILAR TO."""

    operand: Expression
    pattern: Expression
    escape: Expression | None = None
    negated: bool = False
    similar: bool = False


@dataclass(frozen=True)
class Exists(Expression):
    query: Query


@dataclass(frozen=True)
class Scalar(Expression):
    """A query used as a single value; `quantifier` is SOME or ALL after a comparison operator."""

    query: Query
    operand: Expression | None = None
    operator: str | None = None
    quantifier: str | None = None


@dataclass(frozen=True)
class RowValue(Expression):
    """(a, b) or ROW(a, b)."""

    values: tuple[Expression, ...]


@dataclass(frozen=True)
class FieldAccess(Expression):
    """A field of a row that is not a plain name: `f(x).y`; '*' for all fields."""

    operand: Expression
    name: str


@dataclass(frozen=True)
class ItemAccess(Expression):
    """`a[1]`, `m['key']`."""

    operand: Expression
    index: Expression


@dataclass(frozen=True)
class As(Expression):
    """A named subexpression: the Table API's `expr.alias("a", "b")`."""

    operand: Expression
    names: tuple[str, ...]


@dataclass(frozen=True)
class OrderItem(Node):
    """One key of an order; `nulls_first` None: Flink's rule (nulls are lowest)."""

    expression: Expression
    descending: bool = False
    nulls_first: bool | None = None


@dataclass(frozen=True)
class Aggregated(Expression):
    """A call with aggregate clauses."""

    call: Call
    distinct: bool = False
    filter: Expression | None = None
    within_group: tuple[OrderItem, ...] = ()
    order_by: tuple[OrderItem, ...] = ()
    nulls: str | None = None  # RESPECT or IGNORE


@dataclass(frozen=True)
class FrameBound(Node):
    """`kind`: PRECEDING, FOLLOWING or CURRENT; `amount` None: UNBOUNDED."""

    kind: str
    amount: Expression | None = None


@dataclass(frozen=True)
class Frame(Node):
    unit: str  # ROWS or RANGE
    start: FrameBound
    end: FrameBound


@dataclass(frozen=True)
class WindowSpec(Node):
    """(PARTITION BY … ORDER BY … frame); `base` names a window of the WINDOW clause that it extends."""

    partition_by: tuple[Expression, ...] = ()
    order_by: tuple[OrderItem, ...] = ()
    frame: Frame | None = None
    base: str | None = None


@dataclass(frozen=True)
class Over(Expression):
    """An aggregate OVER a window; `window` is a specification or a name."""

    call: Aggregated
    window: WindowSpec | str
