"""Tables that need no system behind them: print and blackhole."""

from __future__ import annotations

from millstream.connectors.contracts import Sink
from millstream.connectors.direct_sinks import DiscardingSink
from millstream.connectors.print_sink import PrintSink
from millstream.connectors.tables.factory import ALL_CHANGES, TableDefinition, TableFactory, TableOption
from millstream.connectors.tables.options import TableOptions

__all__ = ["BlackholeFactory", "PrintFactory"]


class PrintFactory(TableFactory):
    """Rows as lines on the standard output, as Flink's `print`."""

    name = "print"
    options = (
        TableOption("print-identifier", "stands before every line"),
        TableOption("standard-error", "whether to print there", default="false"),
    )

    def sink(self, table: TableDefinition, overwrite: bool = False) -> Sink:
        options = TableOptions(table.name, table.options, self.options)
        return PrintSink(options.text("print-identifier"), bool(options.boolean("standard-error")))

    def takes_changes(self, table: TableDefinition) -> tuple[str, ...]:
        return ALL_CHANGES


class BlackholeFactory(TableFactory):
    """Takes every row and keeps none."""

    name = "blackhole"

    def sink(self, table: TableDefinition, overwrite: bool = False) -> Sink:
        TableOptions(table.name, table.options, self.options)
        return DiscardingSink()

    def takes_changes(self, table: TableDefinition) -> tuple[str, ...]:
        return ALL_CHANGES
