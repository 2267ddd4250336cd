"""A batch job as a task: an application of `spark_apps/`, submitted by the Spark provider through `spark_default`."""

from datetime import timedelta
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from runtime.airflow import POOL
from truelog.spark.submit import SPARK, job_environment, submit_conf
from truelog.support.settings import PROJECT, Settings

# For every task of a DAG of the batch layer: behind whatever else Airflow has to do.
BATCH = {
    "owner": "truelog",
    "retries": 2,
    "retry_delay": timedelta(seconds=30),
    "priority_weight": 0,
    "weight_rule": "absolute",
}
# For each job. Said where it is declared: the scheduler does not ask the class of a mapped task.
JOB = {"pool": POOL}


class SparkJob(SparkSubmitOperator):
    """`called` is what a mapped task is called in the list of its siblings."""

    template_fields = (*SparkSubmitOperator.template_fields, "called")

    def __init__(self, *, script: str, called: str = "", **given: Any) -> None:
        super().__init__(application=str(PROJECT / "spark_apps" / script), conn_id=SPARK, **given)
        self.called = called

    def execute(self, context: Any) -> None:
        """The provider would add the job's variables to those of Airflow's process: the job is given its own alone."""
        settings = Settings()
        SparkSubmitHook.get_connection(SPARK)  # without one, the hook would go on with YARN
        self.conf, self.name = submit_conf(settings), f"truelog {self.task_id}"
        self._hook = self._get_hook()
        self._hook.submit(self.application, env=job_environment(settings), cwd=settings.home)
