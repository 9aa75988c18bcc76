"""Errors about None get a hint where the message is Python's, and none where it already contains advice."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import TypeMismatchError
from millstream.runtime.operators.explanations import message_of


class Nothing:
    def value(self) -> Any:
        return None


def refuse(value: object, kind: type[Exception]) -> None:
    raise kind(f"found {value} (NoneType), expected an int")


@pytest.mark.parametrize(("kind", "has_hint"), [(TypeError, True), (TypeMismatchError, False)])
def test_only_pythons_own_errors_about_none_get_a_hint(kind: type[Exception], has_hint: bool) -> None:
    state = Nothing()
    with pytest.raises(kind) as raised:
        refuse(state.value(), kind)
    assert raised.value.__traceback__ is not None
    raised.value.__traceback__.tb_next = None  # as if the engine's own call had raised
    assert ("Perhaps value() of a state" in message_of(raised.value)) is has_hint
