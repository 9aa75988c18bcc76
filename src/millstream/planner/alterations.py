"""ALTER of a table, view, database or catalog. Existing plans retain the previous definition."""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import LATER, NotYetError
from millstream.planner.binding.scope import near_names
from millstream.planner.definitions import check_distribution, column_entries, key_columns, watermark_entry
from millstream.planner.entries import ColumnEntry, TableEntry, ViewEntry, shown
from millstream.planner.not_yet import not_yet
from millstream.planner.session import PlannerSession
from millstream.planner.statement_result import OK, StatementResult
from millstream.sql.places import problem
from millstream.sql.statements import Alter, Alteration

__all__ = ["alter"]


def alter(statement: Alter, session: PlannerSession) -> StatementResult:
    """Executes an ALTER, with all of its changes or none."""
    if statement.kind == "DATABASE":
        return _alter_database(statement, session)
    if statement.kind == "CATALOG":
        return _alter_catalog(statement, session)
    if statement.kind not in ("TABLE", "VIEW"):
        again = f"DROP {statement.kind} and CREATE {statement.kind} again"
        raise NotYetError.of(f"ALTER {statement.kind}", LATER, again)
    path = session.path_of(statement.name)
    entry = session.store.table(path)
    wanted = ViewEntry if statement.kind == "VIEW" else TableEntry
    if not isinstance(entry, wanted):
        if statement.if_exists:
            return OK
        word = statement.kind.capitalize()
        hint = session.table_hint(statement.name)
        raise problem(f"{word} {shown(path)} doesn't exist or is not a {statement.kind.lower()}.{hint}", statement)
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
        raise problem(f"{shown(target)} already exists", statement)
    session.store.drop_table(entry.path, entry.is_temporary)
    session.store.add_table(target, entry, entry.is_temporary)


def _altered_view(entry: ViewEntry, change: Alteration, session: PlannerSession) -> ViewEntry:
    if change.action != "AS" or change.query is None:
        raise NotYetError.of(f"ALTER VIEW {change.action}", LATER, "DROP VIEW and CREATE VIEW again")
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


def _alter_catalog(statement: Alter, session: PlannerSession) -> StatementResult:
    """Changes the options and the comment of a catalog; its type and its job folder are fixed."""
    catalog = session.store.catalog(statement.name[0])
    options, comment = dict(catalog.options), catalog.comment
    for change in statement.changes:
        if change.subject == "COMMENT":
            comment = change.text
            continue
        if "type" in change.names or dict(change.options).get("type", options.get("type")) != options.get("type"):
            raise problem("ALTER CATALOG cannot change 'type': DROP CATALOG, and CREATE CATALOG of that type", change)
        if "stores" in change.names and "stores" in options:
            raise problem("ALTER CATALOG cannot RESET 'stores', its jobs' folder: SET it to another folder", change)
        options = {key: value for key, value in options.items() if key not in change.names} | dict(change.options)
    catalog.options, catalog.comment = tuple(options.items()), comment
    return OK


# --- changes of a table -----------------------------------------------------------------------------------------------


def _altered(entry: TableEntry, change: Alteration, session: PlannerSession) -> TableEntry:
    action, subject = change.action, change.subject
    if action == "SET":
        return replace(entry, options=tuple((dict(entry.options) | dict(change.options)).items()))
    if action == "RESET":
        options = {key: value for key, value in entry.options if key not in change.names}
        if "connector" in change.names:
            raise problem("ALTER TABLE RESET cannot remove 'connector': a table without it cannot be read", change)
        return replace(entry, options=tuple(options.items()))
    if action == "RENAME":
        return _renamed_column(entry, change)
    if action in ("ADD", "MODIFY"):
        return _added(entry, change, session, action == "MODIFY")
    if action == "DROP":
        return _dropped(entry, change)
    raise NotYetError.of(f"ALTER TABLE {action} {subject}", LATER)


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
    buckets = entry.distribution
    return replace(
        entry,
        columns=columns,
        primary_key=renamed(entry.primary_key),
        partition_keys=renamed(entry.partition_keys),
        distribution=buckets and replace(buckets, columns=renamed(buckets.columns)),
    )


def _check_unused(entry: TableEntry, name: str, change: Alteration) -> None:
    """Rejects a change of a column that a computed column or the watermark uses."""
    users = [each.name for each in entry.columns if each.is_computed and f"{name}" in _words(each.text)]
    if users:
        raise problem(f"The column `{name}` is referenced by computed column `{users[0]}`.", change)
    if entry.watermark is not None and (entry.watermark.column == name or name in _words(entry.watermark.text)):
        raise problem(f"The column `{name}` is referenced by watermark expression.", change)


def _words(text: str) -> set[str]:
    return set("".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split())


def _partition_error(entry: TableEntry, change: Alteration, instead: str) -> NotYetError:
    """The error for partitions: writing rows creates them as folders; the catalog does not list them."""
    name = ".".join(entry.path)
    if not entry.partition_keys:
        raise problem(f"Table {name} is not partitioned: it has no PARTITIONED BY", change)
    for key in (key for partition in change.partitions for key, _ in partition):
        if key not in entry.partition_keys:
            hint = near_names(key, list(entry.partition_keys))
            raise problem(
                f"'{key}' is not a partition column of {name}: {', '.join(entry.partition_keys)}.{hint}", change
            )
    return not_yet(f"ALTER TABLE {change.action} PARTITION", change, instead, LATER)


def _distributed(entry: TableEntry, change: Alteration, modifies: bool) -> TableEntry:
    assert change.distribution is not None
    if entry.distribution is not None and not modifies:
        raise problem("The base table has already defined a distribution: ALTER TABLE … MODIFY DISTRIBUTION", change)
    if entry.distribution is None and modifies:
        raise problem("The base table does not define any distribution: ALTER TABLE … ADD DISTRIBUTION", change)
    check_distribution(change.distribution, entry.columns)
    return replace(entry, distribution=change.distribution)


def _added(entry: TableEntry, change: Alteration, session: PlannerSession, modifies: bool) -> TableEntry:
    if change.subject == "PARTITION":
        raise _partition_error(entry, change, "INSERT INTO it: its first row creates a partition")
    if change.subject == "DISTRIBUTION":
        return _distributed(entry, change, modifies)
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
    """Adds a column at a position, or replaces the column of the same name."""
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
    if change.subject == "DISTRIBUTION":
        if entry.distribution is None:
            raise problem("The base table does not define any distribution.", change)
        return replace(entry, distribution=None)
    if change.subject == "PARTITION":
        raise _partition_error(entry, change, "remove the partition's folder, while no job reads it")
    for name in change.names:
        _checked(entry, name, change)
    reduced = replace(entry, columns=tuple(each for each in entry.columns if each.name not in change.names))
    for name in change.names:
        if name in entry.primary_key:
            raise problem(f"The column `{name}` is used as the primary key.", change)
        if name in entry.partition_keys:
            raise problem(f"The column `{name}` is used as the partition keys.", change)
        if entry.distribution is not None and name in entry.distribution.columns:
            raise problem(f"The column `{name}` is used as a distribution key.", change)
        _check_unused(reduced, name, change)
    return reduced
