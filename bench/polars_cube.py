"""Compute the page view cube in Polars from raw JSON. Runs in the `.venv-bench` environment."""

import json
import os
import sys
import time
from statistics import median
from typing import Any

CUBE = ("minute", "host", "page", "browser")


def cube(file: str) -> Any:
    import polars as pl

    schema = {"occurred_at": pl.String, "url": pl.String, "browser": pl.String, "bytes": pl.Int64}
    happened = pl.col("occurred_at").str.slice(0, 16).str.to_datetime("%Y-%m-%dT%H:%M")
    host = pl.col("url").str.extract(r"^[a-z]+://([^/?#]+)", 1)
    page = pl.col("url").str.extract(r"^[a-z]+://[^/?#]+([^?#]*)", 1)
    return (
        pl.scan_ndjson(file, schema=schema)
        .select(happened.alias("minute"), host.alias("host"), page.alias("page"), "browser", "bytes")
        .group_by(CUBE)
        .agg(pl.len().alias("views"), pl.sum("bytes"))
        .collect()
    )


def main() -> None:
    given = json.load(sys.stdin)
    os.environ["POLARS_MAX_THREADS"] = str(given["threads"])  # Polars reads it when it is imported
    seconds, cpu = [], []
    for _ in range(1 + given["times"]):
        began, before = time.perf_counter(), time.process_time()
        made = cube(given["file"])
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - before)
    answer = {"cold": seconds[0], "seconds": median(seconds[1:]), "cpu": median(cpu[1:]), "views": made["views"].sum()}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
