"""What an object store answers, told as what it means: asking again helps, or a person must do something."""

from __future__ import annotations

import pytest

from millstream.errors import StoreAwayError, StoreError
from millstream.storage.objects import ObjectStore


class Service:
    """Answers every request with the same error, as the client tells it; "" stands for a good answer."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def put(self, *_: object, **__: object) -> dict[str, str]:
        from obstore.exceptions import AlreadyExistsError, GenericError

        text = self.texts.pop(0)
        if text:
            raise (AlreadyExistsError if "409" in text else GenericError)(text)
        return {"e_tag": ""}


def answered(status: str, code: str, message: str = "It says so.") -> str:
    return (
        "Generic S3 error: Error performing PUT http://s3/bucket/a in 3.1ms - Server returned non-2xx status code: "
        f"{status}: <Error><Code>{code}</Code><Message>{message}</Message></Error>"
    )


def told(*texts: str, creates: bool = False) -> StoreError:
    """What the last of these answers becomes."""
    store = ObjectStore("s3://bucket/job", Service(*texts))  # type: ignore[arg-type]
    for _ in texts[1:]:
        store.put("a", b"")
    with pytest.raises(StoreError) as error:
        store.create("a", b"") if creates else store.put("a", b"")
    return error.value


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("400 Bad Request", "RequestTimeout"),
        ("400 Bad Request", "IncompleteBody"),
        ("409 Conflict", "OperationAborted"),
        ("503 Slow Down", "SlowDown"),
    ],
)
def test_what_passes_by_itself_is_an_absence_whatever_its_status(status: str, code: str) -> None:
    """S3 gives up waiting for content with 400. A job that ended for it would end for one slow moment."""
    assert isinstance(told(answered(status, code)), StoreAwayError)


def test_a_conditional_put_that_met_another_request_does_not_say_that_the_name_is_taken() -> None:
    """Taken for a lost race, it would stop a driver that nobody has replaced."""
    for code in ("OperationAborted", "ConditionalRequestConflict"):
        assert isinstance(told(answered("409 Conflict", code), creates=True), StoreAwayError)
    taken = ObjectStore("s3://bucket/job", Service(answered("409 Conflict", "BlobAlreadyExists")))  # type: ignore[arg-type]
    assert taken.create("a", b"") is False


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        ("400 Bad Request", "ExpiredToken", "new credentials into the environment"),
        ("403 Forbidden", "RequestTimeTooSkewed", "Set the clock of this machine right"),
        ("403 Forbidden", "AccessDenied", "what their owner may do there"),
        ("400 Bad Request", "AuthorizationHeaderMalformed", "the region and the endpoint"),
    ],
)
def test_what_is_refused_for_good_says_what_to_do(status: str, code: str, advice: str) -> None:
    refusal = told(answered(status, code))
    assert not isinstance(refusal, StoreAwayError)
    assert code in refusal.message and advice in refusal.message


def test_credentials_that_cannot_be_renewed_are_no_reason_to_end_a_job_that_has_had_some() -> None:
    nobody = "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1s - timed out"
    at_first, later = told(nobody), told("", nobody)
    assert not isinstance(at_first, StoreAwayError) and "the environment has no credentials" in at_first.message
    assert isinstance(later, StoreAwayError) and "could not be renewed" in later.message
