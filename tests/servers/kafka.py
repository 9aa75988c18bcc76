"""A Kafka broker in KRaft mode: one node that is controller and broker.

It has two listeners for clients: `bootstrap`, and one that advertises the address of `proxy()`, because a client
connects to the address that the broker advertises, not to its configured one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

from waits.patience import PATIENCE_S

from servers.server_process import HOST, ServerProcess, accepts, binaries, free_port
from servers.tcp_proxy import TcpProxy

__all__ = ["KafkaBroker"]

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "DIRECT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "DIRECT",
    # One node; and few partitions of its own topics, or each start takes seconds to open them.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A wrong topic is an error, not a new topic.
    "auto.create.topics.enable": "false",
    "log.cleaner.dedupe.buffer.size": "4194304",
    # After a restart, a killed broker stays fenced for this long. One that a busy machine delays for longer loses its
    # partitions for a while: with 2 s, pauses of 2.6 s made a write take 8 s, not 3.
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    # Old segments are removed soon, for tests of expired offsets.
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "500",
    # Open transactions are aborted soon after their own timeout.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


class KafkaBroker(ServerProcess):
    """`settings` are added to server.properties."""

    name = "kafka"

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.port = free_port()
        self._controller_port = free_port()
        self._proxied_port = free_port()
        self._advertised_port = free_port()
        self._settings = {**_SETTINGS, **self._addresses(), **(settings or {})}
        self._heap_max = "512m"

    def _addresses(self) -> dict[str, str]:
        direct, proxied = f"DIRECT://{HOST}:{self.port}", f"PROXIED://{HOST}:{self._proxied_port}"
        return {
            "log.dirs": str(self.folder / "data"),
            "listeners": f"{direct},{proxied},CONTROLLER://{HOST}:{self._controller_port}",
            "advertised.listeners": f"{direct},PROXIED://{HOST}:{self._advertised_port}",
            "controller.quorum.voters": f"1@{HOST}:{self._controller_port}",
        }

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def proxy(self) -> TcpProxy:
        """A proxy to the broker that tests can cut. Its `address` is the bootstrap of clients that use it; one at a
        time. Close it, or use it in a `with`.
        """
        return TcpProxy(self._proxied_port, port=self._advertised_port)

    def command(self) -> Sequence[str]:
        return self._java("kafka.Kafka", "server.properties")

    def _java(self, main: str, *arguments: str) -> list[str]:
        jars = binaries() / "kafka" / "libs"
        if not jars.is_dir():
            raise RuntimeError(f"there is no Kafka in {jars}: run scripts/servers")
        flags = [
            f"-Xmx{self._heap_max}",
            "-Xms64m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        ]
        return ["java", *flags, "-cp", f"{jars}/*", main, *arguments]

    def start(self) -> None:
        if not (self.folder / "data").exists():
            self._format()
        super().start()

    def _format(self) -> None:
        lines = [f"{name}={value}\n" for name, value in self._settings.items()]
        (self.folder / "server.properties").write_text("".join(lines))
        # One argument: an id may begin with a dash.
        cluster = f"--cluster-id={_cluster_id()}"
        command = self._java("kafka.tools.StorageTool", "format", cluster, "-c", "server.properties")
        formatted = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120)
        if formatted.returncode != 0:
            raise RuntimeError(f"Kafka's storage was not formatted:\n{formatted.stdout}{formatted.stderr}")

    def is_ready(self) -> bool:
        from confluent_kafka.admin import AdminClient

        if not accepts(self.port):
            return False
        metadata = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0}).list_topics(timeout=5)
        return len(metadata.brokers) == 1 and metadata.controller_id == 1

    def create_topic(self, topic: str, partitions: int = 1, **config: str) -> str:
        """Create it and wait until it exists; names in `config` have _ for a dot. Returns the name."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        named = {name.replace("_", "."): value for name, value in config.items()}
        for future in admin.create_topics([NewTopic(topic, partitions, 1, config=named)]).values():
            future.result(PATIENCE_S)
        return topic


def _cluster_id() -> str:
    import base64

    return base64.urlsafe_b64encode(b"millstream-tests").decode().rstrip("=")
