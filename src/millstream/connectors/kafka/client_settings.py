"""Client properties of a Kafka cluster: in the Java client's names, translated for librdkafka.

PyFlink programs use the properties of Kafka's Java client. Here the client is librdkafka. Most names are the same in
both; other properties are translated, or dropped if they have no meaning here, or rejected with an alternative.
librdkafka rejects properties unknown to both when it is created. A value is never dropped if that could make
a connection less secure than the program requested.

Settings contain secrets because tasks need them. No output shows them: neither `repr`, nor client errors, which
`hide_secrets` filters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from millstream.connectors.kafka.tls_settings import tls_settings
from millstream.connectors.service_urls import checked_host_and_port
from millstream.errors import ConfigurationError
from millstream.redaction import HIDDEN, is_sensitive, redact, redacted_value, secrets_of

__all__ = ["ClientSettings", "Role"]

Role = Literal["consumer", "producer", "admin"]

_TRANSLATED: Mapping[str, str] = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms",
    "max.request.size": "message.max.bytes",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
}
"""Names of the Java client, and their equivalents in librdkafka."""

_WITHOUT_MEANING = frozenset(
    {
        "key.deserializer",
        "value.deserializer",
        "key.serializer",
        "value.serializer",
        "max.poll.records",
        "default.api.timeout.ms",
        "max.block.ms",
        "exclude.internal.topics",
        "partition.assignment.strategy",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "auto.include.jmx.reporter",
        "enable.metrics.push",
        "throw.on.fetch.stable.offset.unsupported",
        "internal.leave.group.on.close",
        "flink.disable-metrics",
        "flink.poll-timeout",
        "register.consumer.metrics",
        "register.producer.metrics",
    }
)
"""Internals of the Java client. Dropped: they do not affect results."""

_REFUSED: Mapping[str, str] = {
    "interceptor.classes": "Java classes cannot run here. Map the stream instead",
    "metric.reporters": "Java classes cannot run here. Millstream has its own metrics",
    "partitioner.class": "Java classes cannot run here. librdkafka's property is 'partitioner', such as murmur2_random",
    "ssl.engine.factory.class": "Java classes cannot run here. Use certificates in PEM format",
    "security.providers": "Java classes cannot run here. Use certificates in PEM format",
    "sasl.client.callback.handler.class": "Java classes cannot run here. Use a mechanism of librdkafka's: PLAIN, "
    "SCRAM-SHA-256, SCRAM-SHA-512, GSSAPI, OAUTHBEARER",
    "sasl.login.class": "Java classes cannot run here. Use sasl.username and sasl.password",
}

_LOGIN_HANDLER = "sasl.login.callback.handler.class"
_OIDC_HANDLER = "OAuthBearerLoginCallbackHandler"
_MECHANISMS = frozenset({"GSSAPI", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"})
_JAAS = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*?);?\s*", re.DOTALL
)
_JAAS_OPTION = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")


@dataclass(frozen=True, repr=False)
class ClientSettings:
    """The properties of one cluster's clients, as the program wrote them: (name, value) pairs, sorted.

    >>> settings = ClientSettings.of({"bootstrap.servers": "a:9092", "sasl.password": "hush"})
    >>> settings
    ClientSettings(bootstrap.servers='a:9092', sasl.password=******)
    >>> settings.hide_secrets("login with hush failed")
    'login with ****** failed'
    """

    properties: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> ClientSettings:
        """Settings of these properties. Numbers and booleans become text, as in a properties file."""
        settings = cls(tuple(sorted((_name(name), _text(name, value)) for name, value in properties.items())))
        for server in settings.bootstrap_servers.split(","):
            checked_host_and_port(server.strip(), "Kafka property bootstrap.servers")
        return settings

    @property
    def bootstrap_servers(self) -> str:
        """The initial addresses."""
        return dict(self.properties).get("bootstrap.servers", "")

    def get(self, name: str, default: str | None = None) -> str | None:
        """The value of a property, as written by the program."""
        return dict(self.properties).get(name, default)

    def without(self, *names: str) -> ClientSettings:
        """A copy without some properties: the ones that the connector itself handles."""
        return ClientSettings(tuple(pair for pair in self.properties if pair[0] not in names))

    def for_role(self, role: Role, **overrides: Any) -> dict[str, Any]:
        """librdkafka's configuration of a client. `overrides` replace the program's, with '_' for '.' in their names.

        >>> ClientSettings.of({"fetch.max.wait.ms": 5}).for_role("consumer", group_id="g")
        {'fetch.wait.max.ms': '5', 'group.id': 'g'}
        """
        properties = dict(self.properties)
        translated = dict(tls_settings(properties)) | dict(_sasl_settings(properties))
        for name, value in properties.items():
            translated |= _translated(name, value, role)
        return translated | {name.replace("_", "."): value for name, value in overrides.items()}

    def hide_secrets(self, text: str) -> str:
        """`text` with the values of secret properties hidden, also those inside a JAAS line."""
        return redact(text, self._secrets())

    def _secrets(self) -> Iterator[str]:
        for name, value in self.properties:
            yield from secrets_of(name, value)
            if name == "sasl.jaas.config":
                yield from (option for key, option in _jaas_options(value).items() if is_sensitive(key))

    def __repr__(self) -> str:
        shown = (
            f"{name}={HIDDEN if is_sensitive(name) else repr(redacted_value(name, value))}"
            for name, value in self.properties
        )
        return f"ClientSettings({', '.join(shown)})"


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError(f"Kafka property {name!r}: its name is not a string. Write, for example, 'group.id'.")
    return name.strip()


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    shown = HIDDEN if is_sensitive(name) else repr(value)
    raise ConfigurationError(f"Kafka property {name}: found {shown} ({type(value).__name__}), expected a string.")


def _translated(name: str, value: str, role: Role) -> Mapping[str, str]:
    """A property in librdkafka's terms; TLS and SASL properties are translated together elsewhere."""
    if name in _REFUSED:
        raise ConfigurationError(f"Kafka property {name}: {_REFUSED[name]}.")
    if name in _WITHOUT_MEANING or name in _SASL_TOGETHER or name.startswith("ssl."):
        return {}
    if name == "buffer.memory":
        return {"queue.buffering.max.kbytes": str(max(1, int(value) // 1024))}
    if name == "request.timeout.ms":
        # In librdkafka this name is the producer's; for other clients it limits any request.
        return {name: value} if role == "producer" else {"socket.timeout.ms": value}
    if name == "client.dns.lookup" and value == "default":
        return {name: "use_all_dns_ips"}
    return {_TRANSLATED.get(name, name): value}


# --- SASL -------------------------------------------------------------------------------------------------------

_SASL_TOGETHER = frozenset({"sasl.jaas.config", "sasl.mechanism", "sasl.mechanisms", _LOGIN_HANDLER})


def _sasl_settings(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms"))
    if mechanism is not None:
        if mechanism.upper() not in _MECHANISMS:
            raise ConfigurationError(
                f"Kafka property sasl.mechanism: found {mechanism!r}, expected one of "
                f"{', '.join(sorted(_MECHANISMS))}. Others need Java classes, which cannot run here."
            )
        yield "sasl.mechanism", mechanism.upper()
    handler = properties.get(_LOGIN_HANDLER)
    if handler is not None:
        if not handler.endswith(_OIDC_HANDLER):
            raise ConfigurationError(
                f"Kafka property {_LOGIN_HANDLER}: found {handler!r}, a Java class, which cannot run here. Supported: "
                f"{_OIDC_HANDLER}, which requests tokens from sasl.oauthbearer.token.endpoint.url."
            )
        yield "sasl.oauthbearer.method", "oidc"
    jaas = properties.get("sasl.jaas.config")
    if jaas is not None:
        yield from _jaas_settings(jaas)


def _jaas_settings(line: str) -> Iterator[tuple[str, str]]:
    """The settings of a JAAS line, for librdkafka."""
    match = _JAAS.fullmatch(line)
    if match is None:
        raise ConfigurationError(
            "Kafka property sasl.jaas.config: its value (not shown) is not of the form "
            "'module required name=\"value\" …;'. Correct it, or use sasl.username and sasl.password instead."
        )
    module, options = match["module"].rpartition(".")[2], _jaas_options(line)
    known = _JAAS_MODULES.get(module)
    if known is None:
        raise ConfigurationError(
            f"Kafka property sasl.jaas.config: the login module {match['module']} is a Java class, which cannot run "
            f"here. Supported: {', '.join(sorted(_JAAS_MODULES))}."
        )
    for option, name in known.items():
        if option in options:
            yield name, options[option]


_JAAS_MODULES: Mapping[str, Mapping[str, str]] = {
    "PlainLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "ScramLoginModule": {"username": "sasl.username", "password": "sasl.password"},
    "OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    },
    "Krb5LoginModule": {
        "keyTab": "sasl.kerberos.keytab",
        "principal": "sasl.kerberos.principal",
        "serviceName": "sasl.kerberos.service.name",
    },
}


def _jaas_options(line: str) -> dict[str, str]:
    """The options of a JAAS line, without their quotes.

    >>> _jaas_options('x.PlainLoginModule required username="me" password="a\\\\"b";')
    {'username': 'me', 'password': 'a"b'}
    """
    matches = (match.groups() for match in _JAAS_OPTION.finditer(line))
    return {
        name: re.sub(r"\\(.)", r"\1", double if double is not None else single if single is not None else bare)
        for name, double, single, bare in matches
    }
