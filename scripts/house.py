"""Measure the code: how much there is, where it lies, and what is larger than the house allows.

The code is read, never imported or run. Run it to print the figures of this tree; give another tree's folder to measure
that one instead:

    python scripts/house.py [ROOT] [--list]

What is counted:

    code lines     lines of src with something on them that is neither docstring nor comment
    one importer   modules that exactly one other module of src imports, at the top or inside a function
    long function  more than FUNCTION_LINES_MAX lines; where the parameters take more than half of them, as in a command
                   with a list of options, only the body counts
    large class    more than ATTRIBUTES_MAX attributes that `__init__` (or a dataclass) gives every object

tests/fast/house/test_style.py holds the code to the same measures.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = "millstream"
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
ATTRIBUTES_MAX = 12

Function = ast.FunctionDef | ast.AsyncFunctionDef
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Oversize:
    """A function or class that is larger than the house allows."""

    file: str
    line: int
    name: str
    size: int
    docstring: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.name} ({self.size})"


def modules(root: Path) -> list[Path]:
    """All modules of the package below `root`/src."""
    return sorted(path for path in (root / "src" / PACKAGE).rglob("*.py") if "__pycache__" not in path.parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a module, cached because it is searched many times."""
    return list(ast.walk(tree_of(path)))


def line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def code_lines(path: Path) -> int:
    """Lines with something on them that is neither docstring nor comment."""
    docstrings = {
        line
        for node in nodes_of(path)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def dotted_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def importers(root: Path) -> dict[str, set[str]]:
    """For each module, the modules of src that import it."""
    names = {dotted_name(path, root) for path in modules(root)}
    result: dict[str, set[str]] = {name: set() for name in names}
    for path in modules(root):
        importer = dotted_name(path, root)
        for node in nodes_of(path):
            for name in _imported(node):
                if name in names and name != importer:
                    result[name].add(importer)
    return result


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def single_importer_modules(root: Path) -> list[str]:
    return sorted(name for name, users in importers(root).items() if len(users) == 1)


def function_lines(function: Function) -> int:
    """The lines of a function; only those of its body if its parameters, a list of options, take more than half."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    signature_lines = function.body[0].lineno - function.lineno
    return lines - signature_lines if signature_lines > lines / 2 else lines


def long_functions(root: Path) -> list[Oversize]:
    """Functions of more than FUNCTION_LINES_MAX lines, the longest first."""
    return _largest_first(
        Oversize(_shown(path, root), node.lineno, node.name, function_lines(node), ast.get_docstring(node) or "")
        for path in modules(root)
        for node in nodes_of(path)
        if isinstance(node, Function) and function_lines(node) > FUNCTION_LINES_MAX
    )


def large_constructors(root: Path) -> list[Oversize]:
    """Classes whose objects have more than ATTRIBUTES_MAX attributes after `__init__`."""
    return _largest_first(
        Oversize(_shown(path, root), node.lineno, node.name, len(attributes_of(node)), ast.get_docstring(node) or "")
        for path in modules(root)
        for node in nodes_of(path)
        if isinstance(node, ast.ClassDef) and len(attributes_of(node)) > ATTRIBUTES_MAX
    )


def attributes_of(node: ast.ClassDef) -> set[str]:
    """The attributes that `__init__` sets; those of a dataclass are its fields."""
    names: set[str] = set()
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        fields = (
            field
            for field in node.body
            if isinstance(field, ast.AnnAssign) and "ClassVar" not in ast.unparse(field.annotation)
        )
        names |= {field.target.id for field in fields if isinstance(field.target, ast.Name)}
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            names |= {
                leaf.attr
                for leaf in ast.walk(method)
                if isinstance(leaf, ast.Attribute)
                and isinstance(leaf.ctx, ast.Store)
                and isinstance(leaf.value, ast.Name)
                and leaf.value.id == "self"
            }
    return names


def _largest_first(items: Iterator[Oversize]) -> list[Oversize]:
    return sorted(items, key=lambda item: (-item.size, item.file, item.line))


def _shown(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def report(root: Path, with_lists: bool) -> str:
    paths = modules(root)
    lines: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for path in paths:
        package = path.relative_to(root / "src" / PACKAGE).parts[0]
        lines[package] += code_lines(path)
        counts[package] += 1
    largest = max(paths, key=line_count)
    singles, functions, classes = single_importer_modules(root), long_functions(root), large_constructors(root)
    rows = [f"{'package':<16}{'modules':>9}{'code lines':>12}"]
    rows += [f"{name:<16}{counts[name]:>9}{lines[name]:>12}" for name in sorted(counts)]
    rows += [f"{'all':<16}{len(paths):>9}{lines.total():>12}", ""]
    rows += [
        f"modules with one importer       {len(singles)} ({len(singles) / len(paths):.0%})",
        f"largest module                  {line_count(largest)} lines, {_shown(largest, root)}",
        f"modules over {MODULE_LINES_MAX} lines          {sum(line_count(path) > MODULE_LINES_MAX for path in paths)}",
        f"functions over {FUNCTION_LINES_MAX} lines         {len(functions)}",
        f"classes over {ATTRIBUTES_MAX} attributes      {len(classes)}",
    ]
    if with_lists:
        rows += ["", *map(str, functions), "", *map(str, classes), "", *singles]
    return "\n".join(rows)


def main(arguments: list[str]) -> None:
    folders = [argument for argument in arguments if not argument.startswith("--")]
    root = Path(folders[0]).resolve() if folders else Path(__file__).resolve().parent.parent
    print(report(root, "--list" in arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
