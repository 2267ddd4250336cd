"""Pattern rules: how long a match takes under traffic with fifty rules, and how fast a backtest is.

Payments of many customers arrive at a constant rate. Marked payments are a match of their own at once, and a poller
looks for these matches. The backtest then reads payments that were archived before. A third part is what the Python
processes of the executors do, in this process: each group alone, and all groups together, in turns.
"""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message
from numpy.typing import NDArray

import runtime
from bench import streaming
from bench.freshness import LOOK_SECONDS, percentiles
from bench.row import OURS, Row
from rules.sources import SOURCES
from tests.beat import TooSlow, every, first
from tests.scenes.applications import Application, start
from truelog.archive.table import archived_positions
from truelog.batch.batch_context import open_batch
from truelog.kernel import clock
from truelog.log import topics
from truelog.log.kafka_producer import make_producer
from truelog.patterns import files
from truelog.patterns.rule import Rule, check
from truelog.patterns.together.events import Events
from truelog.patterns.together.search import outcomes_of_groups
from truelog.patterns.versions import SET, Change, Version
from truelog.rules import matches, sending
from truelog.rules.backtest import Asked, backtest
from truelog.storage.database import connect
from truelog.support import timestamps
from truelog.support.settings import Settings

VIEWS = ("matches",)
RULES, RATES = 50, (500, 5_000)
CUSTOMERS, BACKTESTED = 20_000, 500_000
FAILED = (2 / 3, 0.03)  # shares of payments, in one process

_TOPIC, _MARKED = "payment", "marked"
_MARKS = 20  # per second
_TICKS = 3  # after the payments, so that one of them has their ends
_BEAT_SECONDS = 0.01
_LOOK_SECONDS = 0.1
_WARM_SECONDS = 15.0
_PATIENCE_SECONDS = 120.0
_SEED = 34
_GROUPS, _EVENTS_OF_GROUP, _TURNS = 800, 12, 3
_ALONE = 2**40  # events, below which each group is searched alone
_MARK_RULE = f"""RULE {_MARKED} BY customer
PATTERN paid
WITHIN 1 minute
STEP paid ON payment WHERE verb = 'succeeded' AND country = 'XX'
"""
_RULE = """RULE tried_{number} BY customer
PATTERN failed{{{least},}} succeeded
WITHIN 10 minutes
STEP failed ON payment WHERE verb = 'failed' AND amount > {number}
STEP succeeded ON payment WHERE verb = 'succeeded' AND country <> failed.country
SHOW count(failed) AS failures
"""


def rules() -> list[str]:
    """The rule of the marks, and further rules about attempts to pay."""
    return [_MARK_RULE, *(_RULE.format(number=number, least=2 + number % 4) for number in range(1, RULES))]


@dataclass
class Payments:
    """Payments at a constant rate with marks among them: when each mark was acknowledged, and when its match came."""

    settings: Settings
    chosen: Random = field(default_factory=lambda: Random(_SEED))
    acknowledged: dict[str, float] = field(default_factory=dict)
    shown: dict[str, float] = field(default_factory=dict)
    made: int = 0

    def send(self, rate: int, seconds: float) -> float:
        """Send payments for so long, and return the rate that was reached."""
        kafka, began, sent, marked = make_producer(self.settings), time.time(), 0, 0
        for now in every(_BEAT_SECONDS, within=seconds + _PATIENCE_SECONDS, what="payments"):
            due = min(int((now - began) * rate), int(seconds * rate))
            for _ in range(due - sent):
                customer = f"c{self.chosen.randrange(CUSTOMERS)}"
                kafka.produce(_TOPIC, self.payment(customer, self.chosen.choice(("DE", "FR"))), customer)
            sent = due
            while marked < min((now - began) * _MARKS, seconds * _MARKS):
                name = f"m{self.made}"
                kafka.produce(_TOPIC, self.payment(name, "XX"), name, on_delivery=self._acknowledge)
                marked += 1
            kafka.poll(0)
            if sent == int(seconds * rate):
                break
        kafka.flush()
        return sent / (time.time() - began)

    def payment(self, customer: str, country: str) -> bytes:
        self.made += 1
        verb = "succeeded" if country == "XX" or self.made % 3 == 0 else "failed"
        about = {"customer_id": customer, "order_id": f"o{self.made // 3}", "verb": verb, "country": country}
        sent = {"event_id": f"p{self.made}", "occurred_at": timestamps.to_text(datetime.now(UTC)), **about}
        return json.dumps(sent | {"amount": self.made % 100}).encode()

    def _acknowledge(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        self.acknowledged[(message.key() or b"").decode()] = time.time()

    def follow(self, application: Application, sender: threading.Thread) -> bool:
        """Look for the matches of marks until all are there. False if they are not there in time."""
        query = "SELECT entity_id FROM views.matches WHERE rule = %s AND entity_id = ANY(%s)"
        with connect(self.settings, autocommit=True) as connection:
            try:
                for now in every(LOOK_SECONDS, within=_WARM_SECONDS + _PATIENCE_SECONDS, what="matches"):
                    streaming.require_running(application)
                    missing = [each for each in list(self.acknowledged) if each not in self.shown]
                    for (name,) in connection.execute(query, (_MARKED, missing)).fetchall():
                        self.shown.setdefault(str(name), now)
                    if not missing and not sender.is_alive():
                        return True
            except TooSlow:
                return False
        raise AssertionError("every() raises at its limit")


def run(settings: Settings, application: Application, seconds: float) -> Iterator[Row]:
    """Matches at each rate. The application must run the views."""
    runtime.up(settings, ["commands"], tethered=True)
    _await_view(settings)
    sources = matches.load(settings, "matches").sources
    for each in rules():
        sending.send(settings, sending.SET, sources, definition=each)
    payments = Payments(settings)
    _measured(payments, application, RATES[0], _WARM_SECONDS)
    yield from (_measured(payments, application, rate, seconds) for rate in RATES)


def in_process() -> Iterator[Row]:
    """The CPU time to search events for all rules, with their JSON, for each share of payments that have failed."""
    declared = [files.read(each, SOURCES) for each in rules()]
    known = [_version(check(each, SOURCES)) for each in declared]
    for share in FAILED:
        inputs, group = _inputs(share)
        ways = {"each customer alone": _ALONE, "customers together": 0}
        seconds, found = {way: list[float]() for way in ways}, dict[str, list[tuple[int, str]]]()
        for _ in range(_TURNS):
            for way, few in ways.items():
                began = time.process_time()
                outcomes = list(outcomes_of_groups(known, "customer", Events.of(inputs, group), few))
                seconds[way].append(time.process_time() - began)
                found[way] = sorted((number, each.match_id) for number, each in outcomes)
        if len({tuple(each) for each in found.values()}) != 1:
            raise RuntimeError("the two ways find different matches")
        for way, of_way in seconds.items():
            least, matches = min(of_way), len(found[way])
            more = {"events": len(group), "seconds": least, "matches": matches}
            more["us_per_event_and_rule"] = least / len(group) / RULES * 1e6
            job = f"search {_EVENTS_OF_GROUP} payments of a customer for {RULES} rules, {share:.0%} of them failed"
            yield Row(job, OURS, len(group) / least, "alone", f"of one core, {way}, {matches:,} matches", more=more)


def _version(rule: Rule) -> Version[Rule]:
    """The version of a rule that judges all events."""
    return Version(1, Change("rule", 0, 0, 0, rule.name, SET, None, "{}"), rule, {}, None, None)


def _inputs(failed: float) -> tuple[pa.Table, NDArray[np.int64]]:
    """Payments with the numbers of their customers. This share of the payments has failed."""
    chosen, rows = Random(_SEED), list[dict[str, Any]]()
    for number in range(_GROUPS * _EVENTS_OF_GROUP):
        verb, country = "failed" if chosen.random() < failed else "succeeded", chosen.choice(("DE", "FR"))
        about = {"order_id": f"o{number}", "verb": verb, "country": country, "amount": chosen.randrange(100)}
        at = number * 1_000_000
        rows.append({"at": at, "logged_at": at, "offset": number, "event": json.dumps(about)})
    group = np.repeat(np.arange(_GROUPS), _EVENTS_OF_GROUP)
    table = pa.Table.from_pylist(rows).append_column("topic", pa.array([_TOPIC] * len(rows)))
    return table.append_column("partition", pa.array([0] * len(rows))), group


def _await_view(settings: Settings) -> None:
    """Wait until an application has made the table of the view."""
    with connect(settings, autocommit=True) as connection:
        deployed = "SELECT FROM truelog.published_place WHERE view = 'matches'"
        first(
            LOOK_SECONDS,
            lambda: bool(connection.execute(deployed).fetchall()),
            within=_PATIENCE_SECONDS,
            what="the view `matches`",
        )


def _measured(payments: Payments, application: Application, rate: int, seconds: float) -> Row:
    before, reached = set(payments.acknowledged), list[float]()
    sender = threading.Thread(target=lambda: reached.append(payments.send(rate, seconds)), name="payments")
    sender.start()
    is_done = payments.follow(application, sender)
    sender.join()
    names = payments.acknowledged.keys() - before
    ordered = sorted(payments.shown[each] - payments.acknowledged[each] for each in names & payments.shown.keys())
    lacking = "" if is_done else f"; {len(names) - len(ordered)} did not come within {_PATIENCE_SECONDS:.0f} s"
    return Row(
        f"matches of {RULES} rules at {rate:,} events/s",
        OURS,
        reached[0],
        "alone",
        f"acknowledged to readable, {len(ordered)} marked payments of {CUSTOMERS:,} customers{lacking}",
        more=percentiles(ordered or [float("nan")]),
    )


def run_backtest(settings: Settings, application: Application) -> Row:
    """A backtest of one rule over payments that are in the archive. The application has only made the view's table."""
    _await_view(settings)
    application.end()
    begin = datetime.now(UTC)
    payments, kafka = Payments(settings), make_producer(settings)
    for number in range(BACKTESTED):
        customer = f"b{number % CUSTOMERS}"
        kafka.produce(_TOPIC, payments.payment(customer, "DE"), customer)
        if number % 10_000 == 0:
            kafka.flush()
    kafka.flush()
    _archive(settings)
    with open_batch(settings, "truelog bench", VIEWS) as context:
        [compiled] = context.views.compiled
        declared = files.read(rules()[1], matches.load(settings, "matches").sources)
        asked = Asked(declared, begin - timedelta(seconds=2))
        backtest(context, compiled, asked, lambda ended, tasks: None)  # Java compiles
        found = backtest(context, compiled, asked, lambda ended, tasks: None)
    if found.events < BACKTESTED:
        raise RuntimeError(f"the backtest has searched {found.events} events")
    more = {"events": found.events, "seconds": found.seconds, "matches": found.matches}
    note = f"one rule, {found.entities:,} customers, with reading, the second of two"
    return Row("backtest of a rule", OURS, found.events / found.seconds, "alone", note, more=more)


def _archive(settings: Settings) -> None:
    """Archive the payments, and ticks that came after them."""
    sent, ticks = topics.end_offsets(settings, [_TOPIC]), topics.end_offsets(settings, [clock.TOPIC])
    later = ticks.at(clock.TOPIC, 0) + _TICKS

    def is_archived() -> bool:
        if application.process.poll() is not None:
            raise RuntimeError(f"the archive application ended:\n{application.tail()}")
        archived = archived_positions(settings, [_TOPIC, clock.TOPIC])
        return archived.covers(sent) and archived.at(clock.TOPIC, 0) > later

    application = start(settings, "archive.py", TRUELOG_ARCHIVE_TRIGGER_SECONDS="1")
    first(_LOOK_SECONDS, is_archived, within=_PATIENCE_SECONDS, what="the payments in the archive")
    application.end()
