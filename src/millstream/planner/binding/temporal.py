"""JOIN t FOR SYSTEM_TIME AS OF a rowtime: joins every row with the version of the other table valid at its time.

A versioned table has a primary key and a rowtime, or is a view of the last row per key by rowtime (ROW_NUMBER() … ORDER
BY rowtime DESC, the first). A conjunct selects the version: of the versions of the key whose time is at most the row's,
the last matches.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.expressions.row_expressions import Call, Column, RowExpression, columns_of
from millstream.expressions.types import BooleanType
from millstream.planner.binding.calls import system_call, written_text
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.expressions import ExpressionBinder, bind_condition, bind_expression
from millstream.planner.binding.scope import Scope
from millstream.planner.changing_relations import Normalise
from millstream.planner.passes.rewriting import conjunction, conjuncts
from millstream.planner.relations import (
    Field,
    Filter,
    JoinKind,
    Over,
    Project,
    Relation,
    Scan,
    Schema,
    TimeKind,
    WatermarkAssign,
)
from millstream.planner.time_joins import TemporalJoin
from millstream.planner.traits.intervals import selects_version
from millstream.sql import query_syntax as queries
from millstream.sql import syntax
from millstream.sql.places import problem

__all__ = ["bind_temporal", "is_temporal", "plain_source"]


def is_temporal(source: queries.Relation, left: Relation, scope: Scope, context: QueryContext) -> bool:
    """Whether a relation of FROM is a table as of the left side's event time."""
    named = source.relation if isinstance(source, queries.AliasedRelation) else source
    if not isinstance(named, queries.NamedRelation) or named.system_time is None:
        return False
    if not isinstance(named.system_time.moment, syntax.Name):
        return False
    moment = bind_expression(named.system_time.moment, scope, context.session)
    return isinstance(moment, Column) and left.schema.fields[moment.index].time is TimeKind.ROWTIME


def plain_source(source: queries.Relation) -> queries.Relation:
    """The same table without FOR SYSTEM_TIME."""
    if isinstance(source, queries.AliasedRelation):
        return replace(source, relation=plain_source(source.relation))
    assert isinstance(source, queries.NamedRelation)
    return replace(source, system_time=None)


def bind_temporal(
    left: tuple[Relation, Scope],
    right: tuple[Relation, Scope],
    source: queries.Join,
    kind: JoinKind,
    context: QueryContext,
) -> tuple[Relation, Scope]:
    """The join, and the scope of both sides."""
    named = source.right.relation if isinstance(source.right, queries.AliasedRelation) else source.right
    assert isinstance(named, queries.NamedRelation) and named.system_time is not None
    moment = bind_expression(named.system_time.moment, left[1], context.session)
    if kind not in (JoinKind.INNER, JoinKind.LEFT):
        raise problem(f"Temporal table join only supports INNER and LEFT joins, not {kind.value}", source)
    versions, keys = _versions(right[0], named)
    width = len(left[0].schema)
    times = [at for at, field in enumerate(versions.schema.fields) if field.time is TimeKind.ROWTIME]
    if not times:
        raise problem(
            "Event-Time Temporal Table Join requires both primary key and row time attribute in versioned table, but "
            "no row time attribute can be found. Declare a WATERMARK for the table",
            named,
        )
    optional = kind is JoinKind.LEFT
    fields = tuple(
        Field(each.name, each.type.nullable() if optional else each.type, written=each.written)
        for each in versions.schema.fields
    )
    scope = left[1] + _typed(right[1], fields)
    if source.condition is None:
        raise problem("A temporal join needs ON with the primary key of the versioned table", source)
    condition = bind_condition(source.condition, ExpressionBinder(scope, context.session, "ON"), "ON")
    condition = _by_key(condition, keys, width, versions, source)
    version = Column(versions.schema.types[times[0]], width + times[0])
    is_there = system_call("<=", [version, moment], named)
    whole = Call(condition.type.with_nullability(True), "AND", (condition, is_there))
    schema = Schema(left[0].schema.fields + fields)
    made = TemporalJoin(schema, left[0], versions, kind, whole, site=written_text(source))
    return made, scope


def _typed(scope: Scope, fields: tuple[Field, ...]) -> Scope:
    sources, position = [], 0
    for each in scope.sources:
        made = fields[position : position + len(each.fields)]
        pairs = zip(each.fields, made, strict=True)
        sources.append(replace(each, fields=tuple(replace(a, type=b.type, time=None) for a, b in pairs)))
        position += len(each.fields)
    return replace(scope, sources=tuple(sources))


def _versions(relation: Relation, named: queries.NamedRelation) -> tuple[Relation, tuple[int, ...]]:
    """The rows that are versions of a table, and its key columns."""
    if isinstance(relation, Normalise):
        return relation.input, relation.keys
    keys = _primary_key(relation)
    if keys:
        return relation, keys
    versions = _of_last_rows(relation)
    if versions is None:
        raise problem(
            "Temporal Table Join requires primary key in versioned table, but no primary key can be found. Give the "
            "table a PRIMARY KEY … NOT ENFORCED, or use a view of the last row of every key: "
            "ROW_NUMBER() OVER (PARTITION BY key ORDER BY rowtime DESC) = 1",
            named,
        )
    return versions


def _primary_key(relation: Relation) -> tuple[int, ...]:
    """The primary key of a table, as columns of the scan."""
    names = relation.schema.names
    below = relation
    while isinstance(below, WatermarkAssign | Project):
        below = below.input
    key: tuple[str, ...] = getattr(below.table, "primary_key", ()) if isinstance(below, Scan) else ()
    return tuple(names.index(name) for name in key) if all(name in names for name in key) else ()


def _of_last_rows(relation: Relation) -> tuple[Relation, tuple[int, ...]] | None:
    """The input of a view of last rows, and its partition columns."""
    if isinstance(relation, Project):
        versions = _of_last_rows(relation.input)
        if versions is None:
            return None
        rows, keys = versions
        width = len(rows.schema)
        # The row number is always 1: no expression may use it, so projections drop it.
        passed = [
            (field, each)
            for field, each in zip(relation.schema.fields, relation.expressions, strict=True)
            if not (isinstance(each, Column) and each.index >= width)
        ]
        if len(passed) < len(relation.expressions):
            return None
        places = {each.index: at for at, (_, each) in enumerate(passed) if isinstance(each, Column)}
        if any(key not in places for key in keys):
            return None
        schema = Schema(tuple(field for field, _ in passed))
        return Project(schema, rows, tuple(each for _, each in passed)), tuple(places[key] for key in keys)
    if isinstance(relation, Filter) and isinstance(relation.input, Project):
        # WHERE over a query that numbers its rows: the number's definition is checked below.
        inner = relation.input
        numbers = [
            at for at, each in enumerate(inner.expressions) if _is_number(each, inner.input) and at < len(inner.schema)
        ]
        if isinstance(inner.input, Over) and len(numbers) == 1 and _is_first_only(relation.condition, numbers[0]):
            return _over_versions(inner, inner.input, numbers[0])
    return None


def _is_number(expression: object, over: Relation) -> bool:
    return isinstance(expression, Column) and isinstance(over, Over) and expression.index == len(over.input.schema)


def _is_first_only(condition: object, number: int) -> bool:
    parts = conjuncts(condition) if isinstance(condition, Call) else []
    if len(parts) != 1 or not isinstance(parts[0], Call):
        return False
    part = parts[0]
    first = [each for each in part.arguments if isinstance(each, Column) and each.index == number]
    ones = [each for each in part.arguments if getattr(each, "value", None) == 1]
    return part.function in ("=", "<=") and len(first) == 1 and len(ones) == 1


def _over_versions(inner: Project, over: Over, number: int) -> tuple[Relation, tuple[int, ...]] | None:
    order = over.order
    is_latest = len(order) == 1 and order[0].descending and over.calls[0].call.function == "ROW_NUMBER"
    if not is_latest or over.input.schema.fields[order[0].column].time is not TimeKind.ROWTIME or len(over.calls) != 1:
        return None
    columns = [at for at in range(len(inner.expressions)) if at != number]
    if number != len(inner.expressions) - 1:
        return None
    expressions = tuple(inner.expressions[at] for at in columns)
    places = {each.index: at for at, each in enumerate(expressions) if isinstance(each, Column)}
    if any(column not in places for column in over.partition):
        return None
    schema = Schema(tuple(inner.schema.fields[at] for at in columns))
    return Project(schema, over.input, expressions), tuple(places[column] for column in over.partition)


def _by_key(
    condition: RowExpression, keys: tuple[int, ...], width: int, versions: Relation, source: queries.Join
) -> RowExpression:
    """The condition with the version key, by which the join looks up versions, as the only equality between both sides.
    Other conjuncts, including equalities, are evaluated on the matched version. They are wrapped in the equivalent IS
    TRUE, so that no other comparison of instants is taken for the one that selects the version."""
    missing, parts = list(keys), []
    for part in conjuncts(condition):
        key = _key_of(part, width)
        if key in missing:
            missing.remove(key)
        elif selects_version(part):
            part = Call(BooleanType(False), "IS TRUE", (part,))
        parts.append(part)
    if missing:
        name = versions.schema.names[missing[0]]
        raise problem(
            "Temporal table's primary key must be included in the equivalence condition of temporal join, but "
            f"'{name}' is not: write ON … = {name}",
            source,
        )
    together = conjunction(parts)
    assert together is not None
    return together


def _key_of(part: RowExpression, width: int) -> int | None:
    """The version's column that a conjunct equates to an expression of the left side, or None."""
    if not isinstance(part, Call) or part.function != "=":
        return None
    for each, other in (part.arguments, part.arguments[::-1]):
        used = columns_of(other)
        if isinstance(each, Column) and each.index >= width and used and max(used) < width:
            return each.index - width
    return None
