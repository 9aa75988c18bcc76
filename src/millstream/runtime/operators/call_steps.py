"""Finds functions that block their event loop: all other calls of the task wait as long as they do.

A coroutine runs in steps, from one `await` that really waits to the next. Each step of a user's coroutine is timed; one
that takes long is told once, as a warning. A step that never ends is seen from outside (`blocked_s`).
"""

from __future__ import annotations

import logging
import time
import types
from collections.abc import Coroutine, Generator
from typing import Any

__all__ = ["STEP_S_MAX", "StepWatch"]

_LOG = logging.getLogger(__name__)
STEP_S_MAX = 1.0


class StepWatch:
    """Times the steps of the coroutines that run on one loop. `function` is how the user calls their maker."""

    def __init__(self, function: str, operator: str, site: str, step_s_max: float = STEP_S_MAX) -> None:
        self._function, self._operator, self._site = function, operator, site
        self._step_s_max = step_s_max
        self._began_s: float | None = None
        self._has_warned = False
        self.value: Any = None  # the record of the newest step

    def blocked_s(self) -> float:
        """How long the step that is running has been; may be asked from any thread. Tells the user if it is long."""
        began_s = self._began_s
        if began_s is None:
            return 0.0
        blocked_s = time.perf_counter() - began_s
        self._judge(blocked_s)
        return blocked_s

    def _judge(self, took_s: float) -> None:
        if took_s > self._step_s_max and not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "%s of '%s' (%s) blocks its event loop: one step took %.1f s, and all other calls of the task waited "
                "for it. Await an asynchronous client, or await asyncio.to_thread(...) for what blocks",
                self._function,
                self._operator,
                self._site,
                took_s,
            )

    @types.coroutine
    def timed(self, coroutine: Coroutine[Any, Any, Any], value: Any) -> Generator[Any, Any, Any]:
        """Awaits `coroutine`, which is about the record `value`, step by step."""
        step, answer = coroutine.send, None
        while True:
            self.value = value
            self._began_s = began_s = time.perf_counter()
            try:
                awaited = step(answer)
            except StopIteration as end:
                return end.value
            finally:
                self._began_s = None
                self._judge(time.perf_counter() - began_s)
            try:
                answer = yield awaited
                step = coroutine.send
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:  # a cancellation, or what the awaited thing raised: it is the coroutine's
                answer, step = error, coroutine.throw
