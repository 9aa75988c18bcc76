"""The program of docs/connectors/kafka-sink.md writes the documented messages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from servers.committed_topics import read_topic
from servers.kafka import KafkaBroker

from millstream.testing import run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "connectors" / "kafka-sink.md"


def test_the_page_s_program_writes_keyed_json(kafka_broker: KafkaBroker) -> None:
    match = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None
    topic = kafka_broker.create_topic("totals", 2)
    names: dict[str, Any] = {"BROKER": kafka_broker.bootstrap}
    exec(match.group(1), names)
    run(names["write_totals"])
    messages = read_topic(kafka_broker.bootstrap, topic)
    assert sorted((message.key, message.value) for message in messages) == [
        (b"ann", b'{"user":"ann","cents":250}'),
        (b"ann", b'{"user":"ann","cents":300}'),
        (b"bob", b'{"user":"bob","cents":90}'),
    ]
