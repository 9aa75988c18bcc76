"""Small parts are gathered, and published as one file: readers never see the small ones.

Compaction stands between rolling and publishing. A part that the rolling policy calls complete is not given its name
yet: it waits, in the manifest, with the other parts of its bucket. When they are enough, by their size or by the number
of epochs the first of them has waited, all of them become one file, in the one publishing step that every part takes
(`publishing`). So there is no moment at which a reader could see a small file and the large one, or neither: the small
ones never have a name. What waits is counted in manifests, so a crash changes nothing about which file holds which
record.

What was gathered is always published together, also when the input ends or the program no longer compacts: one chunk
that is gone says, of all that waited with it, that it was published. `delimiter` stands between the parts of a file.
Why it is done here, and not by replacing published files: docs/decisions/0015.
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
    """When the gathered parts of a bucket are enough: after so many epochs, or with so many bytes.

    >>> rule = Compaction(epochs=3, size_bytes=1_000)
    >>> [rule.is_enough(waited, size) for waited, size in ((2, 999), (3, 1), (1, 1_000))]
    [False, True, True]
    """

    epochs: int | None = None
    size_bytes: int | None = None
    delimiter: bytes = b""

    def __post_init__(self) -> None:
        if self.epochs is None and self.size_bytes is None:
            raise ProgramError("Compaction: neither a number of epochs nor a size is given. Give one of them.")

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
    """The parts that are published now, those of one file together, and those that go on waiting.

    `rolled` are those that became complete in this epoch, `gathered` those that waited before. Nothing of
    `due_buckets` goes on waiting.
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
