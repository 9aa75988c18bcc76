"""Files of a Delta archive that no transaction names: what attempts left behind that were lost before they ended.

A file of Parquet is staged in a folder that its sink sweeps. A data file of a Delta table has one name from the
beginning, in the table's own folder, where nobody sees it until the log names it; and the table's `vacuum` must not be
let loose on an archive, for it knows nothing of what a job's state names. So these files are looked for here. Which of
them an epoch names is for the job to say (`jobs.epochs.archive_sweeper`).
"""

from __future__ import annotations

import re
from collections.abc import Collection

from millstream.connectors.archives.archive import DELTA, Archive
from millstream.connectors.delta.sink import DeltaTableSink
from millstream.connectors.files.part_plan import job_mark
from millstream.storage.patience import with_patience
from millstream.storage.store import open_store

__all__ = ["may_be_left", "remove_left"]

_NAME = re.compile(r"part-(?P<epoch>\d{12,})-\d{5,}-(?P<job>[0-9a-f]{8})[0-9a-f]{8}-\d{5,}\.snappy\.parquet")


def may_be_left(archive: Archive, job: str, before: int) -> set[str]:
    """The data files that a job wrote before an epoch."""
    if archive.format != DELTA:
        return set()
    matches = map(_NAME.fullmatch, with_patience(open_store(archive.url)).list(""))
    own = [match for match in matches if match is not None and match["job"] == job_mark(job)]
    return {match.group() for match in own if int(match["epoch"]) < before}


def remove_left(archive: Archive, files: Collection[str]) -> None:
    """Remove those of these files that are not in the table: what was published once is others' as well."""
    sink = archive.sink()
    if not files or not isinstance(sink, DeltaTableSink):
        return
    with_patience(open_store(archive.url)).delete_many(sorted(set(files) - sink.published_files()))
