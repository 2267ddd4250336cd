"""Release: determine the code that each application should run. Applications that run other code are then restarted.

First register the event types whose files have changed. If a file is broken or conflicts with an earlier version, that
version stays in force, the other files count, and the job fails at its end with the reason.
"""

import json
import sys

from truelog.control import application, event_registry
from truelog.control.view_loader import application_codes
from truelog.schema.loading.events import load_proposals
from truelog.spark.session import session
from truelog.storage.database import connect
from truelog.support.settings import Settings


def main() -> str | None:
    settings = Settings()
    digest = application.source_digest(
        settings
    )  # first, so that a file that changes in the meantime makes a release due
    proposals, broken = load_proposals(settings.events_folder)
    refused = broken | event_registry.register_all(settings, proposals.values())
    spark = session(settings, "truelog release")
    codes = application_codes(
        spark, settings, event_registry.event_types(settings), application.application_names(settings)
    )
    with connect(settings) as connection:
        for name, code in codes.items():
            application.set_code(connection, name, code, digest)
    spark.stop()
    sys.stdout.write(json.dumps({"codes": codes}) + "\n")
    return "\n".join(refused.values()) or None


if __name__ == "__main__":
    sys.exit(main())
