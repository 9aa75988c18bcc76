"""The demo's queries to the running job: the client, the judge of the answers, and one whole demo at a terminal."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from demo_modules import FOLDER, RECORDS, Example
from screens.terminal import Screen, Terminal

from millstream import query
from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.testing import CRASH, EPOCH, Collect, Script, run

AD = 5


def write_results(folder: Path, lines: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "part-0a1b2c3d-0-1.csv").write_text("".join(line + "\n" for line in lines), encoding="utf-8")


# --- the answers of the job -----------------------------------------------------------------------------------


def answers_at_every_epoch(example: Example, store: str, ads: list[int]) -> list[list[Any]]:
    """For each ad, the demo's answer at every epoch that the store retains."""
    job = query.open(f"memory://{store}")
    answers: list[list[Any]] = [[] for _ in ads]
    for epoch in job.epochs():
        with job.at(epoch=epoch) as view:
            for at, windows in enumerate(view.windows_many(example.job.OPEN_WINDOWS, ads)):
                told = ((one.start, one.end, one.result.impressions, one.result.seen_ms) for one in windows)
                open_windows = tuple(example.asking.OpenWindow(*one) for one in told)
                answers[at].append(example.asking.Answer(ads[at], epoch, view.watermark, 0, open_windows))
    return answers


def test_answers_of_the_job_never_decrease_and_converge_to_the_files(example: Example, tmp_path: Path) -> None:
    items: list[Any] = []
    for index in range(RECORDS):
        items += [EPOCH] if index % 100 == 0 else []
        items += [CRASH] if index == 1_550 else []
        items.append(example.server(index))

    def build(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_string("millstream.retention.epochs", "100"))
        humans = example.job.humans_of(env.from_source(Script(items), example.job.in_time(), "impressions"))
        example.job.windows_per_ad(humans).sink_to(Collect("windows"))

    result = run(build, store="test-demo-answers", parallelism=2)
    write_results(tmp_path, [",".join(map(str, row)) for row in result["windows"]])
    answers = answers_at_every_epoch(example, "test-demo-answers", [*range(100)])
    assert sum(len(answer.windows) for of_ad in answers for answer in of_ad) > 500
    for of_ad in answers:
        verdict = example.judge.judge_answers(of_ad[:15], of_ad[15:], tmp_path)
        assert verdict.exact and (verdict.before, verdict.after) == (15, len(of_ad) - 15)
    # A job that started empty after the crash would be detected.
    busy = max(answers, key=lambda of_ad: len(of_ad[15].windows))
    assert not example.judge.judge_answers(busy[:16], busy[:1], tmp_path).exact


def test_the_number_of_read_records_is_the_sum_of_all_offsets(example: Example) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        numbers = DataGeneratorSource(lambda index: index, 1_000, type_info=Types.LONG())
        env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers").sink_to(Collect("numbers"))

    result = run(build, store="test-demo-offsets", epoch_records=100)
    for manifest in result.manifests:
        here = sorted(record.value for record in result.of("numbers") if record.epoch <= manifest.epoch)
        assert example.demo.taken_in(manifest) == here
        assert example.demo.records_in(manifest) == len(here)
    assert example.demo.taken_in(None) == [] and example.demo.records_in(None) == 0


# --- the judge of answers -------------------------------------------------------------------------------------


def answer(example: Example, epoch: int, watermark_ms: int, **counts: int) -> Any:
    """An answer with windows named by their starting second: s10=3 has three impressions, seen for 30 ms."""
    windows = (
        example.asking.OpenWindow(int(name[1:]) * 1_000, int(name[1:]) * 1_000 + 10_000, count, count * 10)
        for name, count in counts.items()
    )
    return example.asking.Answer(AD, epoch, watermark_ms, 0, tuple(windows))


@pytest.fixture
def final(tmp_path: Path) -> Path:
    """In the end ad 5 had nine impressions in its first window and four in its second."""
    write_results(tmp_path, ["5,0,10000,8,80", "5,0,10000,9,90", "5,10000,20000,4,40"])
    return tmp_path


def judged(example: Example, final: Path, before: list[Any], after: list[Any]) -> tuple[int, int, bool]:
    verdict = example.judge.judge_answers(before, after, final)
    return verdict.gone_back, verdict.wrong, verdict.exact


def test_answers_that_only_grow_until_the_end_of_their_windows_are_correct(example: Example, final: Path) -> None:
    before = [answer(example, 1, 3_000), answer(example, 1, 3_000), answer(example, 2, 8_000, s0=8)]
    after = [
        answer(example, 2, 8_000, s0=8),
        answer(example, 5, 14_998, s0=9, s10=1),
        answer(example, 6, 14_999, s10=4),
    ]
    assert judged(example, final, before, after) == (0, 0, True)


@pytest.mark.parametrize(
    ("later", "how"),
    [
        ((3, 9_000, {"s0": 8}), "of an older epoch"),
        ((4, 9_000, {"s0": 7}), "otherwise of the same epoch"),
        ((5, 9_000, {"s0": 7}), "less of a window"),
        ((5, 14_998, {}), "no more of a window that can still change"),
    ],
)
def test_a_decreasing_answer_is_detected(example: Example, final: Path, later: Any, how: str) -> None:
    epoch, watermark_ms, counts = later
    before, after = [answer(example, 4, 9_000, s0=8)], [answer(example, epoch, watermark_ms, **counts)]
    assert judged(example, final, before, after) == (1, 0, False), how


def test_an_answer_beyond_the_final_count_is_detected(example: Example, final: Path) -> None:
    right = answer(example, 1, 3_000, s0=9)
    for more in (answer(example, 2, 3_000, s0=10), answer(example, 2, 3_000, s0=9, s50=1)):
        assert judged(example, final, [right], [more]) == (0, 1, False)
    for one_more in ({"impressions": 10}, {"seen_ms": 91}):
        more = replace(right, epoch=2, windows=(right.windows[0]._replace(**one_more),))
        assert judged(example, final, [right], [more]) == (0, 1, False)


def test_without_answers_before_and_after_the_crash_nothing_is_proved(example: Example, final: Path) -> None:
    told = [answer(example, 1, 3_000, s0=9)]
    assert judged(example, final, told, told) == (0, 0, True)
    assert judged(example, final, told, []) == judged(example, final, [], told) == (0, 0, False)


# --- the client ---------------------------------------------------------------------------------------------


class Rejecting(BaseHTTPRequestHandler):
    """Rejects everything: 404 with a sentence, and 503 for ad 0."""

    def do_GET(self) -> None:
        self.send_response(503 if self.path.endswith("/0") else 404)
        self.end_headers()
        self.wfile.write(b'{"error": "unknown-state", "message": "no such state here"}')

    def log_message(self, format: str, *args: Any) -> None:
        """Not on the screen of the tests."""


@pytest.fixture
def refusing(example: Example) -> Iterator[Any]:
    """A client of a server that rejects everything."""
    with HTTPServer(("127.0.0.1", 0), Rejecting) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        questions = example.asking.Questions(f"127.0.0.1:{server.server_port}")
        yield questions
        questions.close()
        server.shutdown()
        thread.join()


def test_without_a_server_there_is_no_answer(example: Example, refusing: Any) -> None:
    nobody = example.asking.Questions(example.asking.free_address())
    assert nobody.ask(17) is None
    nobody.close()
    assert refusing.ask(0) is None, "a server that has no epoch yet"


def test_a_rejection_is_shown_with_the_servers_message_and_ends_a_watch(example: Example, refusing: Any) -> None:
    assert "no such state here" in str(example.demo.answered(refusing, "a/b?c").renderable)
    with example.asking.Watch(refusing, 17) as watch, pytest.raises(example.asking.Refused, match="no such state"):
        until_s = time.monotonic() + 60
        while time.monotonic() < until_s:
            assert watch.answers == ()


def test_waiting_for_lines_is_bounded(example: Example) -> None:
    ours, theirs = os.pipe()
    keyboard = example.asking.Keyboard(ours)
    os.write(theirs, b"17\n 18 \n19")
    assert [keyboard.line(5, lambda: False) for _ in range(2)] == ["17", "18"]
    assert keyboard.line(0.01, lambda: False) is None, "no whole line"
    os.write(theirs, b"\n\n")
    assert [keyboard.line(5, lambda: True) for _ in range(3)] == [None, None, None], "the job is gone"
    assert [keyboard.line(5, lambda: False) for _ in range(2)] == ["19", ""]
    os.close(theirs)
    assert keyboard.line(5, lambda: False) is None, "no more will come"
    os.close(ours)


# --- one demo, at a terminal ----------------------------------------------------------------------------------

CAPTURES = Path(__file__).parent / "captures"


def keep(name: str, screen: Screen) -> None:
    """Save the screen for review, if requested (MILLSTREAM_CAPTURES=write). Its figures differ each time."""
    if os.environ.get("MILLSTREAM_CAPTURES") == "write":
        edge = f"+{'-' * screen.columns}+"
        picture = "\n".join([edge, *(f"|{line:{screen.columns}}|" for line in screen.lines), edge, ""])
        folder = str(Path(sys.executable).parent)  # specific to this machine
        picture = re.sub(
            rf"{re.escape(folder)}(/millstream list)( *)", rf".venv/bin\1\2{' ' * (len(folder) - 9)}", picture
        )
        CAPTURES.mkdir(exist_ok=True)
        (CAPTURES / f"{name}.txt").write_text(picture, encoding="utf-8")


def has_one_waiting_row(columns: int, screen: Screen) -> bool:
    """Whether exactly one row, the last one, shows the job's progress, and it fits into the columns."""
    last = screen.text.rpartition("\n")[2]
    return screen.text.count("It is killed") == 1 and last.startswith("It is killed") and len(last) < columns


@pytest.mark.slow
def test_at_a_terminal_queries_after_the_crash_are_correct_and_the_demo_ends_exactly_once(tmp_path: Path) -> None:
    """At 80×24, and for a while at 120×40. Everything that the story mentions is visible at that moment."""
    demo = [sys.executable, str(FOLDER / "demo.py"), "--records", "20000", "--rate", "4000"]
    terminal = Terminal(demo, cwd=tmp_path, rows=24, columns=80)
    screen = terminal.screen
    prompt = r"Enter to let it finish:$"
    try:
        terminal.read_until(r"It is killed when it has 10,000 impressions … Spark starts, \d+ s", 300)
        # The story and the whole query command are visible, and the command is in one row.
        assert "Millstream demo" in screen.text
        curl = r"(?m)^curl http://127\.0\.0\.1:\d+/v1/jobs/impressions/states/impressions/windows/\d+$"
        assert re.search(curl, screen.text), screen.text
        keep("demo-80x24-starts", screen)
        story = screen.text.rpartition("\n")[0].split()
        for rows, columns in ((24, 60), (18, 60), (40, 120), (24, 70), (24, 80)):
            terminal.resize(rows, columns)
            terminal.read_until(partial(has_one_waiting_row, columns), 60)
            # The whole story is still there, once, with the progress row once below it.
            *told, _ = terminal.screen.all_text.splitlines()
            assert "".join(told).replace(" ", "") == "".join(story), screen.all_text
        terminal.read_until(r"… epoch \d+, [\d,]+ impressions, \d+ s", 300)
        keep("demo-80x24-resized", screen)
        terminal.read_until(r"asked for [\d,]+ times while it ran. The last answer:\s+ad \d+ as of epoch \d+", 300)
        terminal.read_until(r"kill -9!", 60)
        keep("demo-80x24-killed", screen)
        terminal.read_until(r"The first answer about ad \d+ after\s+the\s+crash:\s+ad \d+ as of epoch \d+", 300)
        terminal.read_until(prompt, 300)
        terminal.type("17")
        terminal.read_until(r"ad 17 as of epoch \d+, which is [\d.]+ s old", 60)
        terminal.resize(40, 120)
        terminal.read_until(prompt, 60)
        keep("demo-120x40-asks", screen)
        terminal.type("seventeen")
        terminal.read_until(r"key 'seventeen' is a string", 60)
        terminal.read_until(prompt, 60)
        terminal.resize(24, 80)
        terminal.type("")
        assert terminal.read_to_end(300) == 0
        keep("demo-80x24-ends", screen)
        for words in ("Exactly once", "0 lost, 0 doubled", "after it, none of them went back", "The last windows"):
            assert words in screen.text, screen.text
    finally:
        terminal.close()
