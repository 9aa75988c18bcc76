"""The settings of a window operator, in PyFlink's class."""

from __future__ import annotations

from typing import Any

from millstream.common.serializer import TypeSerializer
from millstream.datastream.functions.internal_window import InternalWindowFunction
from millstream.datastream.output_tag import OutputTag
from millstream.datastream.state import StateDescriptor
from millstream.datastream.window.assigners import WindowAssigner
from millstream.datastream.window.triggers import Trigger

__all__ = ["WindowOperationDescriptor"]


class WindowOperationDescriptor:
    """The complete settings of a window operator."""

    def __init__(
        self,
        assigner: WindowAssigner[Any, Any],
        trigger: Trigger[Any, Any],
        allowed_lateness: int,
        late_data_output_tag: OutputTag | None,
        window_state_descriptor: StateDescriptor,
        window_serializer: TypeSerializer[Any],
        internal_window_function: InternalWindowFunction[Any, Any, Any, Any],
    ) -> None:
        self.assigner = assigner
        self.trigger = trigger
        self.allowed_lateness = allowed_lateness
        self.late_data_output_tag = late_data_output_tag
        self.window_state_descriptor = window_state_descriptor
        self.window_serializer = window_serializer
        self.internal_window_function = internal_window_function

    def generate_op_name(self) -> str:
        """The operator's name, which is that of the assigner."""
        return type(self.assigner).__name__

    def generate_op_desc(self, windowed_stream_type: str, func_desc: str) -> str:
        """The description in plans, on one line."""
        return (
            f"{windowed_stream_type}({type(self.assigner).__name__}, {type(self.trigger).__name__}, "
            f"{self.window_state_descriptor.get_name()}, {func_desc})"
        )
