"""What a pickle imports is read from it without opening it, and is what opening it does import."""

from __future__ import annotations

import collections
import decimal
import fractions
import pickle
import textwrap
from typing import Any

import cloudpickle
from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.plan_modules import foreign_modules, named_modules


class _Reference(pickle.Unpickler):
    """Opens the pickle, and notes what it asks for: the slow and obvious way."""

    def __init__(self, data: bytes) -> None:
        import io

        super().__init__(io.BytesIO(data))
        self.names: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.names.add(module)
        return super().find_class(module, name)


PARTS = st.sampled_from(
    [decimal.Decimal("1.5"), fractions.Fraction(1, 3), collections.OrderedDict(a=1), "json", "redis", 7, len, b"x"]
)


@given(st.recursive(PARTS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner)))
def test_the_modules_are_those_that_opening_asks_for(value: Any) -> None:
    data = cloudpickle.dumps(value)
    reference = _Reference(data)
    reference.load()
    assert named_modules(data) == reference.names


def test_modules_that_a_function_uses_are_named_each_time() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("import textwrap, decimal\ndef f(x): return textwrap.dedent(x)\ndef g(x): return decimal, textwrap", names)
    found = named_modules(cloudpickle.dumps([names["f"], names["g"]]))
    assert {"textwrap", "decimal"} <= found
    assert textwrap.__name__ in found


def test_a_string_that_looks_like_a_module_is_none() -> None:
    assert named_modules(cloudpickle.dumps(["json", "numpy", ("numpy", "array")])) == set()


def test_foreign_modules_are_installed_ones_that_are_not_known() -> None:
    import numpy  # noqa: F401

    assert foreign_modules({"numpy.linalg", "json", "millstream.errors", "absent"}, {"millstream"}) == ["numpy"]
    assert foreign_modules({"numpy"}, {"numpy"}) == []
