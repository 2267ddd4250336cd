"""Count page views per minute and cell in a Quix Streams state store. Runs in the `.venv-bench` environment.

A record's key is its cell. Quix Streams uses its default configuration: state on disk, a changelog topic and
at-least-once delivery.
"""

import json
import sys
import threading
import time
from datetime import datetime, timedelta
from typing import Any

from quixstreams import Application
from quixstreams.kafka.configuration import ConnectionConfig

_SAMPLE = 500  # messages


def event_time(value: dict[str, Any], _: object, broker_time: int, __: object) -> int:
    """The event time in milliseconds. As in Truelog, the time when the device sent the event corrects its clock."""
    happened = datetime.fromisoformat(value["occurred_at"]).timestamp() * 1000
    if "sent_at" not in value:
        return int(happened)
    return int(happened + broker_time - datetime.fromisoformat(value["sent_at"]).timestamp() * 1000)


def late(value: Any, key: Any, timestamp: int, *_: Any) -> bool:
    raise RuntimeError(f"{key} at {timestamp} was not counted: it was more than a day late")


def main() -> None:
    given = json.load(sys.stdin)
    samples: list[tuple[float, int]] = []
    counted = 0

    def taken(*_: object) -> None:
        nonlocal counted
        counted += 1
        if counted % _SAMPLE == 1:
            samples.append((time.time(), counted))
            if len(samples) == 1:
                threading.Timer(given["seconds"], application.stop).start()

    application = Application(
        ConnectionConfig.from_librdkafka_dict(given["kafka"]),
        consumer_group="bench-quix",
        auto_offset_reset="earliest",
        state_dir=given["state"],
        loglevel="WARNING",
    )
    page_views = application.topic("page_view", timestamp_extractor=event_time)
    frame = application.dataframe(page_views)
    window = frame.tumbling_window(timedelta(minutes=1), grace_ms=timedelta(days=1), on_late=late)
    window.count().current().update(taken)
    application.run()
    sys.stdout.write(json.dumps({"samples": samples}) + "\n")


if __name__ == "__main__":
    main()
