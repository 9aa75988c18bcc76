"""The imports of a pickle are read without unpickling it, and equal those of unpickling."""

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
    """Unpickles, and records the imports: the slow reference."""

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
def test_the_modules_are_those_imported_by_unpickling(value: Any) -> None:
    data = cloudpickle.dumps(value)
    reference = _Reference(data)
    reference.load()
    assert named_modules(data) == reference.names


def test_modules_shared_by_several_functions_are_listed() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("import textwrap, decimal\ndef f(x): return textwrap.dedent(x)\ndef g(x): return decimal, textwrap", names)
    modules = named_modules(cloudpickle.dumps([names["f"], names["g"]]))
    assert {"textwrap", "decimal"} <= modules
    assert textwrap.__name__ in modules


def test_a_string_that_looks_like_a_module_is_ignored() -> None:
    assert named_modules(cloudpickle.dumps(["json", "numpy", ("numpy", "array")])) == set()


def test_foreign_modules_are_installed_but_unknown_ones() -> None:
    import numpy  # noqa: F401

    assert foreign_modules({"numpy.linalg", "json", "millstream.errors", "absent"}, {"millstream"}) == ["numpy"]
    assert foreign_modules({"numpy"}, {"numpy"}) == []
