"""Build batch answers for views: `answer.py [VIEW …]`. The default is all views.

Prints one line of JSON. A view whose file does not match its table is rejected and not tried again until the files
change. If a view fails, the job builds the other answers and then exits with the reason as its error message.
"""

import argparse
import json
import sys

from truelog.serving.fallback import build_fallbacks
from truelog.support.settings import Settings


def main() -> str | None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("views", nargs="*")
    outcome = build_fallbacks(Settings(), parser.parse_args().views)
    sys.stdout.write(json.dumps(outcome.as_dict()) + "\n")
    return "\n".join(f"{view}: {reason}" for view, reason in outcome.failed.items()) or None


if __name__ == "__main__":
    sys.exit(main())
