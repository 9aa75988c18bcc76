"""A RabbitMQ server, from Debian's package, without systemd and with no files outside its folder.

Erlang starts a name server (epmd) if none runs, as a daemon that nobody would stop. So a separate name server is
started first, in the same process group and on a free port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from servers.server_process import HOST, ServerProcess, accepts, free_port
from servers.tcp_proxy import TcpProxy

__all__ = ["RabbitServer"]

# Debian's wrapper on the PATH requires the user rabbitmq; the program behind it does not.
_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_START = "epmd & until epmd -names >/dev/null 2>&1; do sleep 0.02; done; exec " + str(_PROGRAM)


class RabbitServer(ServerProcess):
    """`url` is that of the user guest, who has all rights from this machine."""

    name = "rabbitmq"

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()
        self.url = self.url_at(self.port)
        self._name_port = free_port()
        self._peer_port = free_port()

    def url_at(self, port: int) -> str:
        return f"amqp://guest:guest@{HOST}:{port}/%2F"

    def proxy(self) -> TcpProxy:
        """A proxy to the server that tests can cut: clients use `url_at(proxy.port)`."""
        return TcpProxy(self.port)

    def command(self) -> Sequence[str]:
        if not _PROGRAM.exists():
            raise RuntimeError("there is no rabbitmq-server: run scripts/servers")
        return ["sh", "-c", _START]

    def environment(self) -> Mapping[str, str]:
        enabled_plugins = self.folder / "plugins"
        enabled_plugins.write_text("[].\n")
        settings = self.folder / "rabbitmq.conf"
        settings.write_text(f"listeners.tcp.1 = {HOST}:{self.port}\n")
        return {
            "HOME": str(self.folder),
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(self._name_port),
            "RABBITMQ_NODENAME": "millstream@localhost",
            "RABBITMQ_DIST_PORT": str(self._peer_port),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "no-such-file"),
            "RABBITMQ_CONFIG_FILE": str(settings),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(enabled_plugins),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOGS": "-",
            # Idle schedulers must not spin.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        }

    def is_ready(self) -> bool:
        if not accepts(self.port):
            return False
        self.connect().close()
        return True

    def connect(self) -> Any:
        """pika's blocking connection."""
        import pika

        parameters = pika.URLParameters(self.url)
        parameters.socket_timeout = parameters.blocked_connection_timeout = 10
        return pika.BlockingConnection(parameters)
