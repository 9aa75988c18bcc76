"""Slot sharing groups and memory sizes: data that PyFlink programs construct and pass.

Spark determines placement and memory of tasks (`spark.executor.*`), so a group's resources are stored and displayed,
but not enforced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from millstream.datastream.streams.argument_checks import checked_count, checked_text, refuse
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.errors import NotAvailableError
from millstream.pyflink_names import add_pyflink_names

if TYPE_CHECKING:
    from typing import Self

__all__ = ["MemorySize", "SlotSharingGroup"]


class MemorySize:
    """A number of bytes.

    >>> MemorySize.of_mebi_bytes(3).get_kibi_bytes()
    3072
    >>> MemorySize(bytes_size=1024) == MemorySize(bytes_size=1 << 10)
    True
    """

    def __init__(self, j_memory_size: Any = None, bytes_size: int | None = None) -> None:
        no_java_object(self, j_memory_size)
        self._bytes = checked_count("MemorySize, bytes_size", bytes_size, least=0)

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        return MemorySize(bytes_size=checked_count("of_mebi_bytes", mebi_bytes, least=0) << 20)

    def get_bytes(self) -> int:
        return self._bytes

    def get_kibi_bytes(self) -> int:
        return self._bytes >> 10

    def get_mebi_bytes(self) -> int:
        return self._bytes >> 20

    def get_gibi_bytes(self) -> int:
        return self._bytes >> 30

    def get_tebi_bytes(self) -> int:
        return self._bytes >> 40

    def get_java_memory_size(self) -> NoReturn:
        raise NotAvailableError("MemorySize.get_java_memory_size: Millstream has no Flink JVM. Use get_bytes().")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySize) and self._bytes == other._bytes

    def __lt__(self, other: MemorySize) -> bool:
        return self._bytes < other._bytes

    def __le__(self, other: MemorySize) -> bool:
        return self._bytes <= other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __repr__(self) -> str:
        return f"MemorySize(bytes_size={self._bytes})"

    def __str__(self) -> str:
        return f"{self._bytes} bytes"


class SlotSharingGroup:
    """A named group of operators and its requested resources.

    >>> group = SlotSharingGroup.builder("heavy").set_cpu_cores(2.0).set_task_heap_memory_mb(512).build()
    >>> group.get_name(), group.get_cpu_cores(), group.get_task_heap_memory().get_mebi_bytes()
    ('heavy', 2.0, 512)
    """

    def __init__(self, j_slot_sharing_group: Any = None, *, builder: SlotSharingGroup.Builder | None = None) -> None:
        no_java_object(self, j_slot_sharing_group)
        if builder is None:
            raise refuse("SlotSharingGroup: create one with SlotSharingGroup.builder(name)...build()")
        self._name = builder._name
        self._cpu_cores = builder._cpu_cores
        self._memory = dict(builder._memory)
        self._external_resources = dict(builder._external_resources)

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        return SlotSharingGroup.Builder(name=checked_text("SlotSharingGroup.builder", name))

    def get_name(self) -> str:
        return self._name

    def get_managed_memory(self) -> MemorySize | None:
        return self._memory.get("managed")

    def get_task_heap_memory(self) -> MemorySize | None:
        return self._memory.get("task heap")

    def get_task_off_heap_memory(self) -> MemorySize | None:
        return self._memory.get("task off-heap")

    def get_cpu_cores(self) -> float | None:
        return self._cpu_cores

    def get_external_resources(self) -> dict[str, float]:
        return dict(self._external_resources)

    def get_java_slot_sharing_group(self) -> NoReturn:
        raise NotAvailableError(
            "SlotSharingGroup.get_java_slot_sharing_group: Millstream has no Flink JVM. Use the group."
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SlotSharingGroup) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"SlotSharingGroup({self._name!r})"

    class Builder:
        """Collects a group's resources."""

        def __init__(self, j_builder: Any = None, *, name: str = "") -> None:
            no_java_object(self, j_builder)
            self._name = name
            self._cpu_cores: float | None = None
            self._memory: dict[str, MemorySize] = {}
            self._external_resources: dict[str, float] = {}

        def set_cpu_cores(self, cpu_cores: float) -> Self:
            self._cpu_cores = _positive("set_cpu_cores", cpu_cores)
            return self

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> Self:
            return self._set_memory("task heap", task_heap_memory)

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> Self:
            return self._set_memory("task heap", MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> Self:
            return self._set_memory("task off-heap", task_off_heap_memory)

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> Self:
            return self._set_memory("task off-heap", MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> Self:
            return self._set_memory("managed", managed_memory)

        def set_managed_memory_mb(self, managed_memory_mb: int) -> Self:
            return self._set_memory("managed", MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> Self:
            self._external_resources[checked_text("set_external_resource", name)] = _positive(name, value)
            return self

        def _set_memory(self, kind: str, size: MemorySize) -> Self:
            if not isinstance(size, MemorySize):
                raise refuse(
                    f"{kind} memory: found {size!r}, expected a MemorySize, such as MemorySize.of_mebi_bytes(64)"
                )
            self._memory[kind] = size
            return self

        def build(self) -> SlotSharingGroup:
            if self._cpu_cores is None and self._memory:
                raise refuse(
                    f"slot sharing group '{self._name}': memory is set and cpu cores are not. Set both or none"
                )
            return SlotSharingGroup(builder=self)


def _positive(what: str, value: float) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return float(value)
    raise refuse(f"{what}: found {value!r}, expected a number above 0")


add_pyflink_names(globals())
