"""Sources and sinks written in Python by the program itself (beyond PyFlink).

Subclass `PythonSource`: list the splits, return how far each can be read now, and read a range of a split. The same
range must always return the same records, otherwise the job is not exactly-once.

Subclass `TwoPhaseSink`: `write` stages records in the task, and `commit(commit, staged)` publishes them on the driver
after the epoch is committed. It may be called again for the same `CommitId`, and must then have no effect.

Pass them to `env.from_source` or `env.add_source`, and to `stream.sink_to`.

>>> class Days(PythonSource):
...     bounded = True
...     def splits(self, context):
...         return [Split("days")]
...     def reach(self, split, offset, budget, context):
...         return min(offset + budget, 7)
...     def finished(self, split, offset):
...         return offset >= 7
...     def read(self, split, start, stop):
...         yield ["Mo Tu We Th Fr Sa Su".split()[day] for day in range(start, stop)]
>>> list(Days().read(Split("days"), 0, 2))
[['Mo', 'Tu']]
"""

from __future__ import annotations

from millstream.connectors.contracts import CommitId, RestorePoint, SourceContext, Split, WriterContext
from millstream.connectors.contracts import Source as PythonSource
from millstream.connectors.two_phase import TwoPhaseSink

__all__ = ["CommitId", "PythonSource", "RestorePoint", "SourceContext", "Split", "TwoPhaseSink", "WriterContext"]
