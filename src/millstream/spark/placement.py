"""Which executor each subtask should run on, so that it finds its operators and its state where it left them. Pure.

A subtask stays where it ran last as long as that executor lives. It moves when its executor is gone, or has more than
its share of the subtasks while another has less: an executor that joins gets its part, and from then on nothing moves.
Subtask 3 of every stage has the same place, so what stages share on a machine is shared. Who has no place yet gets one
by the names of the hosts, not by who came first: a job that starts again on the same machines finds its files there.

A place is a wish. Spark waits a bounded time for a busy executor and then lets another one run the task; where it
really ran is told by the task, and is its place from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Executor", "executor_of", "last_places", "place_of", "place_subtasks"]


@dataclass(frozen=True)
class Executor:
    """A process of the cluster that runs tasks, as many at a time as it has `cores`."""

    id: str
    host: str
    cores: int = 1


def place_subtasks(width: int, executors: Sequence[Executor], before: Mapping[int, str]) -> tuple[Executor, ...]:
    """A place for each of `width` subtasks; `before`: the ids of the executors they ran on last, as far as known.

    >>> a, b, c = Executor("a", "h"), Executor("b", "h"), Executor("c", "h")
    >>> [one.id for one in place_subtasks(4, [a, b], {})]
    ['a', 'b', 'a', 'b']
    >>> [one.id for one in place_subtasks(4, [a, c], {0: "a", 1: "b", 2: "a", 3: "b"})]  # b died, c came
    ['a', 'c', 'a', 'c']
    >>> first, again = [Executor("0", "h1"), Executor("1", "h2")], [Executor("0", "h2"), Executor("1", "h1")]
    >>> [[one.host for one in place_subtasks(2, executors, {})] for executors in (first, again)]
    [['h1', 'h2'], ['h1', 'h2']]
    """
    executors = sorted(executors, key=lambda executor: (executor.host, len(executor.id), executor.id))
    cores = sum(executor.cores for executor in executors)
    # Rounded up, so that the shares are enough for all, and an uneven rest has no reason to move about.
    shares = {executor.id: -(-width * executor.cores // cores) for executor in executors}
    counts = dict.fromkeys(shares, 0)
    by_id = {executor.id: executor for executor in executors}
    places: dict[int, Executor] = {}
    for subtask in range(width):
        kept = by_id.get(before.get(subtask, ""))
        if kept is not None and counts[kept.id] < shares[kept.id]:
            places[subtask] = kept
            counts[kept.id] += 1
    for subtask in range(width):
        if subtask not in places:
            free = [executor for executor in executors if counts[executor.id] < shares[executor.id]]
            emptiest = min(free, key=lambda executor: (counts[executor.id] + 1) / executor.cores)
            places[subtask] = emptiest
            counts[emptiest.id] += 1
    return tuple(places[subtask] for subtask in range(width))


def place_of(executor: Executor) -> str:
    """A place as tasks tell it and people read it.

    >>> place_of(Executor("3", "10.0.0.7")), executor_of("3@10.0.0.7")
    ('3@10.0.0.7', '3')
    """
    return f"{executor.id}@{executor.host}"


def executor_of(place: str) -> str:
    """The id of the executor that a place names."""
    return place.partition("@")[0]


def last_places(reports: Iterable[tuple[int, str]], before: Mapping[int, str]) -> dict[int, str]:
    """The executor of each subtask, from where its tasks of all stages said they ran: where most did, and of equals the
    one it had `before`.

    >>> last_places([(0, "a@h"), (0, "b@h"), (1, "b@h"), (1, "b@h"), (1, "c@h")], {0: "b", 7: "a"})
    {0: 'b', 1: 'b', 7: 'a'}
    """
    votes: dict[int, Counter[str]] = {}
    for subtask, place in reports:
        if place:
            votes.setdefault(subtask, Counter())[executor_of(place)] += 1
    places = dict(before)
    for subtask, counts in votes.items():
        most = max(counts.values())
        likely = [executor for executor, count in counts.items() if count == most]
        places[subtask] = before[subtask] if before.get(subtask) in likely else likely[0]
    return dict(sorted(places.items()))
