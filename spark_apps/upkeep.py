"""Compact and expire the tables of the archive and of partials, and sweep the staging tables: a line of JSON."""

import json
import sys

from truelog.settings import Settings
from truelog.upkeep import keep_up


def main() -> None:
    done = keep_up(Settings())
    sys.stdout.write(json.dumps({"tables": [each.as_dict() for each in done]}) + "\n")


if __name__ == "__main__":
    main()
