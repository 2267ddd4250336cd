"""What applications follow during the soak: output topics as tables, and live changes. Each ends with the view's table.

A consumer and a subscriber of each view live as long as the soak, so they come back after each kill and each restore.
Another consumer begins from nothing each time. A subscriber may begin with a limited number of rows, so that of a view
that grows follows one reader's rows.
"""

import json
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from psycopg import sql

from tests.beds.world import World
from truelog.client.client import Client
from truelog.client.errors import ClientError
from truelog.client.output_table import OutputTable
from truelog.relay.view_feed import topic_of
from truelog.support.settings import KafkaUser, Settings
from truelog.views import catalogue

FOLLOWED: Mapping[str, Mapping[str, str]] = {"cart": {}, "home_timeline": {"reader_id": "p1"}}  # by its subscriber
SUBSCRIBER_ROWS = 100_000  # with which a subscriber of a soak of hours may begin

Row = Mapping[str, Any]
Rows = Mapping[tuple[Any, ...], Row]  # by the values of the key

log = logging.getLogger("truelog.soak")


@dataclass
class Follower:
    """A consumer and a subscriber of one view."""

    settings: Settings
    world: World
    view: str
    where: Mapping[str, str]  # the columns of the key with the values that the subscriber follows
    table: OutputTable | None = None
    pushed: dict[str, Row] = field(default_factory=dict)
    repeated: list[int] = field(default_factory=list)  # numbers of updates that came again
    began: int = 0  # how often the subscriber got all rows
    refused: str = ""  # why the subscriber was refused last
    _number: int = 0

    def __post_init__(self) -> None:
        declared = catalogue.load_view(self.view, self.settings.views_folder)
        self.key, self.topic = declared.key, topic_of(self.view, declared.version)

    def subscribe(self, client: Client, over: threading.Event) -> None:
        """Apply updates until the end of the soak. A refusal, such as before the view exists, is asked again."""
        where = [f"{name}={value}" for name, value in self.where.items()]
        while not over.wait(1):
            try:
                for update in client.subscribe(self.view, where=where):
                    if not update.is_whole and update.number <= self._number:
                        self.repeated.append(update.number)
                    self.began += update.is_whole
                    self._number = update.number
                    update.apply(self.pushed)
            except ClientError as error:
                self.refused = str(error)

    def differs(self) -> str:
        """Which of its readers has other rows than the view, or an empty string."""
        expected = self._stored()
        try:
            self.table = self.table or OutputTable(self.topic, self._kafka())
            self.table.follow()
            with OutputTable(self.topic, self._kafka()) as fresh:
                found = {"consumer": self.table.rows, "new consumer": fresh.rows}
        except ClientError as error:
            return str(error)
        wrong = [name for name, rows in found.items() if self._by_key(rows.values()) != expected]
        if self._by_key(dict(self.pushed).values()) != self._followed(expected):
            wrong.append("subscriber")
        counts = {name: len(rows) for name, rows in found.items()} | {"subscriber": len(self.pushed)}
        about = f"{self.view} has {len(expected)} rows, {', '.join(wrong)} differ: {counts}"
        return f"{about}; last refusal: {self.refused or 'none'}" if wrong else ""

    def _followed(self, rows: Rows) -> Rows:
        return {key: row for key, row in rows.items() if all(row[name] == self.where[name] for name in self.where)}

    def _stored(self) -> Rows:
        query = sql.SQL("SELECT row_to_json(r)::text FROM {} AS r").format(sql.Identifier("views", self.view))
        return self._by_key(json.loads(row, parse_float=Decimal) for (row,) in self.world.ask(query))

    def _by_key(self, rows: Iterable[Row]) -> Rows:
        return {tuple(row[column] for column in self.key): row for row in rows}

    def _kafka(self) -> dict[str, Any]:
        return {**self.settings.kafka(KafkaUser.READER), "group.id": "truelog-soak"}


class Followers:
    """Those of all views that are followed, from their start to `end`."""

    def __init__(self, settings: Settings, world: World) -> None:
        self.each = [Follower(settings, world, view, where) for view, where in FOLLOWED.items()]
        self._over = threading.Event()
        api = settings.address("api")
        key = settings.reader_key.get_secret_value()
        self._client = Client(api=f"http://{api.host}:{api.port}", reader_key=key, seconds=600)
        for follower in self.each:
            threading.Thread(target=follower.subscribe, args=(self._client, self._over), daemon=True).start()

    def differ(self) -> bool:
        """Whether one of them still has other rows than its view."""
        found = [text for each in self.each if (text := each.differs())]
        if found:
            log.warning("%s", "; ".join(found))
        return bool(found)

    def require_none_repeated(self) -> None:
        for each in self.each:
            assert not each.repeated, f"{each.view}: updates came again: {each.repeated[:3]}"
            assert each.began, f"{each.view}: the subscriber did not begin; {each.refused}"

    def end(self) -> None:
        self._over.set()
        self._client.close()
        for each in self.each:
            if each.table is not None:
                each.table.close()
