"""What the soak declares on the running platform: views by event id, a field, an event type, and their versions."""

from pathlib import Path

from tests.nightly.mixed_traffic import CAMPAIGN
from truelog.schema.loading.events import EVENTS
from truelog.traffic.generator import TOPICS

PARCEL = "parcel_scan"
EACH_EVENT, EACH_PARCEL = "each_event", "each_parcel"
GRAMS = 1_000  # version n of parcel_scan accepts n times as many grams

_EACH = '''"""Records by topic and event id, so that the soak can tell a lost event from a doubled event."""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from truelog import Sum, View


def transform(*events: DataFrame) -> DataFrame:
    counted = (each.select("topic", "event_id", F.lit(1).alias("records")) for each in events)
    return reduce(DataFrame.unionByName, counted)


VIEW = View(reads={reads}, transform=transform, key=("topic", "event_id"), measures={{"records": Sum()}})
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


def declare_counts(folder: Path) -> None:
    """Add the view that counts each event of the generated traffic."""
    _add_count(folder, EACH_EVENT, TOPICS)


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
    _add_count(folder, EACH_PARCEL, (PARCEL,))


def _add_count(folder: Path, view: str, reads: tuple[str, ...]) -> None:
    (folder / f"{view}.py").write_text(_EACH.format(reads=reads))
