"""A stream whose records of one key are together.

Every operation here sees all records of a key in one subtask, in order. Functions that keep state per key (`reduce`,
`sum`, `KeyedProcessFunction`, windows) come with keyed state; until then their names say so. A keyed stream is not
an operator: what is about naming or placing one is refused, as in PyFlink.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.argument_checks import checked_output_type, refuse
from millstream.datastream.functions.function import KeySelector, ReduceFunction
from millstream.datastream.functions.process import KeyedProcessFunction, ProcessFunction
from millstream.datastream.stream import DataStream
from millstream.datastream.stream_edges import no_java_object
from millstream.datastream.time_domain import TimeDomain
from millstream.errors import NotYetError
from millstream.graph.nodes import Edge, KeyedProcess

if TYPE_CHECKING:
    from millstream.datastream.slot_sharing_group import SlotSharingGroup
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
    from millstream.datastream.window import WindowAssigner
    from millstream.datastream.windowed_stream import WindowedStream

__all__ = ["KeyedStream"]


def _no_operator(method: str) -> NoReturn:
    raise refuse(
        f"{method}: a keyed stream is no operator of its own. Call it before key_by(), or on the next operator"
    )


def _partitioned_by_key(method: str) -> NoReturn:
    raise refuse(
        f"{method}: the stream is partitioned by its key. Call it instead of key_by(), or after the next operator"
    )


class KeyedStream(DataStream):
    """What `DataStream.key_by` returns."""

    class AccumulateType(Enum):
        """The rolling aggregations of a keyed stream."""

        MIN = 1
        MAX = 2
        MIN_BY = 3
        MAX_BY = 4
        SUM = 5

    def __init__(
        self,
        j_keyed_stream: Any = None,
        original_data_type_info: TypeInformation | None = None,
        origin_stream: DataStream | None = None,
        *,
        environment: StreamExecutionEnvironment | None = None,
        edges: tuple[Edge, ...] = (),
    ) -> None:
        no_java_object(self, j_keyed_stream)
        assert origin_stream is not None, "key_by makes keyed streams"
        super().__init__(environment=environment, edges=edges)
        self._original_data_type_info = original_data_type_info
        self._origin_stream = origin_stream

    def key_by(
        self, key_selector: Callable[[Any], Any] | KeySelector, key_type: TypeInformation | None = None
    ) -> KeyedStream:
        """The same records under another key."""
        return self._origin_stream.key_by(key_selector, key_type)

    def process(
        self, func: KeyedProcessFunction | ProcessFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Run a process function where all records of a key are together, with state and timers of the key."""
        if not isinstance(func, KeyedProcessFunction):
            return super().process(func, output_type)
        domains = (TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME)
        declared = checked_output_type("process", output_type)
        return self._then(KeyedProcess(func, time_domains=domains), "KEYED PROCESS", declared)

    # --- not built yet ----------------------------------------------------------------------------------

    def reduce(self, func: Callable[[Any, Any], Any] | ReduceFunction) -> DataStream:
        raise NotYetError.of("KeyedStream.reduce", "keyed state")

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        raise NotYetError.of("KeyedStream.sum", "keyed state")

    def min(self, position_to_min: int | str = 0) -> DataStream:
        raise NotYetError.of("KeyedStream.min", "keyed state")

    def max(self, position_to_max: int | str = 0) -> DataStream:
        raise NotYetError.of("KeyedStream.max", "keyed state")

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        raise NotYetError.of("KeyedStream.min_by", "keyed state")

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        raise NotYetError.of("KeyedStream.max_by", "keyed state")

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        raise NotYetError.of("KeyedStream.window", "windows")

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        raise NotYetError.of("KeyedStream.count_window", "windows")

    def connect(self, ds: Any) -> Any:
        raise NotYetError.of("KeyedStream.connect", "several streams")

    # --- refused: a key already says where records go, and key_by is no operator --------------------------

    def shuffle(self) -> NoReturn:
        _partitioned_by_key("shuffle")

    def rescale(self) -> NoReturn:
        _partitioned_by_key("rescale")

    def rebalance(self) -> NoReturn:
        _partitioned_by_key("rebalance")

    def forward(self) -> NoReturn:
        _partitioned_by_key("forward")

    def global_(self) -> NoReturn:
        _partitioned_by_key("global_")

    def broadcast(self, *args: Any) -> NoReturn:
        _partitioned_by_key("broadcast")

    def partition_custom(self, partitioner: Any, key_selector: Any) -> NoReturn:
        _partitioned_by_key("partition_custom")

    def set_parallelism(self, parallelism: int) -> NoReturn:
        _no_operator("set_parallelism")

    def name(self, name: str) -> NoReturn:
        _no_operator("name")

    def get_name(self) -> NoReturn:
        _no_operator("get_name")

    def uid(self, uid: str) -> NoReturn:
        _no_operator("uid")

    def set_uid_hash(self, uid_hash: str) -> NoReturn:
        _no_operator("set_uid_hash")

    def set_description(self, description: str) -> NoReturn:
        _no_operator("set_description")

    def set_max_parallelism(self, max_parallelism: int) -> NoReturn:
        _no_operator("set_max_parallelism")

    def force_non_parallel(self) -> NoReturn:
        _no_operator("force_non_parallel")

    def set_buffer_timeout(self, timeout_millis: int) -> NoReturn:
        _no_operator("set_buffer_timeout")

    def start_new_chain(self) -> NoReturn:
        _no_operator("start_new_chain")

    def disable_chaining(self) -> NoReturn:
        _no_operator("disable_chaining")

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> NoReturn:
        _no_operator("slot_sharing_group")

    def cache(self) -> NoReturn:
        raise refuse("cache: a keyed stream cannot be cached. Call it before key_by()")
