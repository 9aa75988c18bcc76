"""Classifies failures: the error that the user sees, and whether running the epoch again could succeed.

A failure of the user's code counts against the job: the restart strategy decides. Anything else that fails an epoch (a
timeout, the store, a machine) is first a failed checkpoint, and may be tolerated.

**A damaged segment** is never read as "no value"; the job stops and names the file. Its owner then needs to know how
far back the damage reaches. The error names the newest intact epoch: one that does not need the damaged file, and all
other files of which exist at full length. Nothing is changed: the owner decides whether to go back to it.

**Outside the protocol** (`run_or_log`) sources are notified of a commit, progress is shown, a store is swept. None of
this may change the result of an epoch: any exception is logged, and the job continues. A committed epoch stays
committed even if a notification of it failed.
"""

from __future__ import annotations

import logging
import os
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from millstream.checkpoint.events import Excuse
from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.errors import (
    ConnectorAwayError,
    FencedError,
    JobFailedError,
    MillstreamError,
    StoreAwayError,
    StoreDamagedError,
    StoreError,
)
from millstream.jobs.epochs.manifests import subtask_accounts
from millstream.runtime.operators.explanations import is_engine_file
from millstream.runtime.operators.user_code import UserFailureError
from millstream.storage.store import Store

__all__ = ["JudgedFailure", "is_retryable", "judge", "message_of", "reason_of", "run_or_log"]

_LOG = logging.getLogger(__name__)
_SEGMENT = re.compile(r"segments/\S+?\.arrow")
_INSTALLED = tuple(sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "platstdlib", "purelib", "platlib"))

# Task failures that a retry cannot repair: a person must correct the program or the store.
_OF_MEMORY = ("MemoryError", "ArrowMemoryError")
_FINAL_KINDS = frozenset(
    {
        "StoreDamagedError",
        "ProgramError",
        "StateSchemaError",
        "TypeMismatchError",
        "NotYetError",
        "NotAvailableError",
        "ConfigurationError",
        "ConnectorError",
    }
)

# Roles of code that ran in an operator's input, not in the operator itself.
_ROLES_BEFORE_AN_OPERATOR = ("key selector", "partitioner")


@dataclass(frozen=True)
class JudgedFailure:
    """`error` is raised if the job ends with this failure; `output` is what the task printed before."""

    error: BaseException
    reason: str
    retryable: bool
    tolerable: bool
    output: tuple[list[str], ...] = ()
    excuse: Excuse = None


def is_retryable(error: BaseException) -> bool:
    """Whether a retry may succeed: true for external errors, and for our own errors that report an unreachable system.

    >>> is_retryable(StoreAwayError("no answer")), is_retryable(StoreError("no permission")), is_retryable(OSError())
    (True, False, True)
    """
    return isinstance(error, (StoreAwayError, ConnectorAwayError)) or not isinstance(error, MillstreamError)


def reason_of(error: BaseException) -> str:
    """The cause of a failure on the driver, in one line. For an error of the user's own source or sink it includes the
    exception type and the code line: the message of a KeyError is only the key.

    >>> reason_of(KeyError("a")), reason_of(OSError("no answer"))
    ("KeyError: 'a'", 'no answer')
    """
    text = message_of(error)
    if isinstance(error, MillstreamError):
        return text
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    if places:
        place = f"{os.path.basename(places[-1].filename)}:{places[-1].lineno}"
        return f"{type(error).__name__}: {text} ({place})"
    return f"{type(error).__name__}: {text}" if isinstance(error, LookupError) else text


def message_of(error: BaseException) -> str:
    """The message of an error; its type, if the message is empty or cannot be produced."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def _is_users(filename: str) -> bool:
    return not (is_engine_file(filename) or filename.startswith((*_INSTALLED, "<")))


def judge(
    error: BaseException, log: ManifestLog, store: Store, parent: Manifest | None, *, ahead: bool = False
) -> JudgedFailure:
    """The verdict on an epoch that ended with `error`; `parent` is the newest manifest. `ahead`: the epoch followed
    acknowledged epochs, so a missing or damaged file may be one that was never uploaded."""
    judged = _judged(error, log, store, parent)
    kind = error.report.error if isinstance(error, UserFailureError) else type(error).__name__
    if kind == "StoreFullError":
        return replace(judged, excuse="full")
    if kind == "StoreAwayError":
        return replace(judged, excuse="away")
    if kind == "UnsentFileError":
        return replace(judged, excuse="lost")
    if ahead and kind == "StoreDamagedError" and not isinstance(judged.error, FencedError):
        return replace(judged, retryable=True, excuse="lost")
    return judged


def _judged(error: BaseException, log: ManifestLog, store: Store, parent: Manifest | None) -> JudgedFailure:
    newest = 0 if parent is None else parent.epoch
    newer = _newer_epoch(error, log, newest)
    if newer is not None:
        fenced = FencedError(
            f"another driver has committed epoch {newer} and owns the job now. This one was to follow epoch {newest}, "
            "whose files have been swept since; it has stopped. Nothing is damaged"
        )
        return JudgedFailure(fenced, fenced.message, retryable=False, tolerable=False)
    if not isinstance(error, UserFailureError):
        return JudgedFailure(error, reason_of(error), is_retryable(error), tolerable=True)
    report = error.report
    if report.error == "StoreDamagedError":
        try:
            advice = _whole_epoch_advice(report.message, log, store)
        except (StoreError, OSError):  # the damage itself is reported; its extent cannot be determined now
            advice = ""
        report = replace(report, message=report.message + advice)
    reason = f"{report.error}: {report.message}" if report.message else report.error
    whose = f"the {report.role} of " if report.role in _ROLES_BEFORE_AN_OPERATOR else ""
    # The report has all lines of the message; the sentence after it, with the user's line, only the first.
    sentence = reason if "\n" not in reason else f"{reason.splitlines()[0]} …"
    failed = JobFailedError(f"{whose}'{report.operator}' failed: {sentence}", report=report.text(), at=report.site)
    if report.error in _OF_MEMORY:  # the exception type that callers catch
        failed.__cause__ = MemoryError(report.message)
    output = tuple(list(line) for line in report.output)
    return JudgedFailure(failed, reason, report.error not in _FINAL_KINDS, tolerable=False, output=output)


def _newer_epoch(error: BaseException, log: ManifestLog, newest: int) -> int | None:
    """An epoch newer than this driver knows, if a file is missing or damaged: a newer driver may have swept the file.
    None for any other failure."""
    is_damage = isinstance(error, StoreDamagedError) or (
        isinstance(error, UserFailureError) and error.report.error == "StoreDamagedError"
    )
    try:
        epochs = log.epochs_from(newest)[-1:] if is_damage else []
    except StoreError:  # whether the driver was replaced cannot be determined now
        return None
    return epochs[0] if epochs > [newest] else None


# --- how far damage reaches ------------------------------------------------------------------------------------


def _segments_of(manifest: Manifest) -> Iterator[tuple[str, int]]:
    """The segments of keyed state that a manifest names, with their lengths in bytes."""
    for account in subtask_accounts(manifest):
        if account.tables is not None:
            yield from ((file.name, file.bytes) for file in account.tables.files)


def _newest_whole_epoch(log: ManifestLog, store: Store, damaged: str) -> int | None:
    """The newest epoch that does not need the file `damaged` and has all its other files; None if no epoch does."""
    for epoch in reversed(log.epochs()):
        try:
            files = dict(_segments_of(log.read(epoch)))
        except StoreError:
            continue
        if damaged not in files and all(_is_there(store, file, length) for file, length in files.items()):
            return epoch
    return None


def _is_there(store: Store, file: str, length: int) -> bool:
    if not store.exists(file):
        return False
    path = store.local_path(file)
    return path is None or path.stat().st_size == length


def _whole_epoch_advice(message: str, log: ManifestLog, store: Store) -> str:
    """A sentence to append to an error about a damaged segment; empty for any other error."""
    match = _SEGMENT.search(message)
    if match is None:
        return ""
    epoch = _newest_whole_epoch(log, store, match.group())
    if epoch is None:
        return " No retained epoch is whole without that file."
    return f" The newest intact epoch is {epoch}."


# --- failures without consequences -----------------------------------------------------------------------------


def run_or_log(what: str, act: Callable[[], object]) -> None:
    """Call `act`; log an exception as a failure of `what`.

    >>> run_or_log("counting to three", lambda: [1, 2, 3])
    """
    try:
        act()
    except (Exception, SystemExit) as error:
        _LOG.warning("%s failed, and the job continues: %s", what, message_of(error), exc_info=error)
