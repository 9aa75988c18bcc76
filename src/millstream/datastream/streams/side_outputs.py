"""Whether a side output can be asked of an operator: a wrong one would be a stream on which nothing ever comes."""

from __future__ import annotations

from dataclasses import replace

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.output_tag import OutputTag
from millstream.datastream.streams.argument_checks import refuse
from millstream.datastream.streams.declared_tags import declared_tags
from millstream.graph.nodes import Node, Process, Window
from millstream.records.batch import is_typed

__all__ = ["with_side_output"]


def with_side_output(node: Node, tag: OutputTag, type_info: TypeInformation | None) -> Process:
    """The operation of `node`, giving out this side output with records of `type_info`."""
    if isinstance(node.operation, Window) and node.operation.ready is not None and node.operation.late_tag is None:
        raise refuse(
            f"get_side_output: '{node.name}' has no side outputs. For late records call side_output_late_data(tag) "
            "before aggregate()"
        )
    if not isinstance(node.operation, Process):
        raise refuse(f"get_side_output: '{node.name}' has no side outputs. Call it on the stream process() returned")
    _check_yielded(node.name, node.operation, tag, type_info)
    tags = dict(node.operation.tags)
    if tags.setdefault(tag.tag_id, type_info) != type_info:
        raise refuse(
            f"get_side_output: '{tag.tag_id}' of '{node.name}' was read as {tags[tag.tag_id]} and is "
            f"now read as {type_info}. Use the same OutputTag for both"
        )
    return replace(node.operation, tags=tuple(tags.items()))


def _check_yielded(name: str, operation: Process, tag: OutputTag, type_info: TypeInformation | None) -> None:
    """Refuse a tag that the operator never gives a record, or only with another type."""
    late = _late_tags(operation)
    known = declared_tags(operation.function)
    tags = [*(known or {}).get(tag.tag_id, []), *(other for other in late if other.tag_id == tag.tag_id)]
    if known is not None and not tags:
        names = sorted({*known, *(other.tag_id for other in late)})
        raise refuse(
            f"get_side_output: '{name}' never gives out side output '{tag.tag_id}'; it has {names or 'none'}. Use the "
            f"OutputTag the function yields with (yield tag, value){_late_fix(operation)}"
        )
    typed = [other.type_info for other in tags if is_typed(other.type_info)]
    if typed and is_typed(type_info) and type_info not in typed:
        raise refuse(
            f"get_side_output: side output '{tag.tag_id}' of '{name}' is {typed[0]} where it is given out and "
            f"{type_info} here. Use the same OutputTag for both"
        )


def _late_tags(operation: Process) -> list[OutputTag]:
    """The side outputs of late records: of windows one, of joins one for each side."""
    tags = (getattr(operation, "late_tag", None), *getattr(operation, "late_tags", ()))
    return [tag for tag in tags if tag is not None]


def _late_fix(operation: Process) -> str:
    if hasattr(operation, "late_tags"):
        return ", or call side_output_left_late_data(tag) or side_output_right_late_data(tag) before"
    return ", or call side_output_late_data(tag) before" if isinstance(operation, Window) else ""
