"""Style rules that can be checked mechanically.

Matters of judgement (is this name good, is this comment true) are left to reviewers. The checks here have no list
of exceptions: a module that fails is fixed, not excused. PyFlink's public module names are not our choice, and are
listed below as such. Sizes are measured by scripts/house.py, which prints them.
"""

from __future__ import annotations

import ast
import gc
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from inputs.project_scripts import script_module

pytestmark = pytest.mark.slow  # reading all modules takes seconds in every worker

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "millstream"

PROSE_EXPECTED_ABOVE_LINES = 30

# Pronouns and participles do not describe a thing. test_words.py rejects others (found, kept, told) in all names.
NO_NOUNS = frozenset(("one", "own"))
NO_MODULES = NO_NOUNS | {"opened", "received", "returned", "seen", "served"}
GERUNDS = ("asking", "finding", "settling", "telling", "waiting")
MANY_ATTRIBUTES = re.compile(r"\bmany\s+(attributes|fields)\b|\ban?\s+(attribute|field)\s+for\s+each\b", re.IGNORECASE)

NAMES_OF_NOTHING = re.compile(r"(^|_)(utils?|helpers?|base|managers?|impl|misc|v2)$")
# Programs written for PyFlink import these, so their names are fixed.
PYFLINK_MODULES = {"common/utils.py", "datastream/utils.py", "datastream/connectors/base.py", "table/utils.py"}
PYFLINK_MODULES |= {f"util/{name}.py" for name in ("__init__", "api_stability_decorators", "exceptions", "java_utils")}

# Concatenated, so that this file does not match itself.
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("repo1", "maven", "org"),
        ("maven", "apache", "org"),
        ("npmjs", "org"),
        ("crates", "io"),
        ("golang", "org"),
        ("debian", "org"),
    )
]
REGISTRY = re.compile("|".join(re.escape(host) for host in HOSTS))
MACHINE_PATH = re.compile(
    r"(?<![\w.*?)}\]>-])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "tm" + "p"]) + r")(?=/|\b(?![-\w.]))"
)


house = script_module("scripts/house.py")
tree_of = house.tree_of


def modules() -> list[Path]:
    paths: list[Path] = house.modules(ROOT)
    return paths


def relative_path(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def project_files() -> list[Path]:
    """Committed files and those that would be: git's view in a repository, otherwise all files not hidden."""
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        names = [name for name in listing.stdout.decode().split("\0") if name]
        return sorted(ROOT / name for name in names if (ROOT / name).is_file())
    hidden_or_built = re.compile(r"(^|/)(\.(?!ci/|gitignore)[^/]*|__pycache__|build|dist|[^/]*\.egg-info)(/|$)")
    files = (path for path in ROOT.rglob("*") if path.is_file())
    return sorted(path for path in files if not hidden_or_built.search(relative_path(path)))


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    yield from enumerate(text.splitlines(), start=1)


@pytest.fixture(scope="module", autouse=True)
def _all_nodes() -> None:
    """Parses all modules once. A million permanent nodes would only slow down garbage collection."""
    gc.disable()
    for path in modules():
        house.nodes_of(path)
    gc.freeze()
    gc.enable()


def test_every_larger_module_opens_with_prose() -> None:
    silent = [
        relative_path(path)
        for path in modules()
        if len(path.read_text(encoding="utf-8").splitlines()) > PROSE_EXPECTED_ABOVE_LINES
        and not ast.get_docstring(tree_of(path))
    ]
    assert not silent, f"say what these are, what they keep true and what they refuse: {silent}"


def test_modules_are_small() -> None:
    sizes = {relative_path(path): house.line_count(path) for path in modules()}
    large = {name: lines for name, lines in sizes.items() if lines > house.MODULE_LINES_MAX}
    assert not large, f"split these by concept ({house.MODULE_LINES_MAX} lines at most): {large}"


def test_functions_fit_a_screen() -> None:
    long = list(map(str, house.long_functions(ROOT)))
    assert not long, (
        f"name the steps inside these and give each its function ({house.FUNCTION_LINES_MAX} lines at most):\n"
        + "\n".join(long)
    )


def test_a_class_of_many_attributes_explains_them() -> None:
    silent = [str(item) for item in house.large_constructors(ROOT) if not MANY_ATTRIBUTES.search(item.docstring)]
    assert not silent, (
        f"more than {house.ATTRIBUTES_MAX} attributes: split these classes, or say why not in their docstring "
        "(“Many attributes: …”, “Many fields: …”):\n" + "\n".join(silent)
    )


def test_modules_and_classes_are_named_by_nouns() -> None:
    names = [(path.stem, relative_path(path)) for path in modules()]
    names += [
        (node.name, f"{relative_path(path)}:{node.lineno} {node.name}")
        for path in modules()
        for node in house.nodes_of(path)
        if isinstance(node, ast.ClassDef)
    ]
    wrong = [place for name, place in names if name.strip("_").lower() in NO_MODULES or name.lower().endswith(GERUNDS)]
    assert not wrong, "say what these are, not what happened to them:\n" + "\n".join(wrong)


def test_parameters_and_attributes_are_named_by_nouns() -> None:
    wrong = [
        f"{relative_path(path)}:{line} {name}"
        for path in modules()
        for line, name in _parameters_and_attributes(house.nodes_of(path))
        if name.strip("_") in NO_NOUNS
    ]
    assert not wrong, "say what these are, not what happened to them:\n" + "\n".join(wrong)


def _parameters_and_attributes(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Fields of dataclasses are exempt: some are names in stored files and in responses, which never change."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                yield argument.lineno, argument.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def test_modules_have_domain_names() -> None:
    unnamed = [
        relative_path(path)
        for path in modules()
        if path.relative_to(SOURCE).as_posix() not in PYFLINK_MODULES
        and any(NAMES_OF_NOTHING.search(part) for part in (*path.relative_to(SOURCE).parts[:-1], path.stem))
    ]
    assert not unnamed, f"name these by the noun they hold: {unnamed}"


def test_every_folder_of_modules_is_a_package() -> None:
    # Without __init__.py, Python still imports the folder, but the layer contracts and the wheel miss it.
    folders = {path.parent for path in modules()}
    bare = sorted(relative_path(folder) for folder in folders if not (folder / "__init__.py").is_file())
    assert not bare, f"add an __init__.py to: {bare}"


def test_annotations_are_not_evaluated_at_import() -> None:
    missing = [
        relative_path(path)
        for path in modules()
        if any(not isinstance(node, ast.Expr) for node in tree_of(path).body)
        and not any(
            isinstance(node, ast.ImportFrom)
            and node.module == "__future__"
            and any(alias.name == "annotations" for alias in node.names)
            for node in tree_of(path).body
        )
    ]
    assert not missing, f"put `from __future__ import annotations` at the top of: {missing}"


def test_names_in_all_exist_and_are_listed_once() -> None:
    twice, absent = [], []
    for path in modules():
        tree = tree_of(path)
        public = names_in_all(tree)
        twice += [f"{relative_path(path)}: {name}" for name in set(public) if public.count(name) > 1]
        # Star imports and __getattr__ are resolved only by importing; the public surface test does that.
        if not has_star_import_or_getattr(tree):
            absent += [f"{relative_path(path)}: {name}" for name in set(public) - bound_at_top(tree.body)]
    assert not twice, "these are listed twice in __all__:\n" + "\n".join(sorted(twice))
    assert not absent, "these are promised in __all__ and not defined:\n" + "\n".join(sorted(absent))


def names_in_all(tree: ast.Module) -> list[str]:
    """The literal strings of `__all__`, of `= [...]` as well as of `+= [...]`."""
    names: list[str] = []
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            names += [str(leaf.value) for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)]
    return names


def has_star_import_or_getattr(tree: ast.Module) -> bool:
    return any(
        (isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names))
        or (isinstance(node, ast.FunctionDef) and node.name == "__getattr__")
        for node in tree.body
    )


def bound_at_top(body: list[ast.stmt]) -> set[str]:
    """Names bound at the module's top level, including inside `if` and `try`."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For):
            for field in ("body", "orelse", "finalbody"):
                names |= bound_at_top(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                names |= bound_at_top(handler.body)
        else:
            stored = (leaf for leaf in ast.walk(node) if isinstance(leaf, ast.Name))
            names |= {leaf.id for leaf in stored if isinstance(leaf.ctx, ast.Store)}
    return names


def test_no_file_names_a_folder_of_a_developers_machine() -> None:
    violations = [
        f"{relative_path(path)}:{number}: {line.strip()[:100]}"
        for path in project_files()
        for number, line in text_lines(path)
        if MACHINE_PATH.search(line)
    ]
    assert not violations, "use tmp_path, tempfile or a relative path:\n" + "\n".join(violations)


def test_no_file_names_a_package_registry() -> None:
    violations = [
        f"{relative_path(path)}:{number}: {line.strip()[:100]}"
        for path in project_files()
        for number, line in text_lines(path)
        if REGISTRY.search(line)
    ]
    assert not violations, "each installation chooses its own registry:\n" + "\n".join(violations)


@pytest.mark.parametrize(
    ("line", "guilty"),
    [
        ("open('/{}/x')".format("tm" + "p"), True),
        ("path = '/{}'".format("ro" + "ot"), True),
        ("see /{}/main".format("wo" + "rk"), True),
        ("GET /{}ers/3".format("wo" + "rk"), False),
        ("docs/{}/notes.md".format("wo" + "rk"), False),
        ("file://{{base}}/{}/x".format("tm" + "p"), False),
    ],
)
def test_the_path_rule_distinguishes_paths_from_words(line: str, guilty: bool) -> None:
    assert bool(MACHINE_PATH.search(line)) is guilty


def test_test_modules_have_unique_names() -> None:
    """pytest imports test modules by their names alone, and test-golden collects several folders at once."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name, times in names.items() if times > 1]
