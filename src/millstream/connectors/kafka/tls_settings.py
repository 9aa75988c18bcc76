"""Translates the key stores of Java programs for a client that reads PEM and PKCS#12.

librdkafka cannot read a trust store in Java's format (JKS). It is rejected with the command that converts it; a
connection never uses certificates other than those specified by the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from millstream.errors import ConfigurationError

__all__ = ["tls_settings"]

_PEM_ENDINGS = (".pem", ".crt", ".cer", ".cert")
_PKCS12_ENDINGS = (".p12", ".pfx", ".pkcs12")
_STORES = (
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
)
_WITHOUT_MEANING = frozenset(
    {
        "ssl.protocol",
        "ssl.provider",
        "ssl.trustmanager.algorithm",
        "ssl.keymanager.algorithm",
        "ssl.secure.random.implementation",
    }
)


def tls_settings(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """librdkafka's properties for the `ssl.` ones among `properties`.

    >>> dict(tls_settings({"ssl.truststore.location": "/ca.pem", "ssl.endpoint.identification.algorithm": ""}))
    {'ssl.ca.location': '/ca.pem', 'ssl.endpoint.identification.algorithm': 'none'}
    """
    yield from _trust(properties)
    yield from _identity(properties)
    for name, value in properties.items():
        if not name.startswith("ssl.") or name in _STORES or name in _WITHOUT_MEANING:
            continue
        if name == "ssl.endpoint.identification.algorithm":
            yield name, value or "none"
        elif name == "ssl.enabled.protocols":
            _check_protocols(value)
        else:
            yield name, value


def _trust(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if "ssl.truststore.certificates" in properties:
        yield "ssl.ca.pem", properties["ssl.truststore.certificates"]
    location = properties.get("ssl.truststore.location")
    if location is None:
        return
    if _form(properties, "truststore", location) != "PEM":
        raise ConfigurationError(
            f"Kafka property ssl.truststore.location: {location} is not a PEM file, the only trust store that "
            f"librdkafka "
            f"reads. Convert it: keytool -list -rfc -keystore {location} > ca.pem. Then set it to ca.pem, and "
            "ssl.truststore.type to PEM."
        )
    yield "ssl.ca.location", location


def _identity(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if "ssl.keystore.key" in properties:
        yield "ssl.key.pem", properties["ssl.keystore.key"]
    if "ssl.keystore.certificate.chain" in properties:
        yield "ssl.certificate.pem", properties["ssl.keystore.certificate.chain"]
    location = properties.get("ssl.keystore.location")
    if location is None:
        return
    form = _form(properties, "keystore", location)
    if form == "PEM":
        # One file holds the key and its certificates, as for Kafka's Java client.
        yield "ssl.key.location", location
        yield "ssl.certificate.location", location
    elif form == "PKCS12":
        yield "ssl.keystore.location", location
        if "ssl.keystore.password" in properties:
            yield "ssl.keystore.password", properties["ssl.keystore.password"]
    else:
        raise ConfigurationError(
            f"Kafka property ssl.keystore.location: {location} is a Java key store, which librdkafka cannot read. "
            f"Convert it: keytool -importkeystore -srckeystore {location} -destkeystore client.p12 -deststoretype "
            "PKCS12. Then set it to client.p12, and ssl.keystore.type to PKCS12."
        )


def _form(properties: Mapping[str, str], store: str, location: str) -> str:
    """The format of a store: as the program declares it, or by its file name, or else Java's own."""
    declared = properties.get(f"ssl.{store}.type", "").upper()
    if declared:
        return declared
    ending = location.lower()
    return "PEM" if ending.endswith(_PEM_ENDINGS) else "PKCS12" if ending.endswith(_PKCS12_ENDINGS) else "JKS"


def _check_protocols(value: str) -> None:
    """Check the protocols. librdkafka uses TLS 1.2 and 1.3; a program that allows only one would get both."""
    if not {"TLSv1.2", "TLSv1.3"} <= {protocol.strip() for protocol in value.split(",")}:
        raise ConfigurationError(
            f"Kafka property ssl.enabled.protocols: found {value!r}, but librdkafka uses TLSv1.2 and TLSv1.3. Name "
            "both, or remove it and let the brokers decide."
        )
