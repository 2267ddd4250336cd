"""A replay in a process of its own, so that a scene can kill it. It knows the event types of an additional folder."""

import sys
from pathlib import Path

from truelog.dead_letters import replay as dead_letter_replay
from truelog.dead_letters.replay import ReplayResult
from truelog.dead_letters.store import LetterFilter, LetterStore
from truelog.schema.loading.events import load_events
from truelog.support.settings import Settings


def replay(folder: Path, event_type: str) -> ReplayResult:
    """Replay the dead letters of one event type."""
    settings, types = Settings(), load_events() | load_events(folder)
    letters = LetterStore(settings).read(LetterFilter(event_type))
    return dead_letter_replay.replay(settings, types, letters, "a scene")


if __name__ == "__main__":
    chosen, name, portion = sys.argv[1:]
    dead_letter_replay._PORTION = int(portion)
    replay(Path(chosen), name)
