"""A MinIO server: a real S3, with conditional writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from servers.aws_server import AwsServer
from servers.server_process import HOST, binaries

__all__ = ["MinioServer"]


class MinioServer(AwsServer):
    """`client()` is boto3's, for S3."""

    name = "minio"

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
        """A boto3 client for S3."""
        return self.client_of("s3", url)

    def create_bucket(self, bucket: str) -> str:
        self.client().create_bucket(Bucket=bucket)
        return bucket

    def environment_for_clients(self) -> dict[str, str]:
        """The environment variables with which a job reads the credentials, without other credentials."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
