"""The several streams of the job that is killed:

    asked    every event is put to a service (a local one, which is slow for some and fails at first for others)
    paired   an answer belongs to the event `BEHIND` numbers before its own: both wait for each other in keyed state of
             connected streams, over two or three epochs; who waits in vain is told when the input ends
    known    every tenth event changes a rule that is broadcast; every user tells at the end what its subtask knows

What is known when a record comes depends on how a killed job cuts its epochs when it is started again, so results are
told of what has come to rest: pairs, and the rules at the end. A change that is lost or applied twice shows in a count.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from millstream.common import Row, Time, Types
from millstream.datastream import AsyncDataStream, AsyncFunction, AsyncRetryStrategy, DataStream
from millstream.datastream.functions import KeyedBroadcastProcessFunction, KeyedCoProcessFunction
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor

BEHIND = 701
_SLOTS = 8
_END_MS = 10**12
_PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
RULES = MapStateDescriptor("rules", Types.LONG(), _PAIR)

Rules = dict[int, tuple[int, int]]
"""Slot → how many changes it had, and the sum of their cents."""


def _answer(cents: int) -> int:
    return cents * 3 + 1


class Service(AsyncFunction[Row, tuple[int, int]]):
    """Answers some at once and some later, and every 97th only when it is asked again."""

    def open(self, runtime_context: Any) -> None:
        self.refused: set[int] = set()

    async def async_invoke(self, value: Row) -> list[tuple[int, int]]:
        number, _, cents = value
        await asyncio.sleep(number % 7 / 1_000)
        if number % 97 == 0 and number not in self.refused:
            self.refused.add(number)
            raise OSError("busy")
        return [(number - BEHIND, _answer(cents))]


class Paired(KeyedCoProcessFunction):
    """An event and the answer that belongs to it, whichever comes first."""

    def open(self, runtime_context: Any) -> None:
        self.cents = runtime_context.get_state(ValueStateDescriptor("cents", Types.LONG()))
        self.answer = runtime_context.get_state(ValueStateDescriptor("answer", Types.LONG()))

    def process_element1(self, value: Row, ctx: Any) -> Iterable[str]:
        self.cents.update(value[2])
        return self._pair(ctx)

    def process_element2(self, value: tuple[int, int], ctx: Any) -> Iterable[str]:
        self.answer.update(value[1])
        return self._pair(ctx)

    def _pair(self, ctx: Any) -> Iterable[str]:
        if self.cents.value() is None or self.answer.value() is None:
            ctx.timer_service().register_event_time_timer(_END_MS)
            return
        yield _paired(ctx.get_current_key(), self.cents.value(), self.answer.value())
        self.cents.clear()
        self.answer.clear()
        ctx.timer_service().delete_event_time_timer(_END_MS)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[str]:
        yield _paired(ctx.get_current_key(), self.cents.value(), self.answer.value())


def _paired(number: int, cents: int | None, answer: int | None) -> str:
    return f"paired {number} {cents} {answer}"


def _is_rule(event: Row) -> bool:
    return bool(event[0] % 10 == 3)


class Known(KeyedBroadcastProcessFunction):  # type: ignore[type-arg]
    """Counts the events of a user, and tells at the end what its subtask knows."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_broadcast_element(self, value: Row, ctx: Any) -> None:
        rules, slot = ctx.get_broadcast_state(RULES), value[0] // 10 % _SLOTS
        changes, cents = rules.get(slot) or (0, 0)
        rules.put(slot, (changes + 1, cents + value[2]))

    def process_element(self, value: Row, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(_END_MS)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[str]:
        yield _known(ctx.get_current_key(), self.count.value(), dict(ctx.get_broadcast_state(RULES).items()))


def _known(user: str, count: int, rules: Rules) -> str:
    return f"known {user} {count} {sorted(rules.items())}"


def add_streams(events: DataStream) -> DataStream:
    """One line per result, from all branches."""
    again = AsyncRetryStrategy.fixed_delay(3, 5, None, lambda error: isinstance(error, OSError))
    asked = AsyncDataStream.unordered_wait_with_retry(events, Service(), Time.seconds(60), again, 50, _PAIR)
    by_number = events.connect(asked.uid("asked")).key_by(lambda e: e[0], lambda answer: answer[0], Types.LONG())
    paired = by_number.process(Paired(), Types.STRING()).uid("paired")
    rules = events.filter(_is_rule).broadcast(RULES)
    known = events.key_by(lambda e: e[1], Types.STRING()).connect(rules).process(Known(), Types.STRING()).uid("known")
    return paired.union(known)


def expected(events: list[Row]) -> list[str]:
    """The lines, computed apart."""
    cents = {event[0]: event[2] for event in events}
    answers = {event[0] - BEHIND: _answer(event[2]) for event in events}
    lines = [_paired(number, cents.get(number), answers.get(number)) for number in cents.keys() | answers.keys()]
    rules: Rules = {}
    users: dict[str, int] = defaultdict(int)
    for event in events:
        users[event[1]] += 1
        if _is_rule(event):
            slot = event[0] // 10 % _SLOTS
            before = rules.get(slot, (0, 0))
            rules[slot] = before[0] + 1, before[1] + event[2]
    return lines + [_known(user, count, rules) for user, count in users.items()]
