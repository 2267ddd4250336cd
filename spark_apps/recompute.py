"""Recompute view partials for log days: `recompute.py --attempt ID --day TIME … [--open] [--run NAME] [VIEW …]`.

Prints one line of JSON. If a view fails, the job recomputes the other views and then exits with the reasons as its
error message.
"""

import argparse
import json
import sys

from truelog.batch.recomputation import Recomputation
from truelog.batch.recompute import recompute_all
from truelog.batch.run_interval import parse_moment
from truelog.support.settings import Settings


def main() -> str | None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("views", nargs="*")
    parser.add_argument(
        "--day", required=True, action="append", type=parse_moment, help="the time at which a log day begins"
    )
    parser.add_argument("--open", action="store_true", help="include the archived part of a day that is still open")
    parser.add_argument("--run", help="the id of the Airflow run, stored with the progress")
    parser.add_argument("--attempt", required=True, help="the id of the task's try, under which progress is stored")
    arguments = parser.parse_args()
    recomputation = Recomputation(Settings(), arguments.attempt, arguments.run)
    outcome = recompute_all(recomputation, arguments.views, arguments.day, unfinished=arguments.open)
    sys.stdout.write(json.dumps(outcome.as_dict()) + "\n")
    return "\n".join(f"{view}: {reason}" for view, reason in outcome.refused.items()) or None


if __name__ == "__main__":
    sys.exit(main())
