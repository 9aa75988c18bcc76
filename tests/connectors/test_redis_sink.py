"""RedisSink on a real Redis: every command runs once, through crashes between any two of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from servers.redis import RedisServer

from millstream.common import Row, RowKind, Types
from millstream.connectors.contracts import CommitId, Sink, WriterContext
from millstream.connectors.redis import sink as redis_sink
from millstream.connectors.redis.commands import RunCommands
from millstream.datastream.connectors.redis import RedisSink
from millstream.datastream.formats.json import JsonRowSerializationSchema
from millstream.errors import ConnectorAwayError, ConnectorError, MillstreamError, ProgramError
from millstream.records.batch import Batch
from millstream.storage.memory import MemoryStore
from millstream.testing import CRASH, Script, run

CLICKS = Types.ROW_NAMED(["ad", "clicks", "share"], [Types.STRING(), Types.LONG(), Types.FLOAT()])


@pytest.fixture
def client(redis_server: RedisServer) -> Any:
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        client.flushdb()
        yield client


def written(rows: list[Any], sink: RedisSink, type_info: Any = CLICKS) -> None:
    run(lambda env: env.from_collection(rows, type_info).sink_to(sink))


def test_a_value_per_key_is_its_fields_text(redis_server: RedisServer, client: Any) -> None:
    rows = [Row("a", 1, 1.1), Row("b", 2, None), Row("a", 3, 0.5)]
    written(rows, RedisSink.values(redis_server.url, key="ad", value="clicks", prefix="n:"))
    written(rows, RedisSink.values(redis_server.url, key=0, value="share", prefix="share:", expire_s=1_000))
    assert client.mget("n:a", "n:b", "share:a", "share:b") == ["3", "2", "0.5", None]
    assert 0 < client.ttl("share:a") <= 1_000


def test_a_whole_record_is_written_by_its_schema(redis_server: RedisServer, client: Any) -> None:
    schema = JsonRowSerializationSchema.builder().with_type_info(CLICKS).build()
    written([Row("ä", 1, 0.5)], RedisSink.values(redis_server.url, key=lambda row: row["ad"], schema=schema))
    assert client.get("ä") == '{"ad":"ä","clicks":1,"share":0.5}'


def test_a_hash_has_the_other_fields_and_drops_those_that_became_none(redis_server: RedisServer, client: Any) -> None:
    sink = RedisSink.hashes(redis_server.url, key="ad", prefix="ad:")
    written([Row("a", 1, 1.5), Row("a", 2, None), Row("b", None, None)], sink)
    assert client.hgetall("ad:a") == {"clicks": "2"} and not client.exists("ad:b")


def test_a_deleted_row_deletes_its_key_and_the_old_half_of_an_update_does_nothing(
    redis_server: RedisServer, client: Any
) -> None:
    gone, before = Row("a", 1, 0.0), Row("b", 1, 0.0)
    gone.set_row_kind(RowKind.DELETE)
    before.set_row_kind(RowKind.UPDATE_BEFORE)
    rows = [Row("a", 1, 0.0), gone, Row("b", 7, 0.0), before]
    written(rows, RedisSink.values(redis_server.url, key="ad", value="clicks"))
    written(rows, RedisSink.hashes(redis_server.url, key="ad", prefix="h:"))
    assert (client.get("a"), client.get("b")) == (None, "7")
    assert not client.exists("h:a") and client.hgetall("h:b") == {"clicks": "7", "share": "0.0"}


def test_a_stream_has_an_entry_per_record_in_order(redis_server: RedisServer, client: Any) -> None:
    written([Row("a", 1, None), Row("b", 2, 0.5)], RedisSink.stream(redis_server.url, "clicks"))
    written(["x", "y"], RedisSink.stream(redis_server.url, "texts"), Types.STRING())
    assert [fields for _, fields in client.xrange("clicks")] == [
        {"ad": "a", "clicks": "1"},
        {"ad": "b", "clicks": "2", "share": "0.5"},
    ]
    assert [fields for _, fields in client.xrange("texts")] == [{"value": "x"}, {"value": "y"}]


def test_incrementing_commands_run_once_through_crashes_of_the_job(redis_server: RedisServer, client: Any) -> None:
    """INCRBY is not idempotent: a command that runs twice is visible."""
    sink = RedisSink.commands(redis_server.url, lambda n: [("INCRBY", "sum", n), ("RPUSH", "all", n)])
    run(lambda env: env.add_source(Script([1, 2, CRASH, 3, CRASH, 4])).sink_to(sink))
    assert client.get("sum") == "10" and client.lrange("all", 0, -1) == ["1", "2", "3", "4"]


# --- between any two commands --------------------------------------------------------------------------------------


def staged(sink: Sink, store: MemoryStore, values: list[Any], epoch: int = 1) -> Any:
    context = WriterContext("out", epoch, 0, 1, "n", store, 0, None, "job")
    writer = sink.writer(context)
    writer.write(Batch.of_values(values, None))
    return writer.stage()


def counting_sink(url: str) -> redis_sink.RedisSink:
    return redis_sink.RedisSink(url, RunCommands(lambda n: ("RPUSH", "all", n)))


@pytest.mark.parametrize("cut_after", range(8))
def test_a_commit_cut_anywhere_is_resumed_there(
    redis_server: RedisServer, client: Any, monkeypatch: pytest.MonkeyPatch, cut_after: int
) -> None:
    """Scripts of two commands each; the connection is lost before the script, or after it, before the response
    arrives.
    """
    monkeypatch.setattr(redis_sink, "_COMMANDS_AT_ONCE", 2)
    store, sink, commit = MemoryStore("cut"), counting_sink(redis_server.url), CommitId("job", "out", 1)
    publish = staged(sink, store, list(range(7)))
    calls = 0
    evaluated = redis.client.Script.__call__

    def cut(script: Any, *given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls * 2 - 1 > cut_after:
            raise redis.ConnectionError("cut before")
        answer = evaluated(script, *given, **named)
        if calls * 2 > cut_after:
            raise redis.ConnectionError("cut after")
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(redis.client.Script, "__call__", cut)
        with pytest.raises(ConnectorAwayError):
            sink.commit(commit, publish, store)
    counting_sink(redis_server.url).commit(commit, publish, store)
    counting_sink(redis_server.url).commit(commit, publish, store)
    assert client.lrange("all", 0, -1) == [str(n) for n in range(7)]


def test_a_replaced_driver_runs_nothing_and_other_jobs_are_unaffected(redis_server: RedisServer, client: Any) -> None:
    store, sink = MemoryStore("two"), counting_sink(redis_server.url)
    old, new = staged(sink, store, ["old"], 1), staged(sink, store, ["new"], 2)
    sink.commit(CommitId("job", "out", 2), new, store)
    sink.commit(CommitId("job", "out", 1), old, store)
    sink.commit(CommitId("other", "out", 1), old, store)
    assert client.lrange("all", 0, -1) == ["new", "old"]


def test_two_concurrent_drivers_run_every_command_once(
    redis_server: RedisServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_sink, "_COMMANDS_AT_ONCE", 3)
    store, first, second = MemoryStore("race"), counting_sink(redis_server.url), counting_sink(redis_server.url)
    publish, commit = staged(first, store, list(range(20))), CommitId("job", "out", 1)
    evaluated = redis.client.Script.__call__
    meddled = False

    def meddle(script: Any, *given: Any, **named: Any) -> Any:
        nonlocal meddled
        if not meddled:
            meddled = True
            second.commit(commit, publish, store)  # between the first driver's check and its script
        return evaluated(script, *given, **named)

    monkeypatch.setattr(redis.client.Script, "__call__", meddle)
    with pytest.raises(ConnectorAwayError, match=r"another driver publishes job\.out\.000000000001 too"):
        first.commit(commit, publish, store)
    first.commit(commit, publish, store)
    assert client.lrange("all", 0, -1) == [str(n) for n in range(20)]


def test_a_rejected_command_is_reported_and_earlier_ones_do_not_run_again(
    redis_server: RedisServer, client: Any
) -> None:
    client.set("wrong", "a text")
    commands = [("RPUSH", "all", "1"), ("RPUSH", "wrong", "2"), ("RPUSH", "all", "3")]
    store = MemoryStore("refused")
    sink = redis_sink.RedisSink(redis_server.url, RunCommands(lambda n: commands[n]))
    publish, commit = staged(sink, store, [0, 1, 2]), CommitId("job", "out", 1)
    for _ in range(2):
        with pytest.raises(ConnectorError, match=r"refuses the command 'RPUSH' 'wrong' '2': WRONGTYPE.*not run again"):
            sink.commit(commit, publish, store)
    client.delete("wrong")
    sink.commit(commit, publish, store)
    assert client.lrange("all", 0, -1) == ["1", "3"] and client.lrange("wrong", 0, -1) == ["2"]


def test_commands_unsupported_in_scripts_are_rejected_before_the_commit(redis_server: RedisServer) -> None:
    """A script that fails half-way has run commands that no mark records: they would run again."""
    sink = redis_sink.RedisSink(redis_server.url, RunCommands(lambda command: command))
    store = MemoryStore("script")
    with pytest.raises(
        ProgramError, match=r"'SADD' has 9,002 arguments, expected 7,000 at most. Divide it into several"
    ):
        staged(sink, store, [("INCR", "n"), ("SADD", "s", *range(9_000))])
    for name in ("SELECT", "select", "SWAPDB"):
        with pytest.raises(ProgramError, match=r"run in one database\. Put its number at the end of the URL"):
            staged(sink, store, [("INCR", "n"), (name, 1)])


def test_the_longest_accepted_command_runs(redis_server: RedisServer, client: Any) -> None:
    sink, store = redis_sink.RedisSink(redis_server.url, RunCommands(lambda command: command)), MemoryStore("long")
    publish = staged(sink, store, [("INCR", "n"), ("SADD", "s", *range(6_998)), ("INCR", "n")])
    sink.commit(CommitId("job", "out", 1), publish, store)
    assert (client.scard("s"), client.get("n")) == (6_998, "2")


def test_large_commands_are_run_a_few_at_a_time(
    redis_server: RedisServer, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_sink, "_SCRIPT_BYTES_MAX", 1_000)
    store = MemoryStore("large")
    sink = redis_sink.RedisSink(redis_server.url, RunCommands(lambda n: ("RPUSH", "all", "x" * n)))
    publish, sizes = staged(sink, store, [900, 900, 5_000, 10, 10]), list[int]()
    evaluated = redis.client.Script.__call__

    def measured(script: Any, *given: Any, **named: Any) -> Any:
        sizes.append(sum(len(part) for part in named["args"] if isinstance(part, bytes)))
        return evaluated(script, *given, **named)

    monkeypatch.setattr(redis.client.Script, "__call__", measured)
    sink.commit(CommitId("job", "out", 1), publish, store)
    assert sizes == [1_816, 5_008, 36]
    assert [len(text) for text in client.lrange("all", 0, -1)] == [900, 900, 5_000, 10, 10]


# --- server outages and rejections ---------------------------------------------------------------------------------


def test_a_killed_server_loses_and_duplicates_nothing(redis_server: RedisServer, client: Any) -> None:
    store, sink = MemoryStore("killed"), counting_sink(redis_server.url)
    first, second = staged(sink, store, [1, 2], 1), staged(sink, store, [3], 2)
    sink.commit(CommitId("job", "out", 1), first, store)
    redis_server.kill()
    with pytest.raises(ConnectorAwayError, match=r"Redis at 127\.0\.0\.1:\d+ does not answer"):
        sink.commit(CommitId("job", "out", 2), second, store)
    redis_server.restart()
    sink.commit(CommitId("job", "out", 1), first, store)
    sink.commit(CommitId("job", "out", 2), second, store)
    assert client.lrange("all", 0, -1) == ["1", "2", "3"]


@pytest.mark.parametrize("setting, bad, good", [("min-replicas-to-write", "1", "0"), ("maxmemory", "1", "0")])
def test_a_temporarily_read_only_server_is_retried(
    redis_server: RedisServer, client: Any, setting: str, bad: str, good: str
) -> None:
    store, sink, commit = MemoryStore("now"), counting_sink(redis_server.url), CommitId("job", "out", 1)
    publish = staged(sink, store, [1, 2])
    client.config_set(setting, bad)
    try:
        for _ in range(2):
            with pytest.raises(ConnectorAwayError, match=r"Redis at .* does not accept writes now"):
                sink.commit(commit, publish, store)
    finally:
        client.config_set(setting, good)
    sink.commit(commit, publish, store)
    assert client.lrange("all", 0, -1) == ["1", "2"]


def test_a_wrong_redis_password_is_reported_at_the_start_and_not_shown(redis_server: RedisServer, client: Any) -> None:
    url = redis_server.url.replace("redis://", "redis://eve:s3cret@")
    with pytest.raises(MillstreamError, match="denied access") as caught:
        written([Row("a", 1, 0.0)], RedisSink.values(url, key="ad", value="clicks"))
    assert "s3cret" not in str(caught.value) and "s3cret" not in repr(RedisSink.values(url, key="ad", value="clicks"))


WRONG: list[tuple[Callable[[str], RedisSink], str]] = [
    (lambda url: RedisSink.values(url, key="ad"), "pass value=, a field, or schema="),
    (lambda url: RedisSink.values("http://x", key="ad", value="clicks"), "expected redis://"),
    (lambda url: RedisSink.values(url, key="add", value="clicks"), "has no field 'add'. Its fields are"),
    (lambda url: RedisSink.values(url, key=lambda row: None, value="clicks"), "is None, but Redis keys cannot be None"),
    (lambda url: RedisSink.commands(url, "INCR"), "expected a function of a record"),  # type: ignore[arg-type]
    (lambda url: RedisSink.commands(url, lambda row: "INCR"), r"returned 'INCR' for .*expected a tuple such as"),
    (lambda url: RedisSink.commands(url, lambda row: ("SET", "a", None)), "holds None .*expected text, bytes"),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_an_invalid_sink_is_rejected_with_the_expectation(
    redis_server: RedisServer, client: Any, make: Callable[[str], RedisSink], message: str
) -> None:
    with pytest.raises((ProgramError, MillstreamError), match=message):
        written([Row("a", 1, 0.0)], make(redis_server.url))
    assert client.dbsize() == 0
