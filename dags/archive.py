"""Keep the archive small in files and sound in content: what nobody needs is dropped, the rest compacted, audited."""

import json
import logging
from typing import Any

from airflow.sdk import DAG, Param, task
from airflow.sdk.exceptions import AirflowFailException
from by_clock import by_clock
from spark_job import BATCH, JOB, SparkJob

from truelog.support.settings import Settings

log = logging.getLogger("truelog.upkeep")

ABOUT = """
Once a day, small files of the archive and of the partials are rewritten into larger ones; snapshots older than three
days are forgotten, and files of that age removed that were written and never committed. Rows that never left the
staging tables are dropped, as are rows of partials and ticks that no view can need any more, alerts that were resolved
three months ago, and Data Docs as old. Then the archive is audited: every record of the log is there, once; every file
lies in the bucket with its size; each hole is explained.

**Red**: what to do first, by the task that is red:

* `audit`: **records may be lost.** The log lists each fault, by topic and partition. While Kafka still holds the
  records they can be archived again, so act before its retention takes them: `truelog archive audit --deep` says what
  the broker still has. A file that is gone is to be restored from the bucket's backup. Do not compact meanwhile:
  pause this DAG.
* `compact`: nothing is lost, tables grow slower to read. A commit that met the archiver's is tried again by itself; an
  error that stays is a fault to report.

By hand: `deep` compares every byte with Kafka's, as far back as it holds them.
"""


@task(trigger_rule="all_done", retries=0)
def audit(params: dict[str, Any]) -> None:
    """Whatever became of the compaction."""
    from truelog.archive import audit_evidence

    report = audit_evidence.run_audit(Settings(), deep=params["deep"])
    log.info("%s", json.dumps(report.as_dict()))
    if report.faults:
        raise AirflowFailException("the archive is not sound: " + "; ".join(report.faults))


with DAG(
    "archive_upkeep",
    schedule=by_clock("30 3 * * *"),
    catchup=False,
    max_active_runs=1,
    tags=["batch", "archive"],
    default_args=BATCH,
    params={"deep": Param(False, type="boolean", title="Deep", description="Compare every byte with Kafka's.")},
    doc_md=ABOUT,
):
    SparkJob(task_id="compact", script="upkeep.py", **JOB) >> audit()
