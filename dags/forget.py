"""Continue erasures of people that were interrupted."""

from airflow.sdk import DAG, task
from by_clock import by_clock
from spark_job import BATCH, JOB, SparkJob

from truelog.support.settings import Settings

ABOUT = """
Continues erasures that are unfinished and that no command performs now: `truelog forget` was killed or has failed, or a
backup was restored. Airflow does not learn whom an erasure is about, so an erasure begins with `truelog forget`.

`due` looks for such erasures every ten minutes. Usually there is none, so `forget` is skipped. Each run goes on at the
step that was not finished. `truelog erasures list` shows how far each erasure is, and `truelog erasures show ID` its
receipt.

**Red** means that readers may still see a person who is to be forgotten. First steps, by red task:

* `forget`: the job's log ends with what the erasure waits for. Usually the archive is behind, or the services `relay`
  and `notifier` do not run. The next run goes on. Report an error that persists.
* `due`: PostgreSQL did not answer. Run `truelog status`.
"""


@task.short_circuit(retries=0)
def due() -> list[str]:
    """Return the ids of the erasures that are to be continued."""
    from truelog.erasure import ledger
    from truelog.forgetting import reading
    from truelog.storage.database import connect

    settings = Settings()
    with connect(settings, autocommit=True) as connection:
        return ledger.interrupted(connection) or reading.foreign(settings, connection)


with DAG(
    "forget",
    schedule=by_clock("*/10 * * * *"),
    catchup=False,
    max_active_runs=1,
    tags=["batch"],
    default_args=BATCH,
    doc_md=ABOUT,
):
    due() >> SparkJob(task_id="forget", script="forget.py", **JOB)
