"""Documents agree with the code: terms are defined once, layers are drawn as enforced, and modules exist.

Historical documents (docs/decisions, CHANGELOG.md) may name removed modules; they are not checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.common.options import KNOWN

tomllib = pytest.importorskip("tomllib", reason="part of Python from 3.11 on")

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "millstream"
DOCS = ROOT / "docs"
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "README.md"]
PAGES += sorted(path for path in DOCS.rglob("*.md") if path.parent.name != "decisions")

WORDS = {
    *("epoch", "run", "round", "attempt", "nonce", "account", "visit", "place", "pane", "segment", "version", "pin"),
    *("lease", "key group", "manifest", "savepoint", "snapshot", "fork", "stage", "channel", "block", "envelope"),
    *("barrier", "acknowledgement", "split", "position", "watermark", "commit", "publish", "receipt", "sweep"),
    "retention",
}

SUBPACKAGES = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file())
QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
DOCSTRING = re.compile(r'^ *"""(.*?)"""$', re.M | re.S)
FILE = re.compile(r"(?:src/)?(?:millstream/)?((?:[a-z_]+/)+[a-z_0-9]+\.py)")
DOTTED = re.compile(rf"(?:millstream\.)?((?:{'|'.join(SUBPACKAGES)})(?:\.\w+)+)")

OPTIONS = set(KNOWN) | {
    match
    for path in SOURCE.rglob("*.py")
    for match in re.findall(r"[\"'](millstream(?:\.[a-z-]+)+)[\"']", path.read_text(encoding="utf-8"))
}
"""Settings of a job, which look like modules."""


def glossary() -> list[tuple[str, str, str]]:
    """The rows of the glossary: word, meaning, module."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([^|`]+)` \|$", (ROOT / "docs" / "glossary.md").read_text(), re.M)
    return [(word, meaning, module) for word, meaning, module in rows]


def test_the_glossary_defines_each_word_once_in_few_sentences() -> None:
    words = [word for word, _, _ in glossary()]
    assert len(words) == len(set(words)), "a word is defined twice"
    assert set(words) >= WORDS, f"not defined: {sorted(WORDS - set(words))}"
    long = [word for word, meaning, _ in glossary() if len(re.findall(r"[.](?:\s|$)", meaning)) > 3]
    assert not long, f"one to three sentences: {long}"


@pytest.mark.parametrize(("word", "module"), [(word, module) for word, _, module in glossary()])
def test_the_modules_of_the_glossary_exist(word: str, module: str) -> None:
    assert (SOURCE / module).is_file(), f"{word} does not live in {module}"


def test_the_layers_drawn_in_contributing_are_the_enforced_ones() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    drawing = re.search(r"```\n(testing .*?)```", page, re.S)
    assert drawing is not None, "CONTRIBUTING.md draws no layers"
    drawn = [re.split(r"\s{3,}", line)[0].split() for line in drawing.group(1).splitlines()]
    enforced = [[name.strip("() ") for name in layer.split(":")] for layer in layers()]
    assert drawn == enforced


def layers() -> list[str]:
    contracts: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    [contract] = [
        contract for contract in contracts if contract["type"] == "layers" and contract["containers"] == ["millstream"]
    ]
    listed: list[str] = contract["layers"]
    return listed


def test_contributing_states_the_tested_sizes() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    measures = (ROOT / "scripts" / "house.py").read_text(encoding="utf-8")
    for name, text in (
        ("MODULE_LINES_MAX", "at most {} lines"),
        ("FUNCTION_LINES_MAX", "at most {} lines"),
        ("ATTRIBUTES_MAX", "more than {} attributes"),
    ):
        size = re.search(rf"^{name} = (\d+)$", measures, re.M)
        assert size is not None and text.format(size.group(1)) in page, name


def prose() -> Iterator[tuple[str, str]]:
    """All prose that names modules: pages, docstrings, comments."""
    for page in PAGES:
        # A code block may contain user programs, which have modules of their own.
        yield (
            page.relative_to(ROOT).as_posix(),
            re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S),
        )
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT).as_posix()
        yield from (
            (f"{name}:{at}", line) for at, line in enumerate(text.splitlines(), 1) if line.lstrip().startswith("#")
        )
        yield from ((name, match.group(1)) for match in DOCSTRING.finditer(text))


def test_modules_named_in_prose_exist() -> None:
    absent = [
        f"{place}: `{quoted}`" for place, text in prose() for quoted in QUOTED.findall(text) if not _exists(quoted)
    ]
    assert not absent, "these do not exist where the prose says:\n" + "\n".join(absent)


def _exists(quoted: str) -> bool:
    """Whether the text in backquotes is no module name, or the name of an existing module."""
    if quoted in OPTIONS:
        return True
    file, dotted = FILE.fullmatch(quoted), DOTTED.fullmatch(quoted)
    if file is not None:
        folder = file.group(1).split("/")[0]
        if folder not in SUBPACKAGES and not (ROOT / folder).is_dir():
            return True  # a file of the user's
        return (SOURCE / file.group(1)).is_file() or (ROOT / quoted).is_file()
    if dotted is None:
        return True
    parts = dotted.group(1).split(".")
    # The last parts may be names inside a module: millstream.connectors.contracts.Sink.
    place = SOURCE
    for at, part in enumerate(parts):
        if (place / part).is_dir():
            place = place / part
            continue
        module = place / f"{part}.py"
        source = module if module.is_file() else place / "__init__.py"
        names = parts[at + 1 :] if module.is_file() else parts[at:]
        return not names or re.search(rf"\b{re.escape(names[0])}\b", source.read_text(encoding="utf-8")) is not None
    return True


@pytest.mark.parametrize(
    ("quoted", "exists"),
    [
        ("storage/names.py", True),
        ("state.keys.key_columns", True),
        ("millstream.connectors.contracts.Sink", True),
        ("storage/nothing.py", False),
        ("state.keys.nothing", False),
        ("my_job.py", True),
        ("millstream.store.patience", True),
    ],
)
def test_module_names_are_distinguished_from_settings_and_user_files(quoted: str, exists: bool) -> None:
    assert _exists(quoted) is exists


def test_the_index_links_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    pages = [path.relative_to(DOCS).as_posix() for path in PAGES if path.is_relative_to(DOCS)]
    absent = [page for page in pages if page != "README.md" and f"({page})" not in index]
    assert not absent, f"docs/README.md does not link {absent}"


def test_the_walks_name_existing_files() -> None:
    # A walk abbreviates file names: `jobs/epochs/driver.py`, and then `outcome.py` of the same folder.
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    files = [f"/{path.relative_to(SOURCE).as_posix()}" for path in SOURCE.rglob("*.py")]
    names = [name for name in QUOTED.findall(page) if name.endswith(".py") and not name.startswith("tests/")]
    assert len(names) > 80
    missing = [name for name in names if not any(file.endswith(f"/{name}") for file in files)]
    assert not missing, f"ARCHITECTURE.md names files that do not exist: {missing}"
