"""What an object store answered, as one of our errors, in a sentence.

A service answers with a page of XML, or with nothing. Of that only its code and its message are for people: the rest
may hold the id of a key or what was signed, and is dropped, the chain of causes with it. Whether asking again helps is
told by the status: no answer, 408, 429 and 500 or more pass by themselves (StoreAwayError), the others do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from millstream.errors import MillstreamError, StoreAwayError, StoreError
from millstream.storage.request_counts import REQUESTS

__all__ = ["IN_CONFLICT", "explained_errors", "has_no_bucket", "is_unknown_to_service"]

IN_CONFLICT = "ConditionalRequestConflict"
"""What S3 says (with 409) to a conditional put while another request for the same name is under way: ask again."""

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>\s*([\w.-]{1,80})\s*</Code>")
_MESSAGE = re.compile(r"<Message>\s*([^<]{1,300}?)\s*</Message>")
_PASSING = ("408", "429")
_NO_CREDENTIALS = re.compile(r"169\.254\.\d+\.\d+|metadata\.google|MissingCredentials|no credentials", re.IGNORECASE)
_REASON_CHARACTERS_MAX = 300


def has_no_bucket(error: BaseException) -> bool:
    """Whether the service says that the bucket itself is not there."""
    return "<Code>NoSuchBucket</Code>" in str(error)


def is_unknown_to_service(error: BaseException) -> bool:
    """Whether the service, or the client for it, does not have what it was asked for."""
    from obstore.exceptions import NotSupportedError

    is_refused = isinstance(error, (NotSupportedError, NotImplementedError))
    return is_refused or "status code: 501" in str(error) or "<Code>NotImplemented</Code>" in str(error)


@contextmanager
def explained_errors(url: str, name: str) -> Iterator[None]:
    """One request, which is counted; errors of the service, while it is asked for `name`, become ours."""
    REQUESTS.add()
    try:
        yield
    except MillstreamError:
        raise
    except Exception as error:
        # Not `from error`: a traceback would show the whole answer.
        raise _explained(url, name, error) from None


def _explained(url: str, name: str, error: Exception) -> StoreError:
    text = str(error)
    status = match.group(1) if (match := _STATUS.search(text)) else ""
    said = _said(text, status)
    subject = f"Store {url}: {name!r}" if name else f"Store {url}"
    if has_no_bucket(error):
        return StoreError(f"Store {url}: there is no bucket {_bucket(url)!r}. Create it, or correct the address.")
    if _NO_CREDENTIALS.search(text):
        return StoreError(
            f"{subject} was not asked for: no credentials were found in the environment, and the machine has none to "
            f"give. Set those of the service's own tools (of S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)."
        )
    if status in ("401", "403") or _is_refusal(error):
        return StoreError(
            f"{subject} was refused by the service ({said}). Check the credentials in the environment, and what their "
            f"owner may do there."
        )
    if "redirect" in text and "region" in text:
        return StoreError(f"{subject}: the bucket is in another region. Set AWS_REGION to the bucket's.")
    if (status.startswith("4") or status == "501") and status not in _PASSING:
        return StoreError(
            f"{subject} was refused by the service ({said}). Check the address, the region and the endpoint."
        )
    if _is_mistake(error):
        return StoreError(f"{subject} cannot be reached: {_first_line(text)}. Check the address.")
    return StoreAwayError(
        f"{subject} cannot be reached: {said}. Check the address, the credentials in the environment and the network."
    )


def _said(text: str, status: str) -> str:
    """The service's own code and message; without them the status, or what failed on the way."""
    code, message = _CODE.search(text), _MESSAGE.search(text)
    words = [match.group(1).rstrip(".") for match in (code, message) if match]
    if words:
        return ": ".join(words)
    if status:
        return f"it answered with status {status}"
    return _first_line(text)


def _first_line(text: str) -> str:
    """obstore's messages end in a dump of its own structures, and begin with the request; what lies between is for
    people."""
    line = " ".join(text.split("\n\n", 1)[0].split()).rpartition(" - ")[2].rstrip(".")
    return line if len(line) <= _REASON_CHARACTERS_MAX else line[:_REASON_CHARACTERS_MAX] + "…"


def _bucket(url: str) -> str:
    return urlsplit(url).netloc


def _is_refusal(error: Exception) -> bool:
    from obstore import exceptions as refusals

    return isinstance(error, (refusals.PermissionDeniedError, refusals.UnauthenticatedError, PermissionError))


def _is_mistake(error: Exception) -> bool:
    """Whether the request itself is wrong, so that nobody was asked, or never will answer it."""
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
