"""moto's server: AWS's services imitated in memory, for Kinesis and for responses that a real S3 would never send.

It retains nothing when it is killed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from servers.aws_server import AwsServer
from servers.server_process import HOST, accepts

__all__ = ["MotoServer"]


class MotoServer(AwsServer):
    name = "moto"

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(self.port)]

    def is_ready(self) -> bool:
        return accepts(self.port)

    def client(self, service: str) -> Any:
        """A boto3 client of that service."""
        return self.client_of(service)
