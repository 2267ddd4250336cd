"""Well-known engines on the same data: Quix Streams and a bare consumer on the same topic, DuckDB and Polars on a file.

These engines have a separate environment (`requirements-bench.txt`), so each engine runs in a script. The script
reads its parameters from standard input, because they may contain passwords, and prints one line of JSON.
"""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.corpus import Corpus, in_log
from bench.cpu import Meter, Recorder
from bench.ground import services
from bench.row import Row
from runtime.jars import run_ivy
from truelog.spark.java import java
from truelog.support.settings import PROJECT, Settings, jaas

IVY_FILE = Path(__file__).with_name("ivy.xml")
PYTHON = PROJECT / ".venv-bench" / "bin" / "python"

SECONDS = 20.0  # of measurement, after the warm-up
_PATIENCE_SECONDS = 120.0
_SLOWEST = 10_000  # events per second; a slower engine exceeds its time limit
_TIMES = 3
_LEAST_SAMPLES = 4

Command = Sequence[str]
Sample = tuple[float, int]  # the time, and the events so far
Samples = Sequence[Sample]


@dataclass(frozen=True)
class Peers:
    """The other engines; `python` is their environment's interpreter."""

    python: Path = PYTHON

    def quix(self, settings: Settings, job: str, warm_seconds: float) -> Row:
        """Run one process per core, as is usual for Quix Streams. Only the time when all of them are running counts."""
        given = [
            {"kafka": settings.kafka(), "seconds": warm_seconds + SECONDS, "state": str(settings.home / f"q{n}")}
            for n in range(cores())
        ]
        answers, recorder = self._recorded(settings, "quix streams", self._python("quix_count.py"), given, warm_seconds)
        note = "records already keyed by cell; state store with a changelog topic"
        samples = [after(each["samples"], warm_seconds) for each in answers]
        return measured_row(job, "quix streams", (note, "at least once, commit every 5 s"), samples, recorder)

    def bare(self, settings: Settings, job: str) -> Row:
        """The floor: run one process per core over the whole topic."""
        count = cores()
        given = [{"kafka": settings.kafka(), "index": n, "processes": count} for n in range(count)]
        answers, recorder = self._recorded(
            settings,
            "bare consumer",
            self._python("bare_consumer.py"),
            given,
            in_log(settings, ["page_view"]) / _SLOWEST,
        )
        counted = sum(answer["views"] for answer in answers)
        if counted != in_log(settings, ["page_view"]):
            raise RuntimeError(f"the bare consumer counted {counted} of {in_log(settings, ['page_view'])} page views")
        note = "the floor: librdkafka, orjson and a dictionary"
        samples = [each["samples"] for each in answers]
        return measured_row(job, "bare consumer", (note, "none; nothing is stored"), samples, recorder)

    def streams(self, settings: Settings, job: str, warm_seconds: float) -> Row:
        """Run one process with a thread for each core, as is usual for Kafka Streams."""
        folder = settings.home / "streams"
        run_ivy(settings, IVY_FILE, ["streams"], folder)
        command = [java(settings), "-cp", f"{folder}/streams/*", str(Path(__file__).with_name("StreamsCube.java"))]
        given = {
            "kafka": java_client(settings),
            "seconds": warm_seconds + SECONDS,
            "state": str(folder / "state"),
            "cores": cores(),
        }
        answers, recorder = self._recorded(settings, "kafka streams", command, [given], warm_seconds)
        note = "records already keyed by cell; state in RocksDB with a changelog topic"
        total = in_log(settings, ["page_view"])
        busy = [each for each in answers[0]["samples"] if each[1] < total]  # it may reach the end of the log
        samples = [after(busy, warm_seconds)]
        return measured_row(job, "kafka streams", (note, "exactly once, commit every second"), samples, recorder)

    def duckdb(self, corpus: Corpus, job: str) -> Row:
        return self._cube(corpus, job, "duckdb", "duckdb_cube.py")

    def polars(self, corpus: Corpus, job: str) -> Row:
        return self._cube(corpus, job, "polars", "polars_cube.py")

    def _cube(self, corpus: Corpus, job: str, engine: str, script: str) -> Row:
        parameters = {"file": str(corpus.ndjson), "times": _TIMES, "threads": cores()}
        [answer] = self._answers(self._python(script), [parameters], 0, lambda pids: None)
        events = corpus.ndjson_events
        if answer["views"] != events:
            raise RuntimeError(f"{engine} counted {answer['views']} of {events} page views")
        return Row(
            job,
            engine,
            events / answer["seconds"],
            "alone",
            f"raw JSON in one file, four fields parsed; median of {_TIMES}",
            more={"events": events, "seconds": answer["seconds"], "cold_seconds": answer["cold"]},
            guarantees="none; the result is in memory",
            cpu_us_per_event={engine: answer["cpu"] * 1e6 / events, "all": answer["cpu"] * 1e6 / events},
        )

    def _recorded(
        self, settings: Settings, engine: str, command: Command, given: Sequence[Mapping[str, Any]], seconds: float
    ) -> tuple[list[dict[str, Any]], Recorder]:
        """Run one process for each set of parameters, and record their CPU time and the broker's."""
        recorders: list[Recorder] = []

        def record(pids: Sequence[int]) -> None:
            roots = {"broker": services(settings)["broker"]} | {f"{engine} {n}": pid for n, pid in enumerate(pids)}
            recorders.append(Recorder(Meter(roots)))
            recorders[0].start()

        try:
            answers = self._answers(command, given, seconds, record)
        finally:
            for recorder in recorders:
                recorder.stop()
        return answers, recorders[0]

    def _answers(
        self,
        command: Command,
        given: Sequence[Mapping[str, Any]],
        seconds: float,
        started: Callable[[Sequence[int]], None],
    ) -> list[dict[str, Any]]:
        processes = [start(command, parameters) for parameters in given]
        try:
            started([process.pid for process in processes])
            return [_answer(process, _PATIENCE_SECONDS + seconds) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()

    def _python(self, script: str) -> Command:
        return [str(self.python), "-P", str(Path(__file__).with_name(script))]


def start(command: Command, parameters: Mapping[str, Any]) -> "subprocess.Popen[str]":
    """Start another engine, which reads its parameters from standard input."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps(parameters))
    process.stdin.close()
    process.stdin = None
    return process


def java_client(settings: Settings) -> dict[str, str]:
    """Kafka's configuration for a Java client."""
    given = settings.spark_kafka()
    names = ("bootstrap.servers", "security.protocol", "sasl.mechanism")
    login = jaas(settings.kafka_mechanism, settings.kafka_user, settings.kafka_password.get_secret_value())
    return {name: given[f"kafka.{name}"] for name in names} | {"sasl.jaas.config": login}


def window(samples: Sequence[Samples]) -> tuple[float, float]:
    """The time when all processes were working, from samples of (time, total so far)."""
    return max(each[0][0] for each in samples), min(each[-1][0] for each in samples)


def together(samples: Sequence[Samples]) -> float:
    """The processes' combined events per second while all were working."""
    begin, end = window(samples)
    within = [[(time, counted) for time, counted in each if begin <= time <= end] for each in samples]
    return sum((each[-1][1] - each[0][1]) / (each[-1][0] - each[0][0]) for each in within)


def after(samples: Samples, warm_seconds: float) -> Samples:
    """The samples after a warm-up."""
    return [each for each in samples if each[0] >= samples[0][0] + warm_seconds]


def measured_row(job: str, engine: str, texts: tuple[str, str], samples: Sequence[Samples], recorder: Recorder) -> Row:
    """The row of an engine's processes while all were working. `texts` are the note and the guarantees."""
    if min(map(len, samples)) < _LEAST_SAMPLES:
        raise RuntimeError("the log ended before the measurement: send more events, or warm up for a shorter time")
    note, guarantees = texts
    rate, (begin, end) = together(samples), window(samples)
    used = recorder.between(begin, end)
    events = rate * used.wall
    by_process = used.per_event(events)
    own = sum(value for name, value in by_process.items() if name.startswith(engine))
    return Row(
        job,
        engine,
        rate,
        "alone",
        f"{len(samples)} processes; {note}",
        more={"events": round(events), "seconds": end - begin},
        guarantees=guarantees,
        cpu_us_per_event={engine: own, "broker": by_process["broker"], "all": by_process["all"]},
        other_cores=used.other_cores,
    )


def cores() -> int:
    """The number of processes or threads that use the whole machine."""
    return os.cpu_count() or 1


def _answer(process: "subprocess.Popen[str]", seconds: float) -> dict[str, Any]:
    output, _ = process.communicate(timeout=seconds)
    if process.returncode != 0:
        raise RuntimeError(f"the other engine exited with {process.returncode}; its output is above")
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer
