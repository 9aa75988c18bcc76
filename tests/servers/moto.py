"""moto's server: AWS's services imitated in memory, for Kinesis and for what real S3 would never answer.

It keeps nothing when it is killed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from servers.server_process import HOST, ServerProcess, accepts, free_port
from servers.tcp_proxy import TcpProxy

__all__ = ["MotoServer"]


class MotoServer(ServerProcess):
    name = "moto"
    region = "us-east-1"
    access_key = "millstream-key"
    secret_key = "millstream-secret-of-the-tests"

    def __init__(self) -> None:
        super().__init__()
        self.port = free_port()
        self.url = self.url_at(self.port)

    def url_at(self, port: int) -> str:
        return f"http://{HOST}:{port}"

    def proxy(self) -> TcpProxy:
        """A way to the server that can be cut: clients use `url_at(proxy.port)`."""
        return TcpProxy(self.port)

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(self.port)]

    def is_ready(self) -> bool:
        return accepts(self.port)

    def client(self, service: str) -> Any:
        """A boto3 client of that service."""
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
        )
