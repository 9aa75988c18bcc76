"""A frame with one row per subtask, each in a partition that prefers a given executor.

Spark's scheduler asks the partitions that a task is made of where they would like to be. Rows that cross a shuffle have
no wish; joined with such a frame they have: the first stage reads it in place of `range`, and in the others every
subtask's envelopes are joined to its row. Both sides are partitioned alike, so nothing is shuffled for it, and the join
is an outer one on a value that no row has: it changes nothing but the place (docs/decisions/0018).

No public call makes such a frame, so it is put together of Spark's own parts: an RDD with preferred places, declared to
be partitioned as `repartitionById` would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.spark.placement import Executor

__all__ = ["at_their_places", "placed_rows", "preferred_place"]

_NOBODY = -1
"""The target that no envelope has."""


def placed_rows(session: Any, places: Sequence[Executor]) -> Any:
    """The frame; subtask i prefers `places[i]`."""
    context = session.sparkContext
    jvm = context._jvm
    values = context._gateway.new_array(jvm.java.lang.Object, 1)
    values[0] = _NOBODY
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
    """Spark's own way to write "this executor, not only its host".

    Spark reads it up to the second underscore. Some networks name hosts with underscores; the host does not matter.

    >>> preferred_place(Executor("3", "10.0.0.7")), preferred_place(Executor("3", "spark_worker_1"))
    ('executor_10.0.0.7_3', 'executor_spark-worker-1_3')
    """
    return f"executor_{executor.host.replace('_', '-')}_{executor.id}"


def at_their_places(envelopes: Any, rows: Any) -> Any:
    """The envelopes, which `repartitionById` dealt out, each where its target's row prefers to be. They have one column
    more, behind the others, which is empty."""
    # The row's side is the one that is held in memory: it is the one with the hint.
    return envelopes.join(rows.hint("shuffle_hash"), envelopes["target"] == rows["place"], "left_outer")
