"""Sources that event time waits for, as a manifest names them: who looks at the store sees why no window fires.

A manifest keeps under `counters["standing"]`, by uid of a source or of what makes watermarks behind it, for how many
epochs event time has stood there while something behind it waited. `jobs.epochs.stalled_watermarks` decides which.
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
"""never: no strategy makes watermarks. silent: no record has come yet. idle: none has come for long, from some input at
least. stuck: records come, and the watermark does not follow."""


@dataclass(frozen=True)
class StalledWatermark:
    """Event time has stood for `epochs` epochs with input, since `since_ms`. `splits`: some of those that hold it.
    `is_long`: long enough to be reported."""

    reason: StallReason
    epochs: int
    since_ms: int
    splits: tuple[str, ...] = ()
    is_long: bool = False


def stalled_to_json(stalled: Mapping[str, StalledWatermark]) -> dict[str, Any]:
    """The counters that tell of it; none where event time moves."""
    return {COUNTER: {uid: to_json(time) for uid, time in stalled.items()}} if stalled else {}


def stalled_watermarks_of(manifest: Manifest | None) -> Mapping[str, StalledWatermark]:
    """Where event time stands, by uid; of None, nowhere."""
    written: Any = {} if manifest is None else manifest.counters.get(COUNTER, {})
    try:
        return {uid: from_json(StalledWatermark, None, time) for uid, time in written.items()}
    except (Misfit, AttributeError):  # of another Millstream; nothing depends on it
        return {}


def awaited_names(manifest: Manifest) -> tuple[str, ...]:
    """The operators that event time has waited for so long that it is reported.

    >>> from millstream.checkpoint.manifest import Manifest
    >>> stalled = {"in": StalledWatermark("never", 3, 0, is_long=True), "clicks": StalledWatermark("idle", 1, 0)}
    >>> awaited_names(Manifest("j", "j1", 1, 0, created_ms=0, run="a1", counters=stalled_to_json(stalled)))
    ('in',)
    """
    return tuple(manifest.operator_name(uid) for uid, time in stalled_watermarks_of(manifest).items() if time.is_long)
