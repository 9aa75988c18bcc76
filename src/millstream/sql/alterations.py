"""ALTER: parses each change of a table, view, catalog, database, function or model to an `Alteration`."""

from __future__ import annotations

from millstream.sql.definitions import DefinitionReader, TableElements
from millstream.sql.places import problem
from millstream.sql.statements import Alter, Alteration, Statement
from millstream.sql.syntax import Expression

__all__ = ["AlterationReader"]

_KINDS = ("TABLE", "VIEW", "DATABASE", "CATALOG", "FUNCTION", "MODEL", "MATERIALIZED", "CONNECTION")
_ACTIONS = {
    "TABLE": ("RENAME", "SET", "RESET", "ADD", "MODIFY", "DROP"),
    "VIEW": ("RENAME", "AS"),
    "DATABASE": ("SET",),
    "CATALOG": ("SET", "RESET", "COMMENT"),
    "MODEL": ("RENAME", "SET", "RESET"),
    "CONNECTION": ("RENAME", "SET", "RESET"),
    "MATERIALIZED TABLE": ("SUSPEND", "RESUME", "REFRESH", "SET", "RESET", "AS", "ADD", "MODIFY", "DROP", "RENAME"),
}


class AlterationReader(DefinitionReader):
    """Parses ALTER."""

    def alter(self) -> Statement:
        start = self.take().start
        temporary = self.accept("TEMPORARY")
        if temporary:
            self.accept("SYSTEM")
        kind = self.expect_one(*_KINDS)
        if kind == "MATERIALIZED":
            self.expect("TABLE")
            kind = "MATERIALIZED TABLE"
        if_exists = self.accept("IF", "EXISTS")
        name = self.path(f"the name of the {kind.lower()}")
        changes = (self._function_change(),) if kind == "FUNCTION" else self._changes(kind)
        return Alter(kind, name, changes, if_exists, span=self.since(start))

    def _function_change(self) -> Alteration:
        start = self.token.start
        self.expect("AS")
        class_name = self.plain_text("the class or Python function in single quotes")
        language = self.expect_one("PYTHON", "JAVA", "SCALA") if self.accept("LANGUAGE") else "JAVA"
        return Alteration("AS", "FUNCTION", names=(language,), text=class_name, span=self.since(start))

    def _changes(self, kind: str) -> tuple[Alteration, ...]:
        start = self.token.start
        action = self.expect_one(*_ACTIONS[kind])
        if action == "RENAME":
            return (self._rename(kind, start),)
        if action == "SET":
            return (self._set(start),)
        if action == "RESET":
            keys = self.listed(lambda: self.plain_text("an option's key in single quotes"))
            return (Alteration("RESET", "OPTIONS", names=keys, span=self.since(start)),)
        if action == "COMMENT":
            return (Alteration("SET", "COMMENT", text=self.plain_text(), span=self.since(start)),)
        if action == "AS":
            place = self.token.start
            query = self.query()
            return (Alteration("AS", "QUERY", query=query, text=self.since(place).text, span=self.since(start)),)
        if action in ("ADD", "MODIFY"):
            return self._add(action, start)
        if action == "DROP":
            return self._drop(start)
        return (self._refresh(action, start),)

    def _rename(self, kind: str, start: int) -> Alteration:
        """RENAME TO t, or RENAME column TO column."""
        if self.accept("TO"):
            return Alteration("RENAME", kind, names=self.path("the new name"), span=self.since(start))
        old = self.name("TO, or a column's name")
        self.expect("TO")
        return Alteration("RENAME", "COLUMN", names=(old, self.name("the new name")), span=self.since(start))

    def _set(self, start: int) -> Alteration:
        if self.accept("FRESHNESS"):
            self.expect("=")
            if not self.at("INTERVAL"):
                self.fail(expected="INTERVAL")
            return Alteration("SET", "FRESHNESS", expression=self.interval(), span=self.since(start))
        if self.accept("REFRESH_MODE"):
            self.expect("=")
            mode = self.expect_one("FULL", "CONTINUOUS")
            return Alteration("SET", "REFRESH_MODE", text=mode, span=self.since(start))
        return Alteration("SET", "OPTIONS", options=self.options(), span=self.since(start))

    def _refresh(self, action: str, start: int) -> Alteration:
        partitions = (self.partition_spec(),) if action == "REFRESH" and self.at("PARTITION") else ()
        options = self.with_options()
        return Alteration(action, "TABLE", options=options, partitions=partitions, span=self.since(start))

    # --- ADD, MODIFY, DROP --------------------------------------------------------------------------------------------

    def _add(self, action: str, start: int) -> tuple[Alteration, ...]:
        if_not_exists = self.accept("IF", "NOT", "EXISTS")
        if self.at("PARTITION"):
            partitions = []
            options: list[tuple[str, str]] = []
            while self.at("PARTITION"):
                partitions.append(self.partition_spec())
                options.extend(self.with_options())
            return (
                Alteration(
                    action,
                    "PARTITION",
                    partitions=tuple(partitions),
                    options=tuple(options),
                    if_exists=if_not_exists,
                    span=self.since(start),
                ),
            )
        if self.accept("DISTRIBUTION"):
            distribution = self.distribution()
            return (Alteration(action, "DISTRIBUTION", distribution=distribution, span=self.since(start)),)
        if self.at("("):
            elements = self.table_elements()
        else:
            elements = TableElements()
            self.accept("COLUMN")
            self.table_element(elements)
        if elements.names:
            raise problem(f"column {elements.names[0]!r} has no type", elements.name_spans[0])
        return self._alterations(action, elements, start)

    def _alterations(self, action: str, elements: TableElements, start: int) -> tuple[Alteration, ...]:
        span = self.since(start)
        changes: list[Alteration] = []
        if elements.columns:
            columns, positions = tuple(elements.columns), tuple(elements.positions)
            changes.append(Alteration(action, "COLUMN", columns, positions, span=span))
        for key in elements.keys:
            changes.append(Alteration(action, "PRIMARY KEY" if key.is_primary else "UNIQUE", key=key, span=key.span))
        for watermark in elements.watermarks:
            changes.append(Alteration(action, "WATERMARK", watermark=watermark, span=watermark.span))
        return tuple(changes)

    def _drop(self, start: int) -> tuple[Alteration, ...]:
        if self.accept("PRIMARY"):
            self.expect("KEY")
            return (Alteration("DROP", "PRIMARY KEY", span=self.since(start)),)
        if self.accept("CONSTRAINT"):
            name = self.name("the constraint's name")
            return (Alteration("DROP", "CONSTRAINT", names=(name,), span=self.since(start)),)
        if self.accept("WATERMARK"):
            return (Alteration("DROP", "WATERMARK", span=self.since(start)),)
        if self.accept("DISTRIBUTION"):
            return (Alteration("DROP", "DISTRIBUTION", span=self.since(start)),)
        if_exists = self.accept("IF", "EXISTS")
        if self.at("PARTITION"):
            partitions = [self.partition_spec()]
            while self.accept(","):
                partitions.append(self.partition_spec())
            change = Alteration(
                "DROP", "PARTITION", partitions=tuple(partitions), if_exists=if_exists, span=self.since(start)
            )
            return (change,)
        self.accept("COLUMN")
        names = self.names("a column's name") if self.at("(") else (self.name("a column's name"),)
        return (Alteration("DROP", "COLUMN", names=names, if_exists=if_exists, span=self.since(start)),)

    def partition_spec(self) -> tuple[tuple[str, Expression], ...]:
        """PARTITION (day = '2026-11-16', hour = 3)."""
        self.expect("PARTITION")
        return self.listed(self._partition_value)

    def _partition_value(self) -> tuple[str, Expression]:
        name = self.name("a column's name")
        self.expect("=")
        return name, self.expression()
