"""Build batch answers for views: `answer.py VIEW …`, or for all batch-only views: `answer.py --batch-only`.

Prints one line of JSON. If a view fails, the job builds the other answers and then exits with the reason as its error
message. A view whose file does not match its table is rejected. If it needs a fallback, it is not tried again until the
files change, and the job succeeds.
"""

import argparse
import json
import sys

from truelog.serving.batch_views import build_batch_views
from truelog.serving.fallback import build_needed
from truelog.support.settings import Settings


def main() -> str | None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("views", nargs="*")
    parser.add_argument("--batch-only", action="store_true")
    arguments = parser.parse_args()
    batch_only = arguments.batch_only
    outcome = build_batch_views(Settings()) if batch_only else build_needed(Settings(), arguments.views)
    sys.stdout.write(json.dumps(outcome.as_dict()) + "\n")
    not_built = outcome.failed | (outcome.refused if batch_only else {})
    return "\n".join(f"{view}: {reason}" for view, reason in not_built.items()) or None


if __name__ == "__main__":
    sys.exit(main())
