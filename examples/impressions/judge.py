"""The proof of the demo: the files compared with a plain loop over the same impressions.

The engine is not involved. Three things are judged.

**The count.** Every impression of a human is present once, and those of each ad are numbered 1, 2, 3, … without a gap.
The assignment of numbers is undefined, because the splits of the source are read in parallel.

**The windows.** For every ad and window the result published last contains all of its impressions, except those that
the job reports as dropped because they were late. Which impressions were too late depends on when epochs ended, so it
is undefined too. But the missing part must consist, to the millisecond, of late impressions of that ad and window, and
the total missing must equal the job's count. Each update must contain more than the previous one.

**The answers.** A client that queried the running job for an ad's open windows, before the crash and after it, never
received less than before, and never more than the files finally contain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from asking import Answer, OpenWindow
from job import ALLOWED_LATENESS_MS, PATIENCE, WINDOW, AdServer, described, is_human, parse

from millstream.common import Row

Place = tuple[int, int]  # an ad and the start of a window


class Result(NamedTuple):
    """A published result of an ad and window: its epoch, number of impressions, total duration."""

    epoch: int
    impressions: int
    seen_ms: int


@dataclass(frozen=True)
class CountVerdict:
    """The numbered files compared with the expectation. `miscounted`: ads whose numbers are not exactly 1 … n."""

    lines: int
    files: int
    ads: int
    lost: int
    doubled: int
    foreign: int
    miscounted: int

    @property
    def exact(self) -> bool:
        return not (self.lost or self.doubled or self.foreign or self.miscounted)


@dataclass(frozen=True)
class WindowOfAds:
    """One window over all ads: each ad's last published result, and its history.

    A window closes for all ads in one epoch. Results of later epochs are `updates`, by `late` impressions in total.
    `missing`: impressions that are in no result.
    """

    start_ms: int
    ads: int
    impressions: int
    updates: int
    late: int
    missing: int


@dataclass(frozen=True)
class WindowVerdict:
    """All windows. `wrong`: ads' windows with an incorrect result; `dropped`: as counted by the job itself."""

    windows: tuple[WindowOfAds, ...]
    results: int
    wrong: int
    dropped: int

    @property
    def updates(self) -> int:
        return sum(window.updates for window in self.windows)

    @property
    def late(self) -> int:
        return sum(window.late for window in self.windows)

    @property
    def missing(self) -> int:
        return sum(window.missing for window in self.windows)

    @property
    def exact(self) -> bool:
        return not self.wrong and self.missing == self.dropped


@dataclass(frozen=True)
class AnswersVerdict:
    """Answers about one ad. `gone_back`: less than an earlier one; `wrong`: more than the final result."""

    before: int
    after: int
    gone_back: int
    wrong: int

    @property
    def exact(self) -> bool:
        return bool(self.before and self.after) and not (self.gone_back or self.wrong)


def human_impressions(server: AdServer, indexes: Iterable[int]) -> list[Row]:
    """The impressions that count, by a plain loop."""
    return [event for event in (parse(server(index)) for index in indexes) if is_human(event)]


def files_in(folder: Path) -> list[Path]:
    """The visible files of the folder, ordered by epoch."""
    paths = [path for path in folder.rglob("*.csv") if not is_hidden(path.relative_to(folder))]
    return sorted(paths, key=epoch_of)


def is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def epoch_of(path: Path) -> tuple[int, ...]:
    """Of part-TOKEN-SUBTASK-EPOCH.csv or part-TOKEN-SUBTASK-EPOCH-FURTHER.csv: the epoch, and the number of the
    file.
    """
    return tuple(int(number) for number in path.stem.split("-")[3:])


def lines_of(files: Iterable[Path]) -> list[str]:
    return [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]


# --- the count ------------------------------------------------------------------------------------------------


def judge_count(humans: Sequence[Row], folder: Path) -> CountVerdict:
    """Compare the numbered impressions, line by line, with the expectation."""
    expected = Counter(described(event) for event in humans)
    files = files_in(folder)
    lines = lines_of(files)
    found: Counter[str] = Counter()
    numbers: dict[str, list[str]] = {str(event.ad): [] for event in humans}
    for line in lines:
        described_part, _, number = line.rpartition(",")
        found[described_part] += 1
        if described_part in expected:
            numbers[described_part.split(",")[1]].append(number)
    surplus = found - expected
    per_ad = Counter(str(event.ad) for event in humans)
    return CountVerdict(
        lines=len(lines),
        files=len(files),
        ads=len(per_ad),
        lost=(expected - found).total(),
        doubled=sum(count for line, count in surplus.items() if line in expected),
        foreign=sum(count for line, count in surplus.items() if line not in expected),
        miscounted=sum(Counter(numbers[ad]) != Counter(map(str, range(1, n + 1))) for ad, n in per_ad.items()),
    )


# --- the windows ----------------------------------------------------------------------------------------------


def judge_windows(humans: Sequence[Row], server: AdServer, folder: Path, dropped: int) -> WindowVerdict:
    """Compare the last result of every ad and window with the impressions that belong there."""
    members: dict[Place, list[Row]] = defaultdict(list)
    for event in humans:
        members[event.ad, event.at_ms // WINDOW.to_millis() * WINDOW.to_millis()].append(event)
    published, wrong = published_results(files_in(folder))
    wrong += sum(place not in members for place in published)
    wrong += sum(not can_be(published.get(place, []), events, server) for place, events in members.items())
    of_window: dict[int, dict[Place, int]] = defaultdict(dict)
    for place, events in members.items():
        of_window[place[1]][place] = len(events)
    return WindowVerdict(
        windows=tuple(window_of_ads(start, of_window[start], published) for start in sorted(of_window)),
        results=sum(map(len, published.values())),
        wrong=wrong,
        dropped=dropped,
    )


def published_results(files: Iterable[Path]) -> tuple[dict[Place, list[Result]], int]:
    """The results of every ad and window in publication order, and the number of invalid lines."""
    results: dict[Place, list[Result]] = defaultdict(list)
    strange = 0
    for epoch, line in ((epoch_of(path)[0], line) for path in files for line in lines_of([path])):
        try:
            ad, start, end, impressions, seen_ms = map(int, line.split(","))
        except ValueError:
            strange += 1
            continue
        results[ad, start].append(Result(epoch, impressions, seen_ms))
        strange += end - start != WINDOW.to_millis()
    return results, strange


def can_be(results: Sequence[Result], events: Sequence[Row], server: AdServer) -> bool:
    """Whether each result contains more than the previous one, and the last all events except some late ones."""
    if any(added <= 0 for added in additions(results)):
        return False
    last = results[-1] if results else Result(0, 0, 0)
    all_seen_ms = sum(event.seen_ms for event in events)
    late = [event.seen_ms for event in events if server.delay_ms(event.id) > PATIENCE.to_millis()]
    return (len(events) - last.impressions, all_seen_ms - last.seen_ms) in sums_of_some(late)


def additions(results: Sequence[Result]) -> list[int]:
    """The number of impressions that each result adds to the previous one."""
    return [later - earlier for earlier, later in pairwise([0, *(result.impressions for result in results)])]


def sums_of_some(values: Iterable[int]) -> set[tuple[int, int]]:
    """How many and how much any choice of these values can come to.

    >>> sorted(sums_of_some([5, 7]))
    [(0, 0), (1, 5), (1, 7), (2, 12)]
    """
    sums = {(0, 0)}
    for value in values:
        sums |= {(count + 1, total + value) for count, total in sums}
    return sums


def window_of_ads(start_ms: int, expected: dict[Place, int], published: dict[Place, list[Result]]) -> WindowOfAds:
    of_ads = [published[place] for place in expected if place in published]
    closed_in = min((results[0].epoch for results in of_ads), default=0)
    added = [pair for results in of_ads for pair in zip(results, additions(results), strict=True)]
    updates = [count for result, count in added if result.epoch > closed_in]
    impressions = sum(results[-1].impressions for results in of_ads)
    return WindowOfAds(
        start_ms=start_ms,
        ads=len(of_ads),
        impressions=impressions,
        updates=len(updates),
        late=sum(updates),
        missing=sum(expected.values()) - impressions,
    )


# --- the answers ----------------------------------------------------------------------------------------------


def judge_answers(before: Sequence[Answer], after: Sequence[Answer], folder: Path) -> AnswersVerdict:
    """Compare each answer, in order, with the previous one and with the files."""
    published, _ = published_results(files_in(folder))
    answers = [*before, *after]
    return AnswersVerdict(
        before=len(before),
        after=len(after),
        gone_back=sum(has_gone_back(earlier, later) for earlier, later in pairwise(answers)),
        wrong=sum(any(promises_more(answer.ad, window, published) for window in answer.windows) for answer in answers),
    )


def has_gone_back(earlier: Answer, later: Answer) -> bool:
    """Whether the later answer is of an older epoch, contradicts one of the same epoch, or lacks something."""
    if later.epoch <= earlier.epoch:
        return later.epoch < earlier.epoch or later.windows != earlier.windows
    now = {window.start_ms: window for window in later.windows}
    return any(
        now[before.start_ms].impressions < before.impressions or now[before.start_ms].seen_ms < before.seen_ms
        if before.start_ms in now
        else later.watermark_ms < before.end_ms - 1 + ALLOWED_LATENESS_MS  # it cannot be over yet
        for before in earlier.windows
    )


def promises_more(ad: int, window: OpenWindow, published: dict[Place, list[Result]]) -> bool:
    results = published.get((ad, window.start_ms))
    last = results[-1] if results else Result(0, 0, 0)
    return window.impressions > last.impressions or window.seen_ms > last.seen_ms
