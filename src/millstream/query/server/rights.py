"""Who may read what: bearer tokens, each with the states it opens.

A file of tokens is JSON:

    {"dashboard": {"token": "…", "states": ["impressions", "totals-*"]},
     "operations": {"sha256": "…", "states": ["*"]}}

A token is given as it is or as the SHA-256 of it. Only the hashes are kept, and they are compared in constant time.
Without a file everyone who reaches the server may read everything, so it then listens on this machine only.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.errors import ConfigurationError
from millstream.query.wire.refusals import NotAllowedError, NoTokenError

__all__ = ["EVERYONE", "Reader", "Rights", "read_rights"]

_TOKEN_CHARACTERS_MIN = 16


@dataclass(frozen=True)
class Reader:
    """Somebody who asks: the name of the token and the states it opens, as patterns."""

    name: str
    states: tuple[str, ...]

    def may_read(self, state: str) -> bool:
        """Whether this state is open to them.

        >>> Reader("dash", ("totals-*",)).may_read("totals-hourly")
        True
        """
        return any(fnmatch.fnmatchcase(state, pattern) for pattern in self.states)

    def check(self, state: str) -> None:
        """Refuse what is not open to them. Nothing is said about whether the state exists."""
        if not self.may_read(state):
            raise NotAllowedError(
                f"token '{self.name}' may not read state {state!r}. It opens {', '.join(self.states) or 'nothing'}: "
                "ask for another, or have the state added to it."
            )


EVERYONE = Reader("everyone", ("*",))


@dataclass(frozen=True)
class Rights:
    """The tokens of a server: the hash of each, and who has it."""

    readers: Mapping[bytes, Reader]

    def reader_of(self, authorization: str | None) -> Reader:
        """Who sends this Authorization header.

        >>> made = Rights({hashlib.sha256(b"0123456789abcdef").digest(): Reader("dash", ("*",))})
        >>> made.reader_of("Bearer 0123456789abcdef").name
        'dash'
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise NoTokenError("this server answers to tokens only. Send the header `Authorization: Bearer TOKEN`.")
        given = hashlib.sha256(token.strip().encode()).digest()
        found = None
        for known, reader in self.readers.items():
            if hmac.compare_digest(known, given):
                found = reader  # and go on: how long this takes tells nothing
        if found is None:
            raise NoTokenError(
                "the token is not known to this server. Check it, or have it added to the file of tokens."
            )
        return found


def read_rights(path: Path, option: str = "--tokens") -> Rights:
    """The tokens in a file; ConfigurationError saying what is wrong with it."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{option} {path} cannot be read: {error}. {_EXPECTED}") from error
    if not isinstance(document, dict) or not document:
        raise ConfigurationError(f"{option} {path} has no tokens. {_EXPECTED}")
    return Rights(dict(_reader(f"{option} {path}", name, given) for name, given in document.items()))


_EXPECTED = 'Expected is {"name": {"token": "…", "states": ["…"]}}.'


def _reader(where: str, name: str, given: Any) -> tuple[bytes, Reader]:
    states = given.get("states") if isinstance(given, dict) else None
    if not isinstance(states, list) or not all(isinstance(state, str) for state in states):
        raise ConfigurationError(f"token '{name}' of {where} has no list of states. {_EXPECTED}")
    token, digest = given.get("token"), given.get("sha256")
    if isinstance(digest, str) and re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        return bytes.fromhex(digest), Reader(name, tuple(states))
    if not isinstance(token, str) or len(token) < _TOKEN_CHARACTERS_MIN:
        raise ConfigurationError(
            f"token '{name}' of {where} needs a token of {_TOKEN_CHARACTERS_MIN} characters or more, or its sha256. "
            'Make one with `python -c "import secrets; print(secrets.token_urlsafe())"`.'
        )
    return hashlib.sha256(token.encode()).digest(), Reader(name, tuple(states))
