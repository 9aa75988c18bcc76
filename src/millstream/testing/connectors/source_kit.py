"""Checks a source's contract: its input can be read again, in any ranges and in any task.

The source is read once as the engine reads it. Every other way must return the same records: ranges read twice, in
another order, by a copy in a task, by two tasks at once, with other budgets, after a driver has died and another has
started, and in a real job that crashes.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.compiler.passes.check_functions import travelled
from millstream.connectors.contract_checks import is_complete, is_finished, may_end_early, opened_source, reach_of
from millstream.connectors.contracts import Source, SourceContext
from millstream.datastream.functions.source_and_sink import JavaFunctionWrapper
from millstream.storage.local import LocalStore
from millstream.storage.store import Store
from millstream.testing.connectors.clear_errors import Broken, check_secrets
from millstream.testing.connectors.records import bag_difference, order_difference
from millstream.testing.connectors.report import Checklist, Report, Skipped
from millstream.testing.connectors.source_errors import error_of
from millstream.testing.connectors.source_in_a_job import records_of_a_job
from millstream.testing.connectors.source_ranges import RangeRead, SourceReader, Walk, through_json, values_of

__all__ = ["check_source"]

_BUDGETS = (1, 2, 7, 1000)
_FIRST_RECORDS_S, _PAUSE_S = 10.0, 0.1


@dataclass
class _Trial:
    """A source under test, and its first reading. `listings`: for each split, the number of listings before it."""

    original: Source
    store: Store
    session: Any
    context: SourceContext
    ranges_max: int
    reader: SourceReader
    walks: Sequence[Walk] = ()
    listings: dict[str, int] = field(default_factory=dict)

    def again(self) -> SourceReader:
        """Another driver's view: the source, opened again. With a Spark session it is not shipped before opening."""
        source = travelled(self.original) if self.session is None else self.original
        return SourceReader(opened_source(source, self.store, self.session), self.context)

    def in_a_task(self) -> SourceReader:
        """A task's view: the source after shipping."""
        return SourceReader(travelled(self.reader.source), self.context)

    @property
    def ranges(self) -> list[RangeRead]:
        return [range_ for walk in self.walks for range_ in walk.ranges]


def check_source(
    source: Any,
    *,
    expected: Sequence[Any] | None = None,
    broken: Sequence[Broken] = (),
    secrets: Sequence[str] = (),
    left_out: Mapping[str, str] | None = None,
    budget: int = 5,
    ranges_max: int = 20,
    session: Any = None,
    raises: bool = True,
) -> Report:
    """Test every promise of a source; ConnectorCheckError with the report if one is broken.

    `source` must have input: a dozen records or more. The first `ranges_max` ranges of each split are tested, with
    about `budget` records each. `expected`: the records of all splits together, in any order. `broken`: sources that
    must fail with a clear error. `secrets`: strings that must never be shown. `left_out`: checks to omit, with reasons.

    >>> from millstream.connectors.program_sources import CollectionSource
    >>> report = check_source(CollectionSource(list("abcdefghijkl")))
    >>> report.failures, report.check("replay").verdict
    ((), 'passed')
    """
    engine = source._connector if isinstance(source, JavaFunctionWrapper) else source
    if not isinstance(engine, Source):
        raise TypeError(f"check_source: {source!r} is not a source. Give a PythonSource of yours, or one that is built")
    promise = "replayable" if engine.replayable else "not replayable"
    checks = Checklist(type(engine).__name__, promise, left_out or {})
    with tempfile.TemporaryDirectory(prefix="millstream-kit-") as folder:
        store = LocalStore(Path(folder), fsync=False)
        context = SourceContext(now_ms=1_000_000, run_started_ms=1_000_000, parallelism=2, uid="source")
        trial = _Trial(engine, store, session, context, ranges_max, SourceReader(engine, context))
        if _begin(checks, trial, budget, expected):
            _check_ranges(checks, trial)
            shown = _shown(trial)
            trial.reader.source.close()
            _check_lives(checks, trial)
        else:
            shown = {}
            trial.reader.source.close()
    for one in broken:
        checks.run(_slug(one.what), f"with {one.what} it says so", error_of(one, session, secrets))
    if secrets and shown:
        checks.run("secrets", "no secret is shown or stored", lambda: check_secrets(secrets, shown))
    return checks.report(raises)


def _begin(checks: Checklist, trial: _Trial, budget: int, expected: Sequence[Any] | None) -> bool:
    """Test the promises that all other checks need; returns whether they hold."""

    def travels() -> str:
        travelled(trial.original)
        trial.reader = trial.again()
        travelled(trial.reader.source)
        return ""

    def reads() -> str:
        until_s = time.monotonic() + _FIRST_RECORDS_S
        trial.walks = _walked(trial, budget)
        while not trial.ranges and time.monotonic() < until_s:
            time.sleep(_PAUSE_S)  # received input arrives shortly after the request
            trial.listings.clear()
            trial.walks = _walked(trial, budget)
        count = sum(len(walk.records) for walk in trial.walks)
        assert count, "it returned no record at all. Use a source with input"
        is_all = all(walk.ended for walk in trial.walks)
        values = values_of([record for walk in trial.walks for record in walk.records])
        if expected is not None and is_all:
            difference = bag_difference(values, expected)
            assert not difference, difference
        return f"{count} records in {len(trial.ranges)} ranges of {len(trial.walks)} splits"

    return checks.run("travels", "it can be sent to a task, before and after it is opened", travels) and checks.run(
        "reads", "its records fit its type, and its offsets are JSON", reads
    )


def _walked(trial: _Trial, budget: int) -> list[Walk]:
    """Read all splits. A bounded source that has not ended may wait for the positions of an epoch before it lists more:
    the second source of a hybrid source starts where the first has ended."""
    walks: list[Walk] = []
    source, listing = trial.reader.source, 0
    while True:
        new = [split for split in trial.reader.splits() if split.name not in trial.listings]
        trial.listings |= {split.name: listing for split in new}
        walks += [trial.reader.walk(split, budget, trial.ranges_max) for split in new]
        has_more = source.bounded and all(walk.ended for walk in walks) and not is_complete(source, trial.context)
        if not new or not has_more:
            return walks
        source.committed({walk.split.name: walk.positions[-1] for walk in walks})
        listing += 1


def _check_ranges(checks: Checklist, trial: _Trial) -> None:
    def same(what: str, read: Callable[[RangeRead], RangeRead], ranges: Sequence[RangeRead]) -> str:
        for range_ in ranges:
            repeated = read(range_)
            difference = order_difference(repeated.records, range_.records)
            assert not difference, f"{range_}, {what}: {difference}"
            assert repeated.end == range_.end, (
                f"{range_}, {what}: it ended at {repeated.end!r}, at first at {range_.end!r}"
            )
        return f"{len(ranges)} ranges"

    def replay() -> str:
        _must_replay(trial)
        reader = trial.reader
        return same("read again", lambda one: reader.read(one.split, one.start, one.stop), trial.ranges)

    def order() -> str:
        _must_replay(trial)
        reader = trial.in_a_task()
        ranges = list(reversed(trial.ranges))
        return same("in a task, the last range first", lambda one: reader.read(one.split, one.start, one.stop), ranges)

    def settled() -> str:
        _must_replay(trial)
        reader = trial.in_a_task()
        ranges = [one for one in trial.ranges if one.end != one.stop]
        if not ranges:
            raise Skipped("its ranges end as planned by reach()")
        return same("to its actual end", lambda one: reader.read(one.split, one.start, one.end), ranges)

    checks.run("reach", "planning how far it can be read changes nothing", lambda: _check_reach(trial))
    checks.run("replay", "the same range returns the same records in the same order", replay)
    checks.run("order", "ranges can be read in any order, in any task", order)
    checks.run("settled", "a range that was read further than planned can be read again as it was", settled)
    checks.run("cuts", "the input is the same for any division into ranges", lambda: _check_cuts(trial))
    checks.run("whole", "any range between two positions returns the records between them", lambda: _check_pairs(trial))
    checks.run("bytes", "a range that ends early because of its bytes continues there", lambda: _check_bytes(trial))
    checks.run("empty", "an empty range returns nothing", lambda: _check_empty(trial))
    checks.run("torn", "a partly read range can be read again", lambda: _check_torn(trial))
    checks.run("twice-at-once", "two tasks may read the same range at the same time", lambda: _check_at_once(trial))
    checks.run("end", "a bounded source ends, and stays ended", lambda: _check_end(trial))


def _must_replay(trial: _Trial) -> None:
    if not trial.original.replayable:
        raise Skipped("it is declared not replayable (replayable = False)")


def _check_cuts(trial: _Trial) -> str:
    _must_replay(trial)
    for budget in _BUDGETS:
        for walk in trial.walks:
            reread = trial.reader.walk(walk.split, budget, trial.ranges_max, task=trial.in_a_task())
            difference = _early_difference(reread, walk.records)
            assert not difference, f"split {walk.split.name!r} by {budget} records at a time: {difference}"
    return f"by {', '.join(map(str, _BUDGETS))} records at a time"


def _early_difference(walk: Walk, expected: Sequence[Any]) -> str:
    """The first difference of two reads, up to the end of the shorter one. A read that ended must be complete."""
    count = len(expected) if walk.ended else min(len(walk.records), len(expected))
    return order_difference(walk.records[:count], expected[:count])


def _check_pairs(trial: _Trial) -> str:
    _must_replay(trial)
    chance, pairs = random.Random(7), 0
    for walk in trial.walks:
        reader, positions = trial.in_a_task(), walk.positions
        choices = [(first, last) for last in range(1, len(positions)) for first in range(last)]
        for first, last in chance.sample(choices, min(len(choices), 12)):
            expected = [record for range_ in walk.ranges[first:last] for record in range_.records]
            reread = reader.read(walk.split, positions[first], positions[last])
            difference = order_difference(reread.records, expected)
            assert not difference, f"{reread}: {difference}"
            pairs += 1
    return f"{pairs} ranges"


def _check_bytes(trial: _Trial) -> str:
    """Read ranges with a minimal byte limit: each part must make progress, or the job would stall."""
    _must_replay(trial)
    if not may_end_early(trial.reader.source):
        raise Skipped("it reads every range in whole")
    reader, parts = trial.in_a_task(), 0
    for range_ in trial.ranges[:5]:
        offset, records = range_.start, list[Any]()
        while offset != range_.end:
            part = reader.read(range_.split, offset, range_.stop, bytes_max=1)
            assert part.end != offset, f"{part} makes no progress when it may have 1 byte"
            records.extend(part.records)
            offset, parts = part.end, parts + 1
        difference = order_difference(records, range_.records)
        assert not difference, f"{range_}: {difference}"
    return f"{parts} parts"


def _check_empty(trial: _Trial) -> str:
    _must_replay(trial)
    for walk in trial.walks:
        for position in (walk.positions[0], walk.positions[-1]):
            empty_range = trial.reader.read(walk.split, position, position)
            assert not empty_range.records, f"{empty_range} returned {len(empty_range.records)} records"
            assert empty_range.end == position, f"{empty_range} ended at {empty_range.end!r}"
    return ""


def _check_torn(trial: _Trial) -> str:
    _must_replay(trial)
    for range_ in trial.ranges[:5]:
        reader = trial.in_a_task()
        steps = reader.steps(range_.split, range_.start, range_.stop)
        next(steps, None)
        steps.close()
        difference = order_difference(reader.read(range_.split, range_.start, range_.stop).records, range_.records)
        assert not difference, f"{range_}: {difference}"
    return ""


def _check_at_once(trial: _Trial) -> str:
    """Interleave reads step by step: one in a separate copy, two in one worker process, which share the object."""
    _must_replay(trial)
    shared = trial.in_a_task()
    for range_ in trial.ranges[:5]:
        readers = (shared, shared, trial.in_a_task())
        reads = [reader.steps(range_.split, range_.start, range_.stop) for reader in readers]
        records_read: list[list[Any]] = [[] for _ in reads]
        going = set(range(len(reads)))
        while going:
            for number in sorted(going):
                step = next(reads[number], None)
                if step is None:
                    going.discard(number)
                else:
                    records_read[number].extend(step)
        for records in records_read:
            difference = order_difference(records, range_.records)
            assert not difference, f"{range_}: {difference}"
    return ""


def _check_reach(trial: _Trial) -> str:
    source, context = trial.reader.source, trial.context
    for walk in trial.walks:
        positions = walk.positions
        for offset in positions:
            is_over = is_finished(source, walk.split, offset)
            stops = [through_json(reach_of(source, walk.split, offset, budget, context)) for budget in (1, 1)]
            if stops[0] != stops[1] and source.bounded:
                raise AssertionError(f"split {walk.split.name!r} at {offset!r}: first {stops[0]!r}, then {stops[1]!r}")
            assert not is_over or stops[0] == offset, f"split {walk.split.name!r} finished at {offset!r} and continues"
    names = [split.name for split in trial.reader.splits()]
    # A finished split need not be listed forever.
    finished = {walk.split.name for walk in trial.walks if is_finished(source, walk.split, walk.positions[-1])}
    known = [walk.split.name for walk in trial.walks if walk.split.name in names or walk.split.name not in finished]
    assert names[: len(known)] == known, f"it listed the splits {known}, and now {names}"
    return ""


def _check_end(trial: _Trial) -> str:
    source = trial.reader.source
    if not source.bounded:
        raise Skipped("it is not bounded")
    for walk in trial.walks:
        if not walk.ended:
            raise Skipped("it has more input than was read. Reduce it, or raise ranges_max")
        position = walk.positions[-1]
        assert is_finished(source, walk.split, position), (
            f"split {walk.split.name!r} returns nothing more at {position!r}, and finished() is False: the "
            "job would never end"
        )
    assert is_complete(source, trial.context), "complete() is False: the job would never end"
    return ""


# --- restarts of a job ---------------------------------------------------------------------------------------


def _check_lives(checks: Checklist, trial: _Trial) -> None:
    checks.run("restart", "another driver continues from the manifest, and misses nothing", lambda: _restart(trial))
    checks.run("going-back", "after a commit, earlier input can still be read", lambda: _going_back(trial))
    checks.run("job", "a crashing job reads every record once", lambda: _in_a_job(trial))


def _restart(trial: _Trial) -> str:
    """For each split separately, a driver dies after each epoch in turn."""
    _must_replay(trial)
    lives = 0
    for walk in trial.walks[:3]:
        for life in sorted({0, len(walk.ranges) // 2, len(walk.ranges)}):
            reader = trial.again()
            position = walk.positions[life]
            # Splits listed later had no position yet.
            until = trial.listings[walk.split.name]
            known = [other.split.name for other in trial.walks if trial.listings[other.split.name] <= until]
            others = {other.split.name: other.positions[-1] for other in trial.walks if other.split.name in known}
            reader.source.committed({**others, walk.split.name: position})
            [split] = [split for split in reader.splits() if split.name == walk.split.name]
            reread = reader.walk(split, 3, trial.ranges_max, start=position)
            difference = _early_difference(reread, [record for one in walk.ranges[life:] for record in one.records])
            assert not difference, f"split {split.name!r} from {position!r}: {difference}"
            reader.source.close()
            lives += 1
    return f"{lives} starts"


def _going_back(trial: _Trial) -> str:
    _must_replay(trial)
    reader = trial.again()
    reader.source.committed({walk.split.name: walk.positions[-1] for walk in trial.walks})
    first = {walk.split.name: walk.positions[0] for walk in trial.walks}
    reader.source.released([first, {walk.split.name: walk.positions[-1] for walk in trial.walks}])
    for range_ in trial.ranges:
        difference = order_difference(reader.read(range_.split, range_.start, range_.stop).records, range_.records)
        assert not difference, f"{range_}, which a retained epoch needs: {difference}"
    reader.source.close()
    return ""


def _in_a_job(trial: _Trial) -> str:
    if trial.session is not None:
        raise Skipped("it needs a Spark session")
    expected = values_of([record for walk in trial.walks for record in walk.records])
    source = travelled(trial.original)
    for parallelism in (1, 3):
        published, restarts = records_of_a_job(source, trial.walks, parallelism)
        difference = bag_difference(published, expected, repeats_allowed=not source.replayable)
        assert not difference, f"at parallelism {parallelism}, after {restarts} crashes: {difference}"
    return "at parallelism 1 and 3"


def _shown(trial: _Trial) -> dict[str, str]:
    source = trial.reader.source
    return {
        "describe()": f"{trial.original.describe()} {source.describe()}",
        "repr()": f"{trial.original!r} {source!r}",
        "the splits (they are stored)": repr([walk.split for walk in trial.walks]),
        "the offsets (they are stored)": repr([walk.positions for walk in trial.walks]),
    }


def _slug(text: str) -> str:
    return "-".join(text.lower().split())
