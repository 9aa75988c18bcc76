"""References of digests of strings or bytes, in lower-case hexadecimal digits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from millstream.runtime.expressions.kernel import CallContext, EvaluationError, reference
from millstream.runtime.expressions.references.null_rules import null_of_null

__all__ = ["digest"]

_CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "md5": hashlib.md5,
    "sha1": hashlib.sha1,
    "sha224": hashlib.sha224,
    "sha256": hashlib.sha256,
    "sha384": hashlib.sha384,
    "sha512": hashlib.sha512,
}
_SHA2 = {224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}


@reference("MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512")
@null_of_null
def digest(context: CallContext, value: str | bytes) -> str:
    """The digest named by the function."""
    return _hexadecimal(context.call.function.lower(), value)


@reference("SHA2")
@null_of_null
def sha2(context: CallContext, value: str | bytes, bits: int) -> str:
    if bits not in _SHA2:
        raise EvaluationError(f"SHA2 supports 224, 256, 384 or 512 bits, not {bits}")
    return _hexadecimal(_SHA2[bits], value)


def _hexadecimal(name: str, value: str | bytes) -> str:
    data = value.encode() if isinstance(value, str) else value
    text: str = _CONSTRUCTORS[name](data, usedforsecurity=False).hexdigest()
    return text
