"""stub"""

from __future__ import annotations


class Scope: ...
