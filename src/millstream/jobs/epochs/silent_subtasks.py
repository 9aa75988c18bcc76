"""Warns if event time is stalled because a subtask that makes watermarks in the middle of the stream has never had a
record.

The smallest watermark determines event time, and a subtask without records has no watermark. So
`assign_timestamps_and_watermarks` after a partitioning that leaves a subtask out holds back all downstream windows and
timers, as in Flink, unless the strategy has an idle timeout. An exchange that distributes records evenly reaches each
subtask within twice as many epochs as there are subtasks if every epoch has records, and within twelve times as many if
every n-th has (n up to 12). A subtask that has waited longer will wait forever.
"""

from __future__ import annotations

from collections import Counter

from millstream.checkpoint.manifest import Manifest
from millstream.graph.nodes import AssignTimestamps, Node
from millstream.graph.notices import warn_once
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.plan.stages import Plan
from millstream.records.watermarks import MIN_WATERMARK
from millstream.state.stored.accounts import accounts_of

__all__ = ["SilentSubtasks"]

_NAMED_MAX = 3
_EPOCHS_PER_SUBTASK = 16


class SilentSubtasks:
    """For operators that make watermarks, counts the epochs with records while some of their subtasks have had none."""

    def __init__(self) -> None:
        self._epochs: Counter[str] = Counter()

    def committed(self, manifest: Manifest, outcome: EpochOutcome, plan: Plan) -> None:
        """An epoch is committed. Warns once per operator."""
        for node in plan.nodes():
            uid = node.uid or ""
            if isinstance(node.operation, AssignTimestamps) and outcome.operators.get(uid, {}).get("in"):
                silent = _silent_subtasks(node, manifest)
                self._epochs[uid] = self._epochs[uid] + 1 if silent else 0
                if self._epochs[uid] >= _EPOCHS_PER_SUBTASK * (node.parallelism or 1):
                    _warn(node, silent)


def _silent_subtasks(node: Node, manifest: Manifest) -> list[int]:
    """The subtasks without a watermark, if others have one and the strategy has no idle timeout."""
    assert isinstance(node.operation, AssignTimestamps)
    if node.operation.watermarks.idle_timeout_ms is not None:
        return []
    subtasks = accounts_of(manifest)[node.uid or ""].subtasks
    times = {subtask: account.time for subtask, account in subtasks.items() if account.time is not None}
    silent = [number for number, time in times.items() if time.watermark == MIN_WATERMARK and not time.marked_idle]
    return sorted(silent) if len(silent) < len(times) else []


def _warn(node: Node, silent: list[int]) -> None:
    named = ", ".join(map(str, silent[:_NAMED_MAX])) + (", …" if len(silent) > _NAMED_MAX else "")
    subject = f"subtask {named}" if len(silent) == 1 else f"subtasks {named}"
    assert isinstance(node.operation, AssignTimestamps)
    is_custom = node.operation.watermarks.generator_factory is not None
    reason = "it has received no record" + (", or its generator has emitted none" if is_custom else "")
    warn_once(
        f"silent subtasks of {node.uid}",
        f"'{node.name}' has no watermark in {subject} of {node.parallelism}: {reason}. The smallest watermark counts, "
        "so no downstream window or timer of event time fires. Let its strategy leave such subtasks out "
        "(.with_idleness(Duration.of_minutes(1))), spread the records (.rebalance() before it), or set "
        ".set_parallelism(1)",
        node.site,
    )
