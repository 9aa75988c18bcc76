"""Names a side output: a second output stream of a process function."""

from __future__ import annotations

from typing import Any

from millstream.common.typeinfo import TypeInformation, Types
from millstream.errors import NotAvailableError, TypeMismatchError
from millstream.graph.site import here
from millstream.graph.tags import SideTag
from millstream.pyflink_names import add_pyflink_names

__all__ = ["OutputTag"]


class OutputTag(SideTag):
    """A side output's name and type. Two tags are equal if both are equal.

    >>> OutputTag("late") == OutputTag("late"), OutputTag("late") == OutputTag("early")
    (True, False)
    """

    __slots__ = ("tag_id", "type_info")

    def __init__(self, tag_id: str, type_info: TypeInformation | list[TypeInformation] | None = None) -> None:
        if not isinstance(tag_id, str) or not tag_id:
            raise TypeMismatchError(f"OutputTag: found the id {tag_id!r}, expected a non-empty string", at=str(here()))
        if isinstance(type_info, list):
            type_info = Types.ROW(type_info)
        elif type_info is not None and not isinstance(type_info, TypeInformation):
            raise TypeMismatchError(
                f"OutputTag {tag_id!r}: its type is {type_info!r}; use one of Types, such as Types.STRING()",
                at=str(here()),
            )
        self.tag_id = tag_id
        self.type_info = type_info

    def get_java_output_tag(self) -> Any:
        raise NotAvailableError("OutputTag.get_java_output_tag: Millstream has no Flink JVM. Use the tag itself.")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and (self.tag_id, self.type_info) == (other.tag_id, other.type_info)

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return (
            f"OutputTag({self.tag_id!r})"
            if self.type_info is None
            else f"OutputTag({self.tag_id!r}, {self.type_info!r})"
        )


add_pyflink_names(globals())
