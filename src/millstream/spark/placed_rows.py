"""A frame with one row per subtask, each in a partition that prefers an executor.

Spark's scheduler queries the partitions that a task consists of for preferred locations. Shuffled rows have none; a
join with this frame adds them: the first stage reads it instead of `range`, and in the others every subtask's envelopes
are joined to its row. Both sides have the same partitioning, so the join needs no shuffle, and it is an outer join on a
value that no row has, so it changes only the location (docs/decisions/0018).

No public API builds this frame, so it is assembled from Spark's internals: an RDD with preferred locations, declared to
be partitioned like `repartitionById`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.spark.placement import Executor

__all__ = ["join_places", "placed_rows", "preferred_place"]

_NO_TARGET = -1
"""A target that no envelope has."""


def placed_rows(session: Any, places: Sequence[Executor]) -> Any:
    """Builds the frame; subtask i prefers `places[i]`."""
    context = session.sparkContext
    jvm = context._jvm
    values = context._gateway.new_array(jvm.java.lang.Object, 1)
    values[0] = _NO_TARGET
    row = jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(values)
    placed = {place.id: jvm.scala.Tuple2(row, jvm.PythonUtils.toSeq([preferred_place(place)])) for place in set(places)}
    rows = jvm.PythonUtils.toSeq([placed[place.id] for place in places])
    row_class = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
    rdd = context._jsc.sc().makeRDD(rows, jvm.scala.reflect.ClassTag.apply(row_class))
    width = len(places)
    alike = session.range(0, width, 1, width).selectExpr("cast(id as int) as place").repartitionById(width, "place")
    logical_rdd = getattr(getattr(jvm, "org.apache.spark.sql.execution.LogicalRDD$"), "MODULE$")
    plan = logical_rdd.fromDataset(rdd, alike._jdf, False, False)
    dataset = getattr(jvm, "org.apache.spark.sql.classic.Dataset")
    return type(alike)(dataset.ofRows(session._jsparkSession, plan), session)


def preferred_place(executor: Executor) -> str:
    """Spark's notation for a location on this executor, not only on its host.

    Spark parses it up to the second underscore. Some networks have underscores in host names; the host is irrelevant.

    >>> preferred_place(Executor("3", "10.0.0.7")), preferred_place(Executor("3", "spark_worker_1"))
    ('executor_10.0.0.7_3', 'executor_spark-worker-1_3')
    """
    return f"executor_{executor.host.replace('_', '-')}_{executor.id}"


def join_places(envelopes: Any, rows: Any) -> Any:
    """Joins the envelopes, as partitioned by `repartitionById`, to the preferred locations of their targets. The result
    has one more column, the last, which is empty."""
    # The hint builds the hash table from the side of the rows, which is the small one.
    return envelopes.join(rows.hint("shuffle_hash"), envelopes["target"] == rows["place"], "left_outer")
