"""The log of one run of a job: a file in its store's `logs` folder, beside the epochs it is about.

Everything that is logged while the job runs goes there, in full: what Millstream has to say, what the user's code logs,
and the JVM's own words about a failure, which nobody wants on the screen. A job whose store is not local logs to a
temporary file.

Attaching a handler must not change what the user sees. Python prints warnings of programs that never set up logging;
it stops doing so as soon as any handler exists. So where there was none, we print them instead, one line each.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

from millstream.storage.names import log_name
from millstream.storage.store import Store

__all__ = ["JobLog", "attach_log"]

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
# What a failing job logs here, it also raises; a restart it survives is a warning.
_RAISED_ANYWAY = "millstream.jobs"
_MACHINERY = ("py4j", "pyspark")


class JobLog:
    """An attached log. `path` is where it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        root = logging.getLogger()
        self._file = logging.FileHandler(path, encoding="utf-8", delay=False)
        self._file.setFormatter(logging.Formatter(_FORMAT))
        self._handlers: list[logging.Handler] = [self._file]
        if not root.handlers:
            self._handlers.append(_ScreenHandler())
        for handler in self._handlers:
            root.addHandler(handler)

    def write(self, text: str) -> None:
        """A line for the file alone, whatever the level of logging is."""
        self._file.handle(logging.LogRecord("millstream", logging.INFO, __file__, 0, "%s", (text,), None))

    def close(self) -> None:
        """Stop logging; closing again changes nothing."""
        for handler in self._handlers:
            logging.getLogger().removeHandler(handler)
            handler.close()
        self._handlers = []


def attach_log(store: Store, run: str) -> JobLog:
    """Log to the file of `run` in `store` until the log is closed."""
    path = store.local_path(log_name(run))
    return JobLog(path or Path(tempfile.gettempdir(), f"millstream-{run}.log"))


class _ScreenHandler(logging.Handler):
    """What Python itself would print without any handler: warnings and worse, to standard error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] in _MACHINERY:
            return False
        return not (record.name.startswith(_RAISED_ANYWAY) and record.levelno >= logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        ours = record.name.partition(".")[0] == "millstream"
        # Our own tracebacks stay in the file; the user's are the user's to see.
        text = f"millstream: {record.getMessage()}" if ours else self.format(record)
        # Looked up now: a live console may have put itself in front of the stream.
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
