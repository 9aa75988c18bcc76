"""Determines the modules that unpickling imports, by examining the pickle's instructions without executing them.

Two instructions matter. A global consists of the name of a module and a name in it, the two strings pushed last. A
module used as a value is a call of cloudpickle's `subimport` with its name.
"""

from __future__ import annotations

import pickletools
import sys
import sysconfig

__all__ = ["foreign_modules", "named_modules"]

_STRINGS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
_GETS = ("BINGET", "LONG_BINGET")
_MODULE_CALL = ("cloudpickle.cloudpickle", "subimport")


def named_modules(data: bytes) -> set[str]:
    """The modules that unpickling `data` imports.

    >>> import cloudpickle, collections
    >>> sorted(named_modules(cloudpickle.dumps([collections.OrderedDict(), collections])))
    ['cloudpickle.cloudpickle', 'collections']
    """
    names: set[str] = set()
    memo: list[object] = []
    pushed: list[object] = [None, None]
    for operation, argument, _ in pickletools.genops(data):
        if operation.name == "MEMOIZE":
            memo.append(pushed[-1])
            continue
        value: object = None
        if operation.name in _STRINGS:
            value = argument
            if pushed[-1] == _MODULE_CALL:
                names.add(str(argument))
        elif operation.name in _GETS:
            value = memo[int(argument or 0)]
            if pushed[-1] == _MODULE_CALL and isinstance(value, str):
                names.add(value)
        elif operation.name == "STACK_GLOBAL":
            names.add(str(pushed[-2]))
            value = (pushed[-2], pushed[-1])
        pushed = [pushed[-1], value]
    return names


def foreign_modules(names: set[str], known_tops: set[str]) -> list[str]:
    """Top-level modules among `names` that are installed here, outside the standard library and `known_tops`.

    >>> import numpy
    >>> foreign_modules({"json", "__main__", "helper.text", "numpy.linalg", "builtins"}, known_tops={"helper"})
    ['numpy']
    """
    tops = {name.partition(".")[0] for name in names} - known_tops - set(sys.stdlib_module_names) - {"__main__"}
    installed = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return [
        top for top in sorted(tops) if (getattr(sys.modules.get(top), "__file__", None) or "").startswith(installed)
    ]
