"""What the soak declares on the running platform: views by event id, a field, an event type, and their versions."""

from pathlib import Path

from tests.nightly.mixed_traffic import CAMPAIGN, TOPICS
from truelog.schema.event import EVENTS

PARCEL = "parcel_scan"
GRAMS = 1_000  # version n of parcel_scan accepts n times as many grams

_EACH = '''"""Records by event id, so that the soak can tell a lost event from a doubled event."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Sum, View


def transform(events: DataFrame) -> DataFrame:
    return events.select("event_id", F.lit(1).alias("records"))


VIEW = View(reads=("{topic}",), transform=transform, key=("event_id",), measures={{"records": Sum()}})
'''

_BY_CAMPAIGN = '''"""Page views by event id and campaign, which is a field that is declared during the soak."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Sum, View


def transform(page_view: DataFrame) -> DataFrame:
    return page_view.select("event_id", F.coalesce("campaign", F.lit("-")).alias("campaign"), F.lit(1).alias("records"))


VIEW = View(
    reads=("page_view",), transform=transform, key=("event_id", "campaign"), measures={"records": Sum()}
)
'''

_PARCEL = '''"""A parcel on its way."""

from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="parcel", subject=(), partitions=2, retention="7 days")


class Parcel(Event):
    """A parcel was scanned."""

    parcel: str = Field(max_length=64)
    grams: int = Field(ge=0, le={most})
'''


def each_view(topic: str) -> str:
    """The name of the view that counts a topic's records by event id."""
    return f"each_{topic}"


def declare_counts(folder: Path) -> None:
    """Add the views that count each event of the shop's topics."""
    for topic in TOPICS:
        _add_count(folder, topic)


def declare_version(events: Path, number: int) -> None:
    """Change the event files: `page_view` gets another optional field, and `parcel_scan` accepts more grams."""
    page_view = (EVENTS / "page_view.py").read_text()
    page_view += f"    {CAMPAIGN}: str | None = Field(default=None, max_length=64)\n"
    page_view += "".join(f"    extra_{n}: int | None = None\n" for n in range(2, number + 1))
    (events / "page_view.py").write_text(page_view)
    (events / f"{PARCEL}.py").write_text(_PARCEL.format(most=GRAMS * number))


def declare_views(folder: Path) -> None:
    """Add the views that read what the first version declares."""
    (folder / "by_campaign.py").write_text(_BY_CAMPAIGN)
    _add_count(folder, PARCEL)


def _add_count(folder: Path, topic: str) -> None:
    (folder / f"{each_view(topic)}.py").write_text(_EACH.format(topic=topic))
