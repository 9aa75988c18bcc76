"""Builds table entries from CREATE TABLE: columns with types, the watermark, the key, and the parts copied by LIKE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.errors import MillstreamError, SqlError, did_you_mean
from millstream.expressions.types import LocalZonedTimestampType, TimestampType
from millstream.planner.binding.expressions import bind_expression
from millstream.planner.binding.projections import projected_field
from millstream.planner.binding.scans import bind_watermark
from millstream.planner.binding.scope import Scope, near_names
from millstream.planner.entries import ColumnEntry, TableEntry, ViewEntry, WatermarkEntry
from millstream.planner.like_clause import merged
from millstream.planner.relations import Field, Schema, TimeKind, Values
from millstream.planner.session import PlannerSession
from millstream.planner.type_names import data_type
from millstream.sql.places import problem
from millstream.sql.statements import ColumnDefinition, CreateTable, Distribution, KeyDefinition, WatermarkDefinition
from millstream.sql.syntax import Call, Expression, Node

__all__ = ["check_distribution", "column_entries", "key_columns", "table_entry", "watermark_entry"]


def table_entry(statement: CreateTable, session: PlannerSession, selected: tuple[ColumnEntry, ...] = ()) -> TableEntry:
    """The table that CREATE TABLE defines, based on LIKE's table or the columns selected by AS."""
    inherited: TableEntry | None = None
    if statement.like is not None:
        base = session.find_table(statement.like.table)
        if base is None:
            name = ".".join(statement.like.table)
            hint = session.table_hint(statement.like.table)
            raise problem(f"Source table '{name}' of the LIKE clause not found in the catalog.{hint}", statement.like)
        if isinstance(base, ViewEntry):
            raise problem("LIKE takes a table, not a view", statement.like)
        inherited = merged(base, statement)
    if selected:
        columns = _with_selected(statement.columns, selected, session)
    else:
        before = inherited.columns if inherited else ()
        columns = before + column_entries(statement.columns, before, session)
    watermark = inherited.watermark if inherited else None
    if len(statement.watermarks) > 1:
        raise problem("a table has at most one WATERMARK", statement.watermarks[1])
    for definition in statement.watermarks:
        watermark = watermark_entry(definition, columns, session)
    columns, key, key_name = _with_key(statement, columns, inherited)
    partitions = (inherited.partition_keys if inherited else ()) + statement.partitioned_by
    _check_partitions(partitions, columns, statement)
    if statement.distribution is not None:
        check_distribution(statement.distribution, columns)
    options = dict(inherited.options if inherited else ())
    for name, value in statement.options:
        options[name] = value
    return TableEntry(
        columns,
        watermark,
        key,
        key_name,
        partitions,
        tuple(options.items()),
        statement.comment if statement.comment is not None else (inherited.comment if inherited else None),
        distribution=statement.distribution or (inherited.distribution if inherited else None),
    )


def _with_selected(
    definitions: Sequence[ColumnDefinition], selected: tuple[ColumnEntry, ...], session: PlannerSession
) -> tuple[ColumnEntry, ...]:
    """The columns of CREATE TABLE … AS: new columns first, then the query's, with their declared types if any."""
    names = {each.name for each in selected}
    types: dict[str, ColumnEntry] = {}
    for definition in definitions:
        if definition.name in names:
            (types[definition.name],) = column_entries([definition], (), session)
            if not types[definition.name].is_physical:
                raise problem(
                    f"A column named '{definition.name}' already exists in the query: computed and metadata columns "
                    "cannot replace its columns",
                    definition,
                )
    chosen = tuple(types.get(each.name, each) for each in selected)
    return column_entries([each for each in definitions if each.name not in names], chosen, session) + chosen


def _text(expression: Expression) -> str:
    """An expression's text, on one line."""
    return " ".join(expression.span.text.split()) if expression.span is not None else ""


def column_entries(
    definitions: Sequence[ColumnDefinition], before: tuple[ColumnEntry, ...], session: PlannerSession
) -> tuple[ColumnEntry, ...]:
    """New columns after the existing ones. Computed columns may use all physical and metadata columns."""
    plain: dict[str, ColumnEntry] = {each.name: each for each in before if not each.is_computed}
    seen = {each.name for each in before}
    for definition in definitions:
        if definition.name in seen:
            raise problem(f"A column named '{definition.name}' already exists in the table.", definition)
        seen.add(definition.name)
        if definition.type is not None:
            metadata = definition.metadata
            key = (metadata or definition.name) if metadata is not None else None
            type_ = data_type(definition.type)
            plain[definition.name] = ColumnEntry(
                definition.name, type_, None, key, definition.is_virtual, definition.comment
            )
    _check_metadata_keys(plain, definitions)
    scope = Scope.of(Values(Schema(tuple(Field(each.name, each.type) for each in plain.values())), ()))
    return tuple(_column(definition, plain, scope, session) for definition in definitions)


def _check_metadata_keys(plain: Mapping[str, ColumnEntry], definitions: Sequence[ColumnDefinition]) -> None:
    """Rejects two columns with the same metadata key: an INSERT would lose one of the values."""
    owners: dict[str, str] = {}
    for column in plain.values():
        if column.metadata is None:
            continue
        first = owners.setdefault(column.metadata, column.name)
        if first != column.name:
            raise problem(
                f"The column `{first}` and `{column.name}` in the table are both from the same metadata key "
                f"'{column.metadata}'. Please specify one of the columns as the metadata column and use the computed "
                "column syntax to specify the others.",
                next(each for each in definitions if each.name == column.name),
            )


def _column(
    definition: ColumnDefinition, plain: dict[str, ColumnEntry], scope: Scope, session: PlannerSession
) -> ColumnEntry:
    if definition.expression is None:
        if definition.name not in plain:
            raise problem(f"the column '{definition.name}' has no type", definition)
        return plain[definition.name]
    try:
        bound = bind_expression(definition.expression, scope, session)
    except MillstreamError as error:
        words = f"Invalid expression for computed column '{definition.name}'.\n{error.message}"
        raise SqlError(words, line=getattr(error, "line", None), column=getattr(error, "column", None)) from None
    return ColumnEntry(
        definition.name,
        bound.type,
        definition.expression,
        comment=definition.comment,
        text=_text(definition.expression),
    )


def watermark_entry(
    definition: WatermarkDefinition, columns: tuple[ColumnEntry, ...], session: PlannerSession
) -> WatermarkEntry:
    """WATERMARK FOR column AS expression; checks that both are timestamps of at most milliseconds."""
    names = [column.name for column in columns]
    if len(definition.column) != 1:
        words = f"Nested field '{'.'.join(definition.column)}' cannot be a time attribute: add a computed column for it"
        raise problem(words, definition)
    name = definition.column[0]
    if name not in names:
        known = ", ".join(f"'{each}'" for each in names)
        raise problem(
            f"Invalid column name '{name}' for rowtime attribute in watermark declaration. "
            f"Available columns are: [{known}]{did_you_mean(name, names)}",
            definition,
        )
    column = columns[names.index(name)]
    if _is_processing_time(column):
        raise problem(
            "A watermark can not be defined for a processing-time attribute column: processing time has no late rows. "
            f"Leave the WATERMARK out, and use '{name}' directly",
            definition,
        )
    _check_time(column.type, "time field", "time field", definition)
    fields = tuple(Field(each.name, each.type) for each in columns)
    bound = bind_watermark(definition.expression, Scope.of(Values(Schema(fields), ())), session)
    _check_time(bound.type, "expression", "watermark expression", definition.expression)
    return WatermarkEntry(name, definition.expression, _text(definition.expression))


def _is_processing_time(column: ColumnEntry) -> bool:
    """Whether a column is defined as PROCTIME()."""
    written = column.expression
    return isinstance(written, Call) and written.name.upper() == "PROCTIME" and not written.path


def _check_time(type_: object, first: str, second: str, node: Node) -> None:
    if isinstance(type_, TimestampType | LocalZonedTimestampType) and type_.precision <= 3:
        return
    raise problem(
        f"Invalid data type of {first} for watermark definition. The field must be of type TIMESTAMP(p) or "
        f"TIMESTAMP_LTZ(p), the supported precision 'p' is from 0 to 3, but the {second} type is {type_}",
        node,
    )


def key_columns(
    definition: KeyDefinition, columns: tuple[ColumnEntry, ...]
) -> tuple[tuple[ColumnEntry, ...], tuple[str, ...]]:
    """The columns, with the key columns as NOT NULL, and the key."""
    if definition.enforced:
        raise problem(
            "Flink doesn't support ENFORCED mode for PRIMARY KEY constraint. ENFORCED/NOT ENFORCED controls if the "
            "constraint checks are performed on the incoming/outgoing data. Flink does not own the data therefore "
            "the only supported mode is the NOT ENFORCED mode: write PRIMARY KEY (…) NOT ENFORCED",
            definition,
        )
    if not definition.is_primary:
        raise problem("UNIQUE constraint is not supported yet: Flink has PRIMARY KEY only", definition)
    names = [column.name for column in columns]
    for name in definition.columns:
        if name not in names:
            raise problem(
                f"Primary key column '{name}' is not defined in the table.{near_names(name, names)}", definition
            )
        if not columns[names.index(name)].is_physical:
            raise problem(f"Primary key column '{name}' is not a physical column.", definition)
    if len(set(definition.columns)) != len(definition.columns):
        raise problem("Primary key names a column twice", definition)
    changed = tuple(_not_null(each) if each.name in definition.columns else each for each in columns)
    return changed, definition.columns


def _not_null(column: ColumnEntry) -> ColumnEntry:
    return ColumnEntry(column.name, column.type.not_null(), None, None, False, column.comment)


def _with_key(
    statement: CreateTable, columns: tuple[ColumnEntry, ...], inherited: TableEntry | None
) -> tuple[tuple[ColumnEntry, ...], tuple[str, ...], str | None]:
    keys = list(statement.keys)
    keys += [
        KeyDefinition((each.name,), enforced=each.is_enforced, span=each.span)
        for each in statement.columns
        if each.is_primary_key
    ]
    if inherited is not None and inherited.primary_key:
        if keys:
            raise problem(
                "The base table already has a primary key. You might want to specify EXCLUDING CONSTRAINTS.", keys[0]
            )
        return columns, inherited.primary_key, inherited.key_name
    if len(keys) > 1:
        raise problem("Duplicate primary key definition: a table has at most one", keys[1])
    if not keys:
        return columns, (), None
    changed, names = key_columns(keys[0], columns)
    return changed, names, keys[0].name or f"PK_{'_'.join(names)}"


def _check_partitions(partitions: tuple[str, ...], columns: tuple[ColumnEntry, ...], node: Node) -> None:
    names = [column.name for column in columns if column.is_physical]
    for name in partitions:
        if name not in names:
            raise problem(f"Partition column '{name}' not defined in the table schema.{near_names(name, names)}", node)


def check_distribution(distribution: Distribution, columns: tuple[ColumnEntry, ...]) -> None:
    """Rejects a bucket count of zero, and bucket keys that are not physical columns."""
    if distribution.buckets == 0:
        raise problem(
            "Invalid bucket count '0'. The number of buckets for a distributed table must be at least 1.", distribution
        )
    names = [column.name for column in columns if column.is_physical]
    for name in distribution.columns:
        if name not in names:
            raise problem(
                f"Invalid bucket key '{name}'. A bucket key for a distribution must reference a physical column in the "
                f"schema. Available columns are: {', '.join(names)}.{near_names(name, names)}",
                distribution,
            )


def entry_schema(entry: TableEntry, session: PlannerSession) -> Schema:
    """The columns of a table with their time attributes, as DESCRIBE prints them."""
    scope = Scope.of(Values(Schema(tuple(Field(each.name, each.type) for each in entry.read)), ()))
    fields = []
    for column in entry.columns:
        field = Field(column.name, column.type)
        if column.expression is not None:
            field = projected_field(Schema(()), bind_expression(column.expression, scope, session), column.name)
        if entry.watermark is not None and entry.watermark.column == column.name:
            field = Field(column.name, column.type, TimeKind.ROWTIME)
        fields.append(field)
    return Schema(tuple(fields))
