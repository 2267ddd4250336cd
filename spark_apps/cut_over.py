"""Build new versions of views and prove them: `cut_over.py VIEW …`. Readers move unless cut-over is manual.

Prints one line of JSON. If a version fails, the job builds the others and then exits with the reasons as its error
message. A version that is not ready yet does not fail the job: the next run goes on.
"""

import argparse
import json
import logging
import sys

from truelog.storage.audit_trail import AIRFLOW
from truelog.support.setting_groups.versions import CutOver
from truelog.support.settings import Settings
from truelog.versions.build import build_versions


def main() -> str | None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("views", nargs="+")
    settings, log = Settings(), logging.getLogger("truelog.versions")
    moves = settings.cut_over is CutOver.AUTOMATIC
    built = build_versions(settings, parser.parse_args().views, log.info, moves=moves, doer=AIRFLOW)
    sys.stdout.write(json.dumps({"versions": [each.as_dict() for each in built]}) + "\n")
    return "\n".join(f"{each.view}: {each.reason}" for each in built if each.failed) or None


if __name__ == "__main__":
    sys.exit(main())
