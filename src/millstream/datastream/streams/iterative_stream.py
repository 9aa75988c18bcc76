"""Loops: a stream that records can be fed back into.

`stream.iterate()` returns the stream at the head of a loop; `close_with(feedback)` feeds a stream derived from it back
to the head. Records in the loop are part of the job's state: every snapshot contains them, and a job ends only when the
loop is empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.datastream.streams.argument_checks import checked_count, refuse
from millstream.datastream.streams.stream import DataStream
from millstream.graph.nodes import Edge, LoopHead, LoopTail
from millstream.graph.notices import log_once

if TYPE_CHECKING:
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["IterativeStream"]


class IterativeStream(DataStream):
    """The stream at the head of a loop: its input and the fed-back records.

    >>> from millstream.common import Types
    >>> from millstream.testing import Collect, Script, run
    >>> out = Collect()
    >>> def countdown(env):
    ...     loop = env.add_source(Script([3, 1])).iterate()
    ...     less = loop.map(lambda n: n - 1)
    ...     loop.close_with(less.filter(lambda n: n > 0))
    ...     less.filter(lambda n: n <= 0).sink_to(out)
    >>> run(countdown)[out]
    [0, 0]
    """

    def __init__(self, *, environment: StreamExecutionEnvironment, edges: tuple[Edge, ...], loop: int) -> None:
        super().__init__(environment=environment, edges=edges)
        self._loop = loop

    def close_with(self, feedback_stream: DataStream) -> DataStream:
        """Feeds a stream back to the head of the loop; returns that stream. It must be derived from this stream and
        have the same type. A loop is closed once: use `union` to feed back several streams."""
        feedback = feedback_stream
        if not isinstance(feedback, DataStream):
            raise refuse(f"close_with: found {feedback!r} ({type(feedback).__name__}), expected a stream")
        if feedback._environment is not self._environment:
            raise refuse("close_with: the feedback belongs to another environment. Make it from this loop's stream")
        if feedback._stream_type() != self._stream_type():
            raise refuse(
                f"close_with: the loop carries {self.get_type()}, and the feedback is {feedback.get_type()}. "
                "Map it to the loop's type"
            )
        head = self._node(self._edges[0].source)
        for node in self._environment._builder.nodes.values():
            if isinstance(node.operation, LoopTail) and node.operation.loop == self._loop:
                raise refuse(
                    f"close_with: the loop '{head.name}' is closed already ({node.site}). "
                    "Close it once, with a union of the feedback streams"
                )
        feedback._add(LoopTail(self._loop), f"Feedback: {head.name}", self._stream_type())
        return feedback


def iterated(stream: DataStream, max_wait_ms: int, rounds_max: int | None) -> IterativeStream:
    """The head of a new loop over `stream`."""
    checked_count("iterate", max_wait_ms, least=0)
    if rounds_max is not None:
        checked_count("iterate: rounds_max", rounds_max)
    if max_wait_ms:
        log_once("iterate", "iterate: the maximum wait has no effect here: the job detects when a loop is empty")
    # Any number that is unique in the program; the node's own id is known only after it is added.
    loop = len(stream._environment._builder.nodes) + 1
    node = stream._add(LoopHead(loop, rounds_max), "Iteration", stream._stream_type())
    return IterativeStream(environment=stream._environment, edges=(Edge(node.id),), loop=loop)
