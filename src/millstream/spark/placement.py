"""Chooses an executor for each subtask, so that its operators and state are already there. Pure functions.

A subtask stays where it ran last while that executor lives. It moves if the executor is lost, or has more than its
share of the subtasks while another has less: a new executor gets its share, and then nothing moves. Subtask 3 of every
stage has the same place, so that stages share resources of the machine. Subtasks without a place are assigned by
host name, not by order of registration: a job restarted on the same machines finds its files there.

A place is a preference. Spark waits a bounded time for a busy executor and then runs the task on another; the task
reports where it ran, which is its place from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Executor", "executor_of", "last_places", "place_of", "place_subtasks"]


@dataclass(frozen=True)
class Executor:
    """A process of the cluster that runs `cores` tasks at a time."""

    id: str
    host: str
    cores: int = 1


def place_subtasks(width: int, executors: Sequence[Executor], before: Mapping[int, str]) -> tuple[Executor, ...]:
    """Assigns `width` subtasks to executors; `before`: the ids of the executors they ran on last, if known.

    >>> a, b, c = Executor("a", "h"), Executor("b", "h"), Executor("c", "h")
    >>> [executor.id for executor in place_subtasks(4, [a, b], {})]
    ['a', 'b', 'a', 'b']
    >>> [executor.id for executor in place_subtasks(4, [a, c], {0: "a", 1: "b", 2: "a", 3: "b"})]  # b died, c joined
    ['a', 'c', 'a', 'c']
    >>> first, again = [Executor("0", "h1"), Executor("1", "h2")], [Executor("0", "h2"), Executor("1", "h1")]
    >>> [[place.host for place in place_subtasks(2, executors, {})] for executors in (first, again)]
    [['h1', 'h2'], ['h1', 'h2']]
    """
    executors = sorted(executors, key=lambda executor: (executor.host, len(executor.id), executor.id))
    cores = sum(executor.cores for executor in executors)
    # Rounded up, so that the shares suffice for all, and an uneven remainder does not cause moves.
    shares = {executor.id: -(-width * executor.cores // cores) for executor in executors}
    counts = dict.fromkeys(shares, 0)
    by_id = {executor.id: executor for executor in executors}
    places: dict[int, Executor] = {}
    for subtask in range(width):
        previous = by_id.get(before.get(subtask, ""))
        if previous is not None and counts[previous.id] < shares[previous.id]:
            places[subtask] = previous
            counts[previous.id] += 1
    for subtask in range(width):
        if subtask not in places:
            free = [executor for executor in executors if counts[executor.id] < shares[executor.id]]
            emptiest = min(free, key=lambda executor: (counts[executor.id] + 1) / executor.cores)
            places[subtask] = emptiest
            counts[emptiest.id] += 1
    return tuple(places[subtask] for subtask in range(width))


def place_of(executor: Executor) -> str:
    """A place as text, for reports and logs.

    >>> place_of(Executor("3", "10.0.0.7")), executor_of("3@10.0.0.7")
    ('3@10.0.0.7', '3')
    """
    return f"{executor.id}@{executor.host}"


def executor_of(place: str) -> str:
    """The id of the executor of a place."""
    return place.partition("@")[0]


def last_places(reports: Iterable[tuple[int, str]], before: Mapping[int, str]) -> dict[int, str]:
    """The executor of each subtask, from the reports of its tasks in all stages: the most frequent one; on a tie, the
    one `before`.

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
