"""JOIN t FOR SYSTEM_TIME AS OF a processing time: joins each row with the rows of a lookup table on arrival.

The table's connector supports lookups by key. Conjuncts that equate a column of the table form the key; the others are
evaluated per pair. Input rows keep their time attributes.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.connectors.tables.factory import TableFactory
from millstream.expressions.coercion import as_type
from millstream.expressions.nanosecond_range import has_nanoseconds
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, columns_of
from millstream.planner.binding.calls import written_text
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.expressions import ExpressionBinder, bind_condition, bind_expression
from millstream.planner.binding.hints import LOOKUP, hinted_options
from millstream.planner.binding.scope import Scope
from millstream.planner.changing_relations import LookupJoin, LookupKey
from millstream.planner.entries import Options, TableEntry, ViewEntry, shown
from millstream.planner.not_yet import not_yet
from millstream.planner.passes.rewriting import conjunction, conjuncts, is_deterministic
from millstream.planner.relations import Field, JoinKind, Relation, Schema, TimeKind, Values
from millstream.planner.table_definitions import table_factory
from millstream.planner.traits.times import is_moment
from millstream.sql import query_syntax as queries
from millstream.sql.places import problem

__all__ = ["bind_lookup", "is_as_of"]


def is_as_of(source: queries.Relation) -> bool:
    """Whether a relation of FROM is a table as of a time."""
    return _named(source).system_time is not None if isinstance(_inner(source), queries.NamedRelation) else False


def _inner(source: queries.Relation) -> queries.Relation:
    return source.relation if isinstance(source, queries.AliasedRelation) else source


def _named(source: queries.Relation) -> queries.NamedRelation:
    inner = _inner(source)
    assert isinstance(inner, queries.NamedRelation)
    return inner


def bind_lookup(
    left: Relation, left_scope: Scope, source: queries.Join, kind: JoinKind, context: QueryContext
) -> tuple[Relation, Scope]:
    """The join, and the scope of both sides."""
    named = _named(source.right)
    assert named.system_time is not None
    moment = bind_expression(named.system_time.moment, left_scope, context.session)
    if not isinstance(moment, Column) or left.schema.fields[moment.index].time is not TimeKind.PROCTIME:
        raise not_yet("FOR SYSTEM_TIME AS OF", named)
    entry = _table(named, context)
    if kind not in (JoinKind.INNER, JoinKind.LEFT):
        raise problem(
            f"a lookup join supports only INNER and LEFT, not {kind.value}: it cannot read unmatched table rows", source
        )
    columns = tuple(range(len(entry.read)))
    fields = tuple(Field(each.name, each.type) for each in entry.read)
    if kind is JoinKind.LEFT:
        fields = tuple(replace(each, type=each.type.nullable()) for each in fields)
    scope = left_scope + _right_scope(source.right, entry, fields)
    if source.using or source.natural:
        raise problem("a lookup join takes its key from ON: USING and NATURAL are not supported", source)
    condition = None
    if source.condition is not None:
        condition = bind_condition(source.condition, ExpressionBinder(scope, context.session, "ON"), "ON")
    keys, rest = _keys(condition, len(left.schema))
    if not keys:
        raise problem(
            f"Temporal table join requires an equality condition on fields of table [{shown(entry.path)}] as the "
            "lookup key. Write ON … = a column of the table, of the same type",
            source,
        )
    options = hinted_options(named.hints)
    hints, site = _hints(source.right, context), written_text(source)
    schema = Schema(left.schema.fields + fields)
    return LookupJoin(schema, left, entry, columns, keys, rest, kind, options, hints, site=site), scope


def _table(named: queries.NamedRelation, context: QueryContext) -> TableEntry:
    entry = context.session.find_table(named.parts)
    name = ".".join(named.parts)
    if entry is None:
        hint = context.session.table_hint(named.parts) if len(named.parts) <= 3 else ""
        raise problem(f"Object '{name}' not found: there is no such table or view.{hint}", named)
    if isinstance(entry, ViewEntry) or entry.origin is not None:
        raise problem(
            f"'{name}' cannot be looked up: its connector does not support lookups by key. Use a table of "
            "'jdbc', 'filesystem', 'values' or 'python'",
            named,
        )
    factory = table_factory(entry)
    if type(factory).lookup is TableFactory.lookup:
        raise problem(
            f"Temporal Table Join requires a lookup source, and connector '{factory.name}' of '{name}' does not "
            "support lookups by key. Those that do are 'jdbc', 'filesystem', 'values' and 'python'",
            named,
        )
    computed = [column.name for column in entry.columns if column.is_computed]
    if computed:
        raise not_yet(f"a lookup of a table with the computed column '{computed[0]}'", named)
    return entry


def _right_scope(source: queries.Relation, entry: TableEntry, fields: tuple[Field, ...]) -> Scope:
    relation = Values(Schema(fields), ())
    scope = Scope.of(relation).named(entry.path, relation.schema.names)
    if isinstance(source, queries.AliasedRelation):
        if source.columns:
            raise problem("a lookup table cannot have column aliases: leave them out", source)
        return scope.named((source.alias,))
    return scope


def _keys(condition: RowExpression | None, width: int) -> tuple[tuple[LookupKey, ...], RowExpression | None]:
    """The lookup key, and the rest of the condition."""
    keys: dict[int, LookupKey] = {}
    rest: list[RowExpression] = []
    for part in conjuncts(condition) if condition is not None else []:
        key = _key(part, width)
        if key is None or key.column in keys:
            rest.append(part)
        else:
            keys[key.column] = key
    return tuple(keys.values()), conjunction(rest)


def _key(part: RowExpression, width: int) -> LookupKey | None:
    if not isinstance(part, Call) or part.function != "=" or not is_deterministic(part):
        return None
    for column, value in (part.arguments, part.arguments[::-1]):
        if is_moment(value) and has_nanoseconds(column.type) and type(value.type) is type(column.type):
            value = as_type(value, column.type)
        is_same = column.type.nullable() == value.type.nullable()
        is_of_input = isinstance(value, Literal) or (columns_of(value) and max(columns_of(value)) < width)
        if isinstance(column, Column) and column.index >= width and is_of_input and is_same:
            return LookupKey(value, column.index - width)
    return None


def _hints(source: queries.Relation, context: QueryContext) -> Options:
    """The options of LOOKUP hints of the SELECT for this table."""
    names = {_named(source).parts[-1]}
    if isinstance(source, queries.AliasedRelation):
        names.add(source.alias)
    for hint in context.hints:
        if hint.name.upper() == LOOKUP:
            pairs = {str(key): value for key, value in hint.arguments if key is not None}
            if pairs.get("table") in names:
                return tuple(pairs.items())
    return ()
