"""Timers that are set and deleted: which are stored, which are not, and which must not reappear."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from millstream.datastream.functions import KeyedProcessFunction
from millstream.testing import EPOCH, Collect, Script, run


class ScriptedTimers(KeyedProcessFunction):
    """Sets and deletes its timers as each record says: "set 5", "delete 5"."""

    def process_element(self, value: str, ctx: Any) -> None:
        for order in value.split(", "):
            what, time = order.split()
            service = ctx.timer_service()
            {"set": service.register_event_time_timer, "delete": service.delete_event_time_timer}[what](int(time))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[int]:
        yield timestamp


@pytest.mark.parametrize(
    ("orders", "fired"),
    [
        (["set 5", EPOCH, "set 7"], [5, 7]),
        (["set 5, delete 5", EPOCH, "set 7"], [7]),
        (["set 5", EPOCH, "delete 5", EPOCH, "set 7"], [7]),
        (["set 5, set 6", EPOCH, "set 5, delete 5", EPOCH, "set 7"], [6, 7]),  # stored, then set and deleted again
        (["set 6", EPOCH, "set 5, delete 5, set 5", EPOCH, "set 6"], [5, 6]),
        (["set 6", EPOCH, "set 5, delete 5", EPOCH, "set 5"], [5, 6]),
        (["set 6", EPOCH, "delete 6, set 6", EPOCH, "delete 7"], [6]),
    ],
)
def test_a_timer_fires_if_it_was_set_last_and_not_deleted(orders: list[Any], fired: list[int]) -> None:
    out = Collect()
    result = run(
        lambda env: env.add_source(Script(orders)).key_by(lambda _: "key").process(ScriptedTimers()).sink_to(out)
    )
    assert result[out] == fired


def rows_of(manifest: Any) -> int:
    accounts = (state["subtasks"]["0"] for state in manifest.states.values() if "subtasks" in state)
    return sum(ref["rows"] for account in accounts for refs in account.get("tables", {}).values() for ref in refs)


def test_timers_set_and_deleted_within_an_epoch_are_not_written() -> None:
    out = Collect()
    orders = ["set 1000", EPOCH, *(f"set {n}, delete {n}" for n in range(1, 50)), EPOCH, "set 1001"]
    result = run(
        lambda env: env.add_source(Script(orders)).key_by(lambda _: "key").process(ScriptedTimers()).sink_to(out)
    )
    assert result[out] == [1000, 1001]
    assert [rows_of(manifest) for manifest in result.manifests[:2]] == [1, 1]
