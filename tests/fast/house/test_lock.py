"""The lock files say exactly what to install and never where from, and they keep up with pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

tomllib = pytest.importorskip("tomllib", reason="part of Python from 3.11 on")

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ("requirements.lock", "requirements-dev.lock")
SITE_LOCK = "requirements-site.lock"


def project() -> dict[str, Any]:
    loaded: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return loaded


def entries(lock: str) -> list[str]:
    """The first line of each entry: `name==version`, perhaps a marker, and a backslash before the hashes."""
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and line[0] not in "# "]


def versions(lock: str) -> dict[str, set[str]]:
    """Each locked package with its versions; there are several where they differ by platform or Python."""
    found: dict[str, set[str]] = {}
    for entry in entries(lock):
        name, _, version = entry.split()[0].partition("==")
        found.setdefault(canonicalize_name(name), set()).add(version)
    return found


def unmet(requirements: list[str], lock: str) -> list[str]:
    locked = versions(lock)
    wanted = [Requirement(text) for text in requirements]
    return [
        str(requirement)
        for requirement in wanted
        if not locked.get(canonicalize_name(requirement.name))
        or not all(requirement.specifier.contains(version) for version in locked[canonicalize_name(requirement.name)])
    ]


@pytest.mark.parametrize("lock", (*LOCKS, SITE_LOCK))
def test_every_entry_has_an_exact_version_and_a_hash(lock: str) -> None:
    loose = [line for line in entries(lock) if not re.match(r"[a-z0-9._-]+==[^ ;]+ (; .* )?\\$", line)]
    assert entries(lock) and not loose, f"not pinned: {loose}"
    text = (ROOT / lock).read_text(encoding="utf-8")
    unhashed = re.findall(r"^(\S+==.*\\)\n(?!    --hash=sha256:)", text, re.MULTILINE)
    assert not unhashed, f"without a hash: {unhashed}"


@pytest.mark.parametrize("lock", (*LOCKS, SITE_LOCK))
def test_no_lock_names_a_host_an_index_or_a_folder(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^(-|file:|[./])", text, re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_what_the_package_needs_is_locked_at_a_version_it_accepts(lock: str) -> None:
    missing = unmet(project()["project"]["dependencies"], lock)
    assert not missing, f"{lock} does not meet {missing}; run `make lock`"


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("extra", sorted(project()["project"]["optional-dependencies"]))
def test_what_faces_the_network_is_locked_too(lock: str, extra: str) -> None:
    missing = unmet(project()["project"]["optional-dependencies"][extra], lock)
    assert not missing, f"{lock} does not meet {missing} of {extra}; run `make lock`"


def test_the_tools_are_locked_too() -> None:
    missing = unmet(project()["dependency-groups"]["dev"], "requirements-dev.lock")
    assert not missing, f"requirements-dev.lock does not meet {missing}; run `make lock`"


def test_the_tools_of_the_site_are_locked() -> None:
    missing = unmet(project()["dependency-groups"]["site"], SITE_LOCK)
    assert not missing, f"{SITE_LOCK} does not meet {missing}; run `make lock`"


def test_both_locks_choose_the_same_versions() -> None:
    runtime, development = versions("requirements.lock"), versions("requirements-dev.lock")
    differing = {
        name: (chosen, development.get(name)) for name, chosen in runtime.items() if development.get(name) != chosen
    }
    assert not differing, f"the two locks were made apart; run `make lock`: {differing}"
