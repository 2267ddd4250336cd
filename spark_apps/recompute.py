"""Recompute the partials of views for log days: `recompute.py --day TIME … [--open] [VIEW …]`.

A line of JSON; where a view had to be refused, the others are done, and the reasons end the job.
"""

import argparse
import json
import sys

from truelog.batch.recompute import recompute_all
from truelog.batch.run_interval import parse_moment
from truelog.support.settings import Settings


def main() -> str | None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("views", nargs="*")
    parser.add_argument(
        "--day", required=True, action="append", type=parse_moment, help="the moment at which a day begins"
    )
    parser.add_argument("--open", action="store_true", help="also a day that is not closed, as far as it is archived")
    given = parser.parse_args()
    outcome = recompute_all(Settings(), given.views, given.day, unfinished=given.open)
    sys.stdout.write(json.dumps(outcome.as_dict()) + "\n")
    return "\n".join(f"{view}: {reason}" for view, reason in outcome.refused.items()) or None


if __name__ == "__main__":
    sys.exit(main())
