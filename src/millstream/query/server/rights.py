"""Who may read what: bearer tokens, each with the states it opens.

A file of tokens is JSON:

    {"dashboard": {"token": "…", "states": ["impressions", "totals-*"]},
     "operations": {"sha256": "…", "states": ["*"]}}

A token is given as it is or as the SHA-256 of it. Only the hashes are kept, and they are compared in constant time.
The file is read again when it has changed: tokens come and go without a restart, and one that was taken back opens
nothing from then on. A file that is gone or damaged opens nothing at all until it is mended.

Without a file everyone who reaches the server may read everything, so it then listens on this machine only.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import json
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from millstream.errors import ConfigurationError
from millstream.query.wire.refusals import NoRightsError, NotAllowedError, NoTokenError

__all__ = ["EVERYONE", "Reader", "Readers", "Rights", "TokenFile", "read_rights"]

_LOG = logging.getLogger(__name__)
_SETTLES_NS = 2_000_000_000  # a file may change twice within one tick of its file system's clock
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
        digest = hashlib.sha256(token.strip().encode()).digest()
        match = None
        for known, reader in self.readers.items():
            if hmac.compare_digest(known, digest):
                match = reader  # and go on: how long this takes tells nothing
        if match is None:
            raise NoTokenError(
                "the token is not known to this server. Check it, or have it added to the file of tokens."
            )
        return match


class Readers(Protocol):
    """Knows who sends a token."""

    def reader_of(self, authorization: str | None) -> Reader:
        """Who sends this Authorization header; a Refusal if nobody does."""


class TokenFile:
    """The tokens that a file has now."""

    def __init__(self, path: Path, option: str = "--tokens", now_ns: Callable[[], int] = time.time_ns) -> None:
        self._path, self._option, self._now_ns = path, option, now_ns
        self._version, self._rights = self._look(), _rights_in(path, option)
        self._complaint = ""

    def reader_of(self, authorization: str | None) -> Reader:
        """Who sends this Authorization header, by the tokens of this moment."""
        return self._newest().reader_of(authorization)

    def _newest(self) -> Rights:
        version = self._look()
        if version is None or version != self._version:
            # The version is that from before the file was read: what comes while it is read is read next time.
            try:
                self._rights = _rights_in(self._path, self._option)
            except ConfigurationError as error:
                self._version = None
                if str(error) != self._complaint:
                    self._complaint = str(error)
                    _LOG.error("no token opens anything until this is mended: %s", error)
                raise NoRightsError(
                    "the tokens of this server cannot be read now, and it answers nobody without. Its log says why."
                ) from error
            self._version, self._complaint = version, ""
        return self._rights

    def _look(self) -> tuple[int, int, int] | None:
        """What tells one content of the file from another; None where that cannot be told yet, or there is none."""
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        is_settled = not 0 <= self._now_ns() - status.st_mtime_ns < _SETTLES_NS
        return (status.st_mtime_ns, status.st_size, status.st_ino) if is_settled else None


def read_rights(path: Path, option: str = "--tokens") -> TokenFile:
    """The tokens in a file, followed as it changes; ConfigurationError saying what is wrong with it."""
    return TokenFile(path, option)


def _rights_in(path: Path, option: str) -> Rights:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{option} {path} cannot be read: {error}. {_EXPECTED}") from error
    if not isinstance(document, dict) or not document:
        raise ConfigurationError(f"{option} {path} has no tokens. {_EXPECTED}")
    return Rights(dict(_reader(f"{option} {path}", name, entry) for name, entry in document.items()))


_EXPECTED = 'Expected is {"name": {"token": "…", "states": ["…"]}}.'


def _reader(where: str, name: str, entry: Any) -> tuple[bytes, Reader]:
    states = entry.get("states") if isinstance(entry, dict) else None
    if not isinstance(states, list) or not all(isinstance(state, str) for state in states):
        raise ConfigurationError(f"token '{name}' of {where} has no list of states. {_EXPECTED}")
    token, digest = entry.get("token"), entry.get("sha256")
    if isinstance(digest, str) and re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        return bytes.fromhex(digest), Reader(name, tuple(states))
    if not isinstance(token, str) or len(token) < _TOKEN_CHARACTERS_MIN or not _can_be_sent(token):
        raise ConfigurationError(
            f"token '{name}' of {where} needs a token of {_TOKEN_CHARACTERS_MIN} characters or more, or its sha256. "
            'Make one with `python -c "import secrets; print(secrets.token_urlsafe())"`.'
        )
    return hashlib.sha256(token.encode()).digest(), Reader(name, tuple(states))


def _can_be_sent(token: str) -> bool:
    """Whether it is text: JSON can have half a character, too (a lone surrogate)."""
    try:
        token.encode()
    except UnicodeError:
        return False
    return True
