"""Compare streamed views with their rebuilds: `reconcile.py [--from-raw] [--repair] [--run NAME] [VIEW …]`.

A line of JSON, and the verdicts as exit code. In a named run the verdicts are left for `truelog.validation` to judge:
the code only tells that the comparison could be made.
"""

import argparse
import json
import sys

from truelog.reconcile.reconcile import ReconcileRequest, exit_code, reconcile_all
from truelog.storage import audit_trail
from truelog.support.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("views", nargs="*")
    parser.add_argument("--from-raw", action="store_true")
    parser.add_argument("--repair", action="store_true")
    parser.add_argument("--spare", action="append", default=[], metavar="VIEW", help="compare it, and repair nothing")
    parser.add_argument("--prove", action="store_true", help="hold some partials against the raw bytes first")
    parser.add_argument("--run", help="keep this name with the results")
    parser.add_argument("--doer", default=audit_trail.AIRFLOW, help="who asked for it")
    arguments = parser.parse_args()
    request = ReconcileRequest(
        from_raw=arguments.from_raw,
        repair=arguments.repair,
        audit=arguments.prove,
        doer=arguments.doer,
        exempt=frozenset(arguments.spare),
        run=arguments.run,
    )
    results = reconcile_all(Settings(), arguments.views, request)
    sys.stdout.write(json.dumps({"views": [r.as_dict() for r in results]}, default=str) + "\n")
    return 0 if arguments.run else exit_code(results)


if __name__ == "__main__":
    sys.exit(main())
