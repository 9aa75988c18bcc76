"""Tables without an external system: print and blackhole."""

from __future__ import annotations

from millstream.connectors.contracts import Sink
from millstream.connectors.direct_sinks import DiscardingSink
from millstream.connectors.print_sink import PrintSink
from millstream.connectors.tables.factory import ALL_CHANGES, TableDefinition, TableFactory, TableOption
from millstream.connectors.tables.options import TableOptions

__all__ = ["BlackholeFactory", "PrintFactory"]


class PrintFactory(TableFactory):
    """Prints rows as lines on the standard output, as Flink's `print`."""

    name = "print"
    options = (
        TableOption("print-identifier", "prefix of every line"),
        TableOption("standard-error", "whether to print there", default="false"),
    )

    def sink(self, table: TableDefinition, overwrite: bool = False) -> Sink:
        options = TableOptions(table.name, table.options, self.options)
        return PrintSink(options.text("print-identifier"), bool(options.boolean("standard-error")))

    def accepted_changes(self, table: TableDefinition) -> tuple[str, ...]:
        return ALL_CHANGES


class BlackholeFactory(TableFactory):
    """Accepts and discards all rows."""

    name = "blackhole"

    def sink(self, table: TableDefinition, overwrite: bool = False) -> Sink:
        TableOptions(table.name, table.options, self.options)
        return DiscardingSink()

    def accepted_changes(self, table: TableDefinition) -> tuple[str, ...]:
        return ALL_CHANGES
