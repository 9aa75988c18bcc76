"""Key groups: the fixed number of buckets that state is kept in, whatever the parallelism.

    key_group = hash mod max_parallelism            partition = key_group * parallelism // max_parallelism

A key's group never changes while the job lives, so `max_parallelism` is fixed by its first epoch. A
partition owns a contiguous range of groups: at a new parallelism it reads other ranges of the same
segments, and nothing is rewritten. Invariant: the ranges of all partitions cover every group exactly once.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from millstream.errors import ConfigurationError
from millstream.state.keys.xxh64 import Int64s

__all__ = ["MAX_PARALLELISM_MAX", "Int32s", "check_parallelism", "key_group_range", "key_groups", "partitions"]

Int32s: TypeAlias = NDArray[np.int32]

MAX_PARALLELISM_MAX = 32_768
"""Flink's own limit: more groups than this make every checkpoint pay for their bookkeeping."""


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Refuses what cannot be divided: 1 <= parallelism <= max_parallelism <= 32768 must hold.

    >>> check_parallelism(256, 128)
    Traceback (most recent call last):
    millstream.errors.ConfigurationError: parallelism is 256, above the maximum parallelism 128. Lower it, \
or set pipeline.max-parallelism before the job's first epoch.
    """
    if not 1 <= max_parallelism <= MAX_PARALLELISM_MAX:
        raise ConfigurationError(
            f"the maximum parallelism is {max_parallelism}, expected 1 to {MAX_PARALLELISM_MAX}. "
            "Set pipeline.max-parallelism within these."
        )
    if parallelism < 1:
        raise ConfigurationError(f"parallelism is {parallelism}, expected 1 or more. Set parallelism.default.")
    if parallelism > max_parallelism:
        raise ConfigurationError(
            f"parallelism is {parallelism}, above the maximum parallelism {max_parallelism}. Lower it, "
            "or set pipeline.max-parallelism before the job's first epoch."
        )


def key_groups(hashes: Int64s, max_parallelism: int) -> Int32s:
    """The group of every hash, as Spark's `pmod(hash, max_parallelism)`.

    >>> key_groups(np.array([-1, 0, 129]), 128).tolist()
    [127, 0, 1]
    """
    check_parallelism(1, max_parallelism)
    return np.mod(hashes, max_parallelism).astype(np.int32)


def partitions(groups: Int32s, parallelism: int, max_parallelism: int) -> Int32s:
    """The partition that owns each group.

    >>> partitions(np.array([0, 42, 43, 127], dtype=np.int32), 3, 128).tolist()
    [0, 0, 1, 2]
    """
    check_parallelism(parallelism, max_parallelism)
    # 32768 * 32768 fits 31 bits, so 32-bit arithmetic is enough.
    return groups * np.int32(parallelism) // np.int32(max_parallelism)


def key_group_range(partition: int, parallelism: int, max_parallelism: int) -> range:
    """The groups that `partition` owns: exactly those that `partitions` sends to it.

    >>> [key_group_range(p, 3, 128) for p in range(3)]
    [range(0, 43), range(43, 86), range(86, 128)]
    """
    check_parallelism(parallelism, max_parallelism)
    start, stop = (-(-edge * max_parallelism // parallelism) for edge in (partition, partition + 1))
    return range(start, stop)
