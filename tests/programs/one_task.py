"""A query in one task, for tests: its operators, epoch by epoch, without a job.

The plan is created once; every run of it has its own operators and store. At the end of an epoch state is written, and
each epoch may start with new operators that restore only the written state.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from millstream.common.typeinfo import TypeInformation
from millstream.common.types import Row
from millstream.compiler.passes import compile_graph
from millstream.connectors.contracts import Source
from millstream.datastream import StreamExecutionEnvironment
from millstream.graph.nodes import Node, Read, Write
from millstream.metrics.registry import MetricRegistry
from millstream.records.batch import Batch
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.exchange.messages import Acknowledgement
from millstream.runtime.operators.operator import Operator, OperatorSetting, run_epoch
from millstream.runtime.operators.user_code import TaskContext
from millstream.runtime.task.registry import operator_for
from millstream.runtime.task.spec import EpochSpec, JobFacts
from millstream.storage.memory import MemoryStore
from millstream.table import ChangelogMode, Schema, StreamTableEnvironment
from millstream.testing import Collect, Script

__all__ = ["QueryPlan", "QueryTask"]

_STORES = itertools.count()
_TIMED = (
    Schema.new_builder()
    .column_by_metadata("ts", "TIMESTAMP(3)", "rowtime", True)
    .watermark("ts", "SOURCE_WATERMARK()")
    .build()
)


class QueryPlan:
    """A query over named tables of one type. `is_timed`: rows have their accompanying time, as `ts`. `ttl`: the
    time-to-live of state without a hint. `key`: the column by which changes of the tables are upserts. `sink_key`:
    the same for the query's changes.
    """

    def __init__(
        self,
        query: str,
        tables: Sequence[str],
        type_info: TypeInformation,
        *,
        only_grows: bool = False,
        is_timed: bool = False,
        ttl: str | None = None,
        key: str | None = None,
        sink_key: str | None = None,
    ) -> None:
        self.type_info = type_info
        env = StreamExecutionEnvironment().set_parallelism(1)
        t_env = StreamTableEnvironment.create(env)
        if ttl is not None:
            t_env.get_config().set("table.exec.state.ttl", ttl)
        sources: dict[int, str] = {}
        for name in tables:
            source: Source = Script([], type_info=type_info)
            sources[id(source)] = name
            stream = env.add_source(source, type_info=type_info)
            if is_timed:
                table = t_env.from_data_stream(stream, _TIMED)
            else:
                table = _table(t_env, stream, key, only_grows=only_grows)
            t_env.create_temporary_view(name, table)
        by_key = () if sink_key is None else (_keyed(sink_key), ChangelogMode.upsert())
        t_env.to_changelog_stream(t_env.sql_query(query), *by_key).sink_to(Collect())
        nodes = compile_graph(env._graph(None)).nodes()
        self.tables = {
            node.id: sources[id(node.operation.source)] for node in nodes if isinstance(node.operation, Read)
        }
        (self.result,) = (node.inputs[0].source for node in nodes if isinstance(node.operation, Write))
        self.nodes = _in_order([node for node in nodes if not isinstance(node.operation, Read | Write)], self.tables)


def _keyed(column: str) -> Schema:
    """Columns (k INT, v BIGINT), one of which is the key."""
    columns = Schema.new_builder()
    for name, kind in (("k", "INT"), ("v", "BIGINT")):
        columns.column(name, f"{kind} NOT NULL" if name == column else kind)
    return columns.primary_key(column).build()


def _table(t_env: StreamTableEnvironment, stream: Any, key: str | None, *, only_grows: bool) -> Any:
    if key is not None:
        return t_env.from_changelog_stream(stream, _keyed(key), ChangelogMode.upsert())
    return t_env.from_data_stream(stream) if only_grows else t_env.from_changelog_stream(stream)


def _in_order(nodes: Sequence[Node], known: Mapping[int, str]) -> list[Node]:
    done, ordered = set(known), list[Node]()
    while len(ordered) < len(nodes):
        ready = [node for node in nodes if node.id not in done and all(edge.source in done for edge in node.inputs)]
        assert ready
        ordered += ready
        done |= {node.id for node in ready}
    return ordered


class _Epoch:
    """The input of the operators in an epoch."""

    def __init__(self, bring: Callable[[], None], watermark: int) -> None:
        self._bring, self._watermark = bring, watermark

    def arrivals(self) -> Generator[Any, None, bool]:
        self._bring()
        yield from ()
        return True

    def departures(self) -> Iterator[Any]:
        return iter(())

    def watermark(self, node: int, watermarks: Mapping[int, int]) -> int:
        return self._watermark

    def end(self, watermarks: Mapping[int, int]) -> Iterator[Any]:
        return iter(())


class QueryTask:
    """A run of a plan."""

    def __init__(self, plan: QueryPlan) -> None:
        self._plan = plan
        self._facts = JobFacts("job", "id", "run", MemoryStore(f"task-{next(_STORES)}"), batch_records_max=1_024)
        self._epoch, self._watermarks, self._states = 0, dict[str, int](), dict[str, Any]()
        self._given: list[Row] = []
        self._open()

    def _open(self) -> None:
        self._operators: dict[int, Operator] = {}
        for node in self._plan.nodes:
            context = TaskContext(node.name, 1, 128, 0, 0, {}, MetricRegistry().group(str(node.id)))
            input_type = self._plan.type_info if node.inputs[0].source in self._plan.tables else None
            self._operators[node.id] = operator_for(OperatorSetting(node, context, self._facts, input_type))
        for node in self._plan.nodes:
            for edge in node.inputs:
                if edge.source in self._operators:
                    output = self._operators[node.id].input(edge.input, (edge.source, 0))
                    self._operators[edge.source].outputs.append(output)
        self._operators[self._plan.result].outputs.append(lambda batch: self._given.extend(batch.values()))
        for operator in self._operators.values():
            operator.open({})

    def run(
        self,
        tables: Mapping[str, Sequence[Row]],
        *,
        times: Mapping[str, Sequence[int]] | None = None,
        watermark: int = MIN_WATERMARK,
        reopened: bool = False,
        now_ms: int = 0,
    ) -> list[Row]:
        """Run an epoch with these rows as input, each table's in batches; returns the output. `reopened`: with new
        operators that restore the written state. `now_ms`: the processing time.
        """
        if reopened:
            self._open()
        self._epoch += 1
        self._given = []

        def bring() -> None:
            for node in self._plan.nodes:
                for edge in node.inputs:
                    name = self._plan.tables.get(edge.source)
                    if name is not None:
                        self._bring(node, tables[name], None if times is None else times[name])

        spec = EpochSpec(self._epoch, 0, now_ms, False, {}, {}, self._watermarks, self._states)
        acknowledgement = Acknowledgement(0, 0, f"n{self._epoch}", {})
        for _ in run_epoch(
            self._operators, EpochSpec.decode(spec.encode(), 0), acknowledgement, _Epoch(bring, watermark)
        ):
            pass
        self._states = {uid: {0: account} for uid, account in acknowledgement.states.items()}
        reached = max([watermark, *self._watermarks.values()])
        self._watermarks = {operator.uid: reached for operator in self._operators.values()}
        return self._given

    def _bring(self, node: Node, rows: Sequence[Row], times: Sequence[int] | None) -> None:
        take = self._operators[node.id].input(1, (node.inputs[0].source, 0))
        for start in range(0, len(rows), 5):
            some = slice(start, start + 5)
            stamps = None if times is None else np.array(times[some], dtype=np.int64)
            take(Batch.of_values(list(rows[some]), self._plan.type_info, stamps))
