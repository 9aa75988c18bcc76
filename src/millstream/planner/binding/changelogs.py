"""TO_CHANGELOG and FROM_CHANGELOG: a table that changes as rows that tell its changes, and such rows as the table.

    TO_CHANGELOG(input => TABLE t [PARTITION BY k], op => DESCRIPTOR(op), op_mapping => MAP['INSERT', 'I', …])
    FROM_CHANGELOG(input => TABLE t [PARTITION BY k], op => DESCRIPTOR(op), op_mapping => MAP['c, r', 'INSERT', …],
        invalid_op_handling => 'FAIL' or 'SKIP')

What is given has the columns of PARTITION BY first; in TO_CHANGELOG the column of the operation follows, then all
others. Where several kinds have one code, or several codes one kind, they are listed: 'INSERT, UPDATE_AFTER'. Kinds
that a mapping of TO_CHANGELOG leaves out are left out. A mapping that has UPDATE_AFTER without UPDATE_BEFORE tells
upserts, in both: PARTITION BY is then their key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millstream.common.types import RowKind
from millstream.expressions.row_expressions import Column
from millstream.expressions.types import LENGTH_MAX, VarCharType, is_text
from millstream.planner.binding.projections import project
from millstream.planner.binding.scope import Scope
from millstream.planner.changing_relations import FromChangelog, Normalise, ToChangelog
from millstream.planner.relations import Field, Relation, Schema
from millstream.planner.session import PlannerSession
from millstream.sql import query_syntax as queries
from millstream.sql import syntax
from millstream.sql.places import problem

__all__ = ["CHANGELOG_FUNCTIONS", "bind_changelog"]

_TO, _FROM = "TO_CHANGELOG", "FROM_CHANGELOG"
CHANGELOG_FUNCTIONS = (_TO, _FROM)
_NAMES = {
    _TO: ("INPUT", "OP", "OP_MAPPING", "PRODUCES_FULL_DELETES"),
    _FROM: ("INPUT", "OP", "OP_MAPPING", "INVALID_OP_HANDLING"),
}
Arguments = Mapping[str, syntax.Expression]


@dataclass(frozen=True)
class _Request:
    """What is asked of a function: the table, the columns of its PARTITION BY, and the other arguments by name."""

    relation: Relation
    partition: tuple[int, ...]
    arguments: Arguments
    call: syntax.Call


def bind_changelog(
    call: syntax.Call, bind_table: Callable[[queries.Relation], Relation], session: PlannerSession
) -> Relation:
    """The function over the table it is given."""
    function = call.name.upper()
    arguments = _arguments(call, function)
    table = arguments.get("INPUT")
    if not isinstance(table, syntax.TableArgument):
        raise problem(f"{function}: input is a table: input => TABLE name, or TABLE (SELECT …)", table or call)
    if table.order_by:
        raise problem(f"{function} takes no ORDER BY: changes come in the order they have", table)
    relation = bind_table(table.relation)
    partition = tuple(_column(each, relation, function) for each in table.partition_by)
    request = _Request(relation, partition, arguments, call)
    if function == _TO:
        return _to_changelog(request)
    if session.is_batch:
        raise problem(f"{_FROM} needs a stream: a table that changes has no place in BATCH", call)
    return _from_changelog(request)


def _arguments(call: syntax.Call, function: str) -> dict[str, syntax.Expression]:
    names = _NAMES[function]
    given: dict[str, syntax.Expression] = {}
    for number, argument in enumerate(call.arguments):
        name, value = names[min(number, len(names) - 1)], argument
        if isinstance(argument, syntax.Argument):
            name, value = argument.name.upper(), argument.value
        elif number >= len(names):
            raise problem(f"{function} takes at most {len(names)} arguments, got {len(call.arguments)}", call)
        if name not in names:
            raise problem(f"{function} has no argument '{name.lower()}': it has {', '.join(names).lower()}", argument)
        if name in given:
            raise problem(f"{function}: the argument '{name.lower()}' is given twice", argument)
        given[name] = value
    return given


def _to_changelog(request: _Request) -> Relation:
    """The changes of a relation as rows."""
    relation, arguments = request.relation, request.arguments
    codes: dict[RowKind, str] = {kind: kind.name for kind in RowKind}
    if "OP_MAPPING" in arguments:
        codes = {}
        for kinds, code in _pairs(arguments["OP_MAPPING"], _TO):
            for kind in _kinds(kinds, arguments["OP_MAPPING"], _TO):
                if kind in codes:
                    raise problem(f"{_TO}: op_mapping has {kind.name} twice", arguments["OP_MAPPING"])
                codes[kind] = code
    full = arguments.get("PRODUCES_FULL_DELETES")
    if full is not None and not (isinstance(full, syntax.Literal) and full.value is True):
        words = "rows that are deleted are given whole; leave the argument out, and set columns to NULL in a SELECT"
        raise problem(f"{_TO}: produces_full_deletes is TRUE here: {words}", full)
    name = _name(arguments.get("OP"), _TO)
    if name in relation.schema.names:
        words = f"give the column of the operation another name: op => DESCRIPTOR({name}_code)"
        raise problem(f"{_TO}: the table has a column '{name}': {words}", arguments.get("OP") or request.call)
    fields = (*_untimed(relation), Field(name, VarCharType(LENGTH_MAX, False)))
    is_upserts = RowKind.UPDATE_AFTER in codes and RowKind.UPDATE_BEFORE not in codes
    key = request.partition if is_upserts else ()
    told = ToChangelog(Schema(fields), relation, tuple(codes.get(kind) for kind in RowKind), key)
    return _ordered(told, (*request.partition, len(relation.schema)))


def _from_changelog(request: _Request) -> Relation:
    """The table whose changes the rows of a relation tell."""
    relation, arguments, partition, where = request.relation, request.arguments, request.partition, request.call
    name, written = _name(arguments.get("OP"), _FROM), arguments.get("OP") or where
    if name not in relation.schema.names:
        raise problem(
            f"{_FROM}: the table has no column '{name}', which tells the operation: op => DESCRIPTOR(…)", written
        )
    op = relation.schema.names.index(name)
    if op in partition:
        words = f"PARTITION BY names '{name}', which tells the operation and is no column of the table that it tells of"
        raise problem(f"{_FROM}: {words}", written)
    if not is_text(relation.schema.types[op]):
        raise problem(f"{_FROM}: the column '{name}' is {relation.schema.types[op]}, expected STRING. Cast it", written)
    kinds: dict[str, RowKind] = {kind.name: kind for kind in RowKind}
    mapping = arguments.get("OP_MAPPING")
    if mapping is not None:
        kinds = {}
        for codes, kind_name in _pairs(mapping, _FROM):
            (kind,) = _kinds(kind_name, mapping, _FROM, several=False)
            for code in codes.split(","):
                if code.strip() in kinds:
                    raise problem(f"{_FROM}: op_mapping has the code '{code.strip()}' twice", mapping)
                kinds[code.strip()] = kind
    names = tuple((code, kind.name) for code, kind in kinds.items())
    told = FromChangelog(Schema(_untimed(relation)), relation, op, names, _skips(arguments))
    rows, told_kinds = _ordered(told, partition, without=op), set(kinds.values())
    if RowKind.UPDATE_BEFORE in told_kinds and RowKind.UPDATE_AFTER not in told_kinds:
        raise problem(f"{_FROM}: op_mapping has UPDATE_BEFORE and no UPDATE_AFTER", mapping or where)
    if RowKind.UPDATE_BEFORE in told_kinds or RowKind.UPDATE_AFTER not in told_kinds:
        return rows
    if not partition:
        words = "say by which key: input => TABLE t PARTITION BY key; or map a code to UPDATE_BEFORE, too"
        raise problem(f"{_FROM}: UPDATE_AFTER without UPDATE_BEFORE tells upserts: {words}", mapping or where)
    return Normalise(rows.schema, rows, tuple(range(len(partition))))


def _ordered(relation: Relation, first: tuple[int, ...], *, without: int | None = None) -> Relation:
    """The columns of a relation, these ones first."""
    order = [*first, *(at for at in range(len(relation.schema)) if at not in first and at != without)]
    types, names = relation.schema.types, relation.schema.names
    return project(relation, [Column(types[at], at) for at in order], [names[at] for at in order])


def _untimed(relation: Relation) -> tuple[Field, ...]:
    return tuple(Field(each.name, each.type) for each in relation.schema.fields)


def _skips(arguments: Arguments) -> bool:
    handling = arguments.get("INVALID_OP_HANDLING")
    if handling is None:
        return False
    if not isinstance(handling, syntax.Literal) or handling.value not in ("FAIL", "SKIP"):
        raise problem(f"{_FROM}: invalid_op_handling is 'FAIL' or 'SKIP'", handling)
    return bool(handling.value == "SKIP")


def _column(written: syntax.Expression, relation: Relation, function: str) -> int:
    bound = Scope.of(relation).resolve(written.parts, written) if isinstance(written, syntax.Name) else None
    if not isinstance(bound, Column):
        raise problem(f"{function}: PARTITION BY names columns of its table", written)
    return bound.index


def _name(descriptor: syntax.Expression | None, function: str) -> str:
    if descriptor is None:
        return "op"
    if not isinstance(descriptor, syntax.Descriptor) or len(descriptor.columns) != 1:
        raise problem(f"{function}: op is DESCRIPTOR(name), with one name", descriptor)
    return descriptor.columns[0]


def _pairs(mapping: syntax.Expression, function: str) -> list[tuple[str, str]]:
    """The texts of MAP['a', 'b', …], two by two."""
    cells = mapping.arguments if isinstance(mapping, syntax.Call) and mapping.name.upper() == "MAP" else ()
    texts = [each.value for each in cells if isinstance(each, syntax.Literal) and isinstance(each.value, str)]
    if not texts or len(texts) != len(cells):
        raise problem(f"{function}: op_mapping is a MAP of texts, as MAP['INSERT', 'I', 'DELETE', 'D']", mapping)
    return list(zip(texts[::2], texts[1::2], strict=True))


def _kinds(names: str, mapping: syntax.Expression, function: str, *, several: bool = True) -> list[RowKind]:
    words = [word.strip() for word in names.split(",")] if several else [names.strip()]
    wrong = [word for word in words if word not in RowKind.__members__]
    if wrong:
        known = ", ".join(kind.name for kind in RowKind)
        raise problem(f"{function}: op_mapping has '{wrong[0]}', expected {known}", mapping)
    return [RowKind[word] for word in words]
