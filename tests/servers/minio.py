"""A MinIO server: a real S3, with conditional writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from servers.server_process import HOST, ServerProcess, binaries, free_port
from servers.tcp_proxy import TcpProxy

__all__ = ["MinioServer"]


class MinioServer(ServerProcess):
    """`url` is the endpoint, `access_key` and `secret_key` those of the root user; `client()` is boto3's."""

    name = "minio"
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
        program = binaries() / "bin" / "minio"
        if not program.exists():
            raise RuntimeError(f"there is no {program}: run scripts/servers")
        data = self.folder / "data"
        return [str(program), "server", "--quiet", "--address", f"{HOST}:{self.port}", str(data)]

    def environment(self) -> Mapping[str, str]:
        return {
            "MINIO_ROOT_USER": self.access_key,
            "MINIO_ROOT_PASSWORD": self.secret_key,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            "MINIO_REGION": self.region,
            "HOME": str(self.folder),
        }

    def is_ready(self) -> bool:
        self.client().list_buckets()
        return True

    def client(self, url: str | None = None) -> Any:
        """A boto3 client for S3 that neither retries long nor looks for credentials elsewhere."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=url or self.url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=Config(connect_timeout=5, read_timeout=30, retries={"max_attempts": 1}),
        )

    def create_bucket(self, bucket: str) -> str:
        self.client().create_bucket(Bucket=bucket)
        return bucket

    def environment_for_clients(self) -> dict[str, str]:
        """What a job's environment needs in order to find the credentials, and nothing else by accident."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
