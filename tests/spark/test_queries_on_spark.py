"""A job answers questions about its state while Spark runs it."""

from __future__ import annotations

import time
from pathlib import Path

from millstream.common import Configuration, Types
from millstream.common.job_status import JobStatus
from millstream.datastream import StreamExecutionEnvironment
from millstream.query.client import QueryClient
from millstream.query.wire.servers import registrations_of
from millstream.storage import open_store
from millstream.testing import EPOCH, Script

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def test_a_running_job_is_asked_at_the_address_in_its_store(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"

    def held(pair: tuple[str, int]) -> tuple[str, int]:
        while pair[0] == "held" and not go_on.exists():
            time.sleep(0.02)
        return pair

    env.configure(Configuration().set_string("millstream.query.listen", "127.0.0.1:0"))
    source = Script([("a", 1), ("b", 2), EPOCH, ("held", 0), ("a", 3), EPOCH, ("a", 4)], type_info=PAIR)
    pairs = env.add_source(source).map(held, PAIR)
    pairs.key_by(lambda pair: pair[0], Types.STRING()).as_queryable_state("last")
    folder = str(tmp_path / "store")
    job = env.execute_async("asked on spark")
    try:
        with QueryClient(folder, timeout_s=120) as client:
            first = client.get_many("last", ["a", "b", "held"])
            assert [answer.value for answer in first] == [["a", 1], ["b", 2], None]
            assert {answer.epoch for answer in first} == {1}
    finally:
        go_on.touch()
    job.get_job_execution_result().result()
    assert job.get_job_status().result() is JobStatus.FINISHED
    assert registrations_of(open_store(folder)) == []
