"""Commits partitions: writes a file `_SUCCESS` into the folder of a complete partition, once, when it is due.

A partition is *open* from the first epoch that stages rows for it until it is committed. It is due

- with the trigger `process-time`, when it has been open for the delay by the job's clock;
- with `partition-time`, when the watermark at the sink has passed the time in its name plus the delay;
- at the end of bounded input, in any case.

The driver passes the sink the watermark after the epoch (`Sink.plan_timed_commit`): the value that the
manifest stores for the sink, the minimum of all its tasks. So the due partitions are a function of the manifest, are
decided before it is written, and are the same after every crash. Rows of a due partition do not wait for a larger file:
one commit publishes all its parts, and then the success file. Commits are repeated until one is known to be complete,
and writing an empty file again changes nothing.

Late rows of a committed partition open it again; it is due at once, and its success file is written anew.
A partition without a time in its name (that of NULL) is due only at the end of the input.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote
from zoneinfo import ZoneInfo

from millstream.connectors.contracts import CommitId, CommitPlan, Json, RestorePoint
from millstream.connectors.files.sink import FileSink
from millstream.records.watermarks import MIN_WATERMARK
from millstream.storage.patience import with_patience
from millstream.storage.store import Store, open_store

__all__ = ["CommitRule", "PartitionTime", "PartitionedFileSink"]

_MOMENT = re.compile(r"(\d{1,4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?")


@dataclass(frozen=True)
class PartitionTime:
    """The time in the name of a partition's folder: `pattern` with the partition column's value for each `$name`.

    >>> PartitionTime(("day", "hour"), "$day $hour:00:00").milliseconds("day=1970-01-02/hour=1")
    90000000
    """

    keys: tuple[str, ...]
    pattern: str | None = None
    formatter: str | None = None  # in the syntax of `datetime.strptime`
    zone: str = "UTC"

    def milliseconds(self, folder: str) -> int | None:
        """Milliseconds since 1970 in UTC; None if the folder has no time."""
        values = dict(part.split("=", 1) for part in folder.split("/") if "=" in part)
        values = {unquote(name): unquote(text) for name, text in values.items()}
        text = values.get(self.keys[0], "") if self.pattern is None else self.pattern
        if self.pattern is not None:
            for name in sorted(self.keys, key=len, reverse=True):
                text = text.replace(f"${name}", values.get(name, ""))
        moment = self._moment(text.strip())
        if moment is None:
            return None
        try:
            return int(moment.replace(tzinfo=ZoneInfo(self.zone)).astimezone(UTC).timestamp() * 1000)
        except OverflowError:
            return None

    def _moment(self, text: str) -> datetime | None:
        if self.formatter is not None:
            try:
                return datetime.strptime(text, self.formatter)
            except ValueError:
                return None
        match = _MOMENT.fullmatch(text)
        if match is None:
            return None
        fraction = int((match[7] or "").ljust(6, "0")[:6] or 0)
        try:
            whole = datetime(*[int(part or 0) for part in match.groups()[:6]])  # type: ignore[arg-type]
        except ValueError:
            return None
        return whole + timedelta(microseconds=fraction)


@dataclass(frozen=True)
class CommitRule:
    """When partitions are due, and the name of the success file. `time` None: partitions are due by the job's clock."""

    delay_ms: int = 0
    time: PartitionTime | None = None
    success_file: str = "_SUCCESS"

    def is_due(self, folder: str, since_ms: int, now_ms: int, watermark_ms: int) -> bool:
        """Whether a partition that has been open since `since_ms` is due."""
        if self.time is None:
            return now_ms >= since_ms + self.delay_ms
        if watermark_ms == MIN_WATERMARK:
            return False
        moment_ms = self.time.milliseconds(folder)
        return moment_ms is not None and watermark_ms > moment_ms + self.delay_ms

    def due_ms(self, since_ms: int) -> int | None:
        """When an open partition is due by the clock."""
        return since_ms + self.delay_ms if self.time is None else None


class PartitionedFileSink(FileSink):
    """A file sink that commits partitions. Pending: `{"parts": the file sink's pending, "open": {folder: since}}`."""

    rule: CommitRule

    def with_rule(self, rule: CommitRule) -> PartitionedFileSink:
        """A copy that commits by `rule`."""
        self.rule = rule
        return self

    def plan_timed_commit(
        self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool, watermark_ms: int
    ) -> CommitPlan:
        waiting = _as_pending(pending)
        open_since: dict[str, int] = dict(waiting.get("open", {}))
        for chunk in staged:
            open_since.setdefault(chunk["bucket"], now_ms)
        due = frozenset(
            folder
            for folder, since_ms in open_since.items()
            if final or self.rule.is_due(folder, since_ms, now_ms, watermark_ms)
        )
        plan = self.plan_with(staged, waiting.get("parts"), now_ms, final, due)
        still_open = {folder: since_ms for folder, since_ms in sorted(open_since.items()) if folder not in due}
        success = ({"success": sorted(due), "name": self.rule.success_file},) if due else ()
        return CommitPlan((*plan.publish, *success), _pending_json(plan.pending, still_open))

    def plan_commit(self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool) -> CommitPlan:
        return self.plan_timed_commit(staged, pending, now_ms, final, MIN_WATERMARK)

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        super().commit(commit, [entry for entry in publish if "success" not in entry], store)
        target = with_patience(open_store(self.base_url))
        for entry in publish:
            for folder in entry.get("success", ()):
                target.put(f"{folder}/{entry['name']}", b"")

    def due_ms(self, pending: Json) -> int | None:
        waiting = _as_pending(pending)
        times_ms = [self.rule.due_ms(since_ms) for since_ms in waiting.get("open", {}).values()]
        times_ms.append(super().due_ms(waiting.get("parts")))
        return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        waiting = _as_pending(pending)
        parts, sentence = super().after_restore(waiting.get("parts"), point)
        return _pending_json(parts, waiting.get("open", {})), sentence


def _as_pending(pending: Json) -> dict[str, Any]:
    """The pending state; for a job that did not commit partitions before, only its parts."""
    return {"parts": pending} if isinstance(pending, list) else pending or {}


def _pending_json(parts: Json, still_open: dict[str, int]) -> Json:
    return {"parts": parts, "open": still_open} if parts or still_open else None
