"""Real kills of a SQL job from a changelog into a topic by key: its last messages are the table, and none comes twice.

`MILLSTREAM_KILL_UPSERT_SEEDS` says how many seeds (1 by default), `MILLSTREAM_KILL_FIRST_SEED` where to begin.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import upsert_program as program
from confluent_kafka import Producer
from killing import FINISHED, FIRST, PHASE_TIMEOUT_S, ROOT, Strike, strike_down
from process_session import ProcessSession
from servers.committed_topics import read_topic
from servers.kafka import KafkaBroker

SEEDS = range(FIRST, FIRST + int(os.environ.get("MILLSTREAM_KILL_UPSERT_SEEDS", "1")))


def start(folder: Path, *arguments: str) -> ProcessSession:
    script = Path(program.__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(script.parent)])}
    command = [sys.executable, str(script), str(folder / "store"), *arguments]
    return ProcessSession(command, environment, folder, folder / "stderr.log")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_last_message_of_every_key_is_its_row_and_no_message_comes_twice(
    seed: int, tmp_path: Path, kafka_broker: KafkaBroker, unique_name: str
) -> None:
    rng = random.Random(f"millstream-upserts-{seed}")
    source = kafka_broker.create_topic(f"{unique_name}-in", 1)
    target = kafka_broker.create_topic(unique_name, 2)
    messages, expected = program.changelog(seed)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    for message in messages:
        producer.produce(source, message)
    producer.flush()
    first, second = rng.sample([1, 2, 3], 2)
    strike = Strike(rng.randrange(1, 7), round(rng.random() * 1.2, 3))
    history = strike_down(start(tmp_path, kafka_broker.bootstrap, source, target, str(first)), strike)
    print(f"seed {seed}: {first} → {second} tasks, {strike}: {history}")
    if history != FINISHED:
        start(tmp_path, kafka_broker.bootstrap, source, target, str(second)).run_out(PHASE_TIMEOUT_S)
    told: dict[str, list[Any]] = defaultdict(list)
    for message in read_topic(kafka_broker.bootstrap, target):
        told[json.loads(message.key)["name"]].append(None if message.value is None else json.loads(message.value))
    for name, values in told.items():
        assert all(one != other for one, other in pairwise(values)), f"{name} twice: {history}"
    found = {name: (values[-1]["c"], values[-1]["n"]) for name, values in told.items() if values[-1] is not None}
    assert found == expected, history
    assert any(None in values for values in told.values()), "some groups should have gone"
