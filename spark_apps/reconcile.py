"""Compare streamed views with their rebuilds, and print a line of JSON: see `--help`."""

import argparse
import json
import sys

from truelog.reconcile import Request, exit_code, reconcile_all
from truelog.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("views", nargs="*")
    parser.add_argument("--from-raw", action="store_true")
    parser.add_argument("--repair", action="store_true")
    parser.add_argument("--prove", action="store_true", help="hold some partials against the raw bytes first")
    arguments = parser.parse_args()
    request = Request(arguments.from_raw, arguments.repair, arguments.prove)
    results = reconcile_all(Settings(), arguments.views, request)
    sys.stdout.write(json.dumps({"views": [r.as_dict() for r in results]}, default=str) + "\n")
    return exit_code(results)


if __name__ == "__main__":
    sys.exit(main())
