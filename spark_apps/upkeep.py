"""Upkeep: drop data that is no longer needed and compact the rest (`truelog.maintenance.upkeep`). Prints JSON."""

import json
import sys

from truelog.maintenance.upkeep import run_upkeep
from truelog.support.settings import Settings


def main() -> None:
    sys.stdout.write(json.dumps(run_upkeep(Settings()).as_dict()) + "\n")


if __name__ == "__main__":
    main()
