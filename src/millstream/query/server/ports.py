"""The ports of a server, taken before it answers: what is wrong with them is found while nothing has begun yet."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from millstream.errors import ConfigurationError
from millstream.query.server.connections import tls_checked
from millstream.query.server.settings import ServerSettings

__all__ = ["Ports"]


@dataclass(frozen=True)
class Ports:
    """The sockets that are listened to. Connections wait in them until the server answers."""

    http: socket.socket
    flight: socket.socket | None = None

    @classmethod
    def taken(cls, settings: ServerSettings) -> Ports:
        """Take them; ConfigurationError if they are another's, or if the files of TLS are none."""
        tls_checked(settings)
        http = _listening(settings, "listen", settings.port)
        if settings.flight_port is None:
            return cls(http)
        try:
            return cls(http, _listening(settings, "flight-port", settings.flight_port))
        except ConfigurationError:
            http.close()
            raise

    @property
    def http_port(self) -> int:
        """The port of HTTP, also where any free one was asked for."""
        port: int = self.http.getsockname()[1]
        return port

    def close(self) -> None:
        """Give them back."""
        self.http.close()
        if self.flight is not None:
            self.flight.close()


def _listening(settings: ServerSettings, option: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is named, since asyncio turns off Nagle's delay for connections of a socket that names TCP only:
    # without, every answer waits 40 ms for an acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, port))
        listening.listen(512)
        return listening
    except (OSError, OverflowError) as error:
        listening.close()
        raise ConfigurationError(
            f"{settings.called(option)}: {settings.host}:{port} cannot be listened on: {error}. Give another: port 0 "
            "takes any that is free."
        ) from error
