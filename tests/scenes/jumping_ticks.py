"""The tick service with a clock that a test sets: `jumping_ticks.py FILE`. FILE has the clock's error in seconds."""

import sys
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

from truelog.services.ticks import service as tick_service


class Clock:
    """The machine's clock with its error."""

    @staticmethod
    def now(tz: tzinfo) -> datetime:
        return datetime.now(tz) + timedelta(seconds=float(Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    tick_service.datetime = Clock  # type: ignore[assignment, attr-defined]
    tick_service.main()
