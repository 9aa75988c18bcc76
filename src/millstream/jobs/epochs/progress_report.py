"""What people hear of a running job: the driver tells a `ProgressReporter` what has happened, and the reporter says it
on the progress board, in the job's log and on the screen. Nothing here decides anything.

What the board says of a manifest, and of the epoch that led to it (totals, rates, shares), is worked out by pure
functions below.
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
from millstream.jobs.epochs.failures import JudgedFailure, do_beside, reason_of
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.jobs.epochs.progress import OperatorProgress, ProgressBoard
from millstream.jobs.epochs.rounds import records_in_loops
from millstream.jobs.epochs.silent_subtasks import SilentSubtasks
from millstream.jobs.epochs.standing_time import StandingReport
from millstream.plan.operations import TablePaneAggregate
from millstream.plan.stages import Plan
from millstream.records.watermarks import shown_watermark

__all__ = ["ProgressReporter", "StateSize", "epoch_progress", "state_size", "total_progress"]

LATE_RECORDS = "numLateRecordsDropped"
"""The metric of an operator that counts the records it dropped because they came too late; Flink's name."""

_STAYS_EPOCHS = 50
_PUBLISH_TRIES_TOLD = 64
_LOG = logging.getLogger(__name__)


class ProgressReporter:
    """Says what the driver of one job tells it. `note` writes into the job's log, `note_failure` what failed there,
    the failure, and what the job raises if it ends with it; `show` shows what tasks printed; `sources` and `sinks` are
    the uids of where records come in and go out."""

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
        self._silent_subtasks, self._standing = SilentSubtasks(), StandingReport()

    def started(self, newest: Manifest, published: int, plan: Plan) -> None:
        """The driver has read where the job stands."""
        do_beside("showing progress", lambda: self._change(**self._totals(newest, plan)))
        self._change(published=published)

    def restarting(self, action: Restart) -> None:
        """The job fails and goes on, after a pause."""
        what = "tolerated, running again" if action.tolerated else "restarting"
        _LOG.warning("%s in %d ms: %s", what, action.delay_ms, action.reason)
        if not action.tolerated:
            self._change(status="RESTARTING", restarts=self._board.now.restarts + 1)

    def restarted(self) -> None:
        """The job goes on."""
        self._change(status="RUNNING")

    def failed(self, failure: JudgedFailure, error: BaseException, *, canceling: bool) -> None:
        """An epoch failed with `error`; when the job is being cancelled, that is to be expected."""
        do_beside("showing what a task printed", lambda: self.show(list(failure.output)))
        if not canceling:
            self.note_error(f"an epoch failed: {failure.reason}", error, failure.error)
            self._change(last_error=failure.reason)

    def committed(self, manifest: Manifest, outcome: EpochOutcome | None, plan: Plan, took_s: float) -> None:
        """A manifest stands, `took_s` after the tasks of its epoch were started."""
        if outcome is None or manifest.status in ("FINISHED", "SUSPENDED"):
            self._change(**self._totals(manifest, plan), time_awaits=())
        else:
            progress = epoch_progress(manifest, outcome, plan, self._sources, self._sinks, took_s)
            self._change(**progress, **self._behind(manifest), **self._stayed(manifest))
            warn_of_late_records(outcome, plan)
            self._silent_subtasks.committed(manifest, outcome, plan)
            self._report_standing_time(manifest, plan)

    def _report_standing_time(self, manifest: Manifest, plan: Plan) -> None:
        for line in self._standing.committed(manifest, plan):
            _LOG.warning("%s", line)
        if self._board.now.time_awaits != self._standing.awaited:
            self._change(time_awaits=self._standing.awaited)

    def ahead(self, epochs: int, bytes: int, acknowledged: int, *, is_away: bool, pauses: bool) -> None:
        """So many epochs are acknowledged and not committed; the last will be with the commit of that number. `pauses`:
        no further one is run for now."""
        now = self._board.now
        is_paused = pauses and (is_away or now.publish_tries > 0)
        before = now.ahead, now.acknowledged, now.store_away, now.paused
        if before == (epochs, acknowledged, is_away, is_paused):
            return
        told = f"{epochs} epochs of about {bytes_text(bytes)} are ahead of the newest manifest"
        if is_away and not now.store_away:
            _LOG.warning("the store does not answer. The job goes on with what its machines keep; %s", told)
        if is_away and pauses and not now.paused:
            _LOG.warning("the store is still away, and the job pauses until it answers; %s", told)
        if now.store_away and not is_away:
            _LOG.warning("the store answers again; %s, and are committed now", told)
        self._change(ahead=epochs, acknowledged=acknowledged, store_away=is_away, paused=is_paused)

    def published(self, epoch: int) -> None:
        """The output of an epoch is visible; on the publishing thread."""
        tries = self._board.now.publish_tries
        if tries:
            _LOG.warning("epoch %d is published, after %d tries in vain", epoch, tries)
        self._change(published=epoch, unpublished="", publish_tries=0)

    def publish_failed(self, epoch: int, error: BaseException) -> None:
        """The output of an epoch could not be published; on the publishing thread."""
        reason, tries = reason_of(error), self._board.now.publish_tries + 1
        self.note_error(f"epoch {epoch} could not be published", error)
        if tries & (tries - 1) == 0 or tries % _PUBLISH_TRIES_TOLD == 0:  # the first, the second, the fourth …
            _LOG.warning(
                "epoch %d could not be published (try %d): %s Its output waits in the store, and nothing behind it is "
                "published before it",
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
        """Over some epochs: of a single one's few tasks, one that moved would be a large share."""
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
    """Say once of each operator that records came too late for it; how many there are is among its metrics."""
    for node in plan.nodes():
        count = outcome.metrics.get(f"{node.uid}.{LATE_RECORDS}", {}).get("counter", 0)
        if count:
            remedy = (
                "watermark wait longer (for_bounded_out_of_orderness), allow lateness, or take them from a side output"
            )
            if isinstance(node.operation, TablePaneAggregate):
                remedy = "table's watermark wait longer: WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
            warn_once(
                f"late records of {node.uid}",
                f"{count} {'record' if count == 1 else 'records'} came too late for '{node.name}' in one epoch and "
                f"{'was' if count == 1 else 'were'} dropped; more may follow ({LATE_RECORDS} counts them). "
                f"Let the {remedy}",
                node.site,
            )


@dataclass(frozen=True)
class StateSize:
    """How much state, timers included, a manifest names: as stored, before compaction drops what is void."""

    rows: int
    bytes: int


def total_progress(manifest: Manifest, plan: Plan, sources: Collection[str], sinks: Collection[str]) -> dict[str, Any]:
    """The fields of `JobProgress` that a manifest alone tells: where the job stands, over its whole life."""
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
    """The size of all files of state, keyed, broadcast and of functions, as `millstream checkpoints` counts them. A
    file that several subtasks list is counted once."""
    files = {named.file.name: named.file for named in files_of_state(manifest)}
    return StateSize(sum(file.rows for file in files.values()), sum(file.bytes for file in files.values()))


def epoch_progress(
    manifest: Manifest,
    outcome: EpochOutcome,
    plan: Plan,
    sources: Collection[str],
    sinks: Collection[str],
    took_s: float,
) -> dict[str, Any]:
    """The same, and the rates of the epoch just committed. `took_s`: from its start to its commit."""
    took_s = max(took_s, 1e-9)
    fields = total_progress(manifest, plan, sources, sinks)

    def now(uid: str, which: str) -> int:
        return outcome.operators.get(uid, {}).get(which, 0)

    subtasks = {node.uid or "": node.parallelism or 1 for node in plan.nodes()}
    return {
        **fields,
        "epoch_ms": took_s * 1000,
        "in_per_second": sum(now(uid, "out") for uid in sources) / took_s,
        "out_per_second": sum(now(uid, "in") for uid in sinks) / took_s,
        "operators": {
            uid: replace(operator, busy_share=now(uid, "busy_ns") / 1e9 / took_s / subtasks[uid])
            for uid, operator in fields["operators"].items()
        },
    }
