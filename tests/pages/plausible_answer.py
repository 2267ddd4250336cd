"""A plausible answer to the question why a row has its value."""

from typing import Any

from tests.library.archive_files import TOPIC
from tests.pages.plausible import HOSTILE
from truelog.history.explain_question import Question

WHERE = ["minute=2026-11-24 10:00:00+00", "host=shop.example", f"page={HOSTILE[1]}", "browser is NULL"]
QUESTION = Question("page_views", tuple(WHERE))
MARK = {"topic": TOPIC, "partition": 0, "event_time": "2026-11-24 10:00:01+00:00"}
ROW = {"minute": "2026-11-24 10:00:00+00:00", "host": "shop.example", "page": HOSTILE[1], "browser": None}
MANY = 2**53 + 1  # which a browser reads as 2**53
ANSWER: dict[str, Any] = {
    "view": "page_views",
    "version": 1,
    "key": QUESTION.key,
    "verdict": "DIFFERENT",
    "reason": f"the row does not follow {HOSTILE[0]}",
    "streamed": [ROW | {"views": MANY}],
    "rebuilt": [ROW | {"views": 2}],
    "total": 7,
    "refused": 1,
    "earlier": f"{TOPIC}:0:1",
    "events": [
        MARK | {"number": 6 + n, "offset": n + 1, "broker_time": f"2026-11-24 10:00:0{n + 2}+00:00", "rows": rows}
        for n, rows in enumerate(([], [ROW | {"views": 2}]))
    ],
    "cost": {"records": 3, "files": 3, "bytes": 9_000, "seconds": 4.2},
}
