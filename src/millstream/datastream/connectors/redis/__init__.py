"""Writes results to Redis, exactly once (beyond PyFlink): `pip install millstream[redis]`.

Four forms, each a sink for `stream.sink_to(...)`. Keys and values are fields of the stream's rows, by name or position,
or functions of the record. A deleted row deletes its key.

>>> sink = RedisSink.values("redis://localhost", key="ad", value="clicks", prefix="clicks:")
>>> RedisSink.commands("redis://localhost", lambda click: ("HINCRBY", "clicks", click["ad"], 1))
RedisSink(redis localhost:6379, commands)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.serialization import SerializationSchema
from millstream.connectors.redis import sink as redis_sink
from millstream.connectors.redis.commands import AddToStream, CommandMaker, Field, RunCommands, SetHashes, SetValues
from millstream.datastream.connectors.base import Sink
from millstream.datastream.streams.argument_checks import at_users_line, refuse

__all__ = ["RedisSink"]


class RedisSink(Sink):
    """Create it with `values`, `hashes`, `stream` or `commands`."""

    def __init__(self, url: str, maker: CommandMaker, timeout_s: float = 10.0) -> None:
        if not isinstance(maker, CommandMaker):
            raise refuse(
                "RedisSink: create one with RedisSink.values(...), .hashes(...), .stream(...) or .commands(...)"
            )
        with at_users_line():
            self._sink = redis_sink.RedisSink(url, maker, timeout_s)
        super().__init__(self._sink)

    def __repr__(self) -> str:
        return f"RedisSink({self._sink.describe()})"

    @staticmethod
    def values(
        url: str,
        key: Field,
        value: Field | None = None,
        *,
        schema: SerializationSchema | None = None,
        prefix: str = "",
        expire_s: int | None = None,
    ) -> RedisSink:
        """One value per key: a field, or the whole record as serialised by `schema`."""
        if (value is None) == (schema is None):
            raise refuse("RedisSink.values: pass value=, a field, or schema=, which writes the whole record")
        return RedisSink(url, SetValues(key, value, schema, prefix, expire_s))

    @staticmethod
    def hashes(url: str, key: Field, *, prefix: str = "", expire_s: int | None = None) -> RedisSink:
        """One hash per key, with the row's other fields."""
        return RedisSink(url, SetHashes(key, prefix, expire_s))

    @staticmethod
    def stream(
        url: str, name: str, *, schema: SerializationSchema | None = None, length_max: int | None = None
    ) -> RedisSink:
        """One Redis stream entry per record: its fields, or the record as serialised by `schema` in `value`."""
        return RedisSink(url, AddToStream(name, schema, length_max))

    @staticmethod
    def commands(url: str, function: Callable[[Any], Any]) -> RedisSink:
        """Arbitrary commands: `function` returns a tuple such as `("INCRBY", "total", 3)`, a list of tuples, or
        None."""
        if not callable(function):
            raise refuse(f"RedisSink.commands: found {function!r}, expected a function of a record")
        return RedisSink(url, RunCommands(function))
