"""Release: find the code that each application should run now; those that run other code are then started anew."""

import json
import sys

from truelog.control import application
from truelog.control.view_loader import application_codes
from truelog.schema.event import load_events
from truelog.spark.session import session
from truelog.storage.database import connect
from truelog.support.settings import Settings


def main() -> None:
    settings = Settings()
    found_from = application.digest(settings)  # first: files that change meanwhile make another release due
    spark = session(settings, "truelog release")
    found = application_codes(spark, settings, load_events(), application.application_names(settings))
    with connect(settings) as connection:
        for name, code in found.items():
            application.set_code(connection, name, code, found_from)
    spark.stop()
    sys.stdout.write(json.dumps({"codes": found}) + "\n")


if __name__ == "__main__":
    main()
