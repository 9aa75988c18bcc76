"""Accessing a missing attribute of an API object raises an AttributeError that names the alternative."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from millstream.common import Time
from millstream.datastream import KeyedStream, StreamExecutionEnvironment
from millstream.datastream.streams.stream import DataStream
from millstream.datastream.window import TumblingProcessingTimeWindows
from millstream.errors import MissingNameError, ProgramError

WINDOW = TumblingProcessingTimeWindows.of(Time.seconds(1))


def stream() -> DataStream:
    return StreamExecutionEnvironment.get_execution_environment().from_collection([("a", 1)])


def keyed() -> KeyedStream:
    return stream().key_by(lambda r: r[0])


ENV_STREAM, ENV_KEYED = stream(), keyed()
OWNERS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "a misspelt method": (stream, "mapp", "Did you mean 'map'?"),
    "Java's spelling": (stream, "flatMap", "Did you mean 'flat_map'?"),
    "another library's": (stream, "group_by", "Here it is called 'key_by'"),
    "of the environment": (stream, "execute", r"env.execute\(...\)"),
    "of windows": (stream, "aggregate", r"Call key_by\(...\).window\(...\) before it"),
    "of windows, keyed": (keyed, "aggregate", r"Call window\(...\) before it"),
    "of a stream, on a sink": (lambda: stream().print(), "map", "A sink ends its stream"),
    "of a stream, on windows": (lambda: keyed().window(WINDOW), "print", "an operation on the windows"),
    "of a stream, on two": (lambda: ENV_STREAM.connect(ENV_STREAM), "print", "The two become one stream by map"),
    "of a stream, on none": (stream().get_execution_environment, "map", "Begin with a source"),
    "nothing like it": (lambda: ENV_KEYED.interval_join(ENV_KEYED), "qqq", "It has between, in_event_time"),
}


@pytest.mark.parametrize("name", OWNERS)
def test_a_missing_attribute_names_the_alternative(name: str) -> None:
    owner, missing, words = OWNERS[name]
    with pytest.raises(MissingNameError, match=words) as caught:
        getattr(owner(), missing)
    assert "test_missing_names.py:" in str(caught.value)
    assert isinstance(caught.value, AttributeError) and isinstance(caught.value, ProgramError)


@pytest.mark.parametrize("name", sorted(name for name in vars(KeyedStream) if not name.startswith("_")))
def test_keyed_stream_methods_on_an_unkeyed_stream_advise_key_by(name: str) -> None:
    if hasattr(DataStream, name):
        return
    with pytest.raises(MissingNameError, match=rf"DataStream has no '{name}'. Call key_by\(...\) before it"):
        getattr(stream(), name)


def test_hasattr_and_getattr_with_a_default_behave_as_usual() -> None:
    source = stream()
    assert not hasattr(source, "reduce") and getattr(source, "reduce", None) is None
    assert copy.copy(source).get_name() == source.get_name()
    with pytest.raises(AttributeError):
        source.__length_hint__  # noqa: B018
    # A partially initialised object, as during unpickling, must not recurse infinitely.
    assert not hasattr(object.__new__(DataStream), "_edges")
