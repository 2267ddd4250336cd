"""Verify a certificate from the archive's raw bytes, on request."""

from typing import Any

from airflow.sdk import DAG, Param
from spark_job import BATCH, JOB, SparkJob

ABOUT = """
Verifies one certificate, as `truelog verify` does: it rebuilds the view at the certificate's positions from the raw
bytes in the bucket, and compares the hashes. *Truelog*'s *Certificates* page starts a run and shows the answer. Nothing
starts this DAG on its own, because each certificate is made by a comparison that has just found the view EQUAL.

* **EQUAL**: every bucket of rows has the certified hash.
* **DIFFERENT**: the archive has changed, or the same code now has another result. `docs/certificates.md` says more.
* **SUPERSEDED**: other code or other event versions made the certificate. Only the older release can verify it.
* **UNKNOWN**: the archive does not reach the certificate's positions, or the view's file cannot be read.

**Red** means that there is no answer. First step: the task's log ends with the reason. If the object store did not
answer, clear the task.
"""


class VerifyJob(SparkJob):
    """Verifies the certificate that the run's parameters name."""

    def execute(self, context: Any) -> None:
        run = context["dag_run"]
        doer = ["--doer", run.triggering_user_name] if run.triggering_user_name else []
        self.application_args = ["--run", context["run_id"], *doer, context["params"]["certificate"]]
        super().execute(context)


with DAG(
    "verify",
    schedule=None,
    max_active_runs=1,
    tags=["batch", "proof"],
    default_args=BATCH,
    params={
        # An id, and no path: the job could otherwise read a file.
        "certificate": Param(
            type="string",
            pattern=r"^[a-z][a-z0-9_]*-[0-9TZ.]+-[0-9a-f]{8}$",
            title="Certificate",
            description="Its id.",
        )
    },
    doc_md=ABOUT,
):
    VerifyJob(task_id="verify", script="verify.py", **JOB)
