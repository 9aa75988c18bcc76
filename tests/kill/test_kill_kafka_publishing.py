"""Publishing to Kafka killed at any moment, again and again, beside a second publisher and with the broker killed too.

No Spark is needed for it, so a run kills much more often than the whole job's test does (`test_kill_kafka`).
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import kafka_publisher as publisher
import pytest
from inputs.fresh_names import fresh_name
from killing import FIRST, ROOT
from process_session import ProcessSession
from servers.committed_topics import read_topic
from servers.kafka import KafkaBroker
from waits.patience import PATIENCE_S

SEEDS = range(FIRST, FIRST + max(1, int(os.environ.get("MILLSTREAM_KILL_SEEDS", "10")) // 5))
KILLS_MAX = 12


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_publisher_killed_anywhere_leaves_every_message_once_and_in_order(
    seed: int, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    rng = random.Random(f"publishing-{seed}")
    topic = kafka_broker.create_topic(fresh_name("p"), 2)
    receipts = tmp_path / "receipts"
    receipts.mkdir()
    command = [sys.executable, publisher.__file__, kafka_broker.bootstrap, topic, str(receipts), f"job-{topic}"]
    paths = os.pathsep.join([str(ROOT / "src"), str(Path(publisher.__file__).parent)])

    def started() -> ProcessSession:
        return ProcessSession(command, {**os.environ, "PYTHONPATH": paths}, tmp_path, tmp_path / "stderr.log")

    history = []
    for _ in range(KILLS_MAX):
        processes = [started() for _ in range(2 if rng.random() < 0.25 else 1)]
        assert all(process.next_line(PATIENCE_S) == "READY" for process in processes)
        # Some epochs further, then anywhere in the next one; at the start, anywhere in the first steps of a lane.
        epochs = rng.randrange(6)
        while epochs and (line := processes[0].next_line(PATIENCE_S)) is not None:
            epochs -= line.startswith("EPOCH")
        time.sleep(rng.random() * rng.choice((0.02, 0.1, 0.6)))
        if rng.random() < 0.15:
            kafka_broker.kill()
            kafka_broker.start()
        for process in processes:
            process.kill()
        history.append(f"{len(processes)} killed at epoch {len(list(receipts.iterdir()))}")
        if len(list(receipts.iterdir())) == publisher.EPOCHS:
            break
    started().run_out(PATIENCE_S)
    print(f"seed {seed}: {history}")
    results: dict[str, list[str]] = {}
    for message in read_topic(kafka_broker.bootstrap, topic):
        assert message.key is not None and message.value is not None
        results.setdefault(message.key.decode(), []).append(message.value.decode())
    assert results == publisher.expected(), f"seed {seed}: {history}"
