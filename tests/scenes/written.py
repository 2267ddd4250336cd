"""What a platform has written to its logs and its topics, and what a user of the machine sees of a process."""

from pathlib import Path

import psutil

from truelog.log import topics
from truelog.log.kafka_reader import headers_of, messages
from truelog.support.settings import Settings


def logs(*homes: Path) -> dict[str, bytes]:
    """The logs of services and applications in these homes, by name."""
    found: dict[str, bytes] = {}
    for folder in {home / name for home in homes for name in ("logs", "applications")}:
        for file in folder.glob("*.log*"):
            found[file.name] = found.get(file.name, b"") + file.read_bytes()
    return found


def records(settings: Settings) -> dict[str, bytes]:
    """The records of each topic, with their keys and headers."""
    broker = topics.client(settings)
    names = {each for each in topics.existing_topics(broker) if not each.startswith("__")}
    begins = topics.begins(broker, names)
    found = dict.fromkeys(names, b"")
    for each in begins.ranges_to(topics.ends(broker, names)):
        read = messages(settings, each.topic, each.partition, each.start, each.end)
        found[each.topic] += b"".join(repr((m.key(), m.value(), headers_of(m))).encode() for m in read)
    return found


def processes(pid: int) -> dict[str, bytes]:
    """The arguments and the environment of a process and of its descendants."""
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    return {
        "arguments": " ".join(word for each in family for word in each.cmdline()).encode(),
        "environment": repr([each.environ() for each in family]).encode(),
    }
