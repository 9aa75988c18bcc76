"""Digests of strings, in hexadecimal digits."""

from __future__ import annotations

from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import Arguments, SignatureError
from millstream.expressions.functions.signatures import TEXT_OR_BYTES, WHOLE, scalar
from millstream.expressions.types import CharType, VarCharType

__all__: list[str] = []

FAMILY = "digests"
_LENGTHS = {"MD5": 32, "SHA1": 40, "SHA224": 56, "SHA256": 64, "SHA384": 96, "SHA512": 128}
_SHA2_BITS = (224, 256, 384, 512)


def _sha2(arguments: Arguments) -> DataType:
    bits = arguments.constant(1)
    if isinstance(bits, int) and bits not in _SHA2_BITS:
        raise SignatureError(f"SHA2 supports 224, 256, 384 or 512 bits, not {bits}. Call it as SHA2(text, bits).")
    return VarCharType(max(_LENGTHS.values()))


for _name, _length in _LENGTHS.items():
    _doc = f"The digest of the text by {_name}."
    scalar(
        f"{_name}(text)",
        [TEXT_OR_BYTES],
        CharType(_length),
        _doc,
        FAMILY,
        may_fail=False,
        is_expensive=True,
        method=_name.lower(),
    )
scalar(
    "SHA2(text, bits)",
    [TEXT_OR_BYTES, WHOLE],
    _sha2,
    "The digest of the text by SHA-2 with a number of bits.",
    FAMILY,
    is_expensive=True,
    method="sha2",
)
