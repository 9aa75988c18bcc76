"""A TLS listener with a certificate that no authority signed for its address: clients must reject it.

It implements no protocol beyond the messages that precede TLS in PostgreSQL and MySQL, and the handshake. Data that a
client sends after a handshake it should have rejected is in `received`.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
import ssl
import struct
import threading
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from servers.server_process import HOST

__all__ = ["Impostor", "write_certificates"]

_MYSQL_GREETING = (
    b"\x0a8.0.0\x00" + struct.pack("<I", 1) + b"saltsalt\x00" + struct.pack("<H", 0xFFFF) + b"\x2d"
    b"\x02\x00" + struct.pack("<H", 0xC3FF) + b"\x15" + bytes(10) + b"saltsaltsalt\x00" + b"mysql_native_password\x00"
)


def write_certificates(folder: Path, *, names: tuple[str, ...] = ("elsewhere.example",)) -> tuple[Path, Path]:
    """Files of an authority, and of a certificate with its key that the authority signed for `names`, in PEM form."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("authority", authority_key, "authority", authority_key, (), is_authority=True)
    server = _certificate(names[0], key, "authority", authority_key, names)
    (folder / "ca.pem").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(server.public_bytes(serialization.Encoding.PEM) + private)
    return folder / "ca.pem", folder / "server.pem"


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    hosts: tuple[str, ...],
    *,
    is_authority: bool = False,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().serial_number(x509.random_serial_number()).public_key(key.public_key())
    builder = builder.subject_name(_name(name)).issuer_name(_name(issuer))
    builder = builder.not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(authority_id, critical=False)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only"), False
    )
    builder = builder.add_extension(
        x509.KeyUsage(
            digital_signature=True, key_cert_sign=is_authority, crl_sign=is_authority, decipher_only=False, **usage
        ),
        critical=True,
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    with suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    return x509.DNSName(host)


class Impostor:
    """Listens on a port of its own until it is closed. `speaks`: the protocol that precedes TLS."""

    def __init__(self, certificate: Path, speaks: str = "tls") -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._context.set_alpn_protocols(["h2", "http/1.1"])
        self._speaks = speaks
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        self.received = b""
        self._thread = threading.Thread(target=self._accept, name="impostor")

    def __enter__(self) -> Impostor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(30)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            with client, suppress(OSError):
                client.settimeout(5)
                self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        if self._speaks == "postgres":
            client.recv(8)
            client.sendall(b"S")
        elif self._speaks.startswith("mysql"):
            greeting = _MYSQL_GREETING
            if self._speaks == "mysql without tls":
                greeting = greeting.replace(b"\x00\xff\xff\x2d", b"\x00\xff\xf7\x2d")
            client.sendall(struct.pack("<I", len(greeting)) + greeting)
            if self._speaks == "mysql without tls":
                self.received += client.recv(65_536)
                return
            client.recv(36)
        with self._context.wrap_socket(client, server_side=True) as encrypted:
            self.received += encrypted.recv(65_536)
