"""Inputs of random tests: the same in every run, process and machine, or new inputs on request.

With `--explore`, which scripts/explore.py uses, only the random tests run, with new inputs and more of them. Each test
draws from its own seed, derived from the seed of the run, the factor and the test's id: it draws the same when it runs
alone. Examples after the time limit are not run; a failure is still minimised.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.errors import HypothesisException

settings.register_profile(
    "fast",
    max_examples=20,  # if a test sets no number: few, to run the fast part in under a minute
    derandomize=True,
    database=None,
    # A busy machine is no defect.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("fast"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("explore", "new inputs for random tests (make explore)")
    group.addoption("--explore", type=int, metavar="SEED", help="run the random tests only, with inputs from this seed")
    group.addoption("--times", type=int, default=1, metavar="N", help="with --explore: N times as many examples")
    group.addoption("--until", type=float, default=math.inf, metavar="S", help="with --explore: stop at this Unix time")
    group.addoption("--failures", type=Path, metavar="FILE", help="with --explore: add the ids of failed tests to it")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--explore") is not None:
        config.pluginmanager.register(Exploration(config))


class _TimeIsUpError(KeyboardInterrupt):
    """Stops a test between two examples. After any exception but an interrupt, Hypothesis reports an example that
    drew less than the same example before as flaky.
    """


class Exploration:
    def __init__(self, config: pytest.Config) -> None:
        self._seed: int = config.getoption("--explore")
        self._times: int = config.getoption("--times")
        self._until: float = config.getoption("--until")
        # With several processes, the controller receives all failures.
        self._failures: Path | None = None if hasattr(config, "workerinput") else config.getoption("--failures")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        random_tests = [item for item in items if is_hypothesis_test(getattr(item, "obj", None))]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(random_tests)])
        for test in {id(test): test for test in map(_test_of, random_tests)}.values():
            self._widen(test)
        # By file, in an order of this seed: fixtures of a file are created once, and each run starts elsewhere.
        files = [list(tests) for _, tests in itertools.groupby(random_tests, key=lambda item: item.path)]
        Random(f"{self._seed} {self._times}").shuffle(files)
        items[:] = itertools.chain.from_iterable(files)

    def _widen(self, test: Any) -> None:
        """Give it more examples; parametrised tests share one function, which is widened once."""
        machine = getattr(test, "_hypothesis_state_machine_class", None)
        owner, name = (machine.TestCase, "settings") if machine else (test, "_hypothesis_internal_use_settings")
        before: settings = getattr(owner, name)
        examples = before.max_examples * self._times
        setattr(owner, name, settings(before, max_examples=examples, derandomize=False, database=None))
        if machine is None:
            test.hypothesis.inner_test = self._bounded(test.hypothesis.inner_test)

    def _bounded(self, inner_test: Callable[..., Any]) -> Callable[..., Any]:
        has_failed = False

        @functools.wraps(inner_test)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            nonlocal has_failed
            if time.time() > self._until and not has_failed:
                raise _TimeIsUpError
            try:
                return inner_test(*args, **kwargs)
            except HypothesisException:
                raise
            except Exception:
                has_failed = True
                raise

        return bounded

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self) -> Any:
        try:
            return (yield)
        except _TimeIsUpError:
            pytest.skip("the time is up")

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.time() > self._until:
            pytest.skip("the time is up")
        test = _test_of(item)
        digest = hashlib.sha256(f"{self._seed} {self._times} {item.nodeid}".encode()).digest()
        owner = getattr(test, "_hypothesis_state_machine_class", test)
        owner._hypothesis_internal_use_seed = int.from_bytes(digest[:16])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._report(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._report(report)

    def _report(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and self._failures is not None:
            with self._failures.open("a") as file:
                file.write(f"{report.nodeid}\n")


def _test_of(item: pytest.Item) -> Any:
    test = item.obj  # type: ignore[attr-defined]
    return getattr(test, "__func__", test)
