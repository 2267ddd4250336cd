"""Answer for views from the batch layer: `answer.py [VIEW …]`, all of them without names.

A line of JSON. A view whose file is not what made its table is refused, and remembered until the files change; one that
failed ends the job with its reason, after the others were answered.
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
