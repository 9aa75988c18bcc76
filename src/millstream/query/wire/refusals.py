"""The refusals of a server, each type with its own HTTP status and short code.

    Refusal
    ├── MalformedError      400  no valid request
    ├── NoTokenError        401  no token, or an unknown one
    ├── NotAllowedError     403  the token may not read this state
    ├── PickledStateError   406  nothing is unpickled for the network
    ├── SlowRequestError    408  the request itself did not arrive in time
    ├── TooOldError         412  this server has not reached the requested epoch
    ├── TooLargeError       413  more keys or bytes than one request may have
    ├── NotJsonError        415  the body is not JSON
    ├── NotHereError        421  another server holds this key group
    ├── BadQuestionError    422  a parameter cannot be parsed
    │   ├── KeyMisfitError       a key is not of the state's key type
    │   └── AheadError           a time in the future, by the server's clock
    ├── TooManyError        429  too many requests or watchers
    ├── NoRightsError       503  the tokens of the server cannot be read
    └── TooSlowError        504  no answer in time

`answer_to` maps exceptions of `millstream.query` to a status; any other is a 500 without details of this machine. Every
answer has a message with the next step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millstream.errors import MillstreamError, PickledValueError, StoreDamagedError, StoreError, TypeMismatchError
from millstream.query.errors import EpochGoneError, NoEpochError, StateKindError, UnknownJobError, UnknownStateError

__all__ = [
    "DETAILS_IN_LOG",
    "AheadError",
    "BadQuestionError",
    "KeyMisfitError",
    "MalformedError",
    "NoRightsError",
    "NoTokenError",
    "NotAllowedError",
    "NotHereError",
    "NotJsonError",
    "PickledStateError",
    "Refusal",
    "RefusalAnswer",
    "SlowRequestError",
    "TooLargeError",
    "TooManyError",
    "TooOldError",
    "TooSlowError",
    "answer_to",
]


class Refusal(MillstreamError):
    """A request is refused; `status` and `code` are the machine-readable reason."""

    status = 500
    code = "refused"

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts

    @classmethod
    def of(cls, answer: RefusalAnswer) -> Refusal:
        """Rebuilds a refusal from an answer of another process."""
        refusal = cls(answer.message, **answer.facts)
        refusal.status, refusal.code = answer.status, answer.code
        return refusal


class MalformedError(Refusal):
    """The data received is not a request to this server."""

    status, code = 400, "malformed"


class NoTokenError(Refusal):
    """No token was sent, or an unknown one."""

    status, code = 401, "no-token"


class NotAllowedError(Refusal):
    """The token has no right to this state."""

    status, code = 403, "not-allowed"


class PickledStateError(Refusal):
    """The state can only be read by running code that was stored in it."""

    status, code = 406, "pickled-state"


class SlowRequestError(Refusal):
    """The head or the body of the request arrived too slowly."""

    status, code = 408, "slow-request"


class TooOldError(Refusal):
    """The newest epoch here is older than the requested one."""

    status, code = 412, "too-old"


class TooLargeError(Refusal):
    """The request or its answer is too large."""

    status, code = 413, "too-large"


class NotJsonError(Refusal):
    """The body is not JSON, or is compressed."""

    status, code = 415, "not-json"


class NotHereError(Refusal):
    """The key belongs to a key group that this server does not hold."""

    status, code = 421, "not-here"


class BadQuestionError(Refusal):
    """A parameter or key cannot be parsed."""

    status, code = 422, "bad-question"


class KeyMisfitError(BadQuestionError):
    """A key is not of the type of the state's keys."""

    code = "key-type"


class AheadError(BadQuestionError):
    """A requested time is in the future: some clock is wrong."""

    code = "ahead-of-clock"


class TooManyError(Refusal):
    """Requests arrive faster than allowed."""

    status, code = 429, "too-many"


class NoRightsError(Refusal):
    """The server cannot read the access rights now."""

    status, code = 503, "no-rights"


class TooSlowError(Refusal):
    """The answer was not complete in time."""

    status, code = 504, "too-slow"


@dataclass(frozen=True)
class RefusalAnswer:
    """The response of a refusal: status, code, message, and machine-readable facts."""

    status: int
    code: str
    message: str
    facts: dict[str, Any] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """Its JSON object."""
        return {"error": self.code, "message": self.message, **self.facts}


_LIBRARY: tuple[tuple[type[MillstreamError], int, str], ...] = (
    # The first match counts, so specific types precede general ones.
    (UnknownJobError, 404, "unknown-job"),
    (UnknownStateError, 404, "unknown-state"),
    (EpochGoneError, 410, "epoch-gone"),
    (NoEpochError, 503, "no-epoch"),
    (PickledValueError, 406, "pickled-state"),
    (StateKindError, 409, "state-kind"),
    (TypeMismatchError, 422, "key-type"),
    (StoreDamagedError, 500, "store-damaged"),
    (StoreError, 503, "store"),
    (MillstreamError, 422, "bad-question"),
)


# Untrusted clients do not learn where the store is, or which of its files failed: only the server's log has these.
_OF_THE_STORE = {
    "store": "The job's store cannot be reached now, and the answer is not in memory. Try again in a moment.",
    "store-damaged": "A file of the job's store is damaged or missing. The job's operator finds out which with "
    "`millstream verify`, and in this server's log; other epochs may be intact.",
}
DETAILS_IN_LOG = frozenset({"internal", *_OF_THE_STORE})
"""The codes of answers that omit details."""


def answer_to(error: BaseException) -> RefusalAnswer:
    """The answer to a request that raised `error`.

    >>> answer_to(NotHereError("elsewhere", key_group=7)).body()
    {'error': 'not-here', 'message': 'elsewhere', 'key_group': 7}
    >>> answer_to(ZeroDivisionError("secret")).message
    'The server failed to answer. Its log has the details; try again, or use another server.'
    """
    if isinstance(error, Refusal):
        return RefusalAnswer(error.status, error.code, error.message, dict(error.facts))
    for kind, status, code in _LIBRARY:
        if isinstance(error, kind):
            return RefusalAnswer(status, code, _OF_THE_STORE.get(code, str(error)))
    if isinstance(error, TimeoutError):
        return RefusalAnswer(504, "too-slow", "The answer was not complete in time. Request less, or try again.")
    return RefusalAnswer(
        500, "internal", "The server failed to answer. Its log has the details; try again, or use another server."
    )
