"""Cuts the end off Kafka's logs, as a power failure does."""

import struct
from collections.abc import Iterable
from pathlib import Path

import runtime
from runtime import keeper
from truelog.support.settings import Settings


def lose_end_of_logs(settings: Settings, names: Iterable[str], partition: int = 0) -> dict[str, int]:
    """Cut the partition's newest segment of each topic in the middle. Return each topic's new end."""
    keeper.stop(settings, "kafka")
    ends = {}
    for topic in names:
        [folder] = (settings.home / "kafka").glob(f"data/**/{topic}-{partition}")
        segment = max(folder.glob("*.log"))
        begins = list(_batches(segment))
        ends[topic], place = begins[len(begins) // 2]
        with segment.open("r+b") as opened:
            opened.truncate(place)
        for file in (*folder.glob("*index"), *folder.glob("*.snapshot"), folder.parent / ".kafka_cleanshutdown"):
            file.unlink(missing_ok=True)
    runtime.up(settings, ["kafka"], tethered=True)
    return ends


def _batches(segment: Path) -> "list[tuple[int, int]]":
    """The first offset and the place of each record batch."""
    found, place, content = [], 0, segment.read_bytes()
    while place + 12 <= len(content):
        offset, length = struct.unpack_from(">qi", content, place)
        found.append((offset, place))
        place += 12 + length
    return found
