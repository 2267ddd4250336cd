"""Continue the erasures that were interrupted, oldest first.

Prints one line of JSON, which names no person. An erasure that cannot finish a step fails the job, and the next run
goes on.
"""

import json
import sys

from truelog.forgetting import forget
from truelog.storage.audit_trail import AIRFLOW
from truelog.support.settings import Settings


def main() -> None:
    done = forget.resume(Settings(), AIRFLOW)
    sys.stdout.write(json.dumps({"erasures": [str(each.entry.erasure.id) for each in done]}) + "\n")


if __name__ == "__main__":
    main()
