"""A process that erases from the archive what an erasure covers: `eraser.py TOPIC ERASURE`. Tests kill it."""

import sys

from truelog.archive.erasing.erase import ArchiveEraser
from truelog.archive.table import open_catalog
from truelog.erasure.erasure import Erasure, Erasures
from truelog.schema.loading.events import load_events
from truelog.support.settings import Settings


def main() -> None:
    topic, text = sys.argv[1:]
    settings = Settings()
    erasures = Erasures(settings.erasure_secret.get_secret_value().encode(), (Erasure.from_text(text),))
    with open_catalog(settings) as catalog:
        eraser = ArchiveEraser(catalog, load_events()[topic], erasures)
        eraser.rewrite()
        eraser.expire()


if __name__ == "__main__":
    main()
