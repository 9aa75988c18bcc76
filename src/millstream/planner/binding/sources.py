"""Relations in FROM: tables, views, queries, window functions, joins, and functions evaluated per row."""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import MillstreamError, SqlError
from millstream.expressions.row_expressions import Call, Column, Literal, RowExpression, columns_of, walk
from millstream.expressions.types import BooleanType, IntType
from millstream.planner.binding.calls import system_call, written_text
from millstream.planner.binding.changelogs import CHANGELOG_FUNCTIONS, bind_changelog
from millstream.planner.binding.context import QueryContext
from millstream.planner.binding.correlations import bind_correlated, is_correlated, meeting
from millstream.planner.binding.expressions import ExpressionBinder, bind_condition
from millstream.planner.binding.hints import hinted_options
from millstream.planner.binding.job_tables import bind_job_table, is_job_table
from millstream.planner.binding.lookups import bind_lookup, is_as_of
from millstream.planner.binding.projections import project, renamed
from millstream.planner.binding.query_values import QueryValues
from millstream.planner.binding.scans import scan_table
from millstream.planner.binding.scope import NamedSource, Scope
from millstream.planner.binding.state_hints import state_hints
from millstream.planner.binding.subqueries import lateral_query
from millstream.planner.binding.temporal import bind_temporal, is_temporal, plain_source
from millstream.planner.binding.windows import WINDOW_FUNCTIONS, assign_window, window_arguments
from millstream.planner.entries import ViewEntry, shown
from millstream.planner.not_yet import not_yet
from millstream.planner.passes.rewriting import conjunction, conjuncts, moved
from millstream.planner.relations import Correlate, Field, Filter, Join, JoinKind, Relation, Schema, Unnest, Values
from millstream.sql import query_syntax as queries
from millstream.sql import syntax
from millstream.sql.places import problem

__all__ = ["bind_source", "expand_view", "joined", "one_row"]


def bind_source(source: queries.Relation, context: QueryContext) -> tuple[Relation, Scope]:
    """A relation of FROM, and its scope."""
    if isinstance(source, queries.NamedRelation):
        return _named(source, context)
    if isinstance(source, queries.AliasedRelation):
        return _aliased(source, context)
    if isinstance(source, queries.Derived):
        from millstream.planner.binding.queries import bind_in

        relation = bind_in(source.query, context)
        return relation, Scope.of(relation)
    if isinstance(source, queries.Join):
        return _join(source, context)
    if isinstance(source, queries.TableFunctionCall) and source.call.name.upper() in WINDOW_FUNCTIONS:
        return _window(source, context)
    if isinstance(source, queries.TableFunctionCall) and source.call.name.upper() in CHANGELOG_FUNCTIONS:
        changelog = bind_changelog(source.call, lambda table: bind_source(table, context)[0], context.session)
        return changelog, Scope.of(changelog)
    if is_correlated(source):
        return bind_correlated(_empty_row(), Scope(), source, JoinKind.INNER, None, context)
    if isinstance(source, queries.Match):
        instead = "match the pattern in a KeyedProcessFunction with state, over to_data_stream(table)"
        raise not_yet("MATCH_RECOGNIZE", source, instead)
    raise problem(f"{type(source).__name__} is not allowed in FROM", source)


def one_row() -> Values:
    """The input of SELECT without FROM. It has one hidden column: a row without columns would be lost in a join with a
    scalar subquery."""
    number = IntType(False)
    return Values(Schema((Field("ZERO", number),)), ((Literal(number, 0),),))


def _empty_row() -> Values:
    """One row without columns: the input of a function that is the only relation in FROM."""
    return Values(Schema(()), ((),))


# --- tables and views -------------------------------------------------------------------------------------------------


def _named(source: queries.NamedRelation, context: QueryContext) -> tuple[Relation, Scope]:
    if (live := bind_job_table(source, context)) is not None:
        return live
    if source.system_time is not None:
        instead = "join it, as FROM a JOIN t FOR SYSTEM_TIME AS OF a.ts ON a.k = t.k, where ts is a time attribute of a"
        raise not_yet("FOR SYSTEM_TIME AS OF of a table that is not joined", source, instead)
    options = hinted_options(source.hints)
    if len(source.parts) == 1 and source.parts[0] in context.ctes:
        if options:
            raise problem(f"'{source.parts[0]}' is a WITH query: hints can only be applied to tables", source)
        relation = context.ctes[source.parts[0]]
        return relation, Scope.of(relation, source.parts[0])
    entry = context.session.find_table(source.parts)
    if entry is None:
        hint = " A path is [catalog.][database.]table."
        if len(source.parts) <= 3:
            hint = context.session.table_hint(source.parts)
        near = [name for name in context.ctes if name.lower() == source.parts[-1].lower()]
        hint = f" Did you mean {near[0]!r}? Names are case sensitive." if near else hint
        raise problem(f"Object '{'.'.join(source.parts)}' not found: there is no such table or view.{hint}", source)
    if isinstance(entry, ViewEntry):
        if options:
            raise problem(
                f"View '{shown(entry.path)}' cannot be enriched with new options. Hints can only be applied to tables.",
                source,
            )
        relation = expand_view(entry, context)
    else:
        relation = scan_table(entry, context.session, options)
    return relation, Scope.of(relation).named(entry.path, relation.schema.names)


def expand_view(entry: ViewEntry, context: QueryContext) -> Relation:
    """A view's relation: its query, bound in the context of its definition. Errors inside name the view."""
    if entry.relation is not None:
        return renamed(entry.relation, entry.names or entry.relation.schema.names)
    assert entry.query is not None
    if entry.path in context.views:
        raise SqlError(f"the view {shown(entry.path)} refers to itself")
    from millstream.planner.binding.queries import bind_in

    try:
        relation = bind_in(entry.query, context.inside_view(entry.path, entry.home))
    except SqlError as error:
        words = f"in the view {shown(entry.path)}: {error.message}"
        raise SqlError(words, line=error.line, column=error.column) from None
    except MillstreamError as error:
        raise type(error)(f"in the view {shown(entry.path)}: {error.message}") from None
    return renamed(_as_made(relation, entry), entry.names or relation.schema.names)


def _as_made(relation: Relation, entry: ViewEntry) -> Relation:
    """The columns that the view had when it was defined, without columns added to its tables since."""
    names = relation.schema.names
    if not entry.selected or names == entry.selected:
        return relation
    missing = [name for name in entry.selected if name not in names]
    if missing:
        words = f"its query no longer has the column '{missing[0]}'. Replace it with CREATE OR REPLACE VIEW"
        raise SqlError(f"in the view {shown(entry.path)}: {words}")
    columns = [Column(relation.schema.types[names.index(name)], names.index(name)) for name in entry.selected]
    return project(relation, columns, entry.selected)


def _aliased(source: queries.AliasedRelation, context: QueryContext) -> tuple[Relation, Scope]:
    inner = source.relation
    if is_correlated(inner) and not isinstance(inner, queries.AliasedRelation):
        return bind_correlated(_empty_row(), Scope(), source, JoinKind.INNER, None, context)
    relation, scope = bind_source(inner, context)
    if source.columns:
        if len(source.columns) != len(relation.schema):
            counts = f"{len(source.columns)} names for {len(relation.schema)} columns"
            raise problem(f"List of column aliases must have same degree as table: {counts}", source)
        relation = renamed(relation, source.columns)
        scope = Scope.of(relation)
    return relation, scope.named((source.alias,))


# --- windows ----------------------------------------------------------------------------------------------------------


def _window(source: queries.TableFunctionCall, context: QueryContext) -> tuple[Relation, Scope]:
    kind = WINDOW_FUNCTIONS[source.call.name.upper()]
    arguments = window_arguments(source.call, kind)
    relation, _ = bind_source(arguments.data.relation, context)
    assigned = assign_window(relation, arguments, kind, context.session, source.call)
    return assigned, Scope.of(assigned)


# --- joins ------------------------------------------------------------------------------------------------------------


def _join(source: queries.Join, context: QueryContext) -> tuple[Relation, Scope]:
    left, left_scope = bind_source(source.left, context)
    kind = JoinKind.INNER if source.kind == "CROSS" else JoinKind(source.kind)
    if is_temporal(source.right, left, left_scope, context):
        versions = bind_source(plain_source(source.right), context)
        return bind_temporal((left, left_scope), versions, source, kind, context)
    if is_correlated(source.right):
        if kind not in (JoinKind.INNER, JoinKind.LEFT):
            raise problem(f"a function evaluated per row supports only INNER and LEFT joins, not {kind.value}", source)
        made, both = bind_correlated(left, left_scope, source.right, kind, source.condition, context)
        equal, names_seen = _equal_names(source, left_scope, both, kind)
        if equal is not None:
            assert isinstance(made, Correlate | Unnest)  # USING replaces ON
            made = meeting(made, equal)
        return made, names_seen
    if (lateral := _lateral_query(source.right)) is not None:
        return _lateral(left, left_scope, lateral, source, kind, context)
    if is_as_of(source.right) and not is_job_table(source.right, context):
        return bind_lookup(left, left_scope, source, kind, context)
    right, right_scope = bind_source(source.right, context)
    scope = left_scope + right_scope
    condition, scope = _equal_names(source, left_scope, scope, kind)
    values = QueryValues(replace(scope, outer=context.outer), context)
    if condition is None and source.condition is not None:
        binder = ExpressionBinder(replace(scope, outer=context.outer), context.session, "ON")
        binder.values = values
        condition = bind_condition(source.condition, binder, "ON")
    if isinstance(condition, Literal) and condition.value is True:
        condition = None
    relation, names_seen = joined(left, right, kind, condition, scope)
    hints = state_hints(context.hints, left_scope, right_scope)
    relation = replace(relation, site=written_text(source), hints=hints)
    return _with_queries(relation, values, source), names_seen


def _with_queries(join: Join, values: QueryValues, source: queries.Join) -> Relation:
    """The join with the subqueries of its condition as columns: above it, or in the sides of an outer join."""
    if not values or join.condition is None:
        return join
    parts = conjuncts(join.condition)
    schema = join.schema
    if join.kind is JoinKind.INNER:
        plain = [part for part in parts if not values.used(part)]
        subquery_parts = [part for part in parts if values.used(part)]
        above, bound = values.joined(replace(join, condition=conjunction(plain)), subquery_parts)
        condition = conjunction(bound)
        made: Relation = above if condition is None else Filter(above.schema, above, condition)
        return project(made, schema.columns, schema.names)
    split = values.split(join, parts)
    if split is None:
        instead = "compute it in a query in FROM of one of them"
        raise not_yet(f"A subquery over both sides in the ON of a {join.kind.value} join", source.condition, instead)
    made, bound = split
    made = replace(made, condition=conjunction(bound))
    width, grown = len(join.left.schema), len(made.left.schema)
    if len(made.schema) == len(schema):
        return made
    places = [*range(width), *range(grown, grown + len(join.right.schema))]
    return project(made, [Column(made.schema.types[at], at) for at in places], schema.names)


def _lateral_query(source: queries.Relation) -> queries.Derived | None:
    """The query of LATERAL (SELECT …)."""
    if isinstance(source, queries.AliasedRelation):
        return _lateral_query(source.relation)
    return source if isinstance(source, queries.Derived) and source.lateral else None


def _lateral(
    left: Relation,
    left_scope: Scope,
    query: queries.Derived,
    source: queries.Join,
    kind: JoinKind,
    context: QueryContext,
) -> tuple[Relation, Scope]:
    """Joins every row with the rows of a query evaluated for it."""
    if kind not in (JoinKind.INNER, JoinKind.LEFT):
        raise problem(f"LATERAL supports only INNER and LEFT joins, not {kind.value}", source)
    right, width, conditions = lateral_query(query, left, replace(left_scope, outer=context.outer), context)
    right_scope = Scope((NamedSource(right.schema.fields[:width]),))
    if isinstance(source.right, queries.AliasedRelation):
        names = source.right.columns or right_scope.names
        if len(names) != width:
            counts = f"{len(names)} names for {width} columns"
            raise problem(f"List of column aliases must have same degree as table: {counts}", source.right)
        right_scope = right_scope.named((source.right.alias,), names)
    equal, scope = _equal_names(source, left_scope, left_scope + right_scope, kind)
    if equal is not None:
        conditions += [equal]
    elif source.condition is not None:
        names_on = replace(scope, outer=context.outer)
        on = bind_condition(source.condition, ExpressionBinder(names_on, context.session, "ON"), "ON")
        conditions += [] if isinstance(on, Literal) and on.value is True else [on]
    relation, names_seen = joined(left, right, kind, conjunction(conditions), scope)
    hints = state_hints(context.hints, left_scope, right_scope)
    made: Relation = replace(relation, site=written_text(source), hints=hints)
    own_width = len(left.schema) + width
    if len(made.schema) > own_width:  # drop join keys that are not among its columns
        made = project(
            made, [Column(made.schema.types[at], at) for at in range(own_width)], made.schema.names[:own_width]
        )
    return made, names_seen


def joined(
    left: Relation, right: Relation, kind: JoinKind, condition: RowExpression | None, scope: Scope
) -> tuple[Join, Scope]:
    """The join; columns of an optional side become nullable. `recognise_time_joins` decides whether its time attributes
    remain, once the whole condition is known."""
    optional = {JoinKind.LEFT: (False, True), JoinKind.RIGHT: (True, False), JoinKind.FULL: (True, True)}
    first, second = optional.get(kind, (False, False))

    def joined_fields(fields: tuple[Field, ...], is_optional: bool) -> tuple[Field, ...]:
        return tuple(replace(each, type=each.type.nullable()) if is_optional else each for each in fields)

    fields = joined_fields(left.schema.fields, first) + joined_fields(right.schema.fields, second)
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        fields = joined_fields(left.schema.fields, False)
    position = 0
    sources = []
    for source in scope.sources:
        width = len(source.fields)
        made = fields[position : position + width]
        pairs = zip(source.fields, made, strict=False)
        renewed = tuple(replace(each, type=new.type, time=new.time) for each, new in pairs)
        sources.append(replace(source, fields=renewed))
        position += width
    return Join(Schema(fields), left, right, kind, condition), Scope(tuple(sources), merged=scope.merged)


def _equal_names(source: queries.Join, left: Scope, both: Scope, kind: JoinKind) -> tuple[RowExpression | None, Scope]:
    """The condition of USING or NATURAL (None without equal names), and the scope above the join. `both` is the scope
    of the left side followed by the right."""
    if not source.natural and not source.using:
        return None, both
    width, count = len(left.fields), len(left.sources)
    right = Scope(
        tuple(replace(each, offset=each.offset - width) for each in both.sources[count:]),
        merged=tuple(tuple(at - width for at in each) for each in both.merged[len(left.merged) :]),
    )
    names = tuple(name for name in left.names if name in right.names) if source.natural else source.using
    return _using(names, left, right, kind, source) if names else (None, both)


def _using(
    names: tuple[str, ...], left: Scope, right: Scope, kind: JoinKind, node: syntax.Node
) -> tuple[RowExpression, Scope]:
    """USING (a, b): equates these columns and lists them once. Where the left value is NULL, the right value is
    used."""
    both, width = left + right, len(left.fields)
    condition: RowExpression | None = None
    hidden: set[int] = set()
    merged: list[tuple[int, ...]] = []
    for name in names:
        for side, scope in (("left", left), ("right", right)):
            if name not in scope.names:
                raise problem(f"Column '{name}' not found in the {side} table of the join", node)
        first, second = left.resolve((name,), node), right.resolve((name,), node)
        second = moved(second, {at: at + width for at in columns_of(second)})
        equal: Call = system_call("=", [first, second], node)
        condition = equal if condition is None else system_call("AND", [condition, equal], node)
        firsts, seconds = (tuple(p.index for p in walk(side) if isinstance(p, Column)) for side in (first, second))
        hidden.update(seconds)
        merged.append(firsts + seconds if kind in (JoinKind.RIGHT, JoinKind.FULL) else firsts)
    named = hidden | {each[0] for each in merged}
    merged += [each for each in both.merged if each[0] not in named]
    sources = tuple(
        replace(each, hidden=each.hidden | {column - each.offset for column in hidden if column >= each.offset})
        if each.offset >= width
        else each
        for each in both.sources
    )
    return condition or Literal(BooleanType(False), True), Scope(sources, merged=tuple(merged))
