"""PyFlink's future, over Python's own.

It wraps a `concurrent.futures.Future`; `py_class`, if set, is applied to the value when it is read. It only waits:
creating a future runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from millstream.errors import ProgramError
from millstream.pyflink_names import add_pyflink_names

__all__ = ["CompletableFuture"]


class CompletableFuture:
    """A value that will be available later.

    >>> CompletableFuture.of(3).result()
    3
    """

    def __init__(self, j_completable_future: Future[Any], py_class: Callable[[Any], Any] | None = None) -> None:
        # PyFlink passes a Java future here; ours is Python's, which has the same four methods.
        if not isinstance(j_completable_future, Future):
            raise ProgramError(
                f"CompletableFuture got {j_completable_future!r}, expected a concurrent.futures.Future. "
                "Use CompletableFuture.of(value) for a value that exists already."
            )
        self._future = j_completable_future
        self._convert = py_class

    @staticmethod
    def of(value: Any) -> CompletableFuture:
        """A future that is done."""
        future: Future[Any] = Future()
        future.set_result(value)
        return CompletableFuture(future)

    def cancel(self) -> bool:
        """Tries to cancel; False if it is too late."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._future.cancelled()

    def done(self) -> bool:
        """Whether the value, or the failure, is available."""
        return self._future.done()

    def result(self) -> Any:
        """Waits for the value; raises the failure, if any."""
        value = self._future.result()
        return value if self._convert is None else self._convert(value)

    def exception(self) -> BaseException | None:
        """Waits, and returns the failure, if any."""
        return self._future.exception()

    def __str__(self) -> str:
        state = "cancelled" if self.cancelled() else "done" if self.done() else "pending"
        return f"<CompletableFuture: {state}>"


add_pyflink_names(globals())
