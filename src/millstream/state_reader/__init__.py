"""State as data: reads a job's state at any retained epoch into common data tools.

    from millstream import state_reader

    for job in state_reader.jobs("jobs/"):
        print(job.name, job.epoch)

    reader = state_reader.open("jobs/clicks")
    with reader.at() as now, reader.at(epoch=1200) as then:
        now.states()                                          # operators, states, kinds, types, sizes
        now.read("count", "total").to_pandas()                # or to_arrow(), to_polars(), to_spark(session)
        then.diff(now, "count", "total").counts()             # added, removed, changed

    state_reader.SavepointBuilder("clicks").state("count", "total", frame, …).write("bootstrap/")

It needs neither the job's program nor Spark (except for `to_spark`), and never disturbs a running job. The page
docs/operate/state-as-data.md shows every kind of state and its columns.
"""

from __future__ import annotations

from millstream.state.keys.canonical_decoding import ClassKey
from millstream.state_reader.catalog import OperatorInfo
from millstream.state_reader.difference import StateDiff
from millstream.state_reader.job_reader import EpochInfo, JobReader, open
from millstream.state_reader.rows import StateRows
from millstream.state_reader.savepoint_builder import SavepointBuilder
from millstream.state_reader.snapshot import Snapshot, StateInfo
from millstream.state_reader.stored_jobs import ListedJob, jobs

__all__ = [
    "ClassKey",
    "EpochInfo",
    "JobReader",
    "ListedJob",
    "OperatorInfo",
    "SavepointBuilder",
    "Snapshot",
    "StateDiff",
    "StateInfo",
    "StateRows",
    "jobs",
    "open",
]
