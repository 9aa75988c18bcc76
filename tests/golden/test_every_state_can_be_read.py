"""Every state of every test program is readable, at every retained epoch, and complete.

The reader's own tests check the rows; this one checks that no kind of state is unknown to it.
"""

from __future__ import annotations

import pickle
from itertools import count

import pytest
from programs.plain import PROGRAMS

from millstream import state_reader
from millstream.state_reader.verifying import verify
from millstream.testing import Collect, run

STORES = count()


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_every_state_of_a_program_is_readable_and_complete(name: str) -> None:
    store = f"test-every-state-{next(STORES)}"
    run(lambda env: PROGRAMS[name].add(env, Collect()), store=store, parallelism=2, epoch_records=3)
    reader = state_reader.open(f"memory://{store}")
    epochs = [info.epoch for info in reader.epochs()]
    before = reader.at(epoch=epochs[0])
    for epoch in epochs:
        with reader.at(epoch=epoch) as snapshot:
            for info in snapshot.states():
                rows = snapshot.read(info.uid, info.name, unpickle=pickle.loads)
                assert all(list(row) == rows.schema.names for row in rows)
                assert sum(before.diff(snapshot, info.uid, info.name).counts().values()) >= 0
    assert verify(f"memory://{store}").is_whole
