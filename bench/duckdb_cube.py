"""Compute the page view cube in DuckDB with SQL on raw JSON. Runs in the `.venv-bench` environment."""

import json
import sys
import time
from statistics import median

import duckdb

CUBE = """
CREATE OR REPLACE TABLE cube AS
SELECT date_trunc('minute', occurred_at) AS minute,
    regexp_extract(url, '^[a-z]+://([^/?#]+)', 1) AS host,
    regexp_extract(url, '^[a-z]+://[^/?#]+([^?#]*)', 1) AS page,
    browser, count(*) AS views, sum(bytes) AS bytes
FROM read_ndjson(?, columns = {occurred_at: 'TIMESTAMP', url: 'VARCHAR', browser: 'VARCHAR', bytes: 'BIGINT'})
GROUP BY ALL
"""


def main() -> None:
    given = json.load(sys.stdin)
    connection = duckdb.connect(config={"threads": given["threads"]})
    seconds, cpu = [], []
    for _ in range(1 + given["times"]):
        began, before = time.perf_counter(), time.process_time()
        connection.execute(CUBE, [given["file"]])
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - before)
    views = connection.execute("SELECT sum(views)::BIGINT FROM cube").fetchall()[0][0]
    answer = {"cold": seconds[0], "seconds": median(seconds[1:]), "cpu": median(cpu[1:]), "views": views}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
