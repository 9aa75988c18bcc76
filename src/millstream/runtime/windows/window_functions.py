"""Shared by all window operators: the user's functions with their states, and late records.

A window node has up to three functions: a function that folds records into a window's value, the window function, and
the assigner. The window function may have state of the window and of its key (`window_store`), which is opened and
written with the operator's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from millstream.errors import ProgramError
from millstream.graph.nodes import Window
from millstream.records.batch import Batch
from millstream.runtime.keyed.queryable_states import queryable_of_windows
from millstream.runtime.operators.event_times import window_times
from millstream.runtime.operators.function_operators import ProcessOperator
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.windows.window_store import PartyStates, WindowStore
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.windows.places import WindowTokens

__all__ = ["WindowFunctions"]


class WindowFunctions(KeyedOperator, ProcessOperator):
    """A window node in one subtask; subclasses process its records."""

    method = "process"
    role = "window"

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = setting.node.operation
        assert isinstance(operation, Window)
        self._operation = operation
        self.store = WindowStore(self.backend.store)
        self.of_key = PartyStates(self.store, "", of_places=False)
        self.setting = self.setting.with_states(self.of_key)
        self.tokens = WindowTokens(operation.assigner.get_window_serializer())
        self._dropped = setting.context.metrics.counter("numLateRecordsDropped")

    def stateful(self) -> Any:
        return getattr(self._operation.function, "_wrapped_function", None)

    def user_functions(self) -> Iterable[Any]:
        """The window function and the function that folds records."""
        return (self.user_function(), self._operation.reduce, self._operation.aggregate)

    def open_states(self, accounts: Mapping[int, SubtaskAccount]) -> None:
        super().open_states(accounts)
        self.tokens.clear()

    def write_states(self) -> SubtaskAccount:
        self.store.leave()
        account = super().write_states()
        wake_ms = self.store.wake_ms(self.time.now_ms)
        if wake_ms is not None:
            account = replace(account, wake_ms=wake_ms)
        name = self.node.queryable
        if name is not None:
            if name in account.queryable:
                raise ProgramError(
                    f"the windows of '{self.node.name}' and its state '{account.queryable[name].state}' are both "
                    f"queryable as '{name}'. Give one of them another name"
                )
            windows = queryable_of_windows(self._operation, self.node.inputs[0].key_type)
            account = replace(account, queryable={**account.queryable, name: windows})
        return account

    def check_timestamps(self, batch: Batch) -> None:
        """Reject records without timestamps for event-time windows."""
        if len(batch) and self._operation.assigner.is_event_time():
            window_times(batch, self.call, "window assigner")

    def emit_late(self, value: Any, stamp: int, out: list[Any], stamps: list[int]) -> None:
        """Send a late record to the side output for late records, or drop and count it."""
        if self._operation.late_tag is None:
            self._dropped.inc()
        else:
            out.append((self._operation.late_tag, value))
            stamps.append(stamp)

    def enter_place(self, key: Any, window: Any) -> None:
        """Select the key and window before the window function is called."""
        self.store.keys.at = key
        self.store.places.at = (key, self.tokens.token(window))

    def prefetch_states(self, keys: list[Any], windows: list[Any]) -> None:
        """Prefetch the window function's states of these keys and windows."""
        token = self.tokens.token
        self.store.prefetch(keys, [(key, token(window)) for key, window in zip(keys, windows, strict=True)])
