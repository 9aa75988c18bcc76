"""A server with AWS's protocols: one address, one region, one user, and boto3's clients for it."""

from __future__ import annotations

from typing import Any

from servers.server_process import HOST, ServerProcess, free_port
from servers.tcp_proxy import TcpProxy

__all__ = ["AwsServer"]


class AwsServer(ServerProcess):
    """`url` is the endpoint, `access_key` and `secret_key` those of a user with all rights."""

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
        """A proxy to the server that tests can cut: clients use `url_at(proxy.port)`."""
        return TcpProxy(self.port)

    def client_of(self, service: str, url: str | None = None) -> Any:
        """A boto3 client of a service with few retries and no other credentials."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            service,
            endpoint_url=url or self.url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=Config(connect_timeout=5, read_timeout=30, retries={"max_attempts": 1}),
        )
