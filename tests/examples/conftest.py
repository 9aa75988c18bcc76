"""The demo's modules for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from demo_modules import Example, imported_example


@pytest.fixture(scope="module")
def example() -> Iterator[Example]:
    with imported_example() as modules:
        yield modules
