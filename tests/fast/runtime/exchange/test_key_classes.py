"""Keys of classes that the program defines, in a worker that outlives the program."""

from __future__ import annotations

import pickle
from typing import Any

from millstream.runtime.exchange.key_classes import decode_key
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import JobFacts
from millstream.state.keys.canonical import canonical_bytes
from millstream.storage.memory import MemoryStore

CELL = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Account:
    number: int
"""


def class_of_a_cell() -> Any:
    """The class that running the cell defines: another one each time, of the same name."""
    names: dict[str, Any] = {"__name__": "a_notebook"}
    exec(compile(CELL, "cell", "exec", dont_inherit=True), names)
    return names["Account"]


def test_a_program_that_is_run_again_gets_keys_of_its_own_class() -> None:
    before = class_of_a_cell()
    stored = canonical_bytes(before(1))
    assert decode_key(stored) == before(1)
    now = class_of_a_cell()
    ShippedJob(pickle.dumps(None), JobFacts("job", "id", "run", MemoryStore("key-classes"))).plan()
    assert decode_key(stored) == now(1) and canonical_bytes(now(1)) == stored
