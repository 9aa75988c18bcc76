"""Random nested keys, many of them equal in different representations; and their reference equality.

`identity` is the slow reference of the rule in `state.keys.key_columns`, implemented a second time: two keys are one
key exactly if their identities are equal. Every test of key equality draws from here.
"""

from __future__ import annotations

import dataclasses
import decimal
import math
import struct
from collections import namedtuple
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from millstream.common import Row, Types
from millstream.common.typeinfo import TypeInformation

Point = namedtuple("Point", "x y")


@dataclasses.dataclass(frozen=True)
class Account:
    number: Any


def nan_of(bits: int) -> float:
    """The NaN with this bit pattern."""
    number: float = struct.unpack(">d", struct.pack(">Q", bits))[0]
    assert number != number
    return number


# Quiet and signalling ones, of both signs, with payloads; never the object `math.nan`.
NANS = st.sampled_from([0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 5, (0x7FF0 << 48) + 1]).map(nan_of)
FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 0.1, math.inf, -math.inf, 2.0**53, 2.0**63]) | NANS
NUMBERS = st.one_of(
    FLOATS,
    st.sampled_from([0, 1, -1, 2**53, 2**63, True, False]),
    st.sampled_from(["0", "-0", "1.00", "0.5", "0.10", "0.1", "NaN", "sNaN", "Infinity"]).map(decimal.Decimal),
    st.sampled_from([np.int16(1), np.uint8(0), np.float32(0.5), np.float32(0.1), np.float64(1.0), np.bool_(True)]),
    st.sampled_from([np.float32("nan"), np.float64(-0.0)]),
)
SCALARS = st.one_of(NUMBERS, NUMBERS, st.none(), st.sampled_from(["", "a", "1", "nan", b"", b"1"]))
KEYS = st.recursive(
    SCALARS,
    lambda part: st.one_of(
        st.lists(part, max_size=3).map(tuple),
        st.builds(Point, part, part),
        st.builds(Row, part, part),
        st.builds(lambda x, y: Row(x=x, y=y), part, part),
        st.builds(Account, part),
    ),
    max_leaves=4,
)
"""Keys without a declared type."""

_SMALL_FLOATS = st.sampled_from([0.0, -0.0, 1.0, 0.5, math.inf]) | NANS
_TEXTS = st.none() | st.sampled_from(["", "a"])
_DECIMALS = st.sampled_from(["0", "-0.0", "1", "1.00", "0.5", "0.50", "0.1"]).map(decimal.Decimal)
_MAYBE = st.none() | _SMALL_FLOATS
_PAIR = Types.TUPLE([Types.DOUBLE(), Types.STRING()])
TYPED: dict[str, tuple[TypeInformation, st.SearchStrategy[Any]]] = {
    "DOUBLE": (Types.DOUBLE(), _SMALL_FLOATS | st.sampled_from([0, 1])),
    "FLOAT": (Types.FLOAT(), _MAYBE),
    "TUPLE": (_PAIR, st.tuples(_MAYBE, _TEXTS)),
    "ROW": (
        Types.ROW_NAMED(["x", "at"], [Types.FLOAT(), Types.LONG()]),
        st.builds(Row, _MAYBE, st.integers(0, 1)) | st.tuples(_SMALL_FLOATS, st.integers(0, 1)),
    ),
    "nested": (Types.TUPLE([_PAIR, Types.DOUBLE()]), st.tuples(st.tuples(_SMALL_FLOATS, _TEXTS), _MAYBE)),
    "BIG_DEC": (Types.BIG_DEC(), _DECIMALS),
    "with BIG_DEC": (
        Types.ROW_NAMED(["price", "x"], [Types.BIG_DEC(), Types.DOUBLE()]),
        st.builds(Row, _DECIMALS, _SMALL_FLOATS),
    ),
    "LIST": (Types.LIST(Types.DOUBLE()), st.lists(_SMALL_FLOATS, max_size=2)),
    "with LIST": (Types.TUPLE([Types.LIST(Types.FLOAT())]), st.tuples(st.lists(_SMALL_FLOATS, max_size=2))),
    "LONG": (Types.LONG(), st.integers(-1, 1)),
    "STRING": (Types.STRING(), st.sampled_from(["", "a", "b"])),
}
"""Declared types, each with keys of it. (FLOAT rounds no key that is drawn here.)"""


def identity(key: Any) -> Any:
    """The identity of a key: equal for equal keys."""
    if isinstance(key, tuple | Row | list):
        return "values", *map(identity, key)
    if isinstance(key, Account):
        return "account", identity(key.number)
    if isinstance(key, np.generic):
        key = key.item()
    if isinstance(key, bool | int | float | decimal.Decimal):
        if isinstance(key, decimal.Decimal) and key.is_nan():
            return "number", "nan"
        return "number", str(float(key)) if not math.isfinite(key) else Fraction(key)
    return type(key).__name__, key
