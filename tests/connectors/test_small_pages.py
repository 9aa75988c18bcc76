"""The programs of the pages on small connectors run as printed, against real servers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pika
import redis
from servers.http_service import HttpService
from servers.moto import MotoServer
from servers.rabbitmq import RabbitServer
from servers.redis import RedisServer

from millstream.testing import run

PAGES = Path(__file__).resolve().parents[2] / "docs" / "connectors"


def defined(page: str, **names: Any) -> dict[str, Any]:
    """The definitions of a page, with these names predefined."""
    for block in re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, page, "exec"), names)
    return names


def test_the_redis_pages_program_writes_the_documented_values(redis_server: RedisServer) -> None:
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        client.flushdb()
        run(defined("redis.md", URL=redis_server.url)["write_values"])
        assert client.get("clicks:a") == "3" and client.hgetall("ad:a") == {"clicks": "3", "share": "0.75"}
        assert client.xrange("clicks")[0][1] == {"ad": "a", "clicks": "3", "share": "0.75"}
        assert client.get("total") == "4"


def test_the_http_pages_program_sends_the_documented_requests(http_service: HttpService) -> None:
    run(defined("http.md", URL=http_service.url, TOKEN="t")["send_alerts"])
    [(_, headers, body)] = http_service.requests
    assert json.loads(body) == [{"card": "4711", "cents": 90_000}, {"card": "0815", "cents": 120_000}]
    assert headers["authorization"] == "Bearer t" and headers["idempotency-key"]


def test_the_rabbitmq_pages_programs_run(rabbit_server: RabbitServer) -> None:
    names = defined("rabbitmq.md", HOST="127.0.0.1", PORT=rabbit_server.port)
    connection = rabbit_server.connect()
    channel = connection.channel()
    for queue in ("orders", "shouted"):
        channel.queue_declare(queue, durable=True)
    channel.basic_publish("", "orders", b"tea", pika.BasicProperties(correlation_id="1"))
    run(names["shout"], epochs=1)
    assert channel.basic_get("shouted", auto_ack=True)[2] == b"TEA"
    connection.close()


def test_the_kinesis_pages_programs_run(moto_server: MotoServer) -> None:
    keys = {"ACCESS_KEY": moto_server.access_key, "SECRET_KEY": moto_server.secret_key}
    names = defined("kinesis.md", REGION=moto_server.region, ENDPOINT=moto_server.url, **keys)
    client = moto_server.client("kinesis")
    for stream in ("orders", "shouted"):
        client.create_stream(StreamName=stream, ShardCount=1)
    client.put_record(StreamName="orders", Data=b"tea", PartitionKey="1")
    run(names["shout"], epochs=1)
    at = client.get_shard_iterator(
        StreamName="shouted", ShardId="shardId-000000000000", ShardIteratorType="TRIM_HORIZON"
    )
    [record] = client.get_records(ShardIterator=at["ShardIterator"])["Records"]
    assert (record["Data"], record["PartitionKey"]) == (b"TEA", "TEA")
