"""Whether a client has refused a server's certificate, and why, in the words of Python's TLS.

That is no trouble which passes: whoever answers there is not who the address names, or the authority that signed for it
is not known here. So it is told at once, and never tried again until somebody loses patience.
"""

from __future__ import annotations

import ssl

__all__ = ["certificate_refusal"]

_CAUSES_MAX = 20


def certificate_refusal(error: BaseException | None) -> str | None:
    """Why a server's certificate was not accepted, if this is what an error, or one behind it, says.

    >>> certificate_refusal(ConnectionError("reset"))
    """
    for _ in range(_CAUSES_MAX):
        if error is None:
            return None
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = error.verify_message.rstrip(".")
            return f"the certificate of whoever answers there is not accepted: {reason}"
        error = _behind(error)
    return None


def _behind(error: BaseException) -> BaseException | None:
    """The error that a client has wrapped: each has its own name for it."""
    for name in ("original_exception", "exception", "reason"):
        inner = getattr(error, name, None)
        if isinstance(inner, BaseException):
            return inner
    inner = error.args[0] if error.args else None
    return inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__
