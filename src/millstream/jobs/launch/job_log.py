"""The log of one run of a job: a file in its store's `logs` folder, next to its epochs.

Everything that is logged while the job runs is written there, in full: Millstream's messages, those of the user's code,
and the JVM's own messages about a failure, which would only clutter the screen. A failure is logged once, at ERROR,
with its traceback (`failure_notes.py`); the last line states how the job ended. A job whose store is not local logs to
a temporary file of its own (`storage/temporary_logs.py`), which is copied into the store when the job ends. The log of
a job in memory that never failed is removed at its end, like everything else of that job: tests run such jobs by the
thousand.

Attaching a handler must not change the user's output. Python prints warnings of programs that never set up logging; it
stops doing so as soon as any handler exists. So if no handler existed, we print warnings instead, one line each.
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

from millstream.common.job_status import JobStatus
from millstream.jobs.console.amounts import span_text
from millstream.jobs.console.console_view import ConsoleView, first_line, plain_line
from millstream.jobs.console.metric_texts import metric_texts
from millstream.jobs.epochs.failures import message_of
from millstream.jobs.epochs.progress import JobProgress, ProgressBoard
from millstream.jobs.launch.failure_notes import FailureNotes
from millstream.storage.log_lock import hold
from millstream.storage.memory import MemoryStore
from millstream.storage.names import log_name
from millstream.storage.store import Store
from millstream.storage.temporary_logs import fresh_log

__all__ = ["JobLog", "attach_log"]

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
# A failing job logs these and also raises them; a failure followed by a restart is logged as a warning.
_RAISED_ANYWAY = "millstream.jobs"
_MACHINERY = ("py4j", "pyspark")
_PROGRESS_INTERVAL_S = 10


class JobLog:
    """An attached log. `path` is the file; the progress of `board` is noted there periodically. `is_fleeting`: the log
    is removed when the job ends without ever having failed."""

    def __init__(self, path: Path, board: ProgressBoard | None = None, *, is_fleeting: bool = False) -> None:
        self.path = path
        self._is_fleeting = is_fleeting
        self._board = board
        self._progress_noted = time.monotonic()
        self._metrics_noted: list[str] = []
        self.failures = FailureNotes(self.write)
        root = logging.getLogger()
        self._file = _LogFile(path)
        assert self._file.stream is not None, "it was opened at once"
        hold(self._file.stream.fileno())  # readers of the store can detect that a process runs the job
        self._file.setFormatter(logging.Formatter(_FORMAT))
        self._handlers: list[logging.Handler] = [self._file]
        if not root.handlers:
            self._handlers.append(_ScreenHandler())
        for handler in self._handlers:
            root.addHandler(handler)
        if board is not None:
            board.listen(self._progress)

    def _progress(self, progress: JobProgress) -> None:
        """Runs on the driver's thread: nearly all calls must cost nothing."""
        if time.monotonic() - self._progress_noted >= _PROGRESS_INTERVAL_S:
            self._progress_noted = time.monotonic()
            self._write_progress(progress)

    def _write_progress(self, progress: JobProgress) -> None:
        self.write(_progress_text(progress))
        metrics = metric_texts(progress)
        if metrics and metrics != self._metrics_noted:
            self._metrics_noted = metrics
            self.write(f"metrics: {'; '.join(metrics)}")

    def write(self, text: str, level: int = logging.INFO) -> None:
        """Write a line to the file alone, at any level of logging. A closed log accepts none."""
        if self._handlers:
            self._file.handle(logging.LogRecord("millstream", level, __file__, 0, "%s", (text,), None))

    def end(self, status: JobStatus, error: BaseException | None, runtime_ms: int) -> None:
        """Record how the job ended and its last epoch, and stop logging."""
        if self._board is not None:
            now = self._board.now
            if error is not None and not self.failures.is_noted(error):
                self.failures.note("the job failed", error)
            self._write_progress(now)
            reason = "" if error is None else f": {first_line(message_of(error)) or type(error).__name__}"
            self.write(
                f"the job ended as {status.name} after {span_text(runtime_ms)}, at epoch {now.epoch}, published up to "
                f"{now.published}{reason}",
                logging.INFO if error is None else logging.ERROR,
            )
        self.close()

    def close(self) -> None:
        """Stop logging; closing again changes nothing."""
        for handler in self._handlers:
            logging.getLogger().removeHandler(handler)
            handler.close()
        self._handlers = []
        if self._is_fleeting and self._board is not None and not self._board.now.last_error:
            self.path.unlink(missing_ok=True)


def attach_log(store: Store, run: str, board: ProgressBoard | None = None) -> JobLog:
    """Log to the file of `run` in `store` until the log is closed."""
    path = store.local_path(log_name(run))
    if path is None:
        path = fresh_log(run)
    else:
        store.put(log_name(run), b"")  # so that the log has the permissions of the store's other files
    log = JobLog(path, board, is_fleeting=isinstance(store, MemoryStore))
    whose = "" if board is None else f" of job '{board.now.job_name}' ({board.now.job_id})"
    log.write(f"run {run}{whose}, store {store.url}")
    return log


def _progress_text(progress: JobProgress) -> str:
    now_ms = int(time.time() * 1000)
    view = ConsoleView(progress, now_ms, 0, progress.in_per_second, progress.out_per_second)
    return plain_line(view, with_error=False, with_metrics=False)


class _LogFile(logging.FileHandler):
    """A log file that stays closed once closed. Python's own handler would reopen it for a record that another thread
    is just passing to it.

    Lines that cannot be written to disk are lost. The file records their number once it can be written again, and the
    screen reports the loss once.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8", delay=False)
        self._lines_lost, self._has_reported_loss = 0, False

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is None:
            return
        try:
            if self._lines_lost:
                self._append(f"({self._lines_lost} lines before this one could not be written)")
                self._lines_lost = 0
            self._append(self.format(record))
        except OSError as error:
            self._lose(error)
        except Exception:
            self.handleError(record)

    def _append(self, line: str) -> None:
        if self.stream is not None:
            self.stream.write(line + self.terminator)
            self.stream.flush()

    def _lose(self, error: OSError) -> None:
        self._lines_lost += 1
        if not self._has_reported_loss:
            self._has_reported_loss = True
            reason = error.strerror or error
            sys.stderr.write(
                f"millstream: the log {self.baseFilename} cannot be written: {reason}. Lines are missing\n"
            )

    def close(self) -> None:
        try:
            super().close()
        except OSError as error:  # lines that were still buffered
            self._lose(error)


class _ScreenHandler(logging.Handler):
    """Prints what Python itself would print without any handler: warnings and worse, to standard error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] in _MACHINERY:
            return False
        return not (record.name.startswith(_RAISED_ANYWAY) and record.levelno >= logging.ERROR)

    def emit(self, record: logging.LogRecord) -> None:
        is_own = record.name.partition(".")[0] == "millstream"
        # Our own tracebacks stay in the file; the user's are shown.
        text = f"millstream: {record.getMessage()}" if is_own else self.format(record)
        # Looked up now: a live console may have replaced the stream.
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
