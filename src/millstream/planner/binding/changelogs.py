"""TO_CHANGELOG and FROM_CHANGELOG convert a changing table to append-only rows with a change code, and back.

    TO_CHANGELOG(input => TABLE t [PARTITION BY k], op => DESCRIPTOR(op), op_mapping => MAP['INSERT', 'I', …])
    FROM_CHANGELOG(input => TABLE t [PARTITION BY k], op => DESCRIPTOR(op), op_mapping => MAP['c, r', 'INSERT', …],
        invalid_op_handling => 'FAIL' or 'SKIP')

The result starts with the PARTITION BY columns; TO_CHANGELOG adds the code column, then all others. A mapping may
list several kinds with one code, or several codes for one kind: 'INSERT, UPDATE_AFTER'. TO_CHANGELOG drops kinds
without a code. In both, a mapping with UPDATE_AFTER but not UPDATE_BEFORE denotes upserts keyed by PARTITION BY.
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
    """A bound call: the table, its PARTITION BY columns, and the other arguments by name."""

    relation: Relation
    partition: tuple[int, ...]
    arguments: Arguments
    call: syntax.Call


def bind_changelog(
    call: syntax.Call, bind_table: Callable[[queries.Relation], Relation], session: PlannerSession
) -> Relation:
    """Binds a call of either function, with its table."""
    function = call.name.upper()
    arguments = _arguments(call, function)
    table = arguments.get("INPUT")
    if not isinstance(table, syntax.TableArgument):
        raise problem(f"{function}: input must be a table: input => TABLE name, or TABLE (SELECT …)", table or call)
    if table.order_by:
        raise problem(f"{function} takes no ORDER BY: changes keep the order of the input", table)
    relation = bind_table(table.relation)
    partition = tuple(_column(each, relation, function) for each in table.partition_by)
    request = _Request(relation, partition, arguments, call)
    if function == _TO:
        return _to_changelog(request)
    if session.is_batch:
        raise problem(f"{_FROM} needs STREAMING mode: a BATCH table cannot change", call)
    return _from_changelog(request)


def _arguments(call: syntax.Call, function: str) -> dict[str, syntax.Expression]:
    names = _NAMES[function]
    named: dict[str, syntax.Expression] = {}
    for number, argument in enumerate(call.arguments):
        name, value = names[min(number, len(names) - 1)], argument
        if isinstance(argument, syntax.Argument):
            name, value = argument.name.upper(), argument.value
        elif number >= len(names):
            raise problem(f"{function} takes at most {len(names)} arguments, got {len(call.arguments)}", call)
        if name not in names:
            raise problem(f"{function} has no argument '{name.lower()}': it has {', '.join(names).lower()}", argument)
        if name in named:
            raise problem(f"{function}: the argument '{name.lower()}' is passed twice", argument)
        named[name] = value
    return named


def _to_changelog(request: _Request) -> Relation:
    """Converts a relation's changes to rows."""
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
        words = "a delete is emitted as the whole row; leave the argument out, and set columns to NULL in a SELECT"
        raise problem(f"{_TO}: produces_full_deletes is TRUE here: {words}", full)
    name = _name(arguments.get("OP"), _TO)
    if name in relation.schema.names:
        words = f"give the column of the operation another name: op => DESCRIPTOR({name}_code)"
        raise problem(f"{_TO}: the table has a column '{name}': {words}", arguments.get("OP") or request.call)
    fields = (*_untimed(relation), Field(name, VarCharType(LENGTH_MAX, False)))
    is_upserts = RowKind.UPDATE_AFTER in codes and RowKind.UPDATE_BEFORE not in codes
    key = request.partition if is_upserts else ()
    changelog = ToChangelog(Schema(fields), relation, tuple(codes.get(kind) for kind in RowKind), key)
    return _ordered(changelog, (*request.partition, len(relation.schema)))


def _from_changelog(request: _Request) -> Relation:
    """Converts a relation's rows to the changes that they encode."""
    relation, arguments, partition, where = request.relation, request.arguments, request.partition, request.call
    name, written = _name(arguments.get("OP"), _FROM), arguments.get("OP") or where
    if name not in relation.schema.names:
        raise problem(f"{_FROM}: the table has no column '{name}' with the operation: op => DESCRIPTOR(…)", written)
    op = relation.schema.names.index(name)
    if op in partition:
        words = f"PARTITION BY names '{name}', the operation, which is not a column of the resulting table"
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
    changelog = FromChangelog(Schema(_untimed(relation)), relation, op, names, _skips(arguments))
    rows, mapped_kinds = _ordered(changelog, partition, without=op), set(kinds.values())
    if RowKind.UPDATE_BEFORE in mapped_kinds and RowKind.UPDATE_AFTER not in mapped_kinds:
        raise problem(f"{_FROM}: op_mapping has UPDATE_BEFORE and no UPDATE_AFTER", mapping or where)
    if RowKind.UPDATE_BEFORE in mapped_kinds or RowKind.UPDATE_AFTER not in mapped_kinds:
        return rows
    if not partition:
        words = "name the key: input => TABLE t PARTITION BY key; or map a code to UPDATE_BEFORE, too"
        raise problem(f"{_FROM}: UPDATE_AFTER without UPDATE_BEFORE denotes upserts: {words}", mapping or where)
    return Normalise(rows.schema, rows, tuple(range(len(partition))))


def _ordered(relation: Relation, first: tuple[int, ...], *, without: int | None = None) -> Relation:
    """Moves the columns `first` to the front."""
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
        raise problem(f"{_FROM}: invalid_op_handling must be 'FAIL' or 'SKIP'", handling)
    return bool(handling.value == "SKIP")


def _column(written: syntax.Expression, relation: Relation, function: str) -> int:
    bound = Scope.of(relation).resolve(written.parts, written) if isinstance(written, syntax.Name) else None
    if not isinstance(bound, Column):
        raise problem(f"{function}: PARTITION BY must name columns of the input table", written)
    return bound.index


def _name(descriptor: syntax.Expression | None, function: str) -> str:
    if descriptor is None:
        return "op"
    if not isinstance(descriptor, syntax.Descriptor) or len(descriptor.columns) != 1:
        raise problem(f"{function}: op must be DESCRIPTOR(name) with a single column", descriptor)
    return descriptor.columns[0]


def _pairs(mapping: syntax.Expression, function: str) -> list[tuple[str, str]]:
    """The key-value pairs of the constant MAP['a', 'b', …]."""
    cells = mapping.arguments if isinstance(mapping, syntax.Call) and mapping.name.upper() == "MAP" else ()
    texts = [each.value for each in cells if isinstance(each, syntax.Literal) and isinstance(each.value, str)]
    if not texts or len(texts) != len(cells):
        raise problem(
            f"{function}: op_mapping must be a MAP of strings, such as MAP['INSERT', 'I', 'DELETE', 'D']", mapping
        )
    return list(zip(texts[::2], texts[1::2], strict=True))


def _kinds(names: str, mapping: syntax.Expression, function: str, *, several: bool = True) -> list[RowKind]:
    words = [word.strip() for word in names.split(",")] if several else [names.strip()]
    wrong = [word for word in words if word not in RowKind.__members__]
    if wrong:
        known = ", ".join(kind.name for kind in RowKind)
        raise problem(f"{function}: op_mapping has '{wrong[0]}', expected {known}", mapping)
    return [RowKind[word] for word in words]
