"""Results that are hardly ever meant are said once, with the line; the job goes on as Flink's would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream.common import Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, ProcessFunction, StreamExecutionEnvironment
from millstream.datastream.functions import FlatMapFunction
from millstream.datastream.window import GlobalWindows
from millstream.testing import Collect, run

Build = Callable[[StreamExecutionEnvironment], Any]


class Letters(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return value


class KeyedLetters(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(0)
        return value

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return "timer"


class Deaf(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(0)


class Words(FlatMapFunction):
    def flat_map(self, value: str) -> Any:
        return value.split()


def warnings_of(build: Build, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    run(lambda env: build(env).sink_to(Collect()))
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


def words(env: StreamExecutionEnvironment) -> Any:
    return env.from_collection(["ab", "cd"])


def timed(env: StreamExecutionEnvironment) -> Any:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: 10**12)
    return words(env).assign_timestamps_and_watermarks(strategy)


SAID: dict[str, tuple[Build, str]] = {
    "flat_map": (lambda env: words(env).flat_map(lambda word: word), "function of 'FlatMap' returned a string"),
    "keyed flat_map": (lambda env: words(env).key_by(len).flat_map(lambda word: word), "returned a string"),
    "a dict": (lambda env: words(env).flat_map(lambda word: {word: 1}), "returned a dict, and its keys became records"),
    "process": (lambda env: words(env).process(Letters()), "the process function of 'PROCESS' returned a string"),
    "process, timed": (lambda env: timed(env).process(Letters()), "returned a string"),
    "keyed process": (lambda env: words(env).key_by(len).process(KeyedLetters()), "'KEYED PROCESS' returned a string"),
    "keyed process, timed": (lambda env: timed(env).key_by(len).process(KeyedLetters()), "returned a string"),
    "filter": (lambda env: words(env).filter(lambda word: None), "None for each of 2 records, which drops them"),
    "keyed filter": (lambda env: words(env).key_by(len).filter(lambda word: None), "which drops them"),
    "map": (lambda env: words(env).map(lambda word: None), "returned None for each of 2 records, which is emitted"),
    "keyed map": (lambda env: words(env).key_by(len).map(lambda word: None), "which is emitted"),
    "timers": (lambda env: words(env).key_by(len).process(Deaf()), "Deaf has no on_timer(self, timestamp, ctx)"),
    "global windows": (lambda env: words(env).key_by(len).window(GlobalWindows.create()).reduce(max), "never fire"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_it_is_said(name: str, caplog: pytest.LogCaptureFixture) -> None:
    build, expected = SAID[name]
    said = [text for text in warnings_of(build, caplog) if expected in text]
    assert len(said) == 1 and "test_suspicious_results.py:" in said[0]


NOT_SAID: dict[str, Build] = {
    "a list of texts": lambda env: words(env).flat_map(Words()),
    "a generator": lambda env: words(env).flat_map(lambda word: (letter for letter in word)),
    "nothing at all": lambda env: words(env).flat_map(lambda word: None),
    "some filtered": lambda env: words(env).filter(lambda word: True if word == "ab" else None),
    "one record": lambda env: env.from_collection([1]).map(lambda n: None),
    "typed": lambda env: words(env).map(lambda word: word, output_type=Types.STRING()),
}


@pytest.mark.parametrize("name", NOT_SAID)
def test_what_may_be_meant_is_not_said(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(NOT_SAID[name], caplog) == []


def test_the_results_are_those_of_flink(caplog: pytest.LogCaptureFixture) -> None:
    out = Collect()
    assert run(lambda env: words(env).flat_map(lambda word: word).sink_to(out))[out] == ["a", "b", "c", "d"]


def says_no(word: str) -> str:
    return "no"


VERDICTS: dict[str, tuple[Build, str]] = {
    "a text": (lambda env: words(env).filter(says_no), "says_no (test_suspicious_results.py:"),
    "a keyed one": (lambda env: words(env).key_by(len).filter(says_no), "the string 'no', which is true and keeps"),
    "an empty text": (lambda env: words(env).filter(lambda word: ""), "the string '', which is false and drops"),
    "no brackets": (lambda env: words(env).filter(lambda word: word.isdigit), "a function that is not called"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_a_filter_that_returns_a_text_or_a_function_is_said_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    build, expected = VERDICTS[name]
    said = [text for text in warnings_of(build, caplog) if "Return True or False" in text]
    assert len(said) == 1 and expected in said[0] and "test_suspicious_results.py:" in said[0]


def test_other_verdicts_have_pythons_truth_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    for verdict in (1, 0, [1], 2.0, True):
        assert warnings_of(lambda env, verdict=verdict: words(env).filter(lambda _: verdict), caplog) == []
