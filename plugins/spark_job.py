"""The Airflow task that runs a batch job: a script in `spark_apps/`, submitted through `spark_default`."""

from datetime import timedelta
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from runtime.airflow import POOL
from truelog.spark.priority import yield_to_streams
from truelog.spark.scratch import job_folder
from truelog.spark.submit import SPARK, UMASK, job_environment, properties_file, submit_conf
from truelog.support.settings import PROJECT, Settings

# Default arguments of batch DAGs, whose tasks wait behind all other Airflow tasks.
BATCH = {
    "owner": "truelog",
    "retries": 2,
    "retry_delay": timedelta(seconds=30),
    "priority_weight": 0,
    "weight_rule": "absolute",
}
JOB = {"pool": POOL}


class SparkJob(SparkSubmitOperator):
    """Runs a batch job."""

    def __init__(self, *, script: str, **kwargs: Any) -> None:
        super().__init__(application=str(PROJECT / "spark_apps" / script), conn_id=SPARK, **kwargs)

    def execute(self, context: Any) -> None:
        """Submit with only the job's own environment; the provider would add the Airflow process's environment."""
        from truelog.spark.early import is_quick

        settings = Settings()
        SparkSubmitHook.get_connection(SPARK)  # if there is no connection, the hook silently uses YARN
        self.name, self.properties_file = f"truelog {self.task_id}", str(properties_file(settings))
        yield_to_streams()  # the job's processes inherit the priority of this one, which runs no other task
        with job_folder(settings) as scratch:
            self.conf = submit_conf(settings, scratch, quick=is_quick(settings), batch=True)
            self._hook = self._get_hook()
            environment = job_environment(settings, scratch)
            self._hook.submit(self.application, env=environment, cwd=settings.home, umask=UMASK)
