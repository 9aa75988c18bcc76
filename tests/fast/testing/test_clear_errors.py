"""What the connector kit takes for a clear error, and what for an accident."""

from __future__ import annotations

import pytest

from millstream.errors import TypeMismatchError
from millstream.testing.connectors.clear_errors import Broken, check_error


def fails(error: Exception) -> Broken:
    def make() -> object:
        raise error

    return Broken("a text as the port", make)


def test_a_type_error_of_ours_is_clear_and_one_of_pythons_an_accident() -> None:
    said = check_error(fails(TypeMismatchError("port: found 'x' (str), expected an int")), print, ())
    assert "port: found 'x'" in said
    with pytest.raises(AssertionError, match="That is an accident"):
        check_error(fails(TypeError("unsupported operand type(s)")), print, ())
