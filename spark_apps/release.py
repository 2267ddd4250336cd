"""Release: determine the code that each application should run. Applications that run other code are then restarted."""

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
    digest = application.source_digest(
        settings
    )  # first, so that a file that changes in the meantime makes a release due
    spark = session(settings, "truelog release")
    codes = application_codes(spark, settings, load_events(), application.application_names(settings))
    with connect(settings) as connection:
        for name, code in codes.items():
            application.set_code(connection, name, code, digest)
    spark.stop()
    sys.stdout.write(json.dumps({"codes": codes}) + "\n")


if __name__ == "__main__":
    main()
