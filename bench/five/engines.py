"""The engines that run the five views, each started by a context manager.

No other engine proves that its results equal its input, or knows the position in the log to which a result belongs.
Their notes say what else they leave out.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any

from bench import flink, streaming
from bench.cpu import Meter
from bench.five import topics
from bench.five.marks import VIEWS
from bench.five.measuring import Engine
from bench.five.tables import Tables, create_tables
from bench.ground import services
from bench.peers import IVY_FILE, PYTHON, Command, cores, java_client, start
from bench.row import OURS
from runtime.jars import run_ivy
from truelog.spark.java import java
from truelog.storage.database import connect
from truelog.support.settings import Settings

_SERVICES = ("broker", "postgresql")
_FOLDER = Path(__file__).parent
_LATEST = "reads from the end of the topics"
_FLINK, _STREAMS, _PATHWAY = "flink sql", "kafka streams", "pathway"
# The options of librdkafka that its older versions have, too.
_SIGN_IN = ("bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.username", "sasl.password")


@contextmanager
def ours(settings: Settings) -> Iterator[Engine]:
    """The stream application with these views alone, with its default settings."""
    application = streaming.launch(settings, VIEWS)
    try:
        with connect(settings, autocommit=True) as connection:
            yield Engine(
                name=OURS,
                reader=Tables(connection, "views"),
                meter=Meter(services(settings), application.process.pid),
                place="in PostgreSQL",
                note="default settings; exact positions, from which a comparison proves the rows; keeps invalid events "
                "apart with their reasons; late events change their rows; also writes the outputs of cart and timeline",
                guarantees="exactly once: rows and positions in one transaction",
                require_running=partial(streaming.require_running, application),
            )
    finally:
        application.end()


@contextmanager
def flink_sql(settings: Settings) -> Iterator[Engine]:
    """One job of Flink SQL with a statement for each view, which writes into PostgreSQL."""
    create_tables(settings, "bench_flink")
    with (
        flink.running(settings, _FOLDER / "flink_views.py") as process,
        connect(settings, autocommit=True) as connection,
    ):
        yield Engine(
            name=_FLINK,
            reader=Tables(connection, "bench_flink"),
            meter=_meter(settings, _FLINK, process.pid),
            place="in PostgreSQL",
            note=f"{_LATEST}; upserts every 200 ms; state in memory; no positions, no proof; "
            "fails at the first invalid event; late events change their rows; corrects clocks by whole seconds",
            guarantees="state exactly once, checkpoint every 5 s; upserts repeated after a failure, and the tables may "
            "go back by seconds",
            require_running=partial(_require_running, _FLINK, process),
            notes={
                "request_rates": "rows stay for ever",
                "click_through": "clicks as one text, without the time at which the log had them",
                "home_timeline": "no names and photos",
            },
        )


@contextmanager
def kafka_streams(settings: Settings) -> Iterator[Engine]:
    """One process of Kafka Streams with a thread for each core, which writes into a topic for each view."""
    folder = settings.home / "streams"
    run_ivy(settings, IVY_FILE, ["streams"], folder)
    command = [java(settings), "-cp", f"{folder}/streams/*", str(_FOLDER / "StreamsViews.java")]
    given = {"kafka": java_client(settings), "state": str(folder / "state"), "cores": cores()}
    with topics.created(settings) as reader, _running(command, given) as process:
        yield Engine(
            name=_STREAMS,
            reader=reader,
            meter=Meter({"broker": services(settings)["broker"], _STREAMS: process.pid}),
            place="by a consumer of committed records",
            note=f"{_LATEST}; no table: readers store the rows themselves; state in RocksDB with changelog topics; no "
            "positions, no proof; fails at the first invalid event; late events change their rows",
            guarantees="exactly once up to the output topics, commit every 100 ms",
            require_running=partial(_require_running, _STREAMS, process),
            notes={
                "request_rates": "rows stay for ever",
                "cart": "one record for a cart; copies of its events count once",
                "click_through": "clicks without the time at which the log had them",
                "home_timeline": "a processor of 40 lines, because no join of tables expresses it; no rule for popular "
                "authors, no owners of tweets, no names and photos",
            },
        )


@contextmanager
def pathway(settings: Settings) -> Iterator[Engine]:
    """One process of Pathway with a worker for each core, which writes into PostgreSQL."""
    create_tables(settings, "bench_pathway")
    os.environ["PATHWAY_THREADS"] = str(cores())
    kafka, database = settings.kafka(), settings.database()
    given = {
        "kafka": {name: kafka[name] for name in _SIGN_IN}
        | {"group.id": "bench-five-pathway", "auto.offset.reset": "latest"},
        "database": {name: database[name] for name in ("host", "port", "dbname", "user", "password")},
        "schema": "bench_pathway",
        "state": str(settings.home / "pathway"),
    }
    command = [str(PYTHON), "-P", str(_FOLDER / "pathway_views.py")]
    with _running(command, given) as process, connect(settings, autocommit=True) as connection:
        yield Engine(
            name=_PATHWAY,
            reader=Tables(connection, "bench_pathway"),
            meter=_meter(settings, _PATHWAY, process.pid),
            place="in PostgreSQL",
            note=f"{_LATEST}; commits every 200 ms; state in memory; no positions, no proof; "
            "logs and drops invalid events; late events change their rows",
            guarantees="at least once, from inputs saved every 5 s; exactly once needs its enterprise edition",
            require_running=partial(_require_running, _PATHWAY, process),
            notes={
                "page_views": "URLs parsed in Python",
                "request_rates": "rows stay for ever",
                "cart": "each event folds its cart again, in Python; copies of events count once",
                "click_through": "clicks as one text, without the time at which the log had them",
                "home_timeline": "no names and photos",
            },
        )


ENGINES: Mapping[str, Callable[[Settings], AbstractContextManager[Engine]]] = {
    OURS: ours,
    _FLINK: flink_sql,
    _STREAMS: kafka_streams,
    _PATHWAY: pathway,
}


@contextmanager
def _running(command: Command, parameters: Mapping[str, Any]) -> "Iterator[Popen[str]]":
    process = start(command, parameters)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _meter(settings: Settings, name: str, pid: int) -> Meter:
    used = services(settings)
    return Meter({each: used[each] for each in _SERVICES} | {name: pid})


def _require_running(name: str, process: "Popen[str]") -> None:
    if process.poll() is not None:
        raise RuntimeError(f"{name} exited with {process.returncode}; its output is above")
