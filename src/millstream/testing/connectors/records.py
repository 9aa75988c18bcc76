"""Compares records of connectors, in order or as a bag, and reports the first difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

__all__ = ["bag_difference", "order_difference", "short"]

_SHOWN_MAX = 5
_SHOWN_CHARACTERS_MAX = 160


def order_difference(actual: Sequence[Any], expected: Sequence[Any]) -> str:
    """The first difference of two lists of records; "" if they are equal.

    >>> order_difference([1, 2, 4], [1, 2, 3])
    'record 2 is 4, expected 3'
    >>> order_difference([1], [1, 2])
    '1 records, expected 2; the first that is missing: 2'
    """
    for at, (actual_form, expected_form) in enumerate(zip(actual, expected, strict=False)):
        if not _same(actual_form, expected_form):
            return f"record {at} is {short(actual_form)}, expected {short(expected_form)}"
    if len(actual) == len(expected):
        return ""
    kind, longer = ("too much", actual) if len(actual) > len(expected) else ("missing", expected)
    first = longer[min(len(actual), len(expected))]
    return f"{len(actual)} records, expected {len(expected)}; the first that is {kind}: {short(first)}"


def bag_difference(actual: Sequence[Any], expected: Sequence[Any], *, repeats_allowed: bool = False) -> str:
    """The lost, duplicated or unexpected records, in any order; "" if the bags are equal.

    >>> bag_difference([1, 1, 3], [1, 2])
    'lost: 2; doubled: 1; never written: 3'
    """
    actual_forms, expected_forms = Counter(map(_form, actual)), Counter(map(_form, expected))
    groups = {
        "lost": [form for form in expected_forms if actual_forms[form] < expected_forms[form]],
        "doubled": [
            form for form in expected_forms if actual_forms[form] > expected_forms[form] and not repeats_allowed
        ],
        "never written": [form for form in actual_forms if form not in expected_forms],
    }
    return "; ".join(f"{kind}: {_listed(forms)}" for kind, forms in groups.items() if forms)


def short(value: Any) -> str:
    """The value as text, truncated if long."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…"


def _form(value: Any) -> str:
    """A string that is equal for equal records. NaN equals itself, and 1 differs from 1.0."""
    if isinstance(value, dict):
        return "{" + ", ".join(sorted(f"{_form(key)}: {_form(item)}" for key, item in value.items())) + "}"
    return repr(value)


def _same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and _form(left) == _form(right)


def _listed(forms: Sequence[str]) -> str:
    more = f" and {len(forms) - _SHOWN_MAX} more" if len(forms) > _SHOWN_MAX else ""
    return ", ".join(map(short, forms[:_SHOWN_MAX])) + more
