"""Drop what nobody can need any more, and compact what is needed (`truelog.maintenance.upkeep`): a line of JSON."""

import json
import sys

from truelog.maintenance.upkeep import run_upkeep
from truelog.support.settings import Settings


def main() -> None:
    sys.stdout.write(json.dumps(run_upkeep(Settings()).as_dict()) + "\n")


if __name__ == "__main__":
    main()
