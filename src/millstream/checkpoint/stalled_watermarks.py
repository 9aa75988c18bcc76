"""Sources that hold event time back, as recorded in a manifest, to explain why no window fires.

A manifest stores under `counters["standing"]`, by uid of a source or of a watermark operator after it, the number of
epochs for which its event time has not advanced while operators downstream waited.
`jobs.epochs.stalled_watermarks` computes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from millstream.storage.json_records import Misfit, from_json, to_json

if TYPE_CHECKING:
    from millstream.checkpoint.manifest import Manifest

__all__ = ["COUNTER", "StallReason", "StalledWatermark", "awaited_names", "stalled_to_json", "stalled_watermarks_of"]

COUNTER = "standing"
"""The name among the counters of a manifest."""

StallReason = Literal["never", "silent", "idle", "stuck"]
"""never: no strategy generates watermarks. silent: no record has arrived yet. idle: none has arrived for long, at least
from one input. stuck: records arrive, but the watermark does not advance."""


@dataclass(frozen=True)
class StalledWatermark:
    """Event time has not advanced for `epochs` epochs with input, since `since_ms`. `splits`: some of the splits that
    hold it back. `is_long`: long enough to be reported."""

    reason: StallReason
    epochs: int
    since_ms: int
    splits: tuple[str, ...] = ()
    is_long: bool = False


def stalled_to_json(stalled: Mapping[str, StalledWatermark]) -> dict[str, Any]:
    """The counters that record stalled event time; empty if none is stalled."""
    return {COUNTER: {uid: to_json(time) for uid, time in stalled.items()}} if stalled else {}


def stalled_watermarks_of(manifest: Manifest | None) -> Mapping[str, StalledWatermark]:
    """The stalled event times recorded in a manifest, by uid; empty for None."""
    written: Any = {} if manifest is None else manifest.counters.get(COUNTER, {})
    try:
        return {uid: from_json(StalledWatermark, None, time) for uid, time in written.items()}
    except (Misfit, AttributeError):  # written by another version; it is only informative
        return {}


def awaited_names(manifest: Manifest) -> tuple[str, ...]:
    """The names of operators whose event time has stalled long enough to be reported.

    >>> from millstream.checkpoint.manifest import Manifest
    >>> stalled = {"in": StalledWatermark("never", 3, 0, is_long=True), "clicks": StalledWatermark("idle", 1, 0)}
    >>> awaited_names(Manifest("j", "j1", 1, 0, created_ms=0, run="a1", counters=stalled_to_json(stalled)))
    ('in',)
    """
    return tuple(manifest.operator_name(uid) for uid, time in stalled_watermarks_of(manifest).items() if time.is_long)
