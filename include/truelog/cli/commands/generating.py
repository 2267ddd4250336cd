"""`truelog generate`: sends synthetic traffic at a constant rate for a limited time."""

import secrets
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from truelog.cli.output import AsJson, print_json, progress, say
from truelog.support.settings import Settings

if TYPE_CHECKING:
    from truelog.log.kafka_producer import OutgoingRecord

Rate = Annotated[float, typer.Option(min=0.1, max=100_000, help="Events per second.")]
Seconds = Annotated[float, typer.Option(min=0, max=86_400, help="Duration in seconds.")]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Traffic seed. The same seed produces the same events, except for their times. Random by default."
    ),
]

Share = Annotated[
    float,
    typer.Option(min=0, max=1, help="Share of the events that are not about pages and searches."),
]


@dataclass
class Generated:
    """The result: the number of events sent, in total and by topic, and the duration in seconds."""

    seed: int
    sent: int = 0
    seconds: float = 0.0
    topics: dict[str, int] = field(default_factory=dict)


def generate(
    rate: Rate = 200, seconds: Seconds = 30, seed: Seed = None, social: Share = 0.2, as_json: AsJson = False
) -> None:
    """Send synthetic traffic to Kafka. Some events are late, out of order, malformed, or from a wrong clock."""
    from truelog.traffic import generator

    result = Generated(secrets.randbelow(2**31) if seed is None else seed)
    records = generator.generate(seed=result.seed, begin=datetime.now(UTC), rate=rate, seconds=seconds, social=social)
    result.topics = dict.fromkeys(generator.TOPICS if social else generator.SITE_TOPICS, 0)
    _send(Settings(), records, rate, seconds, result)
    if as_json:
        print_json(asdict(result))
        return
    by_topic = ", ".join(f"{count:,} {topic}" for topic, count in result.topics.items() if count)
    say(f"{result.sent:,} events sent in {result.seconds:.1f} s ({by_topic}) from seed {result.seed}")


def _send(
    settings: Settings, records: Iterable["OutgoingRecord"], rate: float, seconds: float, result: Generated
) -> None:
    """Send each record when it is due, or as soon as Kafka accepts it."""
    from truelog.log.kafka_producer import KafkaSender

    with progress("generating", round(rate * seconds)) as done:
        began = time.monotonic()
        with KafkaSender(settings, result.topics) as sender:
            for number, record in enumerate(records):
                early = began + number / rate - time.monotonic()
                if early > 0:
                    sender.poll(early)
                    done(number)
                sender.send(record)
                result.topics[record.topic] += 1
        result.sent, result.seconds = sender.sent, round(time.monotonic() - began, 3)
        done(result.sent)
