"""The demo's proof must be able to fail: it detects lost, duplicated, miscounted and wrong records."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from demo_modules import PER_SECOND, RECORDS, Example
from oracles.lowered_operators import lowered_operation
from rich.console import Console

from millstream.common import Row
from millstream.datastream import StreamExecutionEnvironment
from millstream.plan.operations import PaneAggregate
from millstream.testing import CRASH, EPOCH, Collect, Result, Script, Watermark, run


def exact_lines(example: Example) -> list[str]:
    """The expected numbered files, by a plain loop."""
    counts: dict[int, int] = {}
    lines = []
    for event in example.humans:
        counts[event.ad] = counts.get(event.ad, 0) + 1
        lines.append(f"{example.job.described(event)},{counts[event.ad]}")
    return lines


def exact_results(example: Example) -> dict[tuple[int, int], tuple[int, int]]:
    """The expected windows if nothing is dropped, by a plain loop: (ad, start) → (impressions, seen_ms)."""
    results: dict[tuple[int, int], tuple[int, int]] = {}
    for event in example.humans:
        place = (event.ad, event.at_ms // 10_000 * 10_000)
        count, seen_ms = results.get(place, (0, 0))
        results[place] = (count + 1, seen_ms + event.seen_ms)
    return results


def write(folder: Path, epoch: int, lines: Iterable[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"part-0a1b2c3d-0-{epoch}.csv").write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def write_results(folder: Path, epoch: int, results: dict[tuple[int, int], tuple[int, int]]) -> None:
    write(folder, epoch, (f"{ad},{at},{at + 10_000},{n},{ms}" for (ad, at), (n, ms) in results.items()))


def judged_count(example: Example, folder: Path) -> tuple[int, int, int, int]:
    verdict = example.judge.judge_count(example.humans, folder)
    assert verdict.exact == (not any((verdict.lost, verdict.doubled, verdict.foreign, verdict.miscounted)))
    return verdict.lost, verdict.doubled, verdict.foreign, verdict.miscounted


def judged_windows(example: Example, folder: Path, dropped: int = 0) -> Any:
    return example.judge.judge_windows(example.humans, example.server, folder, dropped)


# --- the stream -----------------------------------------------------------------------------------------------


def test_the_stream_is_replayable_and_contains_bots(example: Example) -> None:
    texts = [example.server(index) for index in range(50)]
    assert texts == [example.server(index) for index in range(50)]
    assert texts != [example.job.AdServer(per_second=PER_SECOND, seed=2)(index) for index in range(50)]
    assert 0 < len(exact_lines(example)) < RECORDS


def test_about_one_impression_in_fifty_is_seconds_late(example: Example) -> None:
    server = example.job.AdServer(first_ms=0, per_second=1_000)
    delays = [index - json.loads(server(index))["at_ms"] for index in range(20_000)]
    late = [delay for delay in delays if delay > 2_000]
    assert 0.015 < len(late) / len(delays) < 0.025
    assert min(delays) >= 0 and min(late) >= 4_000
    assert max(delay for delay in delays if delay <= 2_000) < 1_000


def test_the_stream_ends_about_now_and_starts_at_a_window_except_late_ones(example: Example) -> None:
    now_ms = 1_767_258_123_456
    server = example.demo.server_until(now_ms, 8_000, 500.0)
    assert server.per_second == 125.0
    first, last = (json.loads(server(index))["at_ms"] + server.delay_ms(index) for index in (0, 7_999))
    assert (first - example.job.USUAL_DELAY_MS) % 10_000 == 0
    assert now_ms - 11_000 < last <= now_ms + 1_000


# --- the job --------------------------------------------------------------------------------------------------


def run_job(example: Example, items: list[Any], **options: Any) -> Result:
    """The job with scripted input, and collected output instead of its files and its screen."""
    job = example.job

    def build(env: StreamExecutionEnvironment) -> None:
        humans = job.humans_of(env.from_source(Script(items), job.in_time(), "impressions"))
        job.numbered(humans).sink_to(Collect("numbered"))
        windows = job.windows_per_ad(humans)
        assert isinstance(lowered_operation(windows), PaneAggregate), "the windows do not run in columns"
        windows.sink_to(Collect("windows"))
        job.closed(windows).sink_to(Collect("closed"))
        job.filling(humans).sink_to(Collect("filling"))

    return run(build, **options)


def write_output(result: Result, folder: Path) -> None:
    """The output of a run as files, one set per epoch."""
    for epoch in range(1, result.epochs + 1):
        write(folder / "numbered", epoch, (r.value for r in result.of("numbered") if r.epoch == epoch))
        rows = [record.value for record in result.of("windows") if record.epoch == epoch]
        write(folder / "windows", epoch, (",".join(map(str, row)) for row in rows))


@pytest.mark.parametrize("parallelism", [1, 2])
def test_counts_and_windows_are_exact_through_crashes(example: Example, tmp_path: Path, parallelism: int) -> None:
    items: list[Any] = []
    for index in range(RECORDS):
        items += [EPOCH] if index % 100 == 0 else []
        items += [CRASH] if index in (1_250, 2_201) else []
        items.append(example.server(index))
    result = run_job(example, items, parallelism=parallelism)
    assert result.restarts == 2
    write_output(result, tmp_path)
    assert judged_count(example, tmp_path / "numbered") == (0, 0, 0, 0)
    dropped = example.demo.dropped_in(result.manifests[-1])
    verdict = judged_windows(example, tmp_path / "windows", dropped)
    assert verdict.exact
    assert verdict.missing == dropped > 0 and verdict.updates > 0 and verdict.late >= verdict.updates
    assert verdict.results == sum(window.ads + window.updates for window in verdict.windows) - late_firsts(result)
    # The last values on the screen of closed windows equal those in the files.
    final = [line for line in result["closed"] if " final " in line]
    assert len(final) == len(verdict.windows)
    for line, window in zip(sorted(final), verdict.windows, strict=True):
        said = f"{window.late:,} late ones in {window.updates:,} updates" if window.late else "none came late"
        assert line.startswith(example.job.window_text(window.start_ms))
        assert line.endswith(f"{window.impressions:,} impressions of {window.ads:,} ads, {said}")


def late_firsts(result: Result) -> int:
    """The number of ads whose first result of a window came after it had closed: an update, and a new ad."""
    closed_in: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    firsts = 0
    for record in result.of("windows"):
        place = (record.value.ad, record.value.window_start)
        closed = closed_in.setdefault(place[1], record.epoch)
        firsts += place not in seen and record.epoch > closed
        seen.add(place)
    return firsts


def impression(at_ms: int, ad: int = 5) -> str:
    return json.dumps({"id": 1, "ad": ad, "agent": "Firefox", "seen_ms": 7, "at_ms": at_ms})


def test_the_screen_shows_open_and_closing_windows_and_late_impressions(example: Example) -> None:
    items = [
        impression(1_000), impression(4_000), impression(3_000, ad=6), Watermark(5_000),
        impression(8_000), Watermark(9_999),
        impression(2_000), impression(2_001), impression(9_000, ad=7), Watermark(14_998),
        impression(2_002), Watermark(14_999),
        impression(2_003), impression(15_000), EPOCH,
    ]  # fmt: skip
    result = run_job(example, items)
    window = "00:00:00–00:00:10"
    assert [line for line in result["filling"] if line.startswith(window)] == [
        f"{window}  ██░░░░░░ filling  1 impressions so far",
        f"{window}  ████░░░░ filling  3 impressions so far",
        f"{window}  ██████░░ filling  3 impressions so far",
    ]
    assert [line for line in result["closed"] if line.startswith(window)] == [
        f"{window}  ████████ closed   4 impressions of 2 ads",
        f"{window}  ████████ final    8 impressions of 3 ads, 4 late ones in 3 updates",
    ]
    last = {(row.ad, row.window_start): (row.impressions, row.seen_ms) for row in result["windows"]}
    assert last == {(5, 0): (6, 42), (6, 0): (1, 7), (7, 0): (1, 7), (5, 10_000): (1, 7)}
    assert example.demo.dropped_in(result.manifests[-1]) == 1
    assert example.demo.dropped_in(None) == 0
    assert result["closed"][-1].endswith("none came late")


# --- the judge of the count -----------------------------------------------------------------------------------


def test_every_line_once_over_any_files_is_exact(example: Example, tmp_path: Path) -> None:
    lines = exact_lines(example)
    write(tmp_path, 1, lines[1::2])
    write(tmp_path / "later", 2, lines[0::2])
    write(tmp_path / ".staged", 3, lines[:9])
    assert judged_count(example, tmp_path) == (0, 0, 0, 0)
    verdict = example.judge.judge_count(example.humans, tmp_path)
    assert (verdict.lines, verdict.files) == (len(lines), 2)


def test_lost_doubled_and_foreign_lines_are_counted(example: Example, tmp_path: Path) -> None:
    lines = exact_lines(example)
    write(tmp_path, 1, lines[3:])
    write(tmp_path, 2, [*lines[-2:], "nonsense", "9,9,nonsense,9,1"])
    ads = {line.split(",")[1] for line in [*lines[:3], *lines[-2:]]}
    assert judged_count(example, tmp_path) == (3, 2, 2, len(ads))


def test_a_count_restarted_after_the_crash_is_detected(example: Example, tmp_path: Path) -> None:
    lines = exact_lines(example)
    of_one_ad = [line for line in lines if line.split(",")[1] == lines[-1].split(",")[1]]
    assert len(of_one_ad) > 1
    write(tmp_path, 1, [*lines[:-1], lines[-1].rpartition(",")[0] + ",1"])
    assert judged_count(example, tmp_path) == (0, 0, 0, 1)


def test_two_impressions_of_an_ad_may_have_swapped_numbers(example: Example, tmp_path: Path) -> None:
    lines = exact_lines(example)
    ad = lines[-1].split(",")[1]
    first, *_, last = (index for index, line in enumerate(lines) if line.split(",")[1] == ad)
    (one, _, low), (two, _, high) = lines[first].rpartition(","), lines[last].rpartition(",")
    lines[first], lines[last] = f"{one},{high}", f"{two},{low}"
    write(tmp_path, 1, lines)
    assert judged_count(example, tmp_path) == (0, 0, 0, 0)


def test_no_output_at_all_is_not_exact(example: Example, tmp_path: Path) -> None:
    assert not example.judge.judge_count(example.humans, tmp_path).exact
    assert not judged_windows(example, tmp_path).exact


# --- the judge of the windows ---------------------------------------------------------------------------------


def one_of(example: Example, late: bool) -> Row:
    """An impression of a human that is late, or in time, in a window of an ad that has others."""
    results, patience_ms = exact_results(example), example.job.PATIENCE.to_millis()
    return next(
        event
        for event in example.humans
        if (example.server.delay_ms(event.id) > patience_ms) is late
        and results[event.ad, event.at_ms // 10_000 * 10_000][0] > 1
    )


def without(results: dict[tuple[int, int], tuple[int, int]], event: Row) -> tuple[tuple[int, int], tuple[int, int]]:
    """A window's key, and its result without the event."""
    place = (event.ad, event.at_ms // 10_000 * 10_000)
    return place, (results[place][0] - 1, results[place][1] - event.seen_ms)


def test_all_results_with_all_impressions_are_exact(example: Example, tmp_path: Path) -> None:
    results = exact_results(example)
    write_results(tmp_path, 1, results)
    write_results(tmp_path / ".staged", 1, results)
    verdict = judged_windows(example, tmp_path)
    assert verdict.exact and verdict.results == len(results)
    assert (verdict.updates, verdict.late, verdict.missing) == (0, 0, 0)
    assert sum(window.impressions for window in verdict.windows) == len(example.humans)


def test_the_last_result_counts_and_earlier_ones_are_reported_as_updated(example: Example, tmp_path: Path) -> None:
    results = exact_results(example)
    place, early = without(results, one_of(example, late=True))
    # Ten follows nine: files are ordered by epoch, not by name.
    write_results(tmp_path, 9, {**results, place: early})
    write_results(tmp_path, 10, {place: results[place]})
    verdict = judged_windows(example, tmp_path)
    assert verdict.exact and (verdict.updates, verdict.late) == (1, 1)


def test_a_first_result_after_the_windows_end_is_an_update(example: Example, tmp_path: Path) -> None:
    results = exact_results(example)
    place, (impressions, seen_ms) = next(iter(results.items()))
    write_results(tmp_path, 1, {other: result for other, result in results.items() if other != place})
    write_results(tmp_path, 2, {place: (impressions, seen_ms)})
    verdict = judged_windows(example, tmp_path)
    assert verdict.exact and (verdict.updates, verdict.late) == (1, impressions)


def test_a_late_impression_may_be_missing_if_it_was_counted_as_dropped(example: Example, tmp_path: Path) -> None:
    results = exact_results(example)
    place, result = without(results, one_of(example, late=True))
    write_results(tmp_path, 1, {**results, place: result})
    assert judged_windows(example, tmp_path, dropped=1).exact
    for counted in (0, 2):
        verdict = judged_windows(example, tmp_path, dropped=counted)
        assert not verdict.exact and verdict.wrong == 0 and verdict.missing == 1


def test_a_punctual_impression_may_not_be_missing(example: Example, tmp_path: Path) -> None:
    results = exact_results(example)
    place, result = without(results, one_of(example, late=False))
    write_results(tmp_path, 1, {**results, place: result})
    verdict = judged_windows(example, tmp_path, dropped=1)
    assert not verdict.exact and verdict.wrong == 1


def broken(how: str, results: dict[tuple[int, int], tuple[int, int]]) -> list[dict[tuple[int, int], tuple[int, int]]]:
    """The results of two epochs, one of them wrong."""
    place, (impressions, seen_ms) = next(iter(results.items()))
    if how == "doubled":
        return [results, {place: (impressions, seen_ms)}]
    if how == "an update that forgot":
        return [results, {place: (impressions - 1, seen_ms - 1)}]
    if how == "a wrong sum":
        return [{**results, place: (impressions, seen_ms + 1)}, {}]
    if how == "counted twice":
        return [results, {place: (impressions * 2, seen_ms * 2)}]
    return [results, {(5, 0): (1, 1)}]


@pytest.mark.parametrize(
    "how", ["doubled", "an update that forgot", "a wrong sum", "counted twice", "of no impression"]
)
def test_an_impossible_result_is_detected(example: Example, tmp_path: Path, how: str) -> None:
    for epoch, results in enumerate(broken(how, exact_results(example)), start=1):
        write_results(tmp_path, epoch, results)
    verdict = judged_windows(example, tmp_path)
    assert not verdict.exact and verdict.wrong == 1


def test_a_line_that_is_no_result_is_detected(example: Example, tmp_path: Path) -> None:
    write_results(tmp_path, 1, exact_results(example))
    write(tmp_path, 2, ["nonsense", "1,2,3"])
    assert judged_windows(example, tmp_path).wrong == 2


# --- the final screen -----------------------------------------------------------------------------------------


def shown(example: Example, folder: Path, dropped: int = 0, gone_back: int = 0, columns: int = 94) -> str:
    """The final text of the demo, on a screen of this width."""
    count = example.judge.judge_count(example.humans, folder / "numbered")
    windows = judged_windows(example, folder / "windows", dropped)
    screen = Console(width=columns, record=True, file=io.StringIO())
    screen.print(example.telling.window_table(windows))
    answers = example.judge.AnswersVerdict(before=7, after=1_234, gone_back=gone_back, wrong=0)
    example.telling.show(screen, RECORDS, count, windows, answers, took_s=42, look_around=["head", "tail"])
    return screen.export_text()


def test_the_final_text_lists_what_was_proved(example: Example, tmp_path: Path) -> None:
    write(tmp_path / "numbered", 1, exact_lines(example))
    results = exact_results(example)
    place, result = without(results, one_of(example, late=True))
    write_results(tmp_path / "windows", 1, {**results, place: result})
    text = shown(example, tmp_path, dropped=1)
    assert "Exactly once" in text and "3,000 records, 1 crash, 0 lost, 0 doubled" in text
    assert f"{len(results):,} windows of an ad, the last result of each right but for what was dropped" in text
    assert "7 answers before the crash and 1,234 after it, none of them went back" in text
    assert max(map(len, text.splitlines())) <= 94
    # With the two rows of the previous step, a blank one and that of the prompt, it fits 80×24.
    small = shown(example, tmp_path, dropped=1, columns=80).splitlines()
    assert len(small) <= 20 and max(map(len, small)) <= 80
    last = max(start for _, start in results)
    assert example.job.window_text(last) in text


def test_the_final_text_lists_what_failed(example: Example, tmp_path: Path) -> None:
    write(tmp_path / "numbered", 1, exact_lines(example))
    results = exact_results(example)
    write_results(tmp_path / "windows", 1, results)
    text = shown(example, tmp_path, gone_back=2)
    assert "NOT exact" in text and "1,234 after it, 2 of them told less than the one before" in text
    assert "0 impressions are missing in windows, and 3 were counted as dropped" in shown(example, tmp_path, dropped=3)
    write_results(tmp_path / "windows", 2, results)
    text = shown(example, tmp_path)
    assert "NOT exact" in text and f"{len(results):,} windows of an ad have a wrong result" in text
