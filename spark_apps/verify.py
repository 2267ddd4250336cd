"""Verify a certificate from the archive's raw bytes: `verify.py [--run NAME] [--doer NAME] CERTIFICATE`.

Prints one line of JSON and stores the result. The exit code is 0 for every answer, because only the user who asked can
say what the answer means: after an edit of a view's file, the certificates of earlier code are SUPERSEDED.
"""

import argparse
import json
import sys

from truelog.reconcile import certificate_checks, certificate_store
from truelog.reconcile.certificate_verifier import verify_certificate
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.support.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("certificate")
    parser.add_argument("--run", help="the run's name, stored with the result")
    parser.add_argument("--doer", default=audit_trail.AIRFLOW, help="the user who asked")
    arguments, settings = parser.parse_args(), Settings()
    check = verify_certificate(settings, certificate_store.find_certificate(settings, arguments.certificate))
    with connect(settings) as connection:
        certificate_checks.store_check(connection, check, arguments.run, arguments.doer)
    sys.stdout.write(json.dumps(check.as_dict(), default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
