"""Converts the errors of object stores to ours.

A service answers with an XML document, or not at all. Only its code and message are shown: the rest may contain a key
id or the signed content, and is dropped together with the chain of causes. The status determines whether a retry may
help: no answer, 408, 429 and 500 or more are transient (StoreAwayError), others are not. S3 has some transient codes
under a permanent status (400 RequestTimeout: it waited for content that arrived too slowly). A failure to renew
credentials supplied by the machine is transient if the service has accepted them before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from millstream.errors import MillstreamError, StoreAwayError, StoreError
from millstream.storage.request_counts import REQUESTS

__all__ = ["explained_errors", "has_no_bucket", "is_in_conflict", "is_unknown_to_service"]

_IN_CONFLICT = ("ConditionalRequestConflict", "OperationAborted")
"""S3's code (with 409) for a conditional put while another request for the same name is in progress: retry."""

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>\s*([\w.-]{1,80})\s*</Code>")
_MESSAGE = re.compile(r"<Message>\s*([^<]{1,300}?)\s*</Message>")
_PASSING = ("408", "429")
_PASSING_CODES = frozenset(
    {
        *("RequestTimeout", "RequestTimeoutException", "IncompleteBody", "PriorRequestNotComplete"),
        *("SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "BandwidthLimitExceeded"),
        *("InternalError", "ServiceUnavailable", "ServerBusy", *_IN_CONFLICT),
    }
)
_EXPIRED_CODES = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired")
_CERTIFICATE = re.compile(r"https://(?:[^/@\s]*@)?([^/\s]+)/.*InvalidCertificate\(\s*(\w+)", re.DOTALL)
_WRONG_CLOCK = "RequestTimeTooSkewed"
_NO_CREDENTIALS = re.compile(r"169\.254\.\d+\.\d+|metadata\.google|MissingCredentials|no credentials", re.IGNORECASE)
_REASON_CHARACTERS_MAX = 300


def has_no_bucket(error: BaseException) -> bool:
    """Whether the service reports that the bucket does not exist."""
    return "<Code>NoSuchBucket</Code>" in str(error)


def is_in_conflict(error: BaseException) -> bool:
    """Whether the service could not determine if the name exists because another request for it was in progress."""
    return any(f"<Code>{code}</Code>" in str(error) for code in _IN_CONFLICT)


def is_unknown_to_service(error: BaseException) -> bool:
    """Whether the service, or its client, does not implement the request."""
    from obstore.exceptions import NotSupportedError

    is_refused = isinstance(error, (NotSupportedError, NotImplementedError))
    return is_refused or "status code: 501" in str(error) or "<Code>NotImplemented</Code>" in str(error)


@contextmanager
def explained_errors(url: str, name: str, *, has_answered: bool = False) -> Iterator[None]:
    """Counts one request, and converts the service's errors for `name` to ours. `has_answered`: the service has
    accepted these credentials before."""
    REQUESTS.add()
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:
        # Not `from error`: a traceback would show the whole response.
        raise _explained(url, name, error, has_answered) from None


def _explained(url: str, name: str, error: Exception, has_answered: bool) -> StoreError:
    text = str(error)
    status = match.group(1) if (match := _STATUS.search(text)) else ""
    code = match.group(1) if (match := _CODE.search(text)) else ""
    answer = _answer_text(text, status)
    subject = f"Store {url}: {name!r}" if name else f"Store {url}"
    if has_no_bucket(error):
        return StoreError(f"Store {url}: there is no bucket {_bucket(url)!r}. Create it, or correct the address.")
    if code in _PASSING_CODES:
        return StoreAwayError(f"{subject} was not answered just now ({answer}). Try again.")
    if (match := _CERTIFICATE.search(text)) is not None:
        return StoreError(
            f"{subject} was not requested: the certificate of the server at {match.group(1)} is not accepted "
            f"({match.group(2)}). Check the endpoint, and the certificate."
        )
    if _NO_CREDENTIALS.search(text):
        if has_answered:
            return StoreAwayError(
                f"{subject} was not requested: the machine's credentials could not be renewed just now. Check "
                f"their source (a role, a metadata service)."
            )
        return StoreError(
            f"{subject} was not requested: the environment has no credentials, and the machine supplies none. "
            f"Set those of the service's own tools (of S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)."
        )
    if code in _EXPIRED_CODES:
        return StoreError(
            f"{subject} was refused by the service ({answer}). Put new credentials into the environment, and start the "
            f"job again: it continues from its newest epoch."
        )
    if code == _WRONG_CLOCK:
        return StoreError(f"{subject} was refused by the service ({answer}). Set the clock of this machine right.")
    if status in ("401", "403") or _is_refusal(error):
        return StoreError(
            f"{subject} was refused by the service ({answer}). Check the credentials in the environment, and what "
            f"their owner may do there."
        )
    if "redirect" in text and "region" in text:
        return StoreError(f"{subject}: the bucket is in another region. Set AWS_REGION to the bucket's.")
    if (status.startswith("4") or status == "501") and status not in _PASSING:
        return StoreError(
            f"{subject} was refused by the service ({answer}). Check the address, the region and the endpoint, and "
            f"whether the credentials have expired."
        )
    if _is_mistake(error):
        return StoreError(f"{subject} cannot be reached: {_first_line(text)}. Check the address.")
    return StoreAwayError(
        f"{subject} cannot be reached: {answer}. Check the address, the credentials in the environment and the network."
    )


def _answer_text(text: str, status: str) -> str:
    """The service's code and message; without them the status, or the client's error."""
    code, message = _CODE.search(text), _MESSAGE.search(text)
    words = [match.group(1).rstrip(".") for match in (code, message) if match]
    if words:
        return ": ".join(words)
    if status:
        return f"it answered with status {status}"
    return _first_line(text)


def _first_line(text: str) -> str:
    """The readable part of obstore's messages, between the request at the start and the dump of internal structures at
    the end."""
    line = " ".join(text.split("\n\n", 1)[0].split()).rpartition(" - ")[2].rstrip(".")
    return line if len(line) <= _REASON_CHARACTERS_MAX else line[:_REASON_CHARACTERS_MAX] + "…"


def _bucket(url: str) -> str:
    return urlsplit(url).netloc


def _is_refusal(error: Exception) -> bool:
    from obstore import exceptions as refusals

    return isinstance(error, (refusals.PermissionDeniedError, refusals.UnauthenticatedError, PermissionError))


def _is_mistake(error: Exception) -> bool:
    """Whether the request itself is invalid: it was not sent, or can never be answered."""
    from obstore import exceptions as refusals

    return isinstance(
        error,
        (
            refusals.InvalidPathError,
            refusals.NotSupportedError,
            refusals.UnknownConfigurationKeyError,
            FileNotFoundError,
            NotImplementedError,
            TypeError,
            ValueError,
        ),
    )
