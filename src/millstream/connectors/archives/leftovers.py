"""Leftover files of a Delta archive: data files of lost attempts that no transaction lists.

A Parquet archive's files are staged in a folder that its sink sweeps. A data file of a Delta table has its final name
from the start, in the table's own folder, invisible until the log lists it; and the table's `vacuum` must not
run on an archive, because it does not know the files that a job's state lists. So these files are searched for here.
The job determines which of them are listed by an epoch (`jobs.epochs.archive_sweeper`).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from millstream.connectors.archives.archive import DELTA, Archive
from millstream.connectors.delta.sink import DeltaTableSink
from millstream.connectors.files.part_plan import job_mark
from millstream.storage.patience import with_patience
from millstream.storage.store import open_store

__all__ = ["candidate_leftovers", "remove_leftovers"]

_NAME = re.compile(r"part-(?P<epoch>\d{12,})-\d{5,}-(?P<job>[0-9a-f]{8})[0-9a-f]{8}-\d{5,}\.snappy\.parquet")


def candidate_leftovers(archive: Archive, job: str, before: int) -> set[str]:
    """The data files that a job wrote before an epoch."""
    if archive.format != DELTA:
        return set()
    matches = map(_NAME.fullmatch, with_patience(open_store(archive.url)).list(""))
    own = [match for match in matches if match is not None and match["job"] == job_mark(job)]
    return {match.group() for match in own if int(match["epoch"]) < before}


def remove_leftovers(archive: Archive, files: Collection[str]) -> None:
    """Remove these files, except those listed by the table: once published they also belong to its other readers."""
    sink = archive.sink()
    if not files or not isinstance(sink, DeltaTableSink):
        return
    with_patience(open_store(archive.url)).delete_many(sorted(set(files) - sink.published_files()))
