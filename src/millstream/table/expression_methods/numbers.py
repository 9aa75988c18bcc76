"""Numeric functions of `Expression`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.table.expression_methods.syntax_holder import SyntaxHolder

if TYPE_CHECKING:
    from millstream.table.expression import Expression

__all__ = ["NumberMethods"]


class NumberMethods(SyntaxHolder):
    """Functions of numbers."""

    @property
    def exp(self) -> Expression[Any]:
        """e raised to the power of the number."""
        return self._call("EXP")

    @property
    def log10(self) -> Expression[Any]:
        """The base-10 logarithm of the number."""
        return self._call("LOG10")

    @property
    def log2(self) -> Expression[Any]:
        """The base-2 logarithm of the number."""
        return self._call("LOG2")

    @property
    def ln(self) -> Expression[Any]:
        """The natural logarithm of the number."""
        return self._call("LN")

    def log(self, base: Any = None) -> Expression[Any]:
        """The logarithm to the given base; by default the natural logarithm."""
        return self._call("LOG") if base is None else self._made_call("LOG", base, self)

    @property
    def cosh(self) -> Expression[Any]:
        """The hyperbolic cosine of the number."""
        return self._call("COSH")

    @property
    def sinh(self) -> Expression[Any]:
        """The hyperbolic sine of the number."""
        return self._call("SINH")

    @property
    def sin(self) -> Expression[Any]:
        """The sine of the number."""
        return self._call("SIN")

    @property
    def cos(self) -> Expression[Any]:
        """The cosine of the number."""
        return self._call("COS")

    @property
    def tan(self) -> Expression[Any]:
        """The tangent of the number."""
        return self._call("TAN")

    @property
    def cot(self) -> Expression[Any]:
        """The cotangent of the number."""
        return self._call("COT")

    @property
    def asin(self) -> Expression[Any]:
        """The arc sine of the number."""
        return self._call("ASIN")

    @property
    def acos(self) -> Expression[Any]:
        """The arc cosine of the number."""
        return self._call("ACOS")

    @property
    def atan(self) -> Expression[Any]:
        """The arc tangent of the number."""
        return self._call("ATAN")

    @property
    def tanh(self) -> Expression[Any]:
        """The hyperbolic tangent of the number."""
        return self._call("TANH")

    @property
    def degrees(self) -> Expression[Any]:
        """Converts radians to degrees."""
        return self._call("DEGREES")

    @property
    def radians(self) -> Expression[Any]:
        """Converts degrees to radians."""
        return self._call("RADIANS")

    @property
    def sqrt(self) -> Expression[Any]:
        """The square root of the number."""
        return self._call("SQRT")

    @property
    def abs(self) -> Expression[Any]:
        """The absolute value of the number."""
        return self._call("ABS")

    @property
    def sign(self) -> Expression[Any]:
        """The sign: -1, 0 or 1."""
        return self._call("SIGN")

    def round(self, places: Any) -> Expression[Any]:
        """Rounds to a number of decimal places, halves away from zero."""
        return self._call("ROUND", places)

    def truncate(self, n: Any = 0) -> Expression[Any]:
        """Truncates to a number of decimal places."""
        return self._call("TRUNCATE", n)

    @property
    def bin(self) -> Expression[Any]:
        """The binary digits of an integer."""
        return self._call("BIN")

    @property
    def hex(self) -> Expression[Any]:
        """The hexadecimal digits of a number or a string."""
        return self._call("HEX")

    @property
    def unhex(self) -> Expression[Any]:
        """Decodes bytes from hexadecimal digits."""
        return self._call("UNHEX")

    def inet_aton(self) -> Expression[Any]:
        """Converts an IPv4 address to its number."""
        return self._call("INET_ATON")

    def inet_ntoa(self) -> Expression[Any]:
        """Converts a number to its IPv4 address."""
        return self._call("INET_NTOA")
