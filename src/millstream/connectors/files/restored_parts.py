"""What becomes of a file sink's parts when its job goes on from an epoch of the past.

Chunks that waited in that epoch are, by now, either still staged or published: a part is published whole, so one
missing chunk says that all of its part was. What is still staged goes on waiting. A job that was *forked* copies it to
a staging folder of its own: the job it was forked from may go on, and finds everything as it left it.

Parts of later epochs stand under their names, and nothing here touches them. The user is told which they are, and can
choose.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.connectors.contracts import RestorePoint
from millstream.connectors.files.part_plan import Chunk, Part, epoch_of_part, token_of
from millstream.connectors.files.publishing import STAGING, staging_folder
from millstream.storage.store import Store

__all__ = ["later_parts", "restored_sentence", "waiting_parts"]


def waiting_parts(target: Store, parts: list[Part], point: RestorePoint) -> list[Part]:
    """The parts that are still to be published, by this job."""
    staged_parts = [part for part in parts if all(target.exists(chunk.file) for chunk in part.chunks)]
    if not point.forked:
        return staged_parts
    folder = staging_folder(point.job, point.uid)
    return [
        replace(part, chunks=tuple(_copy(target, chunk, folder, point.job) for chunk in part.chunks))
        for part in staged_parts
    ]


def _copy(target: Store, chunk: Chunk, folder: str, job: str) -> Chunk:
    """The chunk in another staging folder; copying it again, after a crash, changes nothing.

    Its token is another one: parts are named after their first chunk, and the two jobs must not meet in a name.
    """
    name = f"{STAGING}/{folder}/{chunk.file.rpartition('/')[2]}"
    target.put(name, target.get(chunk.file))
    return replace(chunk, file=name, token=token_of(job, chunk.token))


def later_parts(target: Store, point: RestorePoint, prefix: str, suffix: str) -> list[str]:
    """The part files of the job that hold records of later epochs, in the order of their epochs."""
    files = target.list("")
    epochs = {file: epoch_of_part(file, prefix, suffix, point.past_job) for file in files}
    parts = [(epoch, file) for file, epoch in epochs.items() if epoch is not None]
    return [file for epoch, file in sorted(parts) if epoch > point.epoch]


def restored_sentence(later: list[str], published_parts: list[Part], point: RestorePoint) -> str:
    """What the user should know; "" when nothing came after that epoch.

    >>> restored_sentence(["part-a-0-8", "part-a-1-8", "part-a-0-9"], [], RestorePoint(7, "out", None, "3f9a", "3f9a"))
    '3 part files there hold records of later epochs (part-a-0-8 to part-a-0-9), which come again: delete them, or let \
the job write to another folder'
    """
    sentences = []
    if later:
        span = later[0] if len(later) == 1 else f"{later[0]} to {later[-1]}"
        files = "1 part file there holds" if len(later) == 1 else f"{len(later)} part files there hold"
        advice = "let this job write to another folder" if point.forked else _CHOICE
        sentences.append(f"{files} records of later epochs ({span}), which come again: {advice}")
    records = sum(chunk.records for part in published_parts for chunk in part.chunks)
    if records:
        fate = "are left to the job it was forked from" if point.forked else "have been published since"
        sentences.append(f"the {records} records that waited to be published then {fate}")
    return "; ".join(sentences)


_CHOICE = "delete them, or let the job write to another folder"
