"""What the steps of a day in a shop wait for: decisions in the log, notifications at the webhook, lags of readers."""

import json
from typing import Any

from tests.command import answer, truelog
from tests.library.listener import Listener
from tests.scenes.shop import Shop
from truelog.support.errors import ServiceDown


def require_decisions_in_log(count: int) -> None:
    decisions = answer("commands", "log", "--key", "by-commands")["decisions"]
    if sum(each["in_log"] for each in decisions) != count:
        raise ServiceDown(str(decisions))


def require_notifier_reads(shop: Shop, view: str) -> None:
    if not shop.world.ask("SELECT FROM truelog.notification_place WHERE view = %s", view):
        raise ServiceDown(f"the notifier does not read the changes of {view} yet")


def require_bulk(listener: Listener, *says: str) -> None:
    told = [(each["says"], each["row"]["product"]) for each in taken(listener, "bulk")]
    if told != [(each, "lamp") for each in says]:
        raise ServiceDown(f"the webhook has received {told}")


def taken(listener: Listener, notification: str) -> list[dict[str, Any]]:
    return [each for each in listener.taken if each["notification"] == notification]


def require_told_of(listener: Listener, match: str) -> None:
    told = [each["row"]["match_id"] for each in taken(listener, "fraud")]
    if set(told) != {match}:
        raise ServiceDown(f"the webhook was notified of {told}")


def require_all_taken(listener: Listener, documents: set[str]) -> None:
    if missing := documents - {each["row"]["document"] for each in taken(listener, "likes")}:
        raise ServiceDown(f"the webhook has not received the hits {sorted(missing)}")


def require_lag_is_ok(readers: set[str]) -> None:
    shown = json.loads(truelog("lag", "--json").stdout)["lag"]
    if not {row["reader"] for row in shown} >= readers or {row["verdict"] for row in shown} != {"OK"}:
        raise ServiceDown(str(shown))
