"""Explain a row of a view: `explain.py [--doer NAME] [--before EVENT] VIEW -- CONDITION …`.

Prints one line of JSON and stores the answer. The exit code is 0 for every answer, because only the user who asked can
say what the answer means. If an erasure was performed meanwhile, it fails and stores nothing.
"""

import argparse
import json
import sys

from truelog.erasure import ledger
from truelog.history import explain_question
from truelog.history.explain_job import answer_question
from truelog.history.explain_question import Question
from truelog.storage import audit_trail
from truelog.storage.database import connect
from truelog.support.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("view")
    parser.add_argument("conditions", nargs="+", help="one for each key column, as `truelog query --where` reads them")
    parser.add_argument("--before", default="", help="only events before this one")
    parser.add_argument("--doer", default=audit_trail.AIRFLOW, help="the user who asked")
    arguments, settings = parser.parse_args(), Settings()
    question = Question(arguments.view, tuple(arguments.conditions), arguments.before)
    with connect(settings) as connection:
        erasures = ledger.in_views(connection)  # before the view and the archive are read
    answer = answer_question(settings, question)
    with connect(settings) as connection:
        ledger.require_known(connection, erasures)
        explain_question.store_answer(connection, question, answer, arguments.doer)
    sys.stdout.write(json.dumps(answer.get("cost", answer)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
