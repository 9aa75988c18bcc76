"""PyFlink's utilities around its JVM: one interface that is still useful, and functions without an equivalent here."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from typing import Any, NoReturn

from millstream.common.configuration import Configuration
from millstream.common.typeinfo import TypeInformation
from millstream.errors import NotAvailableError
from millstream.pyflink_names import add_pyflink_names

__all__ = [
    "ResultTypeQueryable",
    "convert_to_python_obj",
    "create_hadoop_configuration",
    "create_java_properties",
    "pickled_bytes_to_python_obj",
]


class ResultTypeQueryable(ABC):
    """An object that declares the type of its output."""

    @abstractmethod
    def get_produced_type(self) -> TypeInformation:
        """The type."""


def create_hadoop_configuration(config: Configuration) -> NoReturn:
    raise NotAvailableError(
        "create_hadoop_configuration: Millstream has no Flink JVM. Hadoop settings for Spark are 'spark.hadoop.*' keys"
    )


def create_java_properties(config: Configuration) -> NoReturn:
    raise NotAvailableError("create_java_properties: Millstream has no Flink JVM. Pass the settings as a dict")


def convert_to_python_obj(data: Any, type_info: TypeInformation | None) -> Any:
    """Converts a type's internal representation to a Python value.

    >>> from millstream.common.typeinfo import Types
    >>> convert_to_python_obj(7, Types.INT())
    7
    """
    return data if type_info is None else type_info.from_internal_type(data)


def pickled_bytes_to_python_obj(data: bytes, type_info: TypeInformation | None) -> Any:
    """Converts a pickled internal representation to a Python value. Unpickling runs code: use only trusted data."""
    return convert_to_python_obj(pickle.loads(data), type_info)


add_pyflink_names(globals())
