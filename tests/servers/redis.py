"""A Redis server that loses no acknowledged write: each one is synced to its file."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from servers.server_process import HOST, ServerProcess, free_port
from servers.tcp_proxy import TcpProxy

__all__ = ["RedisServer"]


class RedisServer(ServerProcess):
    name = "redis"

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()
        self.url = self.url_at(self.port)

    def url_at(self, port: int) -> str:
        return f"redis://{HOST}:{port}/0"

    def proxy(self) -> TcpProxy:
        """A proxy to the server that tests can cut: clients use `url_at(proxy.port)`."""
        return TcpProxy(self.port)

    def command(self) -> Sequence[str]:
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("there is no redis-server: run scripts/servers")
        options = {
            "port": str(self.port),
            "bind": HOST,
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
        }
        return [program, *(part for name, value in options.items() for part in (f"--{name}", value))]

    def is_ready(self) -> bool:
        import redis

        with redis.Redis.from_url(self.url, socket_timeout=5) as client:
            return bool(client.ping())
