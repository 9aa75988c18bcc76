"""Access rights: bearer tokens, each with the states it may read.

A file of tokens is JSON:

    {"dashboard": {"token": "…", "states": ["impressions", "totals-*"]},
     "operations": {"sha256": "…", "states": ["*"]}}

A token is configured in plain text or as its SHA-256. Only the hashes are stored, and they are compared in constant
time. The file is read again when it has changed: tokens are added and removed without a restart, and a revoked token
has no rights from then on. While the file is missing or damaged, no token has any rights.

Without a file everyone who can connect may read everything, so the server then listens on this machine only.
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
    """A client: the name of its token and the states it may read, as patterns."""

    name: str
    states: tuple[str, ...]

    def may_read(self, state: str) -> bool:
        """Whether the client may read this state.

        >>> Reader("dash", ("totals-*",)).may_read("totals-hourly")
        True
        """
        return any(fnmatch.fnmatchcase(state, pattern) for pattern in self.states)

    def check(self, state: str) -> None:
        """Reject states that the client may not read, without revealing whether they exist."""
        if not self.may_read(state):
            raise NotAllowedError(
                f"token '{self.name}' may not read state {state!r}. It may read {', '.join(self.states) or 'nothing'}: "
                "use another, or have the state added to it."
            )


EVERYONE = Reader("everyone", ("*",))


@dataclass(frozen=True)
class Rights:
    """The tokens of a server: the hash of each, and its reader."""

    readers: Mapping[bytes, Reader]

    def reader_of(self, authorization: str | None) -> Reader:
        """The reader that sends this Authorization header.

        >>> made = Rights({hashlib.sha256(b"0123456789abcdef").digest(): Reader("dash", ("*",))})
        >>> made.reader_of("Bearer 0123456789abcdef").name
        'dash'
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise NoTokenError("this server requires a token. Send the header `Authorization: Bearer TOKEN`.")
        digest = hashlib.sha256(token.strip().encode()).digest()
        match = None
        for known, reader in self.readers.items():
            if hmac.compare_digest(known, digest):
                match = reader  # no early exit: the duration must not depend on the match
        if match is None:
            raise NoTokenError(
                "the token is not known to this server. Check it, or have it added to the file of tokens."
            )
        return match


class Readers(Protocol):
    """Identifies the sender of a token."""

    def reader_of(self, authorization: str | None) -> Reader:
        """The reader that sends this Authorization header; raises a Refusal if there is none."""


class TokenFile:
    """The current tokens of a file."""

    def __init__(self, path: Path, option: str = "--tokens", now_ns: Callable[[], int] = time.time_ns) -> None:
        self._path, self._option, self._now_ns = path, option, now_ns
        self._version, self._rights = self._file_version(), _rights_in(path, option)
        self._complaint = ""

    def reader_of(self, authorization: str | None) -> Reader:
        """The reader that sends this Authorization header, by the current tokens."""
        return self._newest().reader_of(authorization)

    def _newest(self) -> Rights:
        version = self._file_version()
        if version is None or version != self._version:
            # The version is determined before the file is read, so that changes during the read are detected next time.
            try:
                self._rights = _rights_in(self._path, self._option)
            except ConfigurationError as error:
                self._version = None
                if str(error) != self._complaint:
                    self._complaint = str(error)
                    _LOG.error("no token is accepted until this is corrected: %s", error)
                raise NoRightsError(
                    "the tokens of this server cannot be read now, and it requires one. Its log has the reason."
                ) from error
            self._version, self._complaint = version, ""
        return self._rights

    def _file_version(self) -> tuple[int, int, int] | None:
        """Identifies one content of the file; None if it cannot be identified yet, or there is no file."""
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        is_settled = not 0 <= self._now_ns() - status.st_mtime_ns < _SETTLES_NS
        return (status.st_mtime_ns, status.st_size, status.st_ino) if is_settled else None


def read_rights(path: Path, option: str = "--tokens") -> TokenFile:
    """The tokens in a file, followed as it changes; raises ConfigurationError if it is invalid."""
    return TokenFile(path, option)


def _rights_in(path: Path, option: str) -> Rights:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{option} {path} cannot be read: {error}. {_EXPECTED}") from error
    if not isinstance(document, dict) or not document:
        raise ConfigurationError(f"{option} {path} has no tokens. {_EXPECTED}")
    return Rights(dict(_reader(f"{option} {path}", name, entry) for name, entry in document.items()))


_EXPECTED = 'Expected: {"name": {"token": "…", "states": ["…"]}}.'


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
    """Whether the string can be encoded: JSON can also contain a lone surrogate."""
    try:
        token.encode()
    except UnicodeError:
        return False
    return True
