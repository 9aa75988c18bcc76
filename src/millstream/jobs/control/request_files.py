"""The files of requests and answers, read without trust: a request is whole, or it is refused in words.

Anybody who may write below `control/` writes these files, with any version of Millstream or by hand. A field that is
not known is refused rather than ignored (it might be the one that says "not now"). So are a newer format, a wrong type,
and a file under the name of another. The refusal is the answer to the request; the job goes on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from millstream.checkpoint.sealed import seal, unseal
from millstream.errors import JobFailedError, StoreDamagedError
from millstream.storage.names import CONTROL, is_request

__all__ = ["Answer", "Request", "answer_of", "id_of", "request_of", "sealed_answer", "sealed_request"]

FORMAT = 1
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Request:
    """A command and its arguments. `created_ms` is by the clock of whoever asks, and compared with no other."""

    id: str
    command: str
    created_ms: int
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What came of a request; until it is `done`, that a job has taken it up."""

    done: bool
    ok: bool
    text: str


def id_of(name: str) -> str | None:
    """The id of the request in the file `name`; None for any other file.

    >>> id_of("control/a1.json"), id_of("control/a1.answer.json"), id_of("control/..%2F.json")
    ('a1', None, None)
    """
    id = name.removeprefix(f"{CONTROL}/").removesuffix(".json")
    return id if is_request(name) and _ID.fullmatch(id) else None


def sealed_request(request: Request) -> bytes:
    """A request as the bytes of its file."""
    return seal("request", FORMAT, asdict(request))


def sealed_answer(answer: Answer) -> bytes:
    """An answer as the bytes of its file."""
    return seal("answer", FORMAT, asdict(answer))


def request_of(data: bytes, id: str) -> Request:
    """The request in a file; JobFailedError, in words for whoever asked, when there is none that can be obeyed."""
    request = Request(**_fields(data, "request", Request))
    if request.id != id:
        raise JobFailedError(f"the request is called {request.id!r} but stands under {id!r}. Ask again")
    return request


def answer_of(data: bytes) -> Answer:
    """The answer in a file; JobFailedError when it is none that can be read."""
    return Answer(**_fields(data, "answer", Answer))


_TYPES: Mapping[str, type] = {
    "id": str,
    "command": str,
    "created_ms": int,
    "arguments": dict,
    "done": bool,
    "ok": bool,
    "text": str,
}


def _fields(data: bytes, kind: str, shape: type[Any]) -> dict[str, Any]:
    try:
        values = unseal(data, kind, FORMAT, f"the {kind}")
    except StoreDamagedError as error:
        raise JobFailedError(f"{error} Ask with the Millstream that runs the job") from error
    names = {place.name for place in fields(shape)}
    unknown, missing = sorted(values.keys() - names), sorted(names - values.keys() - {"arguments"})
    if unknown or missing:
        what = f"has a field {unknown[0]!r}, which is not known here" if unknown else f"has no field {missing[0]!r}"
        raise JobFailedError(f"the {kind} {what}. Ask with the Millstream that runs the job")
    for name, value in values.items():
        if type(value) is not _TYPES[name]:
            raise JobFailedError(f"field {name!r} of the {kind} is {value!r}, expected {_TYPES[name].__name__}")
    return values
