"""The demo's proof is only worth something if it can fail: it finds what is lost, doubled, foreign or miscounted."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from millstream.common import WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import CRASH, EPOCH, Collect, Script, run

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "impressions"
RECORDS = 3_000


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    """`demo.py` as a module; like a program, it finds `job.py` beside itself."""
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("impressions_demo", FOLDER / "demo.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(FOLDER))


def exact_lines(demo: ModuleType) -> list[str]:
    """What the files must hold, by a plain loop."""
    counts: dict[int, int] = {}
    lines = []
    for event in (demo.parse(demo.AdServer()(index)) for index in range(RECORDS)):
        if demo.is_human(event):
            counts[event.ad] = counts.get(event.ad, 0) + 1
            lines.append(f"{demo.described(event)},{counts[event.ad]}")
    return lines


def write(folder: Path, name: str, lines: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def judged(demo: ModuleType, folder: Path) -> tuple[int, int, int, int]:
    verdict = demo.judge(demo.AdServer(), RECORDS, folder)
    assert verdict.exact == (not any((verdict.lost, verdict.doubled, verdict.foreign, verdict.miscounted)))
    return verdict.lost, verdict.doubled, verdict.foreign, verdict.miscounted


# --- the stream -----------------------------------------------------------------------------------------------


def test_the_stream_is_the_same_however_often_it_is_read_and_has_bots_in_it(demo: ModuleType) -> None:
    server = demo.AdServer()
    assert [server(index) for index in range(50)] == [demo.AdServer()(index) for index in range(50)]
    assert [server(index) for index in range(50)] != [demo.AdServer(seed=2)(index) for index in range(50)]
    assert 0 < len(exact_lines(demo)) < RECORDS


def test_about_one_impression_in_fifty_comes_seconds_late(demo: ModuleType) -> None:
    server = demo.AdServer(first_ms=0, per_second=1_000)
    delays = [index - json.loads(server(index))["at_ms"] for index in range(20_000)]
    late = [delay for delay in delays if delay > 2_000]
    assert 0.015 < len(late) / len(delays) < 0.025
    assert min(delays) >= 0 and min(late) >= 4_000
    assert max(delay for delay in delays if delay <= 2_000) < 1_000


# --- the count ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_count_of_the_job_is_exact_through_crashes(demo: ModuleType, tmp_path: Path, parallelism: int) -> None:
    job, out = sys.modules["job"], Collect()
    texts = [demo.AdServer()(index) for index in range(RECORDS)]
    script = Script([*texts[:700], EPOCH, *texts[700:1_900], CRASH, *texts[1_900:2_500], EPOCH, CRASH, *texts[2_500:]])
    in_time = WatermarkStrategy.for_bounded_out_of_orderness(job.PATIENCE).with_timestamp_assigner(
        lambda text, _: json.loads(text)["at_ms"]
    )

    def build(env: StreamExecutionEnvironment) -> None:
        events = env.from_source(script, in_time, "impressions").map(job.parse, job.IMPRESSION).filter(job.is_human)
        events.key_by("ad").process(job.CountPerAd()).uid("count-per-ad").sink_to(out)

    result = run(build, parallelism=parallelism)
    assert result.restarts == 2
    write(tmp_path, "part-0.csv", result[out])
    assert judged(demo, tmp_path) == (0, 0, 0, 0)


def test_a_late_impression_is_counted_as_late_and_counted_all_the_same(demo: ModuleType) -> None:
    job, out = sys.modules["job"], Collect()
    times = [10_000, 9_000, EPOCH, 7_999, 8_000, 8_001]
    script = Script([at if at is EPOCH else {"id": 1, "ad": 5, "seen_ms": 7, "at_ms": at} for at in times])
    in_time = WatermarkStrategy.for_bounded_out_of_orderness(job.PATIENCE).with_timestamp_assigner(
        lambda event, _: event["at_ms"]
    )

    def build(env: StreamExecutionEnvironment) -> None:
        events = env.from_source(script, in_time, "impressions").map(lambda event: job.Row(**event))
        events.key_by(lambda event: event.ad).process(job.CountPerAd()).uid("count-per-ad").sink_to(out)

    result = run(build)
    assert [line.rpartition(",")[2] for line in result[out]] == ["1", "2", "3", "4", "5"]
    assert demo.late_in(result.manifests[-1]) == 1
    assert demo.late_in(None) == 0


# --- the judge ------------------------------------------------------------------------------------------------


def test_every_line_once_over_any_files_is_exact(demo: ModuleType, tmp_path: Path) -> None:
    lines = exact_lines(demo)
    write(tmp_path, "part-0.csv", lines[1::2])
    write(tmp_path / "later", "part-1.csv", lines[0::2])
    write(tmp_path / ".staged", "part-2.csv", lines[:9])
    assert judged(demo, tmp_path) == (0, 0, 0, 0)
    verdict = demo.judge(demo.AdServer(), RECORDS, tmp_path)
    assert (verdict.lines, verdict.files) == (len(lines), 2)


def test_lost_doubled_and_foreign_lines_are_counted(demo: ModuleType, tmp_path: Path) -> None:
    lines = exact_lines(demo)
    write(tmp_path, "part-0.csv", lines[3:])
    write(tmp_path, "part-1.csv", [*lines[-2:], "nonsense", "9,9,nonsense,9,1"])
    ads = {line.split(",")[1] for line in [*lines[:3], *lines[-2:]]}
    assert judged(demo, tmp_path) == (3, 2, 2, len(ads))


def test_a_count_that_began_anew_after_the_crash_is_found(demo: ModuleType, tmp_path: Path) -> None:
    lines = exact_lines(demo)
    of_one_ad = [line for line in lines if line.split(",")[1] == lines[-1].split(",")[1]]
    assert len(of_one_ad) > 1
    write(tmp_path, "part-0.csv", [*lines[:-1], lines[-1].rpartition(",")[0] + ",1"])
    assert judged(demo, tmp_path) == (0, 0, 0, 1)


def test_two_impressions_of_an_ad_may_have_swapped_numbers(demo: ModuleType, tmp_path: Path) -> None:
    lines = exact_lines(demo)
    ad = lines[-1].split(",")[1]
    first, *_, last = (index for index, line in enumerate(lines) if line.split(",")[1] == ad)
    (one, _, low), (two, _, high) = lines[first].rpartition(","), lines[last].rpartition(",")
    lines[first], lines[last] = f"{one},{high}", f"{two},{low}"
    write(tmp_path, "part-0.csv", lines)
    assert judged(demo, tmp_path) == (0, 0, 0, 0)


def test_no_output_at_all_is_not_exact(demo: ModuleType, tmp_path: Path) -> None:
    assert not demo.judge(demo.AdServer(), RECORDS, tmp_path).exact
