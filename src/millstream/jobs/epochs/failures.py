"""What a failure of an epoch means: what the user is told, and whether running it again could mend it.

A failure of the user's code is the job's: the restart strategy decides. Everything else that fails an epoch (it took
too long, the store or a machine failed) is a failed checkpoint first, and may be tolerated.

**A damaged segment** is never read as "no value"; the job stops and names the file. What its owner asks next is how far
back the damage reaches. The answer here is the newest retained epoch that does not name the damaged file and whose
other files are all there, at their full length. Nothing is changed: going back to it is for a person to decide.

**Beside the protocol** (`do_beside`) sources hear of a commit, progress is shown, a store is tidied. None of it may
change what became of an epoch: whatever it raises is logged, and the job goes on. A committed epoch is committed, even
if somebody could not be told of it.
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

__all__ = ["JudgedFailure", "do_beside", "is_retryable", "judge", "reason_of", "said_by"]

_LOG = logging.getLogger(__name__)
_SEGMENT = re.compile(r"segments/\S+?\.arrow")
_INSTALLED = tuple(sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "platstdlib", "purelib", "platlib"))

# Failures of a task that running it again cannot mend: a person must put the program right, or the store.
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

# Code that the line of the failure gave, and that is not the function of the operator it leads to.
_ROLES_BEFORE_AN_OPERATOR = ("key selector", "partitioner")


@dataclass(frozen=True)
class JudgedFailure:
    """`error` is what the job raises if it ends with this failure; `output` what the task printed before."""

    error: BaseException
    reason: str
    retryable: bool
    tolerable: bool
    output: tuple[list[str], ...] = ()
    excuse: Excuse = None


def is_retryable(error: BaseException) -> bool:
    """Whether the same may succeed later: all that comes from the world, and of our own errors those that tell of
    something that is away.

    >>> is_retryable(StoreAwayError("no answer")), is_retryable(StoreError("no permission")), is_retryable(OSError())
    (True, False, True)
    """
    return isinstance(error, (StoreAwayError, ConnectorAwayError)) or not isinstance(error, MillstreamError)


def reason_of(error: BaseException) -> str:
    """What went wrong on the driver, in a line. An error of the user's own source or sink is told with its kind and
    place: what a KeyError says of itself is the key.

    >>> reason_of(KeyError("a")), reason_of(OSError("no answer"))
    ("KeyError: 'a'", 'no answer')
    """
    text = said_by(error)
    if isinstance(error, MillstreamError):
        return text
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    if places:
        place = f"{os.path.basename(places[-1].filename)}:{places[-1].lineno}"
        return f"{type(error).__name__}: {text} ({place})"
    return f"{type(error).__name__}: {text}" if isinstance(error, LookupError) else text


def said_by(error: BaseException) -> str:
    """What an error says of itself; its kind, where that is nothing, or where it cannot even say it."""
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def _is_users(filename: str) -> bool:
    return not (is_engine_file(filename) or filename.startswith((*_INSTALLED, "<")))


def judge(
    error: BaseException, log: ManifestLog, store: Store, parent: Manifest | None, *, ahead: bool = False
) -> JudgedFailure:
    """What became of an epoch that ended with `error`; `parent` is the newest manifest. `ahead`: it ran on what was
    acknowledged since. Then a file that is missing or damaged may be one that never came to the store."""
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
        except (StoreError, OSError):  # it has been said that the store is damaged; how far cannot be told just now
            advice = ""
        report = replace(report, message=report.message + advice)
    reason = f"{report.error}: {report.message}" if report.message else report.error
    whose = f"the {report.role} of " if report.role in _ROLES_BEFORE_AN_OPERATOR else ""
    # The report has all lines of the message; the sentence behind it, with the user's line, has the first.
    sentence = reason if "\n" not in reason else f"{reason.splitlines()[0]} …"
    failed = JobFailedError(f"{whose}'{report.operator}' failed: {sentence}", report=report.text(), at=report.site)
    if report.error in _OF_MEMORY:  # the kind that a caller looks for
        failed.__cause__ = MemoryError(report.message)
    output = tuple(list(line) for line in report.output)
    return JudgedFailure(failed, reason, report.error not in _FINAL_KINDS, tolerable=False, output=output)


def _newer_epoch(error: BaseException, log: ManifestLog, newest: int) -> int | None:
    """A newer epoch than this driver knows, where a file was missed or found damaged: its successor may have swept it
    away. None for any other failure."""
    is_damage = isinstance(error, StoreDamagedError) or (
        isinstance(error, UserFailureError) and error.report.error == "StoreDamagedError"
    )
    try:
        epochs = log.epochs_from(newest)[-1:] if is_damage else []
    except StoreError:  # whether it was replaced cannot be told just now
        return None
    return epochs[0] if epochs > [newest] else None


# --- how far damage reaches ------------------------------------------------------------------------------------


def _segments_of(manifest: Manifest) -> Iterator[tuple[str, int]]:
    """The segments of keyed state that a manifest names, with their lengths in bytes."""
    for account in subtask_accounts(manifest):
        if account.tables is not None:
            yield from ((file.name, file.bytes) for file in account.tables.files)


def _newest_whole_epoch(log: ManifestLog, store: Store, damaged: str) -> int | None:
    """The newest epoch that can do without the file `damaged`, and has all others; None when there is none."""
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
    """One more sentence for an error about a damaged segment; empty for any other."""
    match = _SEGMENT.search(message)
    if match is None:
        return ""
    epoch = _newest_whole_epoch(log, store, match.group())
    if epoch is None:
        return " No retained epoch is whole without that file."
    return f" The newest epoch that is still whole is {epoch}."


# --- failures that mean nothing --------------------------------------------------------------------------------


def do_beside(what: str, act: Callable[[], object]) -> None:
    """Call `act`; if it fails, log that, with `what` it was, and nothing else.

    >>> do_beside("counting to three", lambda: [1, 2, 3])
    """
    try:
        act()
    except (Exception, SystemExit) as error:
        _LOG.warning("%s failed, and the job goes on: %s", what, said_by(error), exc_info=error)
