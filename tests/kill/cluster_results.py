"""What `cluster_program` has published, and what it must have published."""

from __future__ import annotations

from collections import Counter
from typing import Any

import cluster_program as program

__all__ = ["expected", "results_of"]


def results_of(client: Any, bucket: str) -> tuple[list[tuple[str, int]], list[int]]:
    """Every count of every key that a reader of the output finds, and every number that was counted, sorted."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="out/")
    names = [item["Key"] for page in pages for item in page.get("Contents", ()) if "/." not in item["Key"]]
    texts = [client.get_object(Bucket=bucket, Key=name)["Body"].read().decode() for name in names]
    rows = [line.split(",") for text in texts for line in text.splitlines()]
    return sorted((key, int(count)) for key, count, _ in rows), sorted(int(number) for _, _, number in rows)


def expected() -> tuple[list[tuple[str, int]], list[int]]:
    """The same, computed apart."""
    numbers = range(program.RECORDS)
    totals = Counter(map(program.key_of, numbers))
    return sorted((key, count + 1) for key, total in totals.items() for count in range(total)), list(numbers)
