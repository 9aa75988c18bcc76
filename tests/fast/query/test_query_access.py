"""Access to a query server: tokens that change while it runs, the server's host names and trusted proxies."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from millstream.errors import ConfigurationError
from millstream.query.server import Rights, ServerSettings, read_rights
from millstream.query.server.guard import HostNames
from millstream.query.server.rights import TokenFile
from millstream.query.wire.refusals import MalformedError, NoRightsError, NoTokenError

OLD, NEW = "the-old-token-of-someone", "the-new-token-of-someone"
YEARS_NS = 10**18


def write(path: Path, token: str) -> None:
    """Writes another token of equal length to the same file, with the same modification time."""
    path.write_text(json.dumps({"dash": {"token": token, "states": ["*"]}}))
    os.utime(path, ns=(YEARS_NS, YEARS_NS))


def bearer(token: str) -> str:
    return f"Bearer {token}"


def test_a_token_removed_from_the_file_is_rejected_immediately(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    write(path, OLD)
    rights = read_rights(path)
    assert rights.reader_of(bearer(OLD)).name == "dash"
    path.write_text(json.dumps({"dash": {"token": NEW, "states": ["*"]}}))
    assert rights.reader_of(bearer(NEW)).name == "dash"
    with pytest.raises(NoTokenError):
        rights.reader_of(bearer(OLD))


def test_a_file_changed_twice_within_one_clock_tick_is_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    write(path, OLD)
    rights = TokenFile(path, now_ns=lambda: YEARS_NS + 1)
    write(path, NEW)
    assert rights.reader_of(bearer(NEW)).name == "dash"


HARMS = {
    "half": '{"dash": {"token": "',
    "empty": "",
    "deep": "[" * 100_000,
    "no text": json.dumps({"dash": {"token": "\ud800" * 20, "states": ["*"]}}),
}


@pytest.mark.parametrize("harm", ["gone", *HARMS])
def test_a_damaged_token_file_rejects_every_token_until_it_is_repaired(
    tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens.json"
    write(path, OLD)
    rights = read_rights(path)
    whole = path.read_text()
    if harm == "gone":
        path.unlink()
    else:
        path.write_text(HARMS[harm])
    for _ in range(3):
        with pytest.raises(NoRightsError, match="cannot be read now"):
            rights.reader_of(bearer(OLD))
    assert caplog.text.count("until this is corrected") == 1
    path.write_text(whole)
    assert rights.reader_of(bearer(OLD)).name == "dash"


def test_without_tokens_only_host_names_of_the_server_and_ip_addresses_are_accepted() -> None:
    names = {"advertised_host": "db1", "allowed_hosts": ("db1.example",)}
    anywhere = ServerSettings(host="0.0.0.0", allow_anonymous=True, **names)
    for settings in (anywhere, ServerSettings()):
        host_names = HostNames.of(settings)
        assert host_names is not None
        for host in ("localhost", "LOCALHOST.:8787", "127.0.0.1:1", "[::1]:8787", "10.0.0.7"):
            host_names.check(host)
        for host in ("evil.example", "localhost.evil.example:8787", "", "127.0.0.1.evil.example", "[evil]", "db1.evil"):
            with pytest.raises(MalformedError, match="--allow-host"):
                host_names.check(host)
    host_names = HostNames.of(anywhere)
    assert host_names is not None
    for host in ("db1", "DB1:8787", "db1.example"):
        host_names.check(host)
    assert HostNames.of(ServerSettings(rights=Rights({}))) is None


def test_unencrypted_tokens_on_a_public_address_raise_a_warning(tmp_path: Path) -> None:
    rights, pem = Rights({}), tmp_path / "a.pem"
    assert "--certificate" in ServerSettings(host="10.0.0.7", rights=rights).warnings[0]
    quiet = [
        ServerSettings(rights=rights),
        ServerSettings(host="10.0.0.7", rights=rights, certificate=pem, private_key=pem),
        ServerSettings(host="10.0.0.7", allow_anonymous=True),
    ]
    assert [settings.warnings for settings in quiet] == [(), (), ()]


@pytest.mark.parametrize("proxy", ["*", "proxy.example", "", "10.0.0.0/99"])
def test_a_proxy_is_trusted_only_by_its_address(proxy: str) -> None:
    with pytest.raises(ConfigurationError, match="--trusted-proxy"):
        ServerSettings(trusted_proxies=(proxy,)).checked()
    ServerSettings(trusted_proxies=("10.0.0.5", "10.1.0.0/16", "::1")).checked()
