"""Looks at one file of staged output: is it there, and is it what the manifest says?

Output may wait in the job's own store or, a file sink's, beside the files that readers see. There it is looked at as
well: no more of it is read than the manifest says it has. What has its final name already is published, and whose it is
now is not the job's business.
"""

from __future__ import annotations

from millstream.checkpoint.verification import StagedFile
from millstream.storage.content import content_of
from millstream.storage.store import Store, open_store

__all__ = ["staged_problems"]


def staged_problems(job_store: Store, staged: StagedFile, needed: bool) -> list[str]:
    """What is wrong with a staged file. `needed`: of the newest epoch, so that it cannot have been published since."""
    store = job_store if staged.target is None else open_store(staged.target)
    if not store.exists(staged.file):
        is_gone = needed if staged.target is not None else True
        is_published = bool(staged.part) and store.exists(staged.part)
        return ["it is missing"] if is_gone and not is_published else []
    if staged.bytes is None:
        return []
    length, checksum = content_of(store, staged.file, staged.bytes)
    if length != staged.bytes:
        return [f"it has {'more' if length > staged.bytes else length} bytes, expected {staged.bytes}"]
    return [] if checksum == staged.crc32 else ["its checksum does not match its content"]
