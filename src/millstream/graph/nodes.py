"""The logical graph: the user's program as frozen data. No Spark, no execution.

A **node** is one operation of the program with a name, a type and a line in the user's file. An **edge** leads into a
node and defines how records are sent along it (its *partitioning*). A union is several edges into one node, and
`rebalance`, `key_by` and other partitionings are properties of an edge, so nodes are only operations that process
records.

The graph is built while the program runs (`graph.builder`), and never changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from millstream.checkpoint.meanings import Meaning
from millstream.common.typeinfo import TypeInformation
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.contracts import Sink, Source
from millstream.graph.site import UNKNOWN_SITE, Site
from millstream.state.windows.bound_aggregates import BoundAggregate

__all__ = [
    "AssignTimestamps",
    "AsyncCalls",
    "BroadcastProcess",
    "Cache",
    "CoFlatMap",
    "CoGroupWindow",
    "CoMap",
    "CoProcess",
    "Edge",
    "Filter",
    "FlatMap",
    "Graph",
    "IntervalJoin",
    "KeyedBatches",
    "KeyedBroadcastProcess",
    "KeyedCoFlatMap",
    "KeyedCoMap",
    "KeyedCoProcess",
    "KeyedFilter",
    "KeyedFlatMap",
    "KeyedMap",
    "KeyedProcess",
    "LoopHead",
    "LoopTail",
    "Map",
    "MapBatches",
    "Node",
    "Operation",
    "PairFields",
    "Partitioning",
    "Process",
    "Project",
    "Read",
    "ReadyAggregates",
    "Reduce",
    "RollingField",
    "Window",
    "Write",
]


class Partitioning(Enum):
    """How the records of an edge are assigned to subtasks."""

    UNSPECIFIED = "unspecified"  # a pass chooses forward if parallelism is equal, else rebalance
    FORWARD = "forward"  # stays in its task
    REBALANCE = "rebalance"  # evenly, in turn
    RESCALE = "rescale"  # evenly, within a local group of subtasks
    SHUFFLE = "shuffle"  # at random, the same at every replay
    BROADCAST = "broadcast"  # to every subtask
    GLOBAL = "global"  # all to subtask 0
    HASH = "hash"  # by the key group
    CUSTOM = "custom"  # by the user's partitioner


@dataclass(frozen=True)
class Edge:
    """Records flowing from node `source` into the node that lists this edge. `tag` names one of its side outputs;
    `input` is 2 for the second of two connected streams. `site`: the line of the key selector or partitioner."""

    source: int
    partitioning: Partitioning = Partitioning.UNSPECIFIED
    key_selector: Callable[[Any], Any] | None = None
    key_type: TypeInformation | None = None
    partitioner: Any = None
    tag: str | None = None
    input: int = 1
    site: Site | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Operation:
    """The operation of a node. Operations in this module describe the program. The compiler replaces them by faster
    operations of `plan.operations` where possible."""


@dataclass(frozen=True)
class Read(Operation):
    source: Source
    watermarks: WatermarkStrategy | None = None
    tags: tuple[tuple[str, TypeInformation | None], ...] = ()  # the side output of unreadable messages, if it is read


@dataclass(frozen=True)
class Map(Operation):
    function: Any  # a MapFunction or a callable


@dataclass(frozen=True)
class FlatMap(Operation):
    function: Any


@dataclass(frozen=True)
class Filter(Operation):
    function: Any


@dataclass(frozen=True)
class Process(Operation):
    function: Any  # a ProcessFunction
    tags: tuple[tuple[str, TypeInformation | None], ...] = ()  # side outputs with readers, and their types


@dataclass(frozen=True)
class KeyedProcess(Process):
    """A `KeyedProcessFunction`; `time_domains`: the values for its timers (event time, processing time)."""

    time_domains: tuple[Any, Any] = (None, None)


@dataclass(frozen=True)
class CoMap(Map):
    """A `CoMapFunction` over two connected streams; the edges have the input numbers."""


@dataclass(frozen=True)
class CoFlatMap(FlatMap):
    pass


@dataclass(frozen=True)
class CoProcess(Process):
    pass


@dataclass(frozen=True)
class KeyedCoMap(CoMap):
    """A `CoMapFunction` over two keyed streams, which may have keyed state, like the next two."""


@dataclass(frozen=True)
class KeyedCoFlatMap(CoFlatMap):
    pass


@dataclass(frozen=True)
class KeyedCoProcess(KeyedProcess):
    pass


@dataclass(frozen=True)
class BroadcastProcess(Process):
    """A `BroadcastProcessFunction`: its second input is broadcast, and writes the `states` that the first input
    reads."""

    states: tuple[Any, ...] = ()  # MapStateDescriptors


@dataclass(frozen=True)
class KeyedBroadcastProcess(KeyedProcess):
    states: tuple[Any, ...] = ()


PairFields = tuple[tuple[int, ...], tuple[int, ...]]
"""Fields of a row made of two records: those of the first one by position, then those of the second."""


@dataclass(frozen=True)
class ReadyAggregates:
    """Built-in aggregates. A result is a row of the key (`has_key`), the start and the end of the window (`has_bounds`)
    and the aggregates. `row_type` is None if any of these lacks a columnar type."""

    measures: tuple[BoundAggregate, ...]
    has_key: bool
    has_bounds: bool
    row_type: TypeInformation | None


@dataclass(frozen=True)
class Window(Process):
    """Records of a key by window. `function` receives a window's contents when it fires. With `reduce` or `aggregate`
    the contents are one value, updated per record; otherwise all records, as with an evictor."""

    assigner: Any = None
    trigger: Any = None
    has_own_trigger: bool = False  # whether the program set the trigger, or the assigner's default is used
    evictor: Any = None
    reduce: Any = None  # a function of two records
    aggregate: Any = None  # an AggregateFunction
    contents_type: TypeInformation | None = None  # of a record, or of the accumulator
    allowed_lateness_ms: int = 0
    late_tag: Any = None  # the side output for late records; None: they are dropped and counted
    ready: ReadyAggregates | None = None  # the equivalent of `aggregate` and `function`, if these are built-in


@dataclass(frozen=True)
class CoGroupWindow(Window):
    """Records of two keyed streams by window: windows hold rows (is_one, one, two), which `function` splits."""

    late_tags: tuple[Any, Any] = (None, None)  # as `late_tag`, per side
    fields: PairFields | None = None  # the equivalent of `function`, if it selects fields of every pair


@dataclass(frozen=True)
class IntervalJoin(Process):
    """Pairs of records of two keyed streams: the right record's time minus the left record's is from `lower_ms` to
    `upper_ms`. `function` is a `ProcessJoinFunction`, or a callable of two records (`is_plain`); if None, results are
    `fields` of both."""

    types: tuple[TypeInformation | None, TypeInformation | None] = (None, None)  # of the two streams
    lower_ms: int = 0
    upper_ms: int = 0
    late_tags: tuple[Any, Any] = (None, None)  # the side outputs for late records of each side; None: dropped, counted
    is_plain: bool = False
    fields: PairFields | None = None


@dataclass(frozen=True)
class KeyedMap(Map):
    """A `MapFunction` that may have keyed state, like the next two."""


@dataclass(frozen=True)
class KeyedFlatMap(FlatMap):
    pass


@dataclass(frozen=True)
class KeyedFilter(Filter):
    pass


@dataclass(frozen=True)
class Reduce(Operation):
    """A running reduction per key, one record at a time."""

    function: Any  # a ReduceFunction or a callable of two records


@dataclass(frozen=True)
class RollingField(Operation):
    """A running sum, minimum or maximum of one field per key."""

    kind: str  # sum, min, max, min_by, max_by
    field: int | str  # its position in a typed stream; as written in the program in an untyped one
    is_strict: bool = False  # an overflowing sum is an error


@dataclass(frozen=True)
class KeyedBatches(Operation):
    """A `KeyedBatchFunction` and the states it declares, by name."""

    function: Any
    states: tuple[tuple[str, TypeInformation], ...]


@dataclass(frozen=True)
class Project(Operation):
    indexes: tuple[int, ...]


@dataclass(frozen=True)
class MapBatches(Operation):
    function: Callable[[Any], Any]


@dataclass(frozen=True)
class AsyncCalls(Operation):
    """An `AsyncFunction`, called concurrently for up to `capacity` records of a subtask."""

    function: Any
    timeout_ms: int  # for one record, including retries and the pauses between them
    capacity: int
    ordered: bool  # whether results keep the order of their records
    retry: Any  # an AsyncRetryStrategy


@dataclass(frozen=True)
class AssignTimestamps(Operation):
    watermarks: WatermarkStrategy


@dataclass(frozen=True)
class LoopHead(Operation):
    """The beginning of a loop: emits its input, and the records fed back by the tail of the same `loop`. All edges of a
    graph point backwards; head and tail are connected by the tail's state, which the head reads in the next round."""

    loop: int  # shared by head and tail, and unique in the program
    rounds_max: int | None  # maximum rounds per epoch; None: as configured
    tail: str | None = None  # the tail's uid; set by a pass


@dataclass(frozen=True)
class LoopTail(Operation):
    """The end of a loop: stores arriving records for the head."""

    loop: int


@dataclass(frozen=True)
class Cache(Operation):
    """A stream that is cached for later jobs. For each job the environment sets either `source`, which reads its cached
    records, or `sink`, which writes them. `node` is its id in the builder."""

    node: int
    source: Source | None = None
    sink: Sink | None = None


@dataclass(frozen=True)
class Write(Operation):
    sink: Sink


@dataclass(frozen=True)
class Node:
    """One operation. `parallelism` None means that of the environment; `uid` None means that a pass derives it.

    `output_type` None means untyped: records are sent as pickled values. Many fields: one per property that a program
    can set for any operator.
    """

    id: int
    operation: Operation
    name: str
    inputs: tuple[Edge, ...] = ()
    output_type: TypeInformation | None = None
    uid: str | None = None
    uid_hash: str | None = None
    uid_is_derived: bool = False
    description: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    starts_chain: bool = False
    chaining_disabled: bool = False
    slot_sharing_group: str | None = None
    queryable: str | None = None  # the name under which its windows or its state can be queried
    meaning: Meaning | None = None  # the meaning of a SQL operator's state
    site: Site = UNKNOWN_SITE


@dataclass(frozen=True)
class Graph:
    """The program as a whole. Nodes are in order of creation, so every edge points backwards."""

    job_name: str
    nodes: tuple[Node, ...]
    parallelism: int
    max_parallelism: int
    chaining: bool = True
    refuses_overflow: bool = False  # an overflowing sum of built-in aggregates is an error

    def node(self, id: int) -> Node:
        """The node with this id."""
        return next(node for node in self.nodes if node.id == id)
