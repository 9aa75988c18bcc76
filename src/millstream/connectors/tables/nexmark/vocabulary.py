"""Pools of strings, generated once per process; an event selects a string of a pool by its number.

Generating a string costs more than all the numbers of an event; a string from a pool costs a copy. Pools hold
thousands of strings, so that operations on distinct values behave as with other data.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa

from millstream.connectors.tables.random_numbers import below, salt_of

__all__ = ["channels", "cities", "credit_cards", "emails", "letters", "names", "states", "urls"]

POOL = 16_384
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
COLD_CHANNELS = 10_000
_FIRST_NAMES = ("Ada", "Bruno", "Chiara", "Dev", "Elif", "Farid", "Greta", "Hana", "Ivo", "June", "Kofi")
_LAST_NAMES = ("Abel", "Brandt", "Costa", "Dahl", "Eriksen", "Fofana", "Garcia", "Hughes", "Ito")
_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Cheyenne")
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")


@cache
def names() -> pa.Array:
    return pa.array([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])


@cache
def cities() -> pa.Array:
    return pa.array(_CITIES)


@cache
def states() -> pa.Array:
    return pa.array(_STATES)


@cache
def emails() -> pa.Array:
    users, hosts = letters("user", POOL, 7, 7).to_pylist(), letters("host", POOL, 5, 5).to_pylist()
    return pa.array([f"{user}@{host}.com" for user, host in zip(users, hosts, strict=True)])


@cache
def credit_cards() -> pa.Array:
    parts = [below(np.arange(POOL), 101 + part, 10_000).tolist() for part in range(4)]
    return pa.array([" ".join(f"{part:04d}" for part in each) for each in zip(*parts, strict=True)])


@cache
def channels() -> pa.Array:
    """The hot channels, then all others."""
    return pa.array([*HOT_CHANNELS, *(f"channel-{number}" for number in range(COLD_CHANNELS))])


@cache
def urls() -> pa.Array:
    """The address of each channel. Nine of ten cold ones contain the channel id."""
    count = len(HOT_CHANNELS) + COLD_CHANNELS
    folders = [letters(f"folder {part}", count, 3, 5).to_pylist() for part in range(3)]
    have_ids = below(np.arange(count), 31, 10) > 0
    channel_ids = below(np.arange(count), 32, 1 << 31)
    texts = []
    for number in range(count):
        path = "/".join(folder[number] for folder in folders)
        has_id = number >= len(HOT_CHANNELS) and have_ids[number]
        channel = f"&channel_id={channel_ids[number]}" if has_id else ""
        texts.append(f"https://www.nexmark.com/{path}/item.htm?query=1{channel}")
    return pa.array(texts)


@cache
def letters(name: str, count: int, shortest: int, longest: int) -> pa.Array:
    """`count` strings of lower-case letters.

    >>> letters("doc", 2, 3, 3).to_pylist() == letters("doc", 2, 3, 3).to_pylist()
    True
    """
    salt = salt_of(name)
    lengths = shortest + below(np.arange(count), salt, longest - shortest + 1)
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    text = (below(np.arange(int(offsets[-1])), salt + 1, 26) + ord("a")).astype(np.uint8)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))
