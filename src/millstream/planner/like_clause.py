"""CREATE TABLE … LIKE: copies parts of another table, by Flink's merging strategies.

INCLUDING copies a part and fails if the new table also defines it; OVERWRITING copies it unless the new table defines
it; EXCLUDING omits it. The default is INCLUDING ALL, OVERWRITING OPTIONS.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.planner.entries import ColumnEntry, TableEntry
from millstream.sql.places import problem
from millstream.sql.statements import CreateTable, LikeClause

__all__ = ["merged"]

_PARTS = ("CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS")


def _strategies(like: LikeClause) -> dict[str, str]:
    """The merging strategy of each part: its own, otherwise that of ALL."""
    chosen = dict.fromkeys(_PARTS, "INCLUDING") | {"OPTIONS": "OVERWRITING"}
    clauses = [(how.upper(), what.upper()) for how, what in like.options]
    for how, what in clauses:
        if what == "ALL":
            if how == "OVERWRITING":
                raise problem("OVERWRITING ALL is not supported: only OPTIONS, GENERATED, METADATA, WATERMARKS", like)
            chosen = dict.fromkeys(_PARTS, how)
            if how == "INCLUDING":
                chosen["OPTIONS"] = "OVERWRITING"
    for how, what in clauses:
        if what != "ALL":
            if what not in _PARTS:
                raise problem(f"LIKE has no part {what}: it has {', '.join(('ALL', *_PARTS))}", like)
            chosen[what] = how
    return chosen


def merged(base: TableEntry, statement: CreateTable) -> TableEntry:
    """The copied parts of a new table, before its own definitions are added."""
    assert statement.like is not None
    how = _strategies(statement.like)
    own = {definition.name for definition in statement.columns}
    columns = tuple(each for each in base.columns if _is_copied(each, how, own, statement))
    options = dict(base.options) if how["OPTIONS"] != "EXCLUDING" else {}
    if how["OPTIONS"] == "INCLUDING":
        for name, _ in statement.options:
            if name in options:
                raise problem(
                    f"There already exists an option ['{name}' -> '{options[name]}'] in the base table. You might want "
                    "to specify EXCLUDING OPTIONS or OVERWRITING OPTIONS.",
                    statement.like,
                )
    watermark = base.watermark if how["WATERMARKS"] != "EXCLUDING" else None
    if watermark is not None and statement.watermarks and how["WATERMARKS"] == "INCLUDING":
        raise problem(
            f"There already exists a watermark spec for column '{watermark.column}' in the base table. You might want "
            "to specify EXCLUDING WATERMARKS or OVERWRITING WATERMARKS.",
            statement.like,
        )
    if watermark is not None and watermark.column not in {each.name for each in columns} | own:
        watermark = None
    has_key = how["CONSTRAINTS"] != "EXCLUDING"
    has_partitions = how["PARTITIONS"] != "EXCLUDING"
    if has_partitions and base.partition_keys and statement.partitioned_by:
        raise problem(
            "The base table already has partitions defined. You might want to specify EXCLUDING PARTITIONS.",
            statement.like,
        )
    return replace(
        base,
        columns=columns,
        watermark=watermark,
        options=tuple(options.items()),
        primary_key=base.primary_key if has_key else (),
        key_name=base.key_name if has_key else None,
        partition_keys=base.partition_keys if has_partitions else (),
        distribution=base.distribution if how["DISTRIBUTION"] != "EXCLUDING" else None,
    )


def _is_copied(column: ColumnEntry, how: dict[str, str], new_names: set[str], statement: CreateTable) -> bool:
    if column.is_physical:
        return True
    part = "GENERATED" if column.is_computed else "METADATA"
    if how[part] == "EXCLUDING":
        return False
    if column.name in new_names:
        if how[part] == "OVERWRITING":
            return False
        kind = "generated" if column.is_computed else "metadata"
        raise problem(
            f"A {kind} column named '{column.name}' already exists in the base table. You might want to specify "
            f"EXCLUDING {part} or OVERWRITING {part}.",
            statement.like,
        )
    return True
