"""The program whose store with defaults is stored next to this file, in two versions. It must not be changed.

In the second version the state has two more fields with defaults: one typed, one untyped. The store was written by a
Millstream that stored defaults as a pickle (`defaults-1.zip`): four records by the first version, two by the second.
Created with that Millstream by:

    store = MemoryStore("defaults")
    for version, epochs in ((1, 2), (2, 4)):
        run(lambda env: build(env, Collect(), version), store="defaults", epochs=epochs, job_name="defaults")
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.testing import EPOCH, Collect, Script

__all__ = ["build"]

RECORDS = [("a", 1), ("b", 2), EPOCH, ("c", 3), ("d", 4), EPOCH, ("a", 5), ("e", 6), EPOCH, ("b", 7), ("c", 8), EPOCH]


def visits(version: int) -> ValueStateDescriptor:
    """The state's type in this version."""
    if version == 1:
        return ValueStateDescriptor("visit", Types.ROW_NAMED(["last"], [Types.LONG()]))
    types = [Types.LONG(), Types.LONG(), Types.PICKLED_BYTE_ARRAY()]
    later = ValueStateDescriptor("visit", Types.ROW_NAMED(["last", "count", "notes"], types))
    return later.evolve(defaults={"count": 7, "notes": {"from": "before"}})


class Visit(KeyedProcessFunction):
    """Emits the key's state, then stores the record."""

    def __init__(self, version: int) -> None:
        self.version = version

    def open(self, runtime_context: Any) -> None:
        self.visit = runtime_context.get_state(visits(self.version))

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterable[Any]:
        held = self.visit.value()
        yield repr((value[0], None if held is None else tuple(held)))
        self.visit.update((value[1],) if self.version == 1 else (value[1], 1, None))


def build(env: StreamExecutionEnvironment, out: Collect, version: int) -> None:
    """Add the program."""
    records = env.add_source(Script(RECORDS, type_info=Types.TUPLE([Types.STRING(), Types.LONG()]))).uid("records")
    visits = records.key_by(lambda record: record[0], Types.STRING()).process(Visit(version), Types.STRING())
    visits.uid("visits").name("count visits").sink_to(out).uid("out")
