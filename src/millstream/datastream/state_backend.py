"""Flink's state backends, accepted as settings.

Millstream has one kind of state storage, memory-mapped columnar segments, whether or not state fits in memory. Choosing
a backend has no effect, which is logged once; its settings are stored and returned.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from millstream.datastream.streams.argument_checks import checked_count, checked_text, refuse
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.errors import NotAvailableError
from millstream.graph.notices import log_once
from millstream.pyflink_names import add_pyflink_names

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "CustomStateBackend",
    "EmbeddedRocksDBStateBackend",
    "HashMapStateBackend",
    "PredefinedOptions",
    "StateBackend",
]


class StateBackend:
    """A choice of backend; no effect here."""

    def __init__(self, j_state_backend: Any = None) -> None:
        no_java_object(self, j_state_backend)
        log_once("state backend", "state backends have no effect here: state is stored in mapped columnar segments")


class HashMapStateBackend(StateBackend):
    """In Flink: state on the JVM's heap."""

    def __init__(self, j_hashmap_state_backend: Any = None) -> None:
        super().__init__(j_hashmap_state_backend)


class PredefinedOptions(Enum):
    """In Flink: RocksDB settings for a kind of disk."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class EmbeddedRocksDBStateBackend(StateBackend):
    """In Flink: state in RocksDB, on local disk.

    >>> backend = EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=True)
    >>> backend.is_incremental_checkpoints_enabled(), backend.get_predefined_options().name
    (True, 'DEFAULT')
    """

    def __init__(
        self, enable_incremental_checkpointing: bool | None = None, j_embedded_rocks_db_state_backend: Any = None
    ) -> None:
        super().__init__(j_embedded_rocks_db_state_backend)
        self._incremental = bool(enable_incremental_checkpointing)
        self._paths: list[str] | None = None
        self._predefined = PredefinedOptions.DEFAULT
        self._options_factory: str | None = None
        self._transfer_threads = 4

    def set_db_storage_paths(self, *paths: str) -> None:
        self._paths = [checked_text("set_db_storage_paths", path) for path in paths]

    def get_db_storage_paths(self) -> list[str] | None:
        return None if self._paths is None else list(self._paths)

    def is_incremental_checkpoints_enabled(self) -> bool:
        return self._incremental

    def set_predefined_options(self, options: PredefinedOptions) -> Self:
        if not isinstance(options, PredefinedOptions):
            raise refuse(f"set_predefined_options: found {options!r}, expected one of PredefinedOptions")
        self._predefined = options
        return self

    def get_predefined_options(self) -> PredefinedOptions:
        return self._predefined

    def set_options(self, options_factory_class_name: str) -> None:
        """Stored without effect: Millstream uses neither RocksDB nor a JVM that could load the class."""
        self._options_factory = checked_text("set_options", options_factory_class_name)

    def get_options(self) -> str | None:
        return self._options_factory

    def get_number_of_transfer_threads(self) -> int:
        return self._transfer_threads

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        self._transfer_threads = checked_count("set_number_of_transfer_threads", number_of_transfering_threads)


class CustomStateBackend(StateBackend):
    """In Flink: a backend written in Java."""

    def __init__(self, j_custom_state_backend: Any = None) -> None:
        raise NotAvailableError(
            "CustomStateBackend: it wraps a Java class and Millstream has no Flink JVM. Omit it: none is needed"
        )


add_pyflink_names(globals())
