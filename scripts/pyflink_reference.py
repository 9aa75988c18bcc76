"""PyFlink's public names, parsed from the lists in tests/reference: a line per module, class and function.

    ## datastream/output_tag.py __all__= None
    class OutputTag ( object ): __init__(tag_id,type_info)
      class Outer.Inner ( Enum ):  ATTRS FIRST SECOND
    def name ['parameter', '*more']

A method is followed by `[s]` or `[c]` if it is static or a class method, by `*` if it is abstract.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "reference"
DATASTREAM = FOLDER / "pyflink-datastream-api.txt"
TABLE = FOLDER / "pyflink-table-api.txt"

_MODULE = re.compile(r"## (\S+)\.py __all__= (.*)")
_CLASS = re.compile(r"\s*class (\S+) \( (.*?) ?\):(.*)")
_FUNCTION = re.compile(r"def (\S+) (\[.*\])")
_METHOD = re.compile(r"(\w+)\(([^)]*)\)((?:\*|\[\w+\])*)")


@dataclass(frozen=True)
class Function:
    """A function or method with its parameters, `self` not among them."""

    name: str
    parameters: tuple[str, ...]
    flags: str = ""

    @property
    def is_static(self) -> bool:
        return "[s]" in self.flags or "[c]" in self.flags

    @property
    def is_abstract(self) -> bool:
        return "*" in self.flags


@dataclass(frozen=True)
class Class:
    """A class; `path` has a dot if it is nested."""

    path: str
    bases: tuple[str, ...]
    methods: tuple[Function, ...]
    attributes: tuple[str, ...]


@dataclass
class Module:
    """A module under the name it has here; `exported` is its `__all__`, in PyFlink's order."""

    name: str
    exported: tuple[str, ...]
    contents: list[Class | Function] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The importable names: its `__all__`, else its top-level names."""
        tops = (content.path if isinstance(content, Class) else content.name for content in self.contents)
        return sorted(self.exported or {name for name in tops if "." not in name and not name.startswith("_")})


def read(path: Path) -> list[Module]:
    """The modules of a reference list. An unknown line is an error."""
    modules: list[Module] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := _MODULE.match(line):
            name = "millstream." + match[1].replace("/", ".").removesuffix(".__init__")
            modules.append(Module(name, tuple(ast.literal_eval(match[2]) or ())))
        elif match := _FUNCTION.match(line):
            modules[-1].contents.append(Function(match[1], tuple(ast.literal_eval(match[2]))))
        elif match := _CLASS.match(line):
            modules[-1].contents.append(_class(*match.groups()))
        else:
            raise ValueError(f"a line of {path.name} is not understood: {line!r}")
    return modules


def _class(path: str, bases: str, members: str) -> Class:
    methods, _, attributes = members.partition(" ATTRS ")
    return Class(
        path,
        tuple(base.strip() for base in bases.split(",") if base.strip()),
        tuple(
            Function(name, tuple(parameter for parameter in parameters.split(",") if parameter), flags)
            for name, parameters, flags in _METHOD.findall(methods)
        ),
        tuple(attributes.split()),
    )
