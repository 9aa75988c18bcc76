"""A bucket for one test, filled and read with boto3, independently of the tested code."""

from __future__ import annotations

from servers.minio import MinioServer

__all__ = ["Bucket", "service_environment"]


class Bucket:
    """A fresh bucket; `url` is its address for jobs."""

    def __init__(self, server: MinioServer, name: str) -> None:
        self.client = server.client()
        self.name = server.create_bucket(name)
        self.url = f"s3://{name}"

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def get(self, key: str) -> bytes:
        body: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return body

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", ())]

    def lines(self, prefix: str) -> list[str]:
        """The lines of all visible files below the prefix."""
        visible = [key for key in self.keys(prefix) if "/." not in key]
        return [line for key in visible for line in self.get(key).decode().splitlines()]


def service_environment(server: MinioServer, url: str | None = None) -> dict[str, str]:
    """The environment variables with which a job connects to the server, directly or through the proxy at `url`."""
    endpoint = url or server.url
    names = {"AWS_ENDPOINT": endpoint, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
    return {**server.environment_for_clients(), **names}
