"""Compare the views of captured tables with the tables themselves, once a day."""

from airflow.sdk import DAG, get_current_context, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from by_clock import by_clock
from spark_job import BATCH

from truelog.support.settings import Settings

ABOUT = """
Compares the view of each captured table with the table in its own database, as `truelog reconcile TABLE --source` does.
This comparison alone finds rows that were deleted while a replication slot was lost. `truelog capture status` shows the
result. If capture is off, there is nothing to compare.

**Red** means that a view may differ from its table. First steps, by red task:

* `compare` with DIFFERENT: the log has the number of rows. `truelog reconcile TABLE --source` also names keys.
  `truelog capture snapshot TABLE` makes the view equal, unless a value of the table is invalid (`capture_invalid`).
* `compare` with UNKNOWN: the log has the reason, such as a database that did not answer. Then clear the task.
* `tables`: a file in `include/events/` cannot be read. The registry reports it.
"""


@task(retries=0)
def tables() -> list[str]:
    """The names of the captured tables; none if capture is off."""
    from truelog.capture.source_table import captured_types

    settings = Settings()
    return sorted(captured_types(settings)) if settings.capture else []


@task(map_index_template="{{ label }}", retries=2)
def compare(table: str) -> None:
    """Fail if the view differs from the table, and try again if that is unknown."""
    from truelog.capture import comparison, last_comparison
    from truelog.capture.source_table import captured_types

    get_current_context()["label"] = table  # type: ignore[typeddict-unknown-key]
    settings = Settings()
    found = last_comparison.compare(settings, captured_types(settings)[table])
    if found.verdict == comparison.DIFFERENT:
        raise AirflowFailException(f"{table} is DIFFERENT: {last_comparison.summary(found)}")
    if found.verdict == comparison.UNKNOWN:
        raise AirflowException(f"{table} is UNKNOWN: {found.reason}")


with DAG(
    "compare_captures",
    schedule=by_clock("30 4 * * *"),
    catchup=False,
    max_active_runs=1,
    tags=["batch", "proof"],
    default_args=BATCH,
    doc_md=ABOUT,
):
    compare.expand(table=tables())
