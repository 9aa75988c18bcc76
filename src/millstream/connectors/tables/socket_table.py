"""`'connector' = 'socket'`: lines from a TCP server, decoded by a format. For experiments, as Flink's example.

Received lines are stored in the job's store and processed exactly once; lines sent while the job is down are
lost without notice (`connectors/socket`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from millstream.connectors.messages.codecs import MessageDecoder, Messages
from millstream.connectors.socket import SocketSource
from millstream.connectors.tables.factory import TableDefinition, TableFactory, TableOption, TableSource
from millstream.connectors.tables.formats.format import FormatOptions
from millstream.connectors.tables.formats.formats import format_of, format_options
from millstream.connectors.tables.options import TableOptions
from millstream.errors import NotYetError, TypeMismatchError
from millstream.expressions.row_expressions import RowExpression

__all__ = ["SocketFactory"]

_FORMATS = ("csv", "json", "raw")
_NEWLINE = 10


class SocketFactory(TableFactory):
    """Lines from a TCP server."""

    name = "socket"
    options = (
        TableOption("hostname", "the server", required=True),
        TableOption("port", "its port", required=True),
        TableOption("byte-delimiter", "the byte that ends a message; only 10, the line end", default="10"),
        TableOption("format", f"one of {', '.join(_FORMATS)}", required=True),
    )

    def source(
        self, table: TableDefinition, columns: Sequence[int] | None, filters: Sequence[RowExpression]
    ) -> TableSource:
        name = table.options.get("format", "")
        options = TableOptions(table.name, table.options, (*self.options, *format_options([name])))
        format = format_of(name, table.name, "format", for_files=False)
        options.choice("format", _FORMATS)
        port = options.integer("port") or 0
        if not 0 < port < 65_536:
            raise options.wrong("port", "a number from 1 to 65535")
        if options.integer("byte-delimiter") != _NEWLINE:
            raise NotYetError.of(f"table {table.name!r}: another 'byte-delimiter' than 10", "other message delimiters")
        decoder = format.decoder(FormatOptions(options, ""), table.physical)
        return TableSource(TableSocketSource(str(options.text("hostname")), port, decoder))


class TableSocketSource(SocketSource):
    """Decodes lines to rows."""

    def __init__(self, host: str, port: int, decoder: MessageDecoder) -> None:
        super().__init__(host, port)
        self._decoder = decoder
        assert decoder.type_info is not None
        self.type_info = decoder.type_info

    def copied(self) -> TableSocketSource:
        return TableSocketSource(self.host, self.port, self._decoder)

    def items_of(self, records: list[Any], first: int) -> Iterable[Any]:
        lines = pa.array([line.encode("utf-8", "surrogatepass") for line in records], pa.binary())
        decoded = self._decoder.decode(Messages(lines, lambda at: f"line {first + at + 1} from {self.subject}"))
        for bad in decoded.bad:
            raise TypeMismatchError(
                f"line {first + bad.index + 1} from {self.subject}: {bad.reason}. It is {records[bad.index][:200]!r}. "
                "Correct the table's columns, or let the format ignore unreadable messages "
                "('….ignore-parse-errors' = 'true')",
                value=records[bad.index],
            )
        return (decoded.batch.columns(),) if len(decoded.batch) else ()
