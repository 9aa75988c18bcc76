"""Why a server does not answer, each kind with an HTTP status and a short code of its own.

    Refusal
    ├── MalformedError      400  what came is no request
    ├── NoTokenError        401  no token, or one that nobody has
    ├── NotAllowedError     403  the token may not read this state
    ├── PickledStateError   406  nothing is unpickled for the network
    ├── SlowRequestError    408  the request itself was not there in time
    ├── TooOldError         412  this server has not reached the epoch that is asked for
    ├── TooLargeError       413  more keys or bytes than one request may have
    ├── NotJsonError        415  a body that is no JSON
    ├── NotHereError        421  another server holds this key group
    ├── BadQuestionError    422  a parameter that cannot be understood
    │   ├── KeyMisfitError       a key that is not of the state's key type
    │   └── AheadError           a time that has not come yet, by the server's clock
    ├── TooManyError        429  too many requests or watchers
    ├── NoRightsError       503  the tokens of the server cannot be read
    └── TooSlowError        504  no answer in time

What `millstream.query` raises is given a status by `answer_to`; what nobody foresaw is a 500 without details of this
machine in it. Every answer is a sentence that says what to do.
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
    """A request is not answered; `status` and `code` say why to machines."""

    status = 500
    code = "refused"

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts

    @classmethod
    def of(cls, answer: RefusalAnswer) -> Refusal:
        """The refusal that has this answer: for what another process was asked."""
        refusal = cls(answer.message, **answer.facts)
        refusal.status, refusal.code = answer.status, answer.code
        return refusal


class MalformedError(Refusal):
    """What came is no request to this server."""

    status, code = 400, "malformed"


class NoTokenError(Refusal):
    """No token was given, or an unknown one."""

    status, code = 401, "no-token"


class NotAllowedError(Refusal):
    """The token has no right to this state."""

    status, code = 403, "not-allowed"


class PickledStateError(Refusal):
    """The state can only be read by running code that was stored in it."""

    status, code = 406, "pickled-state"


class SlowRequestError(Refusal):
    """The head or the body of the request came too slowly."""

    status, code = 408, "slow-request"


class TooOldError(Refusal):
    """The newest epoch here is older than the one that was asked for."""

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
    """A parameter or key cannot be understood."""

    status, code = 422, "bad-question"


class KeyMisfitError(BadQuestionError):
    """A key is not of the type that keys of the state have."""

    code = "key-type"


class AheadError(BadQuestionError):
    """A time is asked for that has not come yet: some clock is wrong."""

    code = "ahead-of-clock"


class TooManyError(Refusal):
    """Requests come faster than they are allowed to."""

    status, code = 429, "too-many"


class NoRightsError(Refusal):
    """The server does not know now who may read."""

    status, code = 503, "no-rights"


class TooSlowError(Refusal):
    """The answer was not there in time."""

    status, code = 504, "too-slow"


@dataclass(frozen=True)
class RefusalAnswer:
    """What is sent: status, code, sentence, and facts for machines."""

    status: int
    code: str
    message: str
    facts: dict[str, Any] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The JSON object of it."""
        return {"error": self.code, "message": self.message, **self.facts}


_LIBRARY: tuple[tuple[type[MillstreamError], int, str], ...] = (
    # The first that fits counts, so the particular ones stand before the general.
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


# Strangers are not told where the store is, or which of its files: that is in the server's log.
_OF_THE_STORE = {
    "store": "The job's store cannot be reached now, and what is asked for is not at hand. Ask again in a moment.",
    "store-damaged": "A file of the job's store is damaged or missing. Whoever runs the job finds out which with "
    "`millstream verify`, and in this server's log; other epochs may be whole.",
}
DETAILS_IN_LOG = frozenset({"internal", *_OF_THE_STORE})
"""The codes of answers that say less than is known."""


def answer_to(error: BaseException) -> RefusalAnswer:
    """The answer to a request that raised `error`.

    >>> answer_to(NotHereError("elsewhere", key_group=7)).body()
    {'error': 'not-here', 'message': 'elsewhere', 'key_group': 7}
    >>> answer_to(ZeroDivisionError("secret")).message
    'The server failed to answer. Its log says more; ask again, or ask another server.'
    """
    if isinstance(error, Refusal):
        return RefusalAnswer(error.status, error.code, error.message, dict(error.facts))
    for kind, status, code in _LIBRARY:
        if isinstance(error, kind):
            return RefusalAnswer(status, code, _OF_THE_STORE.get(code, str(error)))
    if isinstance(error, TimeoutError):
        return RefusalAnswer(504, "too-slow", "The answer was not there in time. Ask for less, or ask again.")
    return RefusalAnswer(
        500, "internal", "The server failed to answer. Its log says more; ask again, or ask another server."
    )
