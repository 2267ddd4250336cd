"""Upkeep: drop data that is no longer needed and compact the rest (`truelog.maintenance.upkeep`). Prints JSON.

Replays whose time is over are dropped first.
"""

import json
import sys

from truelog.maintenance.upkeep import run_upkeep
from truelog.replays.store import drop_over
from truelog.support.settings import Settings


def main() -> None:
    settings = Settings()
    dropped = drop_over(settings)
    sys.stdout.write(json.dumps({**run_upkeep(settings).as_dict(), "replays": dropped}) + "\n")


if __name__ == "__main__":
    main()
