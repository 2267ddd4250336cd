"""Recompute the partials of views for log days: `recompute.py --day TIME … [--open] [VIEW …]`; a line of JSON."""

import argparse
import json
import sys

from truelog.recompute import recompute_all
from truelog.settings import Settings
from truelog.span import moment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("views", nargs="*")
    parser.add_argument("--day", required=True, action="append", type=moment, help="the moment at which a day begins")
    parser.add_argument("--open", action="store_true", help="also a day that is not closed, as far as it is archived")
    given = parser.parse_args()
    done = recompute_all(Settings(), given.views, given.day, unfinished=given.open)
    sys.stdout.write(json.dumps({"views": [each.as_dict() for each in done]}) + "\n")


if __name__ == "__main__":
    main()
