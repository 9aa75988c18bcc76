"""Gathers small parts and publishes them as one file: readers never see the small ones.

Compaction happens between rolling and publishing. A part that the rolling policy completes does not get its final name
yet: it is pending in the manifest, with the other parts of its bucket. When their total size or the number of epochs
since the first of them is large enough, all of them become one file, in the same publishing step as any part
(`publishing`). A reader can never see both a small file and the large one, or neither: the small ones never get a final
name. Manifests list the pending parts, so a crash does not change which file holds which record.

Gathered parts are always published together, even if the input ends or the program no longer compacts, so one missing
chunk means that all parts gathered with it were published. `delimiter` separates the parts of a file. Why parts are
gathered instead of replacing published files: docs/decisions/0015.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.errors import ProgramError

if TYPE_CHECKING:
    from millstream.connectors.files.part_plan import Part

__all__ = ["Compaction", "gather"]


@dataclass(frozen=True)
class Compaction:
    """When the gathered parts of a bucket are published: after `epochs` epochs, or with `size_bytes` bytes.

    >>> rule = Compaction(epochs=3, size_bytes=1_000)
    >>> [rule.is_enough(waited, size) for waited, size in ((2, 999), (3, 1), (1, 1_000))]
    [False, True, True]
    """

    epochs: int | None = None
    size_bytes: int | None = None
    delimiter: bytes = b""

    def __post_init__(self) -> None:
        if self.epochs is None and self.size_bytes is None:
            raise ProgramError("Compaction: neither epochs nor size_bytes is set. Set one of them.")

    def is_enough(self, epochs_waited: int, size_bytes: int) -> bool:
        return (self.epochs is not None and epochs_waited >= self.epochs) or (
            self.size_bytes is not None and size_bytes >= self.size_bytes
        )


def gather(
    rolled: Iterable[Part],
    gathered: Iterable[Part],
    rule: Compaction | None,
    final: bool,
    due_buckets: Collection[str] = (),
) -> tuple[list[Sequence[Part]], list[Part]]:
    """The parts to publish now, grouped by file, and the parts that stay pending.

    `rolled` became complete in this epoch, `gathered` were pending before. No part of
    `due_buckets` stays pending.
    """
    buckets: dict[str, list[Part]] = {}
    for part in gathered:
        buckets.setdefault(part.destination[0], []).append(part)
    if rule is None:
        return [*buckets.values(), *([part] for part in rolled)], []
    for part in rolled:
        buckets.setdefault(part.destination[0], []).append(part)
    publish: list[Sequence[Part]] = []
    waiting: list[Part] = []
    for bucket, parts in sorted(buckets.items()):
        epochs_waited = max(part.epochs_gathered or 0 for part in parts) + 1
        if final or bucket in due_buckets or rule.is_enough(epochs_waited, sum(part.bytes for part in parts)):
            publish.append(parts)
        else:
            waiting += [replace(part, epochs_gathered=epochs_waited) for part in parts]
    return publish, waiting
