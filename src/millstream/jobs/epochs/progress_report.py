"""Reports a running job's progress: the driver passes events to a `ProgressReporter`, which writes them to the progress
board, the job's log and the screen. No decision depends on it.

Pure functions below compute the figures of the board from a manifest and its epoch (totals, rates, shares).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millstream.checkpoint.events import Restart
from millstream.checkpoint.manifest import Manifest
from millstream.graph.notices import warn_once
from millstream.jobs.console.amounts import bytes_text
from millstream.jobs.epochs.backlog import Backlog, BacklogSample, backlog_after, records_behind
from millstream.jobs.epochs.epoch_statistics import files_of_state, statistics_of
from millstream.jobs.epochs.failures import JudgedFailure, reason_of, run_or_log
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.jobs.epochs.progress import OperatorProgress, ProgressBoard
from millstream.jobs.epochs.rounds import records_in_loops
from millstream.jobs.epochs.silent_subtasks import SilentSubtasks
from millstream.jobs.epochs.stalled_watermarks import StallReport
from millstream.plan.operations import TablePaneAggregate
from millstream.plan.stages import Plan
from millstream.records.watermarks import shown_watermark

__all__ = ["ProgressReporter", "StateSize", "epoch_progress", "state_size", "total_progress"]

LATE_RECORDS = "numLateRecordsDropped"
"""The metric of an operator that counts the late records it dropped; Flink's name."""

_STAYS_EPOCHS = 50
_LOG_TRIES_EVERY = 64
_LOG = logging.getLogger(__name__)


class ProgressReporter:
    """Reports the events of one job's driver. `note` writes to the job's log; `note_failure` logs a failure, given its
    error and the error that the job would raise; `show` displays the output printed by tasks; `sources` and `sinks` are
    the uids of the program's sources and sinks."""

    def __init__(
        self,
        board: ProgressBoard,
        note: Callable[[str], None],
        note_failure: Callable[..., None],
        show: Callable[[list[list[str]]], None],
        sources: Collection[str],
        sinks: Collection[str],
    ) -> None:
        self.note, self.note_error, self.show = note, note_failure, show
        self._board, self._sources, self._sinks = board, sources, sinks
        self._backlog: Backlog | None = None
        self._stays: deque[tuple[int, int]] = deque(maxlen=_STAYS_EPOCHS)
        self._silent_subtasks, self._stalls = SilentSubtasks(), StallReport()

    def started(self, newest: Manifest, published: int, plan: Plan) -> None:
        """The driver has read the newest manifest."""
        run_or_log("showing progress", lambda: self._change(**self._totals(newest, plan)))
        self._change(published=published)

    def restarting(self, action: Restart) -> None:
        """The job failed and continues after a pause."""
        step = "tolerated, running again" if action.tolerated else "restarting"
        _LOG.warning("%s in %d ms: %s", step, action.delay_ms, action.reason)
        if not action.tolerated:
            self._change(status="RESTARTING", restarts=self._board.now.restarts + 1)

    def restarted(self) -> None:
        """The job continues."""
        self._change(status="RUNNING")

    def failed(self, failure: JudgedFailure, error: BaseException, *, canceling: bool) -> None:
        """An epoch failed with `error`; while the job is being cancelled, that is expected."""
        run_or_log("showing what a task printed", lambda: self.show(list(failure.output)))
        if not canceling:
            self.note_error(f"an epoch failed: {failure.reason}", error, failure.error)
            self._change(last_error=failure.reason)

    def committed(self, manifest: Manifest, outcome: EpochOutcome | None, plan: Plan, elapsed_s: float) -> None:
        """A manifest was committed, `elapsed_s` after the tasks of its epoch were started."""
        if outcome is None or manifest.status in ("FINISHED", "SUSPENDED"):
            self._change(**self._totals(manifest, plan), time_awaits=())
        else:
            progress = epoch_progress(manifest, outcome, plan, self._sources, self._sinks, elapsed_s)
            self._change(**progress, **self._behind(manifest), **self._stayed(manifest))
            warn_of_late_records(outcome, plan)
            self._silent_subtasks.committed(manifest, outcome, plan)
            self._report_stalls(manifest, plan)

    def _report_stalls(self, manifest: Manifest, plan: Plan) -> None:
        for line in self._stalls.committed(manifest, plan):
            _LOG.warning("%s", line)
        if self._board.now.time_awaits != self._stalls.awaited:
            self._change(time_awaits=self._stalls.awaited)

    def ahead(self, epochs: int, bytes: int, acknowledged: int, *, is_unreachable: bool, pauses: bool) -> None:
        """`epochs` epochs are acknowledged and not committed; the commit numbered `acknowledged` will contain the last
        one. `pauses`: no further epoch is run for now."""
        now = self._board.now
        is_paused = pauses and (is_unreachable or now.publish_tries > 0)
        before = now.ahead, now.acknowledged, now.store_unreachable, now.paused
        if before == (epochs, acknowledged, is_unreachable, is_paused):
            return
        backlog = f"{epochs} epochs of about {bytes_text(bytes)} are ahead of the newest manifest"
        if is_unreachable and not now.store_unreachable:
            _LOG.warning("the store does not answer. The job continues with the files on its machines; %s", backlog)
        if is_unreachable and pauses and not now.paused:
            _LOG.warning("the store still does not answer, and the job pauses until it does; %s", backlog)
        if now.store_unreachable and not is_unreachable:
            _LOG.warning("the store answers again; %s, and are committed now", backlog)
        self._change(ahead=epochs, acknowledged=acknowledged, store_unreachable=is_unreachable, paused=is_paused)

    def published(self, epoch: int) -> None:
        """The output of an epoch is visible; runs on the publishing thread."""
        tries = self._board.now.publish_tries
        if tries:
            _LOG.warning("epoch %d is published, after %d failed tries", epoch, tries)
        self._change(published=epoch, unpublished="", publish_tries=0)

    def publish_failed(self, epoch: int, error: BaseException) -> None:
        """The output of an epoch could not be published; runs on the publishing thread."""
        reason, tries = reason_of(error), self._board.now.publish_tries + 1
        self.note_error(f"epoch {epoch} could not be published", error)
        if tries & (tries - 1) == 0 or tries % _LOG_TRIES_EVERY == 0:  # the first, the second, the fourth …
            _LOG.warning(
                "epoch %d could not be published (try %d): %s Its output waits in the store, and no later epoch "
                "is published before it",
                epoch,
                tries,
                reason if reason.endswith(".") else f"{reason}.",
            )
        self._change(last_error=reason, unpublished=reason, publish_tries=tries)

    def _behind(self, manifest: Manifest) -> dict[str, Any]:
        behind = records_behind(statistics_of(manifest) or {})
        if behind is None:
            return {}
        self._backlog = backlog_after(self._backlog, BacklogSample(manifest.created_ms, behind))
        return {"behind": behind, "caught_up_in_ms": self._backlog.caught_up_in_ms}

    def _stayed(self, manifest: Manifest) -> dict[str, Any]:
        """Averages over several epochs: in a single epoch of few tasks, one moved task would be a large share."""
        statistics = statistics_of(manifest) or {}
        if "tasks_stayed" not in statistics:
            return {}
        self._stays.append((statistics["tasks"], statistics["tasks_stayed"]))
        tasks, stayed = map(sum, zip(*self._stays, strict=True))
        return {"stayed_share": stayed / tasks}

    def _totals(self, manifest: Manifest, plan: Plan) -> dict[str, Any]:
        totals = total_progress(manifest, plan, self._sources, self._sinks)
        return {"published": manifest.published_through, **totals}

    def _change(self, **fields: object) -> None:
        self._board.change(**fields)


def warn_of_late_records(outcome: EpochOutcome, plan: Plan) -> None:
    """Warn once per operator that it dropped late records; its metrics count them."""
    for node in plan.nodes():
        count = outcome.metrics.get(f"{node.uid}.{LATE_RECORDS}", {}).get("counter", 0)
        if count:
            remedy = (
                "watermark wait longer (for_bounded_out_of_orderness), allow lateness, or read them from a side output"
            )
            if isinstance(node.operation, TablePaneAggregate):
                remedy = "table's watermark wait longer: WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
            warn_once(
                f"late records of {node.uid}",
                f"{count} {'record' if count == 1 else 'records'} arrived too late for '{node.name}' in one epoch and "
                f"{'was' if count == 1 else 'were'} dropped; more may follow ({LATE_RECORDS} counts them). "
                f"Let the {remedy}",
                node.site,
            )


@dataclass(frozen=True)
class StateSize:
    """The size of a manifest's state, timers included, as stored: obsolete rows count until compaction drops them."""

    rows: int
    bytes: int


def total_progress(manifest: Manifest, plan: Plan, sources: Collection[str], sinks: Collection[str]) -> dict[str, Any]:
    """The fields of `JobProgress` that a manifest alone determines: totals over the job's life."""
    counters: Any = manifest.counters
    counted: Mapping[str, Mapping[str, int]] = counters.get("operators", {})

    def total(uid: str | None, which: str) -> int:
        return counted.get(uid or "", {}).get(which, 0)

    size = state_size(manifest)
    return {
        "epoch": manifest.epoch,
        "records_in": sum(total(uid, "out") for uid in sources),
        "records_out": sum(total(uid, "in") for uid in sinks),
        "watermark_ms": shown_watermark(manifest.watermark),
        "metrics": counters.get("metrics", {}),
        "state_bytes": size.bytes,
        "state_rows": size.rows,
        "in_loops": records_in_loops(plan, manifest),
        "operators": {
            node.uid or "": OperatorProgress(node.name, total(node.uid, "in"), total(node.uid, "out"))
            for node in plan.nodes()
        },
    }


def state_size(manifest: Manifest) -> StateSize:
    """The size of all files of keyed, broadcast and function state, as `millstream checkpoints` counts them. A file
    that several subtasks list is counted once."""
    files = {named.file.name: named.file for named in files_of_state(manifest)}
    return StateSize(sum(file.rows for file in files.values()), sum(file.bytes for file in files.values()))


def epoch_progress(
    manifest: Manifest,
    outcome: EpochOutcome,
    plan: Plan,
    sources: Collection[str],
    sinks: Collection[str],
    elapsed_s: float,
) -> dict[str, Any]:
    """The totals, and the rates of the epoch just committed. `elapsed_s`: from its start to its commit."""
    elapsed_s = max(elapsed_s, 1e-9)
    fields = total_progress(manifest, plan, sources, sinks)

    def now(uid: str, which: str) -> int:
        return outcome.operators.get(uid, {}).get(which, 0)

    subtasks = {node.uid or "": node.parallelism or 1 for node in plan.nodes()}
    return {
        **fields,
        "epoch_ms": elapsed_s * 1000,
        "in_per_second": sum(now(uid, "out") for uid in sources) / elapsed_s,
        "out_per_second": sum(now(uid, "in") for uid in sinks) / elapsed_s,
        "operators": {
            uid: replace(operator, busy_share=now(uid, "busy_ns") / 1e9 / elapsed_s / subtasks[uid])
            for uid, operator in fields["operators"].items()
        },
    }
