"""Two well-known engines on the same data: Quix Streams on the same topic, DuckDB on the same bytes.

The two engines have a separate environment (`requirements-bench.txt`), so each engine runs in a script. The script
reads its parameters from standard input, because they may contain passwords, and prints one line of JSON.
"""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.corpus import Corpus
from tests.bench.row import Row
from truelog.support.settings import PROJECT, Settings

PYTHON = PROJECT / ".venv-bench" / "bin" / "python"

_QUIX_SECONDS = 20.0
_GRACE_SECONDS = 60.0
_DUCKDB_TIMES = 3


@dataclass(frozen=True)
class Peers:
    """The other engines; `python` is their environment's interpreter."""

    python: Path = PYTHON

    def quix(self, settings: Settings, job: str) -> Row:
        """Run one process per core, as is usual for Quix Streams. Only the time when all of them are running counts."""
        parameters = {"kafka": settings.kafka(), "seconds": _QUIX_SECONDS}
        count = os.cpu_count() or 1
        states = [str(settings.home / f"quix-{number}") for number in range(count)]
        processes = [self._start("quix_count.py", {**parameters, "state": state}) for state in states]
        try:
            answers = [_answer(process) for process in processes]
        finally:
            for process in processes:
                process.kill()
        return Row(
            job,
            "quix streams",
            together([answer["samples"] for answer in answers]),
            "alone",
            f"{count} processes; records already keyed by cell; state store with a changelog topic",
            more={"events": sum(answer["samples"][-1][1] for answer in answers)},
        )

    def duckdb(self, corpus: Corpus, job: str) -> Row:
        parameters = {"file": str(corpus.ndjson), "times": _DUCKDB_TIMES, "threads": os.cpu_count() or 1}
        process = self._start("duckdb_cube.py", parameters)
        try:
            answer = _answer(process)
        finally:
            process.kill()
        if answer["views"] != corpus.counts["page_view"]:
            raise RuntimeError(f"DuckDB counted {answer['views']} of {corpus.counts['page_view']} page views")
        return Row(
            job,
            "duckdb",
            corpus.counts["page_view"] / answer["seconds"],
            "alone",
            f"raw JSON in one file, four fields parsed; median of {_DUCKDB_TIMES}",
            more={"events": corpus.counts["page_view"], "seconds": answer["seconds"], "cold_seconds": answer["cold"]},
        )

    def _start(self, script: str, parameters: dict[str, Any]) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [str(self.python), "-P", str(Path(__file__).with_name(script))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(parameters))
        process.stdin.close()
        process.stdin = None
        return process


def together(samples: list[list[tuple[float, int]]]) -> float:
    """The processes' combined events per second while all were working, from samples of (time, total so far)."""
    begin = max(each[0][0] for each in samples)
    end = min(each[-1][0] for each in samples)
    within = [[(time, counted) for time, counted in each if begin <= time <= end] for each in samples]
    return sum((each[-1][1] - each[0][1]) / (each[-1][0] - each[0][0]) for each in within)


def _answer(process: "subprocess.Popen[str]") -> dict[str, Any]:
    output, _ = process.communicate(timeout=_QUIX_SECONDS + _GRACE_SECONDS)
    if process.returncode != 0:
        raise RuntimeError(f"the other engine exited with {process.returncode}; its output is above")
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer
