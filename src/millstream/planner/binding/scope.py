"""The names visible in an expression: the relations in FROM, by alias or path, and their columns.

Qualified names are resolved as in Calcite: the longest prefix that names a relation, then a column of it, then fields
inside the column; if no relation matches, the first part is a column. Identifiers are case sensitive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from millstream.errors import SqlError, did_you_mean
from millstream.expressions.coercion import as_type, common_type
from millstream.expressions.nested_types import RowType
from millstream.expressions.row_expressions import Call, Column, RowExpression, transform
from millstream.planner.relations import Field, Relation
from millstream.sql.places import problem
from millstream.sql.syntax import Expression, Node

__all__ = ["FIRST_OUTER", "NamedSource", "Scope", "field_of", "near_names"]


FIRST_OUTER = 4_000_000


def _outside(column: Column) -> Column:
    return replace(column, index=column.index + FIRST_OUTER)


@dataclass(frozen=True)
class NamedSource:
    """One relation in FROM. Its columns start at `offset` in the combined row. `hidden` columns require a qualifier:
    the USING columns of the right side, which equal those of the left."""

    fields: tuple[Field, ...]
    path: tuple[str, ...] = ()  # its alias, or the path of a table
    offset: int = 0
    hidden: frozenset[int] = frozenset()

    def answers_to(self, qualifier: tuple[str, ...]) -> bool:
        """Whether a qualifier refers to it: `t`, `db.t` and `cat.db.t` refer to the table cat.db.t."""
        return bool(qualifier) and self.path[-len(qualifier) :] == qualifier

    @property
    def title(self) -> str:
        return f"'{self.path[-1]}'" if self.path else "a query without a name"


@dataclass(frozen=True)
class Scope:
    """The sources, left to right. `outer`: the enclosing query's scope, for names without a match here; its columns are
    numbered from `FIRST_OUTER` on. `merged`: columns merged by USING, grouped by name; their value is the first that is
    not NULL, and `*` lists them first."""

    sources: tuple[NamedSource, ...] = ()
    outer: Scope | None = None
    merged: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(cls, relation: Relation, alias: str | None = None) -> Scope:
        """The columns of one relation."""
        return cls((NamedSource(relation.schema.fields, (alias,) if alias else ()),))

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(field for source in self.sources for field in source.fields)

    def __add__(self, other: Scope) -> Scope:
        width = len(self.fields)
        sources = self.sources + tuple(replace(each, offset=each.offset + width) for each in other.sources)
        return Scope(sources, merged=self.merged + tuple(tuple(at + width for at in each) for each in other.merged))

    def named(self, path: tuple[str, ...], names: tuple[str, ...] = ()) -> Scope:
        """All columns as one relation with this path, renamed to `names` if given."""
        fields = self.fields
        if names:
            fields = tuple(replace(each, name=name, written=None) for each, name in zip(fields, names, strict=True))
        return Scope((NamedSource(fields, path),))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def column(self, index: int) -> RowExpression:
        """The column at a position."""
        return Column(self.fields[index].type, index)

    def value(self, index: int) -> RowExpression:
        """The value of an unqualified name: the column at a position, or the columns that USING merged."""
        columns = next((each for each in self.merged if each[0] == index), (index,))
        if len(columns) == 1:
            return self.column(index)
        values = [self.column(each) for each in columns]
        type_ = common_type([each.type for each in values])
        assert type_ is not None  # USING compared them
        type_ = type_.with_nullability(all(each.type.is_nullable for each in values))
        return Call(type_, "COALESCE", tuple(as_type(each, type_) for each in values))

    # --- names --------------------------------------------------------------------------------------------------------

    def resolve(self, parts: tuple[str, ...], node: Node) -> RowExpression:
        """The column or field that a name refers to; raises at its location if it is unknown or ambiguous."""
        if self.outer is None:
            return self._resolved(parts, node)
        try:
            if not self._is_outside(parts):
                return self._resolved(parts, node)
            match = self.outer.resolve(parts, node)
        except SqlError as error:
            if "not found" not in error.message:
                raise
            try:
                match = self.outer.resolve(parts, node)
            except SqlError:
                raise error from None
        return transform(match, lambda part: _outside(part) if isinstance(part, Column) else part)

    def _is_outside(self, parts: tuple[str, ...]) -> bool:
        """Whether a name is qualified by a table of an enclosing query and not by a table of this query. This takes
        precedence over columns of this query: `t.k` is then not a field of a column `t`."""
        if self.outer is None or self._has_table(parts):
            return False
        return self.outer._has_table(parts) or self.outer._is_outside(parts)

    def _has_table(self, parts: tuple[str, ...]) -> bool:
        return any(source.answers_to(parts[:length]) for source in self.sources for length in range(1, len(parts)))

    def _resolved(self, parts: tuple[str, ...], node: Node) -> RowExpression:
        for length in range(len(parts) - 1, 0, -1):
            sources = [source for source in self.sources if source.answers_to(parts[:length])]
            if len(sources) > 1:
                raise problem(
                    f"'{'.'.join(parts[:length])}' refers to two relations: give one of them a different alias", node
                )
            if sources:
                return self._column_of(sources[0], parts[length:], node)
        matches = list(self._columns_named(parts[0]))
        if len(matches) > 1:
            titles = " and ".join(dict.fromkeys(source.title for source, _ in matches))
            if len({id(source) for source, _ in matches}) == 1:
                raise problem(f"Column '{parts[0]}' is ambiguous: there are {len(matches)} of them in {titles}", node)
            words = f"Column '{parts[0]}' is ambiguous: it is in {titles}"
            raise problem(f"{words}. Write the table's name before it", node)
        if not matches:
            peeked = self._peeked(parts[0])
            if len(peeked) != 1:
                raise self._unknown(parts, node)
            return self._with_fields(self.column(peeked[0]), parts, node)
        source, position = matches[0]
        return self._with_fields(self.value(source.offset + position), parts[1:], node)

    def _columns_named(self, name: str) -> Iterator[tuple[NamedSource, int]]:
        for source in self.sources:
            for position, field in enumerate(source.fields):
                if (field.written or field.name) == name and position not in source.hidden:
                    yield source, position

    def _peeked(self, name: str) -> list[int]:
        """Row columns with a field of this name: Flink resolves it there if no column has the name."""
        columns = enumerate(self.fields)
        return [index for index, each in columns if isinstance(each.type, RowType) and name in each.type.names]

    def _column_of(self, source: NamedSource, parts: tuple[str, ...], node: Node) -> RowExpression:
        positions = [i for i, field in enumerate(source.fields) if (field.written or field.name) == parts[0]]
        if not positions:
            names = [field.name for field in source.fields]
            raise problem(f"Column '{parts[0]}' not found in {source.title}.{near_names(parts[0], names)}", node)
        if len(positions) > 1:
            raise problem(f"Column '{parts[0]}' is ambiguous: {source.title} has {len(positions)} of them", node)
        return self._with_fields(self.column(source.offset + positions[0]), parts[1:], node)

    def _with_fields(self, column: RowExpression, names: tuple[str, ...], node: Node) -> RowExpression:
        for name in names:
            column = field_of(column, name, node)
        return column

    def _unknown(self, parts: tuple[str, ...], node: Node) -> Exception:
        titles = [source.title for source in self.sources if source.path]
        if len(parts) > 1 and not any(parts[0] == name for name in self.names):
            known = [source.path[-1] for source in self.sources if source.path]
            return problem(f"Table '{'.'.join(parts[:-1])}' not found in FROM.{near_names(parts[0], known)}", node)
        place = f" in {', '.join(titles)}" if titles else ""
        if not self.sources:
            return problem(f"Column '{parts[0]}' not found: there is no FROM", node)
        return problem(f"Column '{parts[0]}' not found{place}.{near_names(parts[0], self.names)}", node)

    def expanded(self, qualifier: tuple[str, ...], node: Node) -> list[tuple[int, Field]]:
        """The columns of `*` or `t.*`, with their positions."""
        sources = [source for source in self.sources if not qualifier or source.answers_to(qualifier)]
        if not self.sources:
            raise problem("* has no columns: there is no FROM", node)
        if not sources:
            known = [source.path[-1] for source in self.sources if source.path]
            raise problem(f"Unknown identifier '{'.'.join(qualifier)}'.{near_names(qualifier[-1], known)}", node)
        columns = [
            (source.offset + position, field)
            for source in sources
            for position, field in enumerate(source.fields)
            if qualifier or position not in source.hidden
        ]
        if qualifier:
            return columns
        places = {each[0]: place for place, each in enumerate(self.merged)}
        return sorted(columns, key=lambda column: places.get(column[0], len(places)))


def near_names(name: str, known: list[str] | tuple[str, ...]) -> str:
    """A hint with the nearest name, or the known names."""
    same = next((each for each in known if each.lower() == name.lower()), None)
    if same:
        return f" Did you mean {same!r}? Names are case sensitive."
    near = did_you_mean(name, known)
    if near or not known:
        return near
    some = ", ".join(known[:12])
    return f" There {'is' if len(known) == 1 else 'are'}: {some}{', …' if len(known) > 12 else '.'}"


def field_of(row: RowExpression, name: str, node: Node | Expression) -> RowExpression:
    """A field of a row value."""
    if not isinstance(row.type, RowType):
        raise problem(f"'{name}' is not a field: the value is {row.type}, not a ROW", node)
    field = next((each for each in row.type.fields if each.name == name), None)
    if field is None:
        raise problem(f"the row has no field '{name}'.{near_names(name, list(row.type.names))}", node)
    nullable = field.data_type.is_nullable or row.type.is_nullable
    site = node.span.text if node.span else None
    return Call(field.data_type.with_nullability(nullable), "FIELD", (row,), (("name", name),), site)
