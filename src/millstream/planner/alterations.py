"""ALTER: a table, view or database changed in the catalog. Plans that were made before keep what they had."""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import NotYetError
from millstream.planner.binding.scope import near_names
from millstream.planner.definitions import column_entries, key_columns, watermark_entry
from millstream.planner.entries import ColumnEntry, TableEntry, ViewEntry, shown
from millstream.planner.session import PlannerSession
from millstream.planner.statement_result import OK, StatementResult
from millstream.sql.places import problem
from millstream.sql.statements import Alter, Alteration

__all__ = ["alter"]


def alter(statement: Alter, session: PlannerSession) -> StatementResult:
    """Carry out an ALTER, all of its changes or none."""
    if statement.kind == "DATABASE":
        return _alter_database(statement, session)
    if statement.kind not in ("TABLE", "VIEW"):
        raise NotYetError.of(f"ALTER {statement.kind}", "later issues")
    path = session.path_of(statement.name)
    entry = session.store.table(path)
    wanted = ViewEntry if statement.kind == "VIEW" else TableEntry
    if not isinstance(entry, wanted):
        if statement.if_exists:
            return OK
        word = statement.kind.capitalize()
        hint = session.table_hint(statement.name)
        raise problem(f"{word} {shown(path)} doesn't exist or is no {statement.kind.lower()}.{hint}", statement)
    changed: TableEntry | ViewEntry = entry
    for change in statement.changes:
        if change.action == "RENAME" and change.subject in ("TABLE", "VIEW"):
            _rename(changed, change, session, statement)
            return OK
        if isinstance(changed, ViewEntry):
            changed = _altered_view(changed, change, session)
        else:
            changed = _altered(changed, change, session)
    session.store.add_table(path, changed, changed.is_temporary, replaces=True)
    return OK


def _rename(entry: TableEntry | ViewEntry, change: Alteration, session: PlannerSession, statement: Alter) -> None:
    target = session.path_of(change.names)
    if session.store.table(target) is not None:
        raise problem(f"{shown(target)} is there already", statement)
    session.store.drop_table(entry.path, entry.is_temporary)
    session.store.add_table(target, entry, entry.is_temporary)


def _altered_view(entry: ViewEntry, change: Alteration, session: PlannerSession) -> ViewEntry:
    if change.action != "AS" or change.query is None:
        raise NotYetError.of(f"ALTER VIEW {change.action}", "later issues")
    from millstream.planner.binder import bind_query

    names = bind_query(change.query, session).schema.names
    home = (session.catalog, session.database)
    return replace(entry, query=change.query, text=change.text, names=names, home=home, selected=names)


def _alter_database(statement: Alter, session: PlannerSession) -> StatementResult:
    parts = statement.name if len(statement.name) == 2 else (session.catalog, *statement.name)
    database = session.store.database(*parts)
    for change in statement.changes:
        database.options = tuple((dict(database.options) | dict(change.options)).items())
    return OK


# --- changes of a table -----------------------------------------------------------------------------------------------


def _altered(entry: TableEntry, change: Alteration, session: PlannerSession) -> TableEntry:
    action, subject = change.action, change.subject
    if action == "SET":
        return replace(entry, options=tuple((dict(entry.options) | dict(change.options)).items()))
    if action == "RESET":
        kept = {key: value for key, value in entry.options if key not in change.names}
        if "connector" in change.names:
            raise problem("ALTER TABLE RESET cannot take 'connector' away: a table without it cannot be read", change)
        return replace(entry, options=tuple(kept.items()))
    if action == "RENAME":
        return _renamed_column(entry, change)
    if action in ("ADD", "MODIFY"):
        return _added(entry, change, session, action == "MODIFY")
    if action == "DROP":
        return _dropped(entry, change)
    raise NotYetError.of(f"ALTER TABLE {action} {subject}", "later issues")


def _checked(entry: TableEntry, name: str, change: Alteration) -> ColumnEntry:
    column = entry.column(name)
    if column is None:
        raise problem(f"The column `{name}` does not exist in the table.{near_names(name, list(entry.names))}", change)
    return column


def _renamed_column(entry: TableEntry, change: Alteration) -> TableEntry:
    old, new = change.names
    _checked(entry, old, change)
    if new in entry.names:
        raise problem(f"The column `{new}` already exists in the table.", change)
    _check_unused(entry, old, change)

    def renamed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new if name == old else name for name in names)

    columns = tuple(replace(each, name=new) if each.name == old else each for each in entry.columns)
    return replace(
        entry, columns=columns, primary_key=renamed(entry.primary_key), partition_keys=renamed(entry.partition_keys)
    )


def _check_unused(entry: TableEntry, name: str, change: Alteration) -> None:
    """A column that another column or the watermark is made of stays."""
    users = [each.name for each in entry.columns if each.is_computed and f"{name}" in _words(each.text)]
    if users:
        raise problem(f"The column `{name}` is referenced by computed column `{users[0]}`.", change)
    if entry.watermark is not None and (entry.watermark.column == name or name in _words(entry.watermark.text)):
        raise problem(f"The column `{name}` is referenced by watermark expression.", change)


def _words(text: str) -> set[str]:
    return set("".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split())


def _added(entry: TableEntry, change: Alteration, session: PlannerSession, modifies: bool) -> TableEntry:
    columns = list(entry.columns)
    if change.columns:
        names = [definition.name for definition in change.columns]
        for name in names:
            if modifies:
                _checked(entry, name, change)
            elif name in entry.names:
                raise problem(f"Try to add a column `{name}` which already exists in the table.", change)
        others = tuple(each for each in columns if each.name not in names)
        made = column_entries(change.columns, others, session)
        positions = change.positions or (None,) * len(made)
        for column, position in zip(made, positions, strict=True):
            columns = _placed(columns, column, position, change)
    changed = replace(entry, columns=tuple(columns))
    if change.watermark is not None:
        if entry.watermark is not None and not modifies:
            raise problem("The base table has already defined the watermark strategy: ALTER TABLE … MODIFY it", change)
        changed = replace(changed, watermark=watermark_entry(change.watermark, changed.columns, session))
    if change.key is not None:
        if entry.primary_key and not modifies:
            raise problem(
                "The base table has already defined the primary key constraint: ALTER TABLE … MODIFY it", change
            )
        keyed, key = key_columns(change.key, changed.columns)
        changed = replace(changed, columns=keyed, primary_key=key, key_name=change.key.name or f"PK_{'_'.join(key)}")
    return changed


def _placed(
    columns: list[ColumnEntry], column: ColumnEntry, position: str | None, change: Alteration
) -> list[ColumnEntry]:
    """The columns with one more, or with one in the place of its old self."""
    names = [each.name for each in columns]
    if position is None and column.name in names:
        return [column if each.name == column.name else each for each in columns]
    others = [each for each in columns if each.name != column.name]
    if position is None:
        return [*others, column]
    if position == "FIRST":
        return [column, *others]
    after = position.removeprefix("AFTER ")
    names = [each.name for each in others]
    if after not in names:
        raise problem(f"Referenced column `{after}` by 'AFTER' does not exist in the table.", change)
    place = names.index(after) + 1
    return [*others[:place], column, *others[place:]]


def _dropped(entry: TableEntry, change: Alteration) -> TableEntry:
    if change.subject == "WATERMARK":
        if entry.watermark is None:
            raise problem("The base table does not define any watermark strategy.", change)
        return replace(entry, watermark=None)
    if change.subject in ("PRIMARY KEY", "CONSTRAINT"):
        if not entry.primary_key:
            raise problem("The base table does not define any primary key.", change)
        name = entry.key_name or f"PK_{'_'.join(entry.primary_key)}"
        if change.subject == "CONSTRAINT" and change.names[:1] not in ((), (name,)):
            raise problem(f"The base table has no constraint `{change.names[0]}`. There is: {name}.", change)
        return replace(entry, primary_key=(), key_name=None)
    if change.subject != "COLUMN":
        raise NotYetError.of(f"ALTER TABLE DROP {change.subject}", "later issues")
    for name in change.names:
        _checked(entry, name, change)
    kept = replace(entry, columns=tuple(each for each in entry.columns if each.name not in change.names))
    for name in change.names:
        if name in entry.primary_key:
            raise problem(f"The column `{name}` is used as the primary key.", change)
        if name in entry.partition_keys:
            raise problem(f"The column `{name}` is used as the partition keys.", change)
        _check_unused(kept, name, change)
    return kept
