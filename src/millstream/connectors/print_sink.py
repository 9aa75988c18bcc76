"""A sink that prints each record on a line, as PyFlink does: the text follows the type of the stream (`records/text`).

Tasks format the lines and the driver prints them once their epoch is committed: no line is printed that a retry
or a crash would undo. A terminal cannot report what it has already shown, so an epoch whose printing was interrupted
by a crash is printed again: at least once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from millstream.connectors.contracts import CommitId, Json, RestorePoint, Sink, SinkWriter, WriterContext
from millstream.connectors.staging import read_staged, stage_bytes
from millstream.records.batch import Batch
from millstream.records.text import printed_texts
from millstream.storage.store import Store

__all__ = ["PrintSink", "print_prefix", "showable"]


def print_prefix(identifier: str | None, subtask: int, parallelism: int) -> str:
    """The prefix of a printed value.

    >>> print_prefix(None, 1, 4), print_prefix("id", 1, 4), print_prefix("id", 0, 1), print_prefix(None, 0, 1)
    ('2> ', 'id:2> ', 'id> ', '')
    """
    number = str(subtask + 1) if parallelism > 1 else ""
    words = ":".join(word for word in (identifier, number) if word)
    return f"{words}> " if words else ""


def showable(text: str, stream: TextIO) -> str:
    """The text, with characters missing in the stream's encoding replaced by Python escapes, so that printing never
    fails.

    >>> import io
    >>> showable("grün", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    'gr\\\\xfcn'
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


class PrintSink(Sink):
    """Prints every record to standard output, or to standard error."""

    guarantee = "at-least-once"

    def __init__(self, identifier: str | None = None, to_stderr: bool = False) -> None:
        self.identifier = identifier
        self.to_stderr = to_stderr
        self._output: Callable[[str], Any] | None = None

    def printing_to(self, output: Callable[[str], Any]) -> PrintSink:
        """This sink, which passes its text to `output` on the driver, in whole lines, instead of printing."""
        sink = PrintSink(self.identifier, self.to_stderr)
        sink._output = output
        return sink

    def __getstate__(self) -> dict[str, Any]:
        # The output belongs to the driver; a task never prints.
        return {**self.__dict__, "_output": None}

    def writer(self, context: WriterContext) -> SinkWriter:
        return _PrintWriter(context, print_prefix(self.identifier, context.subtask, context.parallelism))

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        text = "".join(read_staged(payload, store).decode("utf-8", "surrogatepass") for payload in publish)
        if not text:
            return
        if self._output is not None:
            self._output(text)
            return
        # Looked up on each commit: the stream may have been redirected since the sink was created.
        stream = sys.stderr if self.to_stderr else sys.stdout
        stream.write(showable(text, stream))
        stream.flush()

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        return pending, "output printed after that epoch is printed again"

    def staged_records(self, staged: Json, store: Store) -> Sequence[Any]:
        return read_staged(staged, store).decode("utf-8", "surrogatepass").splitlines()

    def describe(self) -> str:
        where = "standard error" if self.to_stderr else "standard output"
        return f"print to {where}" + (f" as {self.identifier!r}" if self.identifier else "")


class _PrintWriter(SinkWriter):
    def __init__(self, context: WriterContext, prefix: str) -> None:
        self._context = context
        self._prefix = prefix
        self._texts: list[str] = []
        self._records = 0

    def write(self, batch: Batch) -> None:
        if batch.length == 0:
            return
        prefix = self._prefix
        self._texts.append("".join([f"{prefix}{text}\n" for text in printed_texts(batch.values(), batch.type_info)]))
        self._records += batch.length

    def stage(self) -> Sequence[Json]:
        if not self._records:
            return ()
        data = "".join(self._texts).encode("utf-8", "surrogatepass")
        return (stage_bytes(self._context, data, self._records, suffix=".txt"),)
