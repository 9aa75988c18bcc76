"""Maps each operation of a plan to the operator that runs it.

An operation that is not listed cannot be run. Only this module knows all operators; others call `operator_for`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millstream.graph.changing_nodes import (
    ChangesAsRows,
    ChangingLookupJoin,
    LatestRows,
    LookupJoin,
    MaterialiseRows,
    NormaliseRows,
    RowsAsChanges,
)
from millstream.graph.join_nodes import IntervalPairs, StampRows, TemporalPairs, WindowPairs
from millstream.graph.nodes import (
    AssignTimestamps,
    AsyncCalls,
    BroadcastProcess,
    Cache,
    CoFlatMap,
    CoGroupWindow,
    CoMap,
    CoProcess,
    Filter,
    FlatMap,
    IntervalJoin,
    KeyedBatches,
    KeyedBroadcastProcess,
    KeyedCoFlatMap,
    KeyedCoMap,
    KeyedCoProcess,
    KeyedFilter,
    KeyedFlatMap,
    KeyedMap,
    KeyedProcess,
    LoopHead,
    LoopTail,
    Map,
    MapBatches,
    Process,
    Project,
    Read,
    Reduce,
    Window,
    Write,
)
from millstream.graph.over_nodes import OverOrder, OverTime
from millstream.graph.stored_table import KeptTable
from millstream.graph.table_nodes import (
    Calc,
    Correlate,
    EnforceRows,
    LimitRows,
    RankRows,
    RankWindows,
    RegularJoin,
    StreamRows,
    UnnestRows,
    WindowRows,
)
from millstream.plan.operations import (
    FinalGroups,
    FinalSessions,
    FoldedWindow,
    PaneAggregate,
    PartialAggregate,
    PartialGroups,
    PartialRank,
    PartialSessions,
    ProjectedIntervalJoin,
    Rolling,
    TablePaneAggregate,
    TablePartialAggregate,
    WindowJoin,
)
from millstream.runtime.joins.co_group_operator import CoGroupOperator
from millstream.runtime.joins.interval_join import ProcessJoinOperator, ProjectedJoinOperator
from millstream.runtime.joins.window_join import WindowJoinOperator
from millstream.runtime.operators.async_calls import AsyncCallsOperator
from millstream.runtime.operators.broadcast_operators import BroadcastProcessOperator, KeyedBroadcastOperator
from millstream.runtime.operators.column_operators import CacheOperator, MapBatchesOperator, ProjectOperator
from millstream.runtime.operators.connected_operators import (
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    KeyedCoFlatMapOperator,
    KeyedCoMapOperator,
    KeyedCoProcessOperator,
)
from millstream.runtime.operators.endpoints import ReadOperator, TimestampOperator, WriteOperator
from millstream.runtime.operators.function_operators import (
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    ProcessOperator,
)
from millstream.runtime.operators.keyed_batches import KeyedBatchesOperator
from millstream.runtime.operators.keyed_function_operators import (
    KeyedFilterOperator,
    KeyedFlatMapOperator,
    KeyedMapOperator,
)
from millstream.runtime.operators.keyed_operator import KeyedProcessOperator
from millstream.runtime.operators.loops import LoopHeadOperator, LoopTailOperator
from millstream.runtime.operators.operator import Operator, OperatorSetting
from millstream.runtime.operators.rolling import ReduceOperator, RollingOperator
from millstream.runtime.tables.calc import CalcOperator
from millstream.runtime.tables.changelog_rows import ChangesAsRowsOperator, RowsAsChangesOperator
from millstream.runtime.tables.correlate import CorrelateOperator
from millstream.runtime.tables.enforcement import EnforcementOperator
from millstream.runtime.tables.group_aggregate import GroupsOperator, PartialGroupsOperator
from millstream.runtime.tables.interval_pairs import IntervalPairsOperator
from millstream.runtime.tables.limit import LimitOperator
from millstream.runtime.tables.lookup_join import ChangingLookupOperator, LookupJoinOperator
from millstream.runtime.tables.materialise import LatestOperator, MaterialiseOperator
from millstream.runtime.tables.normalise import NormaliseOperator
from millstream.runtime.tables.over_order import OverOrderOperator
from millstream.runtime.tables.over_time import OverTimeOperator
from millstream.runtime.tables.partial_rank import PartialRankOperator
from millstream.runtime.tables.rank import RankOperator
from millstream.runtime.tables.regular_join import RegularJoinOperator
from millstream.runtime.tables.sessions import PartialSessionsOperator, SessionsOperator
from millstream.runtime.tables.stamps import StampOperator
from millstream.runtime.tables.stored_table import StoredTableOperator
from millstream.runtime.tables.stream_rows import StreamRowsOperator
from millstream.runtime.tables.temporal_pairs import TemporalPairsOperator
from millstream.runtime.tables.unnest import UnnestOperator
from millstream.runtime.tables.window_aggregate import TablePaneOperator, TablePartialOperator
from millstream.runtime.tables.window_pairs import WindowPairsOperator
from millstream.runtime.tables.window_rank import WindowRankOperator
from millstream.runtime.tables.window_rows import WindowRowsOperator
from millstream.runtime.windows.folding import FoldingWindowOperator
from millstream.runtime.windows.operator import WindowOperator
from millstream.runtime.windows.pane_operator import PaneOperator
from millstream.runtime.windows.partial_aggregates import PartialAggregateOperator

__all__ = ["OPERATORS", "operator_for"]


OPERATORS: Mapping[type, Callable[[OperatorSetting], Operator]] = {
    Map: MapOperator,
    FlatMap: FlatMapOperator,
    Filter: FilterOperator,
    Process: ProcessOperator,
    Project: ProjectOperator,
    MapBatches: MapBatchesOperator,
    Read: ReadOperator,
    AssignTimestamps: TimestampOperator,
    Write: WriteOperator,
    Cache: CacheOperator,
    AsyncCalls: AsyncCallsOperator,
    LoopHead: LoopHeadOperator,
    LoopTail: LoopTailOperator,
    KeyedMap: KeyedMapOperator,
    KeyedFlatMap: KeyedFlatMapOperator,
    KeyedFilter: KeyedFilterOperator,
    KeyedProcess: KeyedProcessOperator,
    CoMap: CoMapOperator,
    CoFlatMap: CoFlatMapOperator,
    CoProcess: CoProcessOperator,
    KeyedCoMap: KeyedCoMapOperator,
    KeyedCoFlatMap: KeyedCoFlatMapOperator,
    KeyedCoProcess: KeyedCoProcessOperator,
    BroadcastProcess: BroadcastProcessOperator,
    KeyedBroadcastProcess: KeyedBroadcastOperator,
    Reduce: ReduceOperator,
    Rolling: RollingOperator,
    KeyedBatches: KeyedBatchesOperator,
    Window: WindowOperator,
    FoldedWindow: FoldingWindowOperator,
    CoGroupWindow: CoGroupOperator,
    WindowJoin: WindowJoinOperator,
    IntervalJoin: ProcessJoinOperator,
    ProjectedIntervalJoin: ProjectedJoinOperator,
    PartialAggregate: PartialAggregateOperator,
    PaneAggregate: PaneOperator,
    Calc: CalcOperator,
    Correlate: CorrelateOperator,
    UnnestRows: UnnestOperator,
    WindowRows: WindowRowsOperator,
    LimitRows: LimitOperator,
    StreamRows: StreamRowsOperator,
    EnforceRows: EnforcementOperator,
    TablePartialAggregate: TablePartialOperator,
    TablePaneAggregate: TablePaneOperator,
    PartialGroups: PartialGroupsOperator,
    FinalGroups: GroupsOperator,
    RegularJoin: RegularJoinOperator,
    PartialRank: PartialRankOperator,
    IntervalPairs: IntervalPairsOperator,
    WindowPairs: WindowPairsOperator,
    TemporalPairs: TemporalPairsOperator,
    StampRows: StampOperator,
    RankRows: RankOperator,
    RankWindows: WindowRankOperator,
    OverOrder: OverOrderOperator,
    OverTime: OverTimeOperator,
    NormaliseRows: NormaliseOperator,
    ChangesAsRows: ChangesAsRowsOperator,
    RowsAsChanges: RowsAsChangesOperator,
    MaterialiseRows: MaterialiseOperator,
    LatestRows: LatestOperator,
    LookupJoin: LookupJoinOperator,
    ChangingLookupJoin: ChangingLookupOperator,
    KeptTable: StoredTableOperator,
    PartialSessions: PartialSessionsOperator,
    FinalSessions: SessionsOperator,
}


def operator_for(setting: OperatorSetting) -> Operator:
    """Creates the operator of a node, not yet open."""
    return OPERATORS[type(setting.node.operation)](setting)
