"""Checks of arguments that a program passes to the API, made at the call so that the error shows the user's line.

Each check returns its argument, or raises a ProgramError that names the method, the actual and the expected value, and
the next step. Nothing is converted silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.common.configuration import Configuration
from millstream.common.typeinfo import PickledBytesTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from millstream.common.typeinfo.composite_types import type_advice
from millstream.connectors.files.values import json_converter
from millstream.datastream.functions.function import Function
from millstream.datastream.streams.function_calls import check_calls
from millstream.errors import MillstreamError, NotAvailableError
from millstream.expressions.data_type import DataType
from millstream.graph.site import here, refuse, refuse_type
from millstream.records.columns import arrow_type
from millstream.records.table_type import stream_type

__all__ = [
    "at_users_line",
    "checked_count",
    "checked_file_row",
    "checked_function",
    "checked_json_rows",
    "checked_output_type",
    "checked_row_type",
    "checked_states",
    "checked_text",
    "checked_truth",
    "file_type",
    "projected_type",
    "refuse",
]


def checked_function(method: str, func: Any, function_class: type[Function], *, callables: bool = True) -> Any:
    """Returns `func` if it is an instance of `function_class`, or, with `callables`, a callable that is not of another
    function class."""
    expected = function_class.__name__ + (" or a callable" if callables else "")
    if isinstance(func, function_class):
        check_calls(method, func, function_class)
        return func
    if isinstance(func, type) and issubclass(func, Function):
        raise refuse_type(
            f"{method}: found the class {func.__name__}, expected {expected}. Pass an instance: {func.__name__}()"
        )
    if isinstance(func, Function):
        kind = next(base.__name__ for base in type(func).__mro__ if base.__module__.startswith("millstream."))
        article = "an" if kind[0] in "AEIO" else "a"
        raise refuse_type(
            f"{method}: found {article} {kind} ({type(func).__name__}), expected {expected}. {_belongs(kind)}"
        )
    if callables and callable(func):
        check_calls(method, func, function_class)
        return func
    hint = f". Derive a class from {function_class.__name__} and pass an instance" if callable(func) else ""
    raise refuse_type(f"{method}: found {func!r} ({type(func).__name__}), expected {expected}{hint}")


def _belongs(kind: str) -> str:
    place = {
        "MapFunction": "map()",
        "FlatMapFunction": "flat_map()",
        "FilterFunction": "filter()",
        "ProcessFunction": "process()",
        "KeyedProcessFunction": "key_by(...).process()",
        "KeyedBatchFunction": "key_by(...).process_batches()",
        "ReduceFunction": "key_by(...).reduce()",
        "KeySelector": "key_by()",
        "Partitioner": "partition_custom()",
        "CoMapFunction": "connect(...).map()",
        "CoFlatMapFunction": "connect(...).flat_map()",
        "CoProcessFunction": "connect(...).process()",
        "KeyedCoProcessFunction": "connect(...).key_by(...).process()",
        "BroadcastProcessFunction": "connect(stream.broadcast(state_descriptor)).process()",
        "KeyedBroadcastProcessFunction": "key_by(...).connect(stream.broadcast(state_descriptor)).process()",
        "WindowFunction": "window(...).apply()",
        "JoinFunction": "join(...)….apply()",
        "FlatJoinFunction": "join(...)….apply()",
        "CoGroupFunction": "co_group(...)….apply()",
        "ProcessWindowFunction": "window(...).process()",
        "AggregateFunction": "window(...).aggregate()",
        "ProcessJoinFunction": "interval_join(...).between(...).process()",
        "AsyncFunction": "AsyncDataStream.ordered_wait() or unordered_wait()",
    }.get(kind)
    return f"Pass it to {place}" if place else "Pass it to the method it is made for"


def checked_output_type(method: str, output_type: Any) -> TypeInformation | None:
    """The declared type; None, and the pickled type, mean untyped."""
    return None if output_type is None else _untyped_as_none(_checked_type(method, output_type))


def _checked_type(method: str, type_info: Any) -> TypeInformation:
    if isinstance(type_info, TypeInformation):
        return type_info
    raise refuse_type(f"{method}: found {type_info!r} ({type(type_info).__name__}) as a type. {type_advice(type_info)}")


def _untyped_as_none(type_info: TypeInformation) -> TypeInformation | None:
    return None if isinstance(type_info, PickledBytesTypeInfo) else type_info


def checked_states(method: str, states: Any) -> tuple[tuple[str, TypeInformation], ...]:
    """The states that a function declares, by name; each must have a columnar type."""
    if not isinstance(states, Mapping) or not all(isinstance(name, str) and name for name in states):
        raise refuse(f"{method}: states() returned {states!r}, expected a dict from names to types")
    for name, type_info in states.items():
        if arrow_type(_checked_type(f"{method}, state {name!r}", type_info)) is None:
            raise refuse(f"{method}: state {name!r} is {type_info}, which has no columns. Choose another of Types")
    return tuple(states.items())


def checked_count(method: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Returns `value` if it is an integer from `least` to `most`."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value and (most is None or value <= most):
        return value
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise refuse(f"{method}: found {value!r}, expected a whole number {bounds}")


def checked_truth(method: str, value: Any) -> bool:
    """Returns `value` if it is True or False: in Python the string "false" is truthy."""
    if isinstance(value, bool):
        return value
    raise refuse_type(f"{method}: found {value!r}, expected True or False")


def checked_text(method: str, value: Any) -> str:
    """Returns `value` if it is a non-empty string."""
    if isinstance(value, str) and value.strip():
        return value
    raise refuse(f"{method}: found {value!r}, expected a non-empty string")


def checked_row_type(method: str, type_info: Any) -> RowTypeInfo:
    """Returns `type_info` if it is a row type."""
    if isinstance(type_info, RowTypeInfo):
        return type_info
    raise refuse_type(f"{method}: found {type_info!r}, expected a row type, such as Types.ROW_NAMED([names], [types])")


def file_type(method: str, declared: Any) -> Any:
    """Converts a type of the Table API's `DataTypes` to `Types`, since file formats accept both."""
    if not isinstance(declared, DataType):
        return declared
    type_info = stream_type(declared)
    if type_info is None:
        raise refuse(f"{method}: found {declared}, which has no equivalent in Types. Use another column type")
    return type_info


def checked_file_row(method: str, row_type: Any, hadoop_config: Any = None) -> RowTypeInfo:
    """A row type of `Types` or `DataTypes`; rejects Hadoop settings, which are not supported."""
    settings = hadoop_config.to_dict() if isinstance(hadoop_config, Configuration) else hadoop_config
    if settings:
        raise NotAvailableError(f"{method}: Hadoop is not used here, found {settings}. Omit hadoop_config=")
    return checked_row_type(method, file_type(method, row_type))


def checked_json_rows(method: str, type_info: Any) -> RowTypeInfo:
    """Returns `type_info` if JSON documents can be converted to such rows."""
    row_type = checked_row_type(method, type_info)
    with at_users_line():
        json_converter(row_type)
    return row_type


def projected_type(type_info: TypeInformation | None, indexes: tuple[int, ...]) -> TypeInformation:
    """The row or tuple type projected to the fields at `indexes`, in that order.

    >>> projected_type(Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.INT()]), (1,)).notation
    'ROW<b INT>'
    """
    if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        notation = "untyped" if type_info is None else type_info.notation
        raise refuse(
            f"project: the stream is {notation}; only rows and tuples have fields. Declare output_type= before it"
        )
    fields = type_info.get_field_types()
    if not indexes:
        raise refuse(f"project: no field was named. Use indexes from 0 to {len(fields) - 1}")
    for index in indexes:
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < len(fields):
            raise refuse(
                f"project: there is no field {index!r} in {type_info}. Use indexes from 0 to {len(fields) - 1}"
            )
    types = [fields[index] for index in indexes]
    if isinstance(type_info, TupleTypeInfo):
        return Types.TUPLE(types)
    if not type_info.has_own_names:
        return Types.ROW(types)
    names = [type_info.get_field_names()[index] for index in indexes]
    if len(set(names)) < len(names):
        raise refuse(
            f"project: {list(indexes)} has a field twice, and names in a row must differ. Select each field once"
        )
    return Types.ROW_NAMED(names, types)


class at_users_line:  # noqa: N801 - reads as a sentence after `with`
    """Adds the line of the user's call to errors from lower layers, which lack it.

    A class, not a generator: all frames between the user's line and this frame must belong to the engine.
    """

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, MillstreamError) and error.at is None:
            error.at = str(here())
            error.args = (f"{error.message} ({error.at})",)
