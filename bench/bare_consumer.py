"""The floor: count page views with librdkafka, orjson and a dictionary. Runs in the `.venv-bench` environment.

It stores nothing and guarantees nothing. Each process reads every n-th partition from the beginning to its end.
"""

import json
import sys
import time
from typing import Any

import orjson
from confluent_kafka import Consumer, TopicPartition

_BATCH = 10_000  # messages


def main() -> None:
    given = json.load(sys.stdin)
    consumer = Consumer({**given["kafka"], "group.id": "bench-bare", "enable.auto.commit": False})
    partitions = sorted(consumer.list_topics("page_view", timeout=30).topics["page_view"].partitions)
    own = [TopicPartition("page_view", each, 0) for each in partitions[given["index"] :: given["processes"]]]
    left = sum(consumer.get_watermark_offsets(each, timeout=30)[1] for each in own)
    consumer.assign(own)

    views: dict[Any, int] = {}
    sent: dict[Any, int] = {}
    samples = [(time.time(), 0)]
    while left > 0:
        messages = consumer.consume(_BATCH, timeout=1)
        for message in messages:
            event = orjson.loads(message.value())
            cell = event["occurred_at"][:16], event["url"], event.get("browser")
            views[cell] = views.get(cell, 0) + 1
            sent[cell] = sent.get(cell, 0) + event["bytes"]
        left -= len(messages)
        samples.append((time.time(), samples[-1][1] + len(messages)))
    sys.stdout.write(json.dumps({"samples": samples, "views": sum(views.values())}) + "\n")


if __name__ == "__main__":
    main()
