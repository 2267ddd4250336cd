"""Two well-known engines on the same data: Quix Streams on the same topic, DuckDB on the same bytes.

They live in an environment of their own (`requirements-bench.txt`), so each is a script that is told by standard input
what to do, where passwords may stand, and answers with one line of JSON.
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
    """The Python in which the peers are installed."""

    python: Path = PYTHON

    def quix(self, settings: Settings, job: str) -> Row:
        """One process a processor, as its users scale it, counted while all of them ran."""
        told = {"kafka": settings.kafka(), "seconds": _QUIX_SECONDS}
        count = os.cpu_count() or 1
        states = [str(settings.home / f"quix-{number}") for number in range(count)]
        processes = [self._start("quix_count.py", {**told, "state": state}) for state in states]
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
            f"{count} processes; records keyed by cell beforehand; into its own state store and its changelog topic",
            more={"events": sum(answer["samples"][-1][1] for answer in answers)},
        )

    def duckdb(self, corpus: Corpus, job: str) -> Row:
        told = {"file": str(corpus.ndjson), "times": _DUCKDB_TIMES, "threads": os.cpu_count() or 1}
        process = self._start("duckdb_cube.py", told)
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
            f"the raw JSON in one file, four of its fields parsed; median of {_DUCKDB_TIMES}",
            more={"events": corpus.counts["page_view"], "seconds": answer["seconds"], "cold_seconds": answer["cold"]},
        )

    def _start(self, script: str, told: dict[str, Any]) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [str(self.python), "-P", str(Path(__file__).with_name(script))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(told))
        process.stdin.close()
        process.stdin = None
        return process


def together(samples: list[list[tuple[float, int]]]) -> float:
    """Events a second of several processes while all of them worked; each tells (time, counted so far)."""
    begin = max(each[0][0] for each in samples)
    end = min(each[-1][0] for each in samples)
    within = [[(time, counted) for time, counted in each if begin <= time <= end] for each in samples]
    return sum((each[-1][1] - each[0][1]) / (each[-1][0] - each[0][0]) for each in within)


def _answer(process: "subprocess.Popen[str]") -> dict[str, Any]:
    said, _ = process.communicate(timeout=_QUIX_SECONDS + _GRACE_SECONDS)
    if process.returncode != 0:
        raise RuntimeError(f"a peer ended with {process.returncode}; what it said stands above")
    answer: dict[str, Any] = json.loads(said.splitlines()[-1])
    return answer
