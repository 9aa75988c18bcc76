"""Random syntax for tests: types, expressions, queries and statements as the parser builds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from millstream.sql.query_syntax import (
    AliasedRelation,
    Derived,
    GroupingSets,
    Hint,
    Join,
    LateralTable,
    Limit,
    NamedRelation,
    NamedWindow,
    Query,
    Select,
    SelectItem,
    SetQuery,
    SystemTime,
    TableFunctionCall,
    Unnest,
    Values,
    With,
)
from millstream.sql.statements import (
    ColumnDefinition,
    CreateTable,
    CreateView,
    Distribution,
    Insert,
    KeyDefinition,
    LikeClause,
    QueryStatement,
    StatementSet,
    WatermarkDefinition,
)
from millstream.sql.syntax import (
    Aggregated,
    Argument,
    Between,
    Call,
    Case,
    Cast,
    Descriptor,
    Exists,
    FieldAccess,
    Frame,
    FrameBound,
    In,
    Interval,
    ItemAccess,
    Like,
    Literal,
    Name,
    OrderItem,
    Over,
    RowValue,
    Scalar,
    Star,
    TableArgument,
    TypeName,
    WindowSpec,
)

__all__ = ["expressions", "queries", "statements", "types"]

Strategy = st.SearchStrategy[Any]

names = st.sampled_from(
    [
        "a",
        "b",
        "Price",
        "date",
        "select",
        "value",
        "a b",
        "it`s",
        "größe",
        "map",
        "key",
        "first",
        "x",
        "n",
        "model",
        "1st",
        "ü.y",
    ]
)
texts = st.sampled_from(["", "x", "it's", "''", "`", "-- no", "/* no */", "two\nlines", "\\", "é", "%_"])
paths = st.lists(names, min_size=1, max_size=3).map(tuple)


def tuples(items: Strategy, least: int = 0, most: int = 3) -> Strategy:
    return st.lists(items, min_size=least, max_size=most).map(tuple)


def maybe(items: Strategy) -> Strategy:
    return st.none() | items


def layered(leaves: Strategy, grow: Callable[[Strategy], Strategy], levels: int) -> Strategy:
    """Leaves, and their extensions to this many levels. Deferred: the repr of a strategy stays short."""
    current = leaves
    for _ in range(levels):
        current = _grown(leaves, grow, current)
    return current


def _grown(leaves: Strategy, grow: Callable[[Strategy], Strategy], inner: Strategy) -> Strategy:
    return st.deferred(lambda: leaves | grow(inner))


# --- types ------------------------------------------------------------------------------------------------------------

_simple_types = st.builds(
    TypeName,
    st.sampled_from(["INT", "BIGINT", "STRING", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "DECIMAL", "VARCHAR"]),
    st.sampled_from([(), (3,)]),
    nullable=st.booleans(),
) | st.sampled_from(
    [
        TypeName("INTERVAL DAY TO SECOND", (3, 6)),
        TypeName("INTERVAL YEAR", (2,), nullable=False),
        TypeName("DECIMAL", (10, 2)),
        TypeName("RAW", comments=("a", "b")),
    ]
)


def _nested_types(inner: Strategy) -> Strategy:
    def row(fields: list[tuple[str, TypeName, str | None]], nullable: bool) -> TypeName:
        names_, elements, comments = zip(*fields, strict=True) if fields else ((), (), ())
        return TypeName("ROW", (), tuple(elements), tuple(names_), tuple(comments), nullable)

    return st.one_of(
        st.builds(
            lambda name, element, nullable: TypeName(name, elements=(element,), nullable=nullable),
            st.sampled_from(["ARRAY", "MULTISET"]),
            inner,
            st.booleans(),
        ),
        st.builds(lambda key, value: TypeName("MAP", elements=(key, value)), inner, inner),
        st.builds(row, st.lists(st.tuples(names, inner, maybe(texts)), max_size=3), st.booleans()),
    )


types = layered(_simple_types, _nested_types, 2)

# --- expressions ------------------------------------------------------------------------------------------------------

_constants = st.one_of(
    st.sampled_from(["0", "1", "1.5", "-7", ".5", "1e5", "-1.5E-3"]).map(lambda digits: Literal("NUMBER", digits)),
    texts.map(lambda text: Literal("TEXT", text)),
    st.binary(max_size=3).map(lambda value: Literal("BYTES", value)),
    st.sampled_from(
        [
            Literal("NULL"),
            Literal("BOOLEAN", True),
            Literal("BOOLEAN", None),
            Literal("DATE", "2026-11-16"),
            Literal("TIMESTAMP", "2026-11-16 01:02:03"),
            Literal("TIMESTAMP_LTZ", "2026-11-16 01:02:03"),
            Interval("1", "DAY"),
            Interval("1-2", "YEAR", "MONTH", 3, None, True),
            Interval("1.5", "SECOND", None, 2, 3),
            Call("CURRENT_DATE"),
            Call("DEFAULT"),
            Descriptor(("a", "date")),
        ]
    ),
)
_leaves = _constants | paths.map(Name)
_binary = st.sampled_from(
    [
        "+",
        "-",
        "*",
        "/",
        "%",
        "||",
        "AND",
        "OR",
        "=",
        "<>",
        "<",
        ">",
        "<=",
        ">=",
        "IS DISTINCT FROM",
        "MEMBER OF",
        "OVERLAPS",
    ]
)
_unary = st.sampled_from(["-", "+", "NOT", "IS NULL", "IS NOT TRUE", "IS JSON VALUE", "IS A SET"])


def _orders(inner: Strategy) -> Strategy:
    return st.builds(OrderItem, inner, st.booleans(), maybe(st.booleans()))


def _windows(inner: Strategy) -> Strategy:
    bounds = st.one_of(
        st.just(FrameBound("CURRENT")), st.builds(FrameBound, st.sampled_from(["PRECEDING", "FOLLOWING"]), maybe(inner))
    )
    frames = st.builds(Frame, st.sampled_from(["ROWS", "RANGE"]), bounds, bounds)
    return st.builds(WindowSpec, tuples(inner, most=2), tuples(_orders(inner), most=2), maybe(frames), maybe(names))


def _calls(inner: Strategy) -> Strategy:
    functions = st.sampled_from(["f", "COUNT", "upper", "Mod", "my function", "LEFT", "TUMBLE_START"])
    arguments = inner | st.builds(Argument, names, inner)
    plain = st.builds(Call, functions, tuples(arguments), st.just(()), tuples(names, most=2))
    return st.one_of(
        plain,
        st.builds(lambda name, x, y: Call(name, (x, y)), _binary, inner, inner),
        st.builds(lambda name, x: Call(name, (x,)), _unary, inner),
        st.builds(lambda unit, x: Call("EXTRACT", (x,), (("unit", unit),)), st.sampled_from(["DAY", "EPOCH"]), inner),
        st.builds(
            lambda side, xs: Call("TRIM", xs, (("side", side),)),
            st.sampled_from(["BOTH", "LEADING"]),
            tuples(inner, 1, 2),
        ),
        st.builds(lambda x, y: Call("TIMESTAMPDIFF", (x, y), (("unit", "HOUR"),)), inner, inner),
        st.builds(lambda xs: Call("JSON_OBJECT", xs, (("on_null", "ABSENT"),)), tuples(inner, 2, 2)),
        st.builds(
            lambda x, y, z, t: Call(
                "JSON_VALUE", (x, y), (("returning", t), ("on_empty", ("DEFAULT", z)), ("on_error", ("ERROR", None)))
            ),
            inner,
            inner,
            inner,
            types,
        ),
        st.builds(lambda xs: Call("ARRAY", xs), tuples(inner)),
        st.builds(lambda xs: Call("MAP", xs + xs), tuples(inner)),
        st.builds(
            lambda call, distinct, condition, order: (
                Aggregated(call, distinct, condition, (), order) if distinct or condition or order else call
            ),
            st.builds(Call, functions, tuples(arguments, 1)),
            st.booleans(),
            maybe(inner),
            tuples(_orders(inner), most=1),
        ),
        st.builds(lambda call, window: Over(Aggregated(call), window), plain, names | _windows(inner)),
    )


def _no_query(expression: Any) -> Any:
    """A single query in IN (…) is its subquery; here it is in a row."""
    return RowValue((expression,)) if isinstance(expression, Scalar) else expression


def _compound(inner: Strategy) -> Strategy:
    queries_ = _selects(inner, st.deferred(lambda: _named_relations))
    return st.one_of(
        _calls(inner),
        st.builds(Cast, inner, types, st.booleans()),
        st.builds(Case, tuples(st.tuples(inner, inner), 1, 2), maybe(inner), maybe(inner)),
        st.builds(Between, inner, inner, inner, st.booleans(), st.booleans()),
        st.builds(In, inner, tuples(inner.map(_no_query), 1, 3), st.none(), st.booleans()),
        st.builds(In, inner, st.just(()), queries_, st.booleans()),
        st.builds(Like, inner, inner, maybe(inner), st.booleans(), st.booleans()),
        st.builds(Exists, queries_),
        st.builds(Scalar, queries_),
        st.builds(Scalar, queries_, inner, st.sampled_from(["=", ">"]), st.sampled_from(["SOME", "ALL"])),
        st.builds(RowValue, tuples(inner)),
        st.builds(FieldAccess, inner, names | st.just("*")),
        st.builds(ItemAccess, inner, inner),
    )


# --- queries ----------------------------------------------------------------------------------------------------------

_hints = st.builds(Hint, st.sampled_from(["OPTIONS", "BROADCAST"]), tuples(st.tuples(maybe(texts), texts)))
_named_relations = st.builds(NamedRelation, paths, tuples(_hints, most=1), st.none())


def _selects(inner: Strategy, relations: Strategy) -> Strategy:
    items = st.builds(SelectItem, inner, maybe(names)) | st.sampled_from(
        [SelectItem(Star()), SelectItem(Star(("a", "select")))]
    )
    groups = inner | st.builds(
        GroupingSets,
        st.sampled_from(["GROUPING SETS", "ROLLUP", "CUBE"]),
        tuples(tuples(paths.map(Name), most=2), 1, 3),
    )
    selects = st.builds(
        Select,
        tuples(items, 1),
        maybe(relations),
        maybe(inner),
        maybe(tuples(groups, most=2)),
        maybe(inner),
        maybe(inner),
        tuples(st.builds(NamedWindow, names, _windows(inner)), most=1),
        st.booleans(),
        tuples(_hints, most=1),
    )
    values = st.builds(Values, tuples(tuples(inner, 1), 1))
    counts = st.integers(0, 99).map(lambda number: Literal("NUMBER", str(number)))
    limits = st.builds(Limit, maybe(counts), maybe(counts))
    return st.builds(Query, selects | values, st.just(()), tuples(_orders(inner), most=2), maybe(limits))


expressions = layered(_leaves, _compound, 3)
_small = layered(_leaves, _calls, 2)


def _relations(inner: Strategy) -> Strategy:
    calls = st.builds(Call, st.sampled_from(["TUMBLE", "f"]), tuples(_table_arguments | _constants))
    sources = st.one_of(
        _named_relations,
        st.builds(NamedRelation, paths, st.just(()), st.builds(SystemTime, _small)),
        st.builds(Derived, inner, st.booleans()),
        st.builds(TableFunctionCall, calls),
        st.builds(LateralTable, calls),
        st.builds(Unnest, _small, st.booleans()),
    )
    aliased = sources | st.builds(AliasedRelation, sources, names, tuples(names, most=2))
    joins = st.builds(
        lambda left, right, kind, on: Join(left, right, kind, on),
        aliased,
        aliased,
        st.sampled_from(["INNER", "LEFT", "FULL"]),
        _small,
    )
    crossed = st.builds(lambda left, right: Join(left, right, "CROSS"), aliased | joins, aliased | joins)
    used = st.builds(
        lambda left, right, columns: Join(left, right, "RIGHT", None, columns), aliased, aliased, tuples(names, 1, 2)
    )
    return aliased | joins | crossed | used


_table_arguments = st.builds(
    TableArgument, st.builds(NamedRelation, paths), tuples(_small, most=2), tuples(_orders(_small), most=2)
)


def _larger_queries(inner: Strategy) -> Strategy:
    sets = st.builds(SetQuery, st.sampled_from(["UNION", "INTERSECT", "EXCEPT"]), inner, inner, st.booleans())
    withs = st.builds(With, names, inner, tuples(names, most=2))
    plain = _selects(_small, _relations(inner))
    return st.one_of(
        plain,
        st.builds(Query, sets),
        st.builds(lambda query, ctes: Query(query.body, ctes, query.order_by, query.limit), plain, tuples(withs, 1, 2)),
    )


queries = layered(st.deferred(lambda: _selects(_small, _named_relations)), _larger_queries, 2)

# --- statements -------------------------------------------------------------------------------------------------------

_options = st.dictionaries(texts, texts, max_size=3).map(lambda options: tuple(options.items()))
_columns = st.one_of(
    st.builds(
        lambda name, type_, comment, key: ColumnDefinition(name, type_, comment=comment, is_primary_key=key),
        names,
        types,
        maybe(texts),
        st.booleans(),
    ),
    st.builds(
        lambda name, expression, comment: ColumnDefinition(name, expression=expression, comment=comment),
        names,
        _small,
        maybe(texts),
    ),
    st.builds(
        lambda name, type_, key, virtual: ColumnDefinition(name, type_, metadata=key, is_virtual=virtual),
        names,
        types,
        texts,
        st.booleans(),
    ),
)
_tables = st.builds(
    CreateTable,
    paths,
    tuples(_columns, 1),
    tuples(st.builds(WatermarkDefinition, paths, _small), most=1),
    tuples(st.builds(KeyDefinition, tuples(names, 1), maybe(names), st.booleans(), st.booleans()), most=1),
    maybe(texts),
    tuples(names, most=2),
    maybe(
        st.sampled_from(
            [Distribution("HASH", ("a",), 3), Distribution(None, (), 2), Distribution(None, ("a b",), None)]
        )
    ),
    _options,
    maybe(st.builds(LikeClause, paths, st.sampled_from([(), (("INCLUDING", "ALL"), ("EXCLUDING", "OPTIONS"))]))),
    temporary=st.booleans(),
    if_not_exists=st.booleans(),
)
_inserts = st.builds(
    Insert,
    paths,
    queries,
    tuples(names, most=2),
    tuples(st.tuples(names, _constants), most=2),
    st.booleans(),
    tuples(_hints, most=1),
    maybe(st.just("NOTHING")),
)
_views = st.builds(
    lambda name, query, columns: CreateView(name, query, "", columns), paths, queries, tuples(names, most=2)
)
statements = st.one_of(
    _tables, _inserts, _views, st.builds(QueryStatement, queries), st.builds(StatementSet, tuples(_inserts, 1, 2))
)
