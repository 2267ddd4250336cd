"""Drop what nobody can need any more, and compact what is needed (`truelog.upkeep`): a line of JSON."""

import json
import sys

from truelog.settings import Settings
from truelog.upkeep import keep_up


def main() -> None:
    sys.stdout.write(json.dumps(keep_up(Settings()).as_dict()) + "\n")


if __name__ == "__main__":
    main()
