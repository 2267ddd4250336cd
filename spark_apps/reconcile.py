"""Compare streamed views with their rebuilds: `reconcile.py [--from-raw] [--repair] [VIEW …]`; a line of JSON."""

import argparse
import json
import sys

from truelog.reconcile import exit_code, reconcile_all
from truelog.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("views", nargs="*")
    parser.add_argument("--from-raw", action="store_true")
    parser.add_argument("--repair", action="store_true")
    arguments = parser.parse_args()
    results = reconcile_all(Settings(), arguments.views, from_raw=arguments.from_raw, mend=arguments.repair)
    sys.stdout.write(json.dumps({"views": [r.as_dict() for r in results]}, default=str) + "\n")
    return exit_code(results)


if __name__ == "__main__":
    sys.exit(main())
