"""Answer the questions of applications about the past of views: `past.py`.

Prints one line of JSON. Each answer is stored for the application that asked, and so is the reason why there is none.
"""

import argparse
import json
import sys

from truelog.history.past_job import answer_waiting
from truelog.support.settings import Settings


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    sys.stdout.write(json.dumps({"answered": answer_waiting(Settings())}) + "\n")


if __name__ == "__main__":
    main()
