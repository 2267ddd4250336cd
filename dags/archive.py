"""Compact the archive, delete expired data, and audit the archive."""

import json
import logging
import os
import subprocess
import sys
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param, task
from airflow.sdk.exceptions import AirflowFailException
from by_clock import by_clock
from spark_job import BATCH, JOB, SparkJob

from truelog.support.settings import Settings

HIDDEN = "__SQL_ALCHEMY_CONN"  # the end of the names of variables

log = logging.getLogger("truelog.upkeep")

ABOUT = """
Maintains the archive every six hours. It combines small files of the archive and of the partials into larger ones, so a
log day is compacted soon after it has closed. It expires snapshots older than three days, and removes uncommitted files
of the same age. It also deletes rows left in staging tables, partials and ticks that no view can need, alerts that were
resolved more than three months ago, and Data Docs of the same age. It then audits the archive: every log record must be
archived exactly once, every file must be in the bucket with the right size, and every gap must be explained. It deletes
Truelog's runs that ended more than three months ago, and their logs (`TRUELOG_HISTORY_KEEP_SECONDS`).

**Red**: first steps, by red task:

* `audit`: **records may be lost.** The log lists each fault by topic and partition. The records can be archived again
  while Kafka still has them, so act before Kafka's retention deletes them. `truelog archive audit --deep` shows what
  the broker still has. Restore missing files from the bucket backup. Until then, pause this DAG to prevent compaction.
  If the log says `CatalogBehind`, nothing was audited: PostgreSQL was restored, so run `truelog archive adopt`.
* `compact`: nothing is lost, but tables get slower to read. The task retries automatically after a conflict with an
  archiver commit. Report an error that persists. The audit runs nevertheless.
* `old_runs`: Airflow's database and its logs get larger. The log shows the reason. If your Airflow's workers have no
  `airflow.cfg`, run `python -m runtime.airflow_cleanup 7776000` on a machine that has it.
* `done` does nothing. It cannot run if another task is red, and so makes the run red.

In a manual run, `deep` compares every byte with Kafka, as far back as Kafka's retention reaches.
"""


@task(trigger_rule="all_done", retries=0)
def audit(params: dict[str, Any]) -> None:
    """Audit the archive, even if the compaction failed."""
    from truelog.archive import audit_evidence

    report = audit_evidence.run_audit(Settings(), deep=params["deep"])
    log.info("%s", json.dumps(report.as_dict()))
    if report.faults:
        raise AirflowFailException("the archive has faults: " + "; ".join(report.faults))


@task
def old_runs() -> None:
    """Delete Truelog's old runs. The process has the database of `airflow.cfg`, which Airflow hides from a task."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith(HIDDEN)}
    seconds = str(Settings().history_keep_seconds)
    subprocess.run([sys.executable, "-m", "runtime.airflow_cleanup", seconds], env=environment, check=True)


with DAG(
    "archive_upkeep",
    schedule=by_clock("20 */6 * * *"),
    catchup=False,
    max_active_runs=1,
    tags=["batch", "archive"],
    default_args=BATCH,
    params={"deep": Param(False, type="boolean", title="Deep", description="Compare every byte with Kafka.")},
    doc_md=ABOUT,
):
    compact, audited = SparkJob(task_id="compact", script="upkeep.py", **JOB), audit()
    compact >> audited
    [compact, audited, old_runs()] >> EmptyOperator(task_id="done")  # alone, the audit would hide a failed compaction
