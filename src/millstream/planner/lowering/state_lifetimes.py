"""The lifetime of state, and the warnings about it at job start.

A STATE_TTL hint of a SELECT sets it for that SELECT's groups and rows; otherwise the session's 'table.exec.state.ttl'
applies. 0 means unlimited. Expired state may still be needed, and then results are wrong: a warning reports this risk.
BATCH expires nothing.
"""

from __future__ import annotations

from millstream.common.options.quantities import parse_duration_ms
from millstream.common.options.table_options import STATE_LIFETIME
from millstream.graph.notices import warn_once
from millstream.graph.site import here
from millstream.planner.binding.hints import STATE_TTL
from millstream.planner.lowering.context import Lowering
from millstream.planner.plan_text import physical_line
from millstream.planner.relations import Aggregate, Over, Rank

__all__ = ["side_ttls_ms", "state_ttl_ms"]


def side_ttls_ms(hints: tuple[tuple[str, tuple[str, ...]], ...], sides: int, context: Lowering) -> list[int | None]:
    """The time-to-live of each input's rows; None: unlimited."""
    if context.session.is_batch:
        return [None] * sides
    general = context.duration_ms(STATE_LIFETIME.key)
    hinted = dict(hints).get(STATE_TTL, ("",) * sides)
    return [(parse_duration_ms(each) or None) if each else general for each in hinted]


def state_ttl_ms(relation: Aggregate | Rank | Over, context: Lowering) -> int | None:
    """The time-to-live of groups or rows since their last write; None: unlimited."""
    [ttl_ms] = side_ttls_ms(relation.hints, 1, context)
    if ttl_ms is not None:
        text = _WARNINGS[type(relation)].format(ttl_ms=ttl_ms)
        sentence = f"{text}, so results may differ from those of the whole table: {physical_line(relation)}"
        warn_once(f"time-to-live {ttl_ms} of {relation.uid}", sentence, here())
    return ttl_ms


_WARNINGS = {
    Aggregate: "a group expires when no row has arrived for it in {ttl_ms} ms of processing time: the next row starts "
    "a new group, the emitted result is not retracted, and later deletes of its rows have no effect",
    Rank: "rows of a Top-N or a deduplication expire {ttl_ms} ms of processing time after their arrival: later rows "
    "may take their place, or be emitted a second time",
    Over: "rows of an OVER expire {ttl_ms} ms of processing time after their arrival: others are computed without them",
}
