"""The job of `docs/applications.md` as a process that dies at a point: `dying_job.py JOB CART POINT DEFECT…`.

| point | the job has |
| --- | --- |
| `read` | read rows, and not sent their events |
| `sent` | sent events, and not stored its place |
| `none` | no end |

The planted defect `ids` gives each event another id than the job has chosen.
"""

import os
import runpy
import signal
import sys
from collections.abc import Callable
from typing import Any

import confluent_kafka

from truelog.client.client import Client

ID = "event_id"


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying_once_sent() -> None:
    """Die at the first place after events were sent."""
    send, sent = Client.send, list[Any]()

    def counted(client: Client, *events: Any) -> Any:
        sent.append(send(client, *events))
        return sent[-1]

    class Dying(confluent_kafka.Consumer):  # type: ignore[misc]  # confluent-kafka has no types
        def commit(self, *arguments: Any, **named: Any) -> Any:
            if sent:
                die()
            return super().commit(*arguments, **named)

    replace(Client, "send", counted)
    replace(confluent_kafka, "Consumer", Dying)


def other_ids() -> None:
    send = Client.send

    def anonymous(client: Client, *events: Any) -> Any:
        return send(client, *({name: value for name, value in each.items() if name != ID} for each in events))

    replace(Client, "send", anonymous)


def replace(owner: Any, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{name} has another name now: the job would not die"
    setattr(owner, name, value)


POINTS: dict[str, Callable[[], None]] = {
    "read": lambda: replace(Client, "send", die),
    "sent": dying_once_sent,
    "none": lambda: None,
}
DEFECTS: dict[str, Callable[[], None]] = {"ids": other_ids}


def main(job: str, cart: str, point: str, *defects: str) -> None:
    POINTS[point]()
    for each in defects:
        DEFECTS[each]()
    sys.argv = [job, cart]
    runpy.run_path(job, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
