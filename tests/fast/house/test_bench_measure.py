"""The arithmetic of the benchmarks: a wrong verdict would be worse than none."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from inputs.project_scripts import script_module

_BENCH = Path(__file__).resolve().parents[3] / "bench"


measure = script_module("bench/measure.py")


def test_a_missed_requirement_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    report = measure.Report("speed", as_json=False, quick=False)
    report.add(measure.at_least("fast enough", 0.9, 0.8))
    report.add(measure.at_most("small enough", 1.4, 1.3))
    assert report.close() == 1
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.split()[0] == "PASS" and "fast enough" in first and "0.900" in first and "≥ 0.8" in first
    assert second.split()[0] == "FAIL" and "small enough" in second and "1.400" in second and "≤ 1.3" in second


def test_a_value_at_the_bound_passes() -> None:
    assert measure.at_least("x", 0.8, 0.8).passed
    assert measure.at_most("x", 1.3, 1.3).passed


def test_machine_output_is_json_only(capsys: pytest.CaptureFixture[str]) -> None:
    report = measure.Report("speed", as_json=True, quick=True)
    report.add(measure.at_least("fast enough", 0.9, 0.8))
    assert report.close() == 0
    body = json.loads(capsys.readouterr().out)
    assert body["passed"] is True and body["quick"] is True
    assert body["requirements"][0]["name"] == "fast enough"


def test_contestants_take_turns_and_the_first_one_rotates() -> None:
    order: list[str] = []

    def contestant(name: str) -> float:
        order.append(name)
        return float(len(order))

    both = {name: partial(contestant, name) for name in ("a", "b")}
    figures = measure.take_turns(both, rounds=2, warm_up_rounds=1)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert figures == {"a": [4.0, 5.0], "b": [3.0, 6.0]}


def test_a_slow_minute_does_not_change_the_ratio() -> None:
    quiet = measure.median_ratio([1.0, 1.0, 1.0], [2.0, 2.0, 2.0])
    disturbed = measure.median_ratio([1.0, 9.0, 1.0], [2.0, 18.0, 2.0])
    assert quiet == disturbed == 0.5


def test_growth_is_distinguished_from_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(_BENCH))
    soak = script_module("bench/soak.py")
    growing = soak.flatness("disk", "MB", [100.0 + 5 * i for i in range(30)])
    assert not growing.flat and not growing.requirement(3000).passed
    assert soak.flatness("disk", "MB", [100.0, 104.0, 99.0] * 10).flat
    # Ten percent of almost nothing is no leak: small absolute growth is ignored.
    assert soak.flatness("disk", "MB", [1.0] * 10 + [5.0] * 20).flat
    assert soak.flatness("files", "files", [0.0] * 30).requirement(3000).passed
