"""Compare streamed views with their rebuilds: `reconcile.py [--from-raw] [--repair] [--run NAME] [VIEW …]`.

Prints one line of JSON. The exit code reflects the verdicts. In a named run, however, later tasks judge the verdicts
(`truelog.reconcile.reconcile_checks`), so exit code 0 means only that the comparison completed.
"""

import argparse
import json
import sys

from truelog.reconcile.reconcile import reconcile_all
from truelog.reconcile.reconcile_result import ReconcileRequest, exit_code
from truelog.storage import audit_trail
from truelog.support.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("views", nargs="*")
    parser.add_argument("--from-raw", action="store_true")
    parser.add_argument("--repair", action="store_true")
    parser.add_argument(
        "--exclude-from-repair",
        action="append",
        default=[],
        metavar="VIEW",
        help="compare this view without repairing it",
    )
    parser.add_argument("--audit-partials", action="store_true", help="first compare some partials with the raw bytes")
    parser.add_argument("--incremental", action="store_true", help="begin from the rows that were proved last")
    parser.add_argument("--run", help="the run's name, stored with the results")
    parser.add_argument("--doer", default=audit_trail.AIRFLOW, help="the user who started the comparison")
    arguments = parser.parse_args()
    request = ReconcileRequest(
        from_raw=arguments.from_raw,
        repair=arguments.repair,
        audit=arguments.audit_partials,
        incremental=arguments.incremental,
        doer=arguments.doer,
        exempt=frozenset(arguments.exclude_from_repair),
        run=arguments.run,
    )
    results = reconcile_all(Settings(), arguments.views, request)
    sys.stdout.write(json.dumps({"views": [r.as_dict() for r in results]}, default=str) + "\n")
    return 0 if arguments.run else exit_code(results)


if __name__ == "__main__":
    sys.exit(main())
