"""Recompute the partials of views for a log day: `recompute.py --day TIME [--open] [VIEW …]`; a line of JSON."""

import argparse
import json
import sys
from datetime import UTC, datetime

from truelog.recompute import recompute_all
from truelog.settings import Settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("views", nargs="*")
    parser.add_argument("--day", required=True, type=datetime.fromisoformat, help="the moment at which the day begins")
    parser.add_argument("--open", action="store_true", help="a day that is not closed, as far as it is archived")
    given = parser.parse_args()
    day = given.day if given.day.tzinfo else given.day.replace(tzinfo=UTC)
    done = recompute_all(Settings(), given.views, day, unfinished=given.open)
    sys.stdout.write(json.dumps({"views": [each.as_dict() for each in done]}) + "\n")


if __name__ == "__main__":
    main()
