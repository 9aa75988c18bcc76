"""Which exceptions the connector test kit accepts as clear errors, and which it reports as bugs."""

from __future__ import annotations

import pytest

from millstream.errors import TypeMismatchError
from millstream.testing.connectors.clear_errors import Broken, check_error


def fails(error: Exception) -> Broken:
    def make() -> object:
        raise error

    return Broken("a text as the port", make)


def test_our_type_errors_are_clear_and_pythons_are_bugs() -> None:
    message = check_error(fails(TypeMismatchError("port: found 'x' (str), expected an int")), print, ())
    assert "port: found 'x'" in message
    with pytest.raises(AssertionError, match="That is an accident"):
        check_error(fails(TypeError("unsupported operand type(s)")), print, ())
