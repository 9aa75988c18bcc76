"""The settings of a server: where it listens, who may read, and the limits of requests. Checked before it starts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from millstream.errors import ConfigurationError
from millstream.query.server.rights import Readers
from millstream.query.wire.servers import is_loopback

__all__ = ["Limits", "ServerSettings", "key_group_span"]


@dataclass(frozen=True)
class Limits:
    """The limits of one request, of one client, and of all clients together. Many fields: each limits one thing.

    >>> Limits().keys_max
    10000
    """

    keys_max: int = 10_000
    body_bytes_max: int = 1 << 20
    scan_rows_max: int = 10_000
    flight_keys_max: int = 1_000_000
    flight_message_bytes_max: int = 32 << 20
    flight_call_bytes_max: int = 128 << 20
    answer_bytes_max: int = 128 << 20
    unread_bytes_max: int = 512 << 20
    watchers_max: int = 200
    connections_max: int = 500
    requests_per_s: float | None = None
    request_timeout_s: float = 10.0
    header_timeout_s: float = 10.0
    unread_timeout_s: float = 30.0
    min_epoch_wait_s: float = 2.0
    reads_at_once_max: int = 16


@dataclass(frozen=True)
class ServerSettings:
    """One server. `key_groups` is the range it holds, None for all; `rights` None means that everyone may read.

    `allowed_hosts` are further names that requests may use. `trusted_proxies` are addresses and networks whose
    X-Forwarded-For header is trusted. `page` is the HTML served at `/`. `option_prefix` is the prefix of option names
    in errors. Many fields: each is one option.
    """

    host: str = "127.0.0.1"
    port: int = 8787
    flight_port: int | None = None
    advertised_host: str | None = None
    key_groups: range | None = None
    rights: Readers | None = None
    allow_anonymous: bool = False
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    certificate: Path | None = None
    private_key: Path | None = None
    page: bytes | None = None
    limits: Limits = field(default_factory=Limits)
    option_prefix: str = "--"

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.certificate is not None

    def checked(self) -> ServerSettings:
        """Returns itself; raises ConfigurationError if the server would be open to untrusted clients or could not work.

        >>> ServerSettings(host="0.0.0.0").checked()
        Traceback (most recent call last):
        millstream.errors.ConfigurationError: listening on 0.0.0.0 without tokens lets everyone who reaches this \
machine read the job's state. Set a file of tokens, or confirm that this is intended (--allow-anonymous).
        """
        if not is_loopback(self.host) and self.rights is None and not self.allow_anonymous:
            raise ConfigurationError(
                f"listening on {self.host} without tokens lets everyone who reaches this machine read the job's "
                f"state. Set a file of tokens, or confirm that this is intended ({self.called('allow-anonymous')})."
            )
        tls = {"certificate": self.certificate, "private-key": self.private_key}
        if (self.certificate is None) != (self.private_key is None):
            both = " and ".join(map(self.called, tls))
            raise ConfigurationError(f"TLS needs a certificate and its private key. Set {both}, or neither.")
        for name, path in tls.items():
            if path is not None and not path.is_file():
                raise ConfigurationError(f"{self.called(name)} {path} does not exist. Set the path of a PEM file.")
        for proxy in self.trusted_proxies:
            try:
                ipaddress.ip_network(proxy, strict=False)
            except ValueError as error:
                option = self.called("trusted-proxy", "trusted-proxies")
                raise ConfigurationError(
                    f"{option} {proxy!r} is not an address. Set that of the proxy, such as 10.0.0.5 or 10.0.0.0/24."
                ) from error
        return self

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about settings that are valid but may be unintended.

        >>> from millstream.query.server.rights import Rights
        >>> ServerSettings(host="0.0.0.0", rights=Rights({})).warnings[0][:40]
        'tokens are sent to 0.0.0.0 in the clear:'
        """
        if self.rights is None or self.has_tls or is_loopback(self.host):
            return ()
        return (
            f"tokens are sent to {self.host} in the clear: anybody on the network path can read and use them. "
            f"Set {self.called('certificate')} and {self.called('private-key')}, or listen on 127.0.0.1 behind a "
            "proxy that speaks TLS.",
        )

    def called(self, option: str, plural: str | None = None) -> str:
        """The full name of an option; `plural` is its name in a configuration if the command line repeats the option.

        >>> ServerSettings(option_prefix="millstream.query.").called("allow-host", "allow-hosts")
        'millstream.query.allow-hosts'
        """
        return self.option_prefix + (option if plural is None or self.option_prefix == "--" else plural)

    @property
    def held_span(self) -> tuple[int, int] | None:
        """The first and last key group held; None for all."""
        return None if self.key_groups is None else (self.key_groups[0], self.key_groups[-1])

    @property
    def shown_host(self) -> str:
        """The host in the addresses for clients."""
        host = self.advertised_host or self.host
        return f"[{host}]" if ":" in host else host


def key_group_span(text: str) -> range:
    """The key groups of `--key-groups`.

    >>> key_group_span("0-63"), key_group_span("5")
    (range(0, 64), range(5, 6))
    """
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and (last.isdecimal() if dash else True)):
        raise ConfigurationError(f"key groups {text!r} are not a range. Write the first and the last: 0-63.")
    span = range(int(first), int(last if dash else first) + 1)
    if not span:
        raise ConfigurationError(f"key groups {text!r} end before they begin. Write the first and the last: 0-63.")
    return span
