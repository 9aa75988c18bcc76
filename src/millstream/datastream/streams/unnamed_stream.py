"""Keyed and cached streams, which are not operators. Calls that name or place an operator are rejected on them, as in
PyFlink, with a message that states where the call is valid."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from millstream.datastream.streams.argument_checks import refuse
from millstream.datastream.streams.stream import DataStream

if TYPE_CHECKING:
    from millstream.datastream.slot_sharing_group import SlotSharingGroup

__all__ = ["UnnamedStream"]


class UnnamedStream(DataStream):
    """A stream that cannot be named or placed. For messages, `made_by` is the method that returns it, and its kind."""

    made_by: tuple[str, str]

    def _no_operator(self, method: str) -> NoReturn:
        call, kind = self.made_by
        raise refuse(f"{method}: a {kind} stream is not an operator. Call it before {call}(), or on the next operator")

    def set_parallelism(self, parallelism: int) -> NoReturn:
        self._no_operator("set_parallelism")

    def name(self, name: str) -> NoReturn:
        self._no_operator("name")

    def get_name(self) -> NoReturn:
        self._no_operator("get_name")

    def uid(self, uid: str) -> NoReturn:
        self._no_operator("uid")

    def set_uid_hash(self, uid_hash: str) -> NoReturn:
        self._no_operator("set_uid_hash")

    def set_description(self, description: str) -> NoReturn:
        self._no_operator("set_description")

    def set_max_parallelism(self, max_parallelism: int) -> NoReturn:
        self._no_operator("set_max_parallelism")

    def force_non_parallel(self) -> NoReturn:
        self._no_operator("force_non_parallel")

    def set_buffer_timeout(self, timeout_millis: int) -> NoReturn:
        self._no_operator("set_buffer_timeout")

    def start_new_chain(self) -> NoReturn:
        self._no_operator("start_new_chain")

    def disable_chaining(self) -> NoReturn:
        self._no_operator("disable_chaining")

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> NoReturn:
        self._no_operator("slot_sharing_group")
