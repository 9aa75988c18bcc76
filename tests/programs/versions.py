"""A program in several versions, run in sequence on one store: for tests of state across versions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.common.restart_strategy import RestartStrategies
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import JobFailedError
from millstream.storage.memory import MemoryStore
from millstream.testing import CRASH, EPOCH, Collect, ManualClock, Script, run

__all__ = ["Build", "Story"]

_STORES = itertools.count()
Build = Callable[[Any, Collect], Any]


class Story:
    """One script in several acts; each act is run by another version of the program, on the same store."""

    def __init__(self, *acts: list[Any]) -> None:
        items = [item for act in acts for item in (*act, EPOCH, CRASH)]
        self._script = Script(items[:-1])
        self._acts = len(acts)
        self.store = f"evolving-{next(_STORES)}"
        self.clock = ManualClock()

    def play(self, *versions: Build, parallelism: tuple[int, ...] = (1,)) -> list[list[Any]]:
        """What each version gives out."""
        assert len(versions) == self._acts
        return [
            self.act(version, parallelism[number % len(parallelism)], is_last=number == len(versions) - 1)
            for number, version in enumerate(versions)
        ]

    def act(self, version: Build, parallelism: int = 1, *, is_last: bool = False) -> list[Any]:
        out = Collect("out")
        newest = self._newest()
        before = 0 if newest is None else newest.epoch

        def build(env: StreamExecutionEnvironment) -> None:
            version(env.add_source(self._script).uid("in"), out)

        def go() -> None:
            none = RestartStrategies.no_restart()
            run(build, store=self.store, parallelism=parallelism, restart=none, clock=self.clock)

        if is_last:
            go()
        else:
            with pytest.raises(JobFailedError, match="the script crashes"):
                go()
        # The output of the previous act's last epoch is published again.
        return [record.value for record in out.records if record.epoch > before]

    def _newest(self) -> Manifest | None:
        return ManifestLog(MemoryStore(self.store)).newest()

    def account(self, uid: str = "keep") -> dict[str, Any]:
        newest = self._newest()
        assert newest is not None
        state: Any = newest.states[uid]
        return state  # type: ignore[no-any-return]
