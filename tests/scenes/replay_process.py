"""A replay in a process of its own, so that a scene can kill it. It knows the event types of an additional folder."""

import json
import sys
from pathlib import Path

from truelog.ingest import dead_letter_replay
from truelog.ingest.dead_letter_store import LetterFilter, LetterStore
from truelog.schema.event import load_events
from truelog.support.settings import Settings


def main(folder: str, event_type: str, portion: str) -> None:
    """Replay the dead letters of one event type in portions of this many."""
    dead_letter_replay._PORTION = int(portion)
    settings, types = Settings(), load_events() | load_events(Path(folder))
    letters = LetterStore(settings).read(LetterFilter(event_type))
    result = dead_letter_replay.replay(settings, types, letters, "a scene")
    sys.stdout.write(json.dumps(vars(result)))


if __name__ == "__main__":
    main(*sys.argv[1:])
