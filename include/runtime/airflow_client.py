"""A client for the Airflow REST API, signed in as an Airflow user.

oncall = sign_in(settings, "oncall")                       # or "admin", "analyst"
oncall.wait_for_dag("recompute")                           # until Airflow has parsed the DAG file
run = oncall.trigger("recompute", views=["page_views"])    # returns the run id; keywords become the run's conf
oncall.wait_for_run("recompute", run, "success")           # fails on another end state and lists the tasks
backfill = oncall.backfill("recompute", first, last)       # includes both ends
oncall.wait_for_backfill("recompute", backfill, runs=3)    # until all runs of the backfill have succeeded
oncall.tasks("recompute", run)                             # [{"task_id", "map_index", "state", "try_number", …}]
oncall.request("GET", "/api/v2/…")                         # anything else: (status, body)
"""

import json
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

from pydantic import SecretStr

from truelog.support.errors import AirflowRefused, RunFailed, ServiceDown
from truelog.support.settings import Settings
from truelog.support.wait import until

ENDED = ("success", "failed")
_REFUSED = 300


@dataclass(frozen=True)
class Airflow:
    """Sends requests to the api-server as a user or anonymously."""

    settings: Settings
    token: str | None = None
    patience: float = 1.0  # multiplies the limit of each wait; a busy machine needs more

    def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """The status and the response body. A JSON body is decoded."""
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = HTTPConnection("127.0.0.1", self.settings.airflow_port, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        is_json = "json" in response.getheader("Content-Type", "")
        return response.status, json.loads(text) if is_json and text else text

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The body of a successful response.

        Raises:
            AirflowRefused: the status is an error.
        """
        status, content = self.request(method, path, body)
        if status >= _REFUSED:
            raise AirflowRefused(f"Airflow: {method} {path}: {status} {content}")
        return content

    def wait_for_dag(self, dag: str, seconds: float = 90) -> None:
        """Wait until the dag-processor has parsed the DAG. Raises AirflowRefused immediately on any import error."""

        def known() -> None:
            errors = self.ask("GET", "/api/v2/importErrors")["import_errors"]
            if errors:
                raise AirflowRefused(f"Airflow cannot read {errors[0]['filename']}: {errors[0]['stack_trace']}")
            status, content = self.request("GET", f"/api/v2/dags/{dag}")
            if status != 200:
                raise ServiceDown(str(content))

        until(known, self.patience * seconds, f"DAG {dag}")

    def trigger(self, dag: str, **conf: object) -> str:
        """Start a manual run that has no logical date, and return the run id."""
        made = self.ask("POST", f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None, "conf": conf})
        return str(made["dag_run_id"])

    def run(self, dag: str, run: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/api/v2/dags/{dag}/dagRuns/{quote(run)}")
        return found

    def runs(self, dag: str) -> list[dict[str, Any]]:
        """The latest 100 runs, newest first."""
        found: list[dict[str, Any]] = self.ask("GET", f"/api/v2/dags/{dag}/dagRuns?order_by=-id&limit=100")["dag_runs"]
        return found

    def tasks(self, dag: str, run: str) -> list[dict[str, Any]]:
        path = f"/api/v2/dags/{dag}/dagRuns/{quote(run)}/taskInstances?limit=100"
        found: list[dict[str, Any]] = self.ask("GET", path)["task_instances"]
        return found

    def wait_for_run(self, dag: str, run: str, state: str = "success", seconds: float = 240) -> dict[str, Any]:
        """Wait until the run is in this state. Raises RunFailed if the run ends in another state."""

        def there() -> None:
            now = self.run(dag, run)["state"]
            if now != state:
                if now in ENDED:
                    raise RunFailed(f"{dag} {run} ended as {now}: {self._tasks_in_words(dag, run)}")
                raise ServiceDown(f"it is {now}: {self._tasks_in_words(dag, run)}")

        until(there, self.patience * seconds, f"run {run} of {dag}")
        return self.run(dag, run)

    def wait_for_clock(self, dag: str, seconds: float = 180) -> None:
        """Wait until a scheduled run has ended and none is active, as a backfill skips the day of an active run."""

        def idle() -> None:
            states = [run["state"] for run in self.runs(dag) if run["run_type"] == "scheduled"]
            if not states or not set(states) <= set(ENDED):
                raise ServiceDown(f"its scheduled runs: {', '.join(states) or 'none yet'}")

        until(idle, self.patience * seconds, f"the scheduled run of {dag}")

    def backfill(
        self, dag: str, first: datetime, last: datetime, *, reprocess: str = "none", conf: dict[str, Any] | None = None
    ) -> int:
        """Start a backfill for the intervals that begin between `first` and `last`, inclusive, and return its id."""
        request = {"dag_id": dag, "from_date": first.isoformat(), "to_date": last.isoformat(), "max_active_runs": 2}
        request |= {"reprocess_behavior": reprocess, "dag_run_conf": conf or {}}
        return int(self.ask("POST", "/api/v2/backfills", request)["id"])

    def wait_for_backfill(self, dag: str, backfill: int, runs: int, seconds: float = 480) -> list[dict[str, Any]]:
        """Wait until all runs of the backfill have succeeded. Airflow sets `completed_at` only half a minute later."""

        def done() -> None:
            states = {run["dag_run_id"]: run["state"] for run in self._runs_of_backfill(dag, backfill)}
            failed = [run for run, state in states.items() if state == "failed"]
            for run in failed:
                raise RunFailed(f"{dag} {run} failed: {self._tasks_in_words(dag, run)}")
            if len(states) < runs or set(states.values()) != {"success"}:
                raise ServiceDown("; ".join(self._progress(dag, *each) for each in states.items()) or "no run yet")

        until(done, self.patience * seconds, f"backfill {backfill} of {dag}")
        return self._runs_of_backfill(dag, backfill)

    def _runs_of_backfill(self, dag: str, backfill: int) -> list[dict[str, Any]]:
        """A backfill's runs. They do not refer to the backfill, but it owns every backfill run between its dates."""
        details = self.ask("GET", f"/api/v2/backfills/{backfill}")
        first, last = (datetime.fromisoformat(details[end]) for end in ("from_date", "to_date"))
        candidates = [run for run in self.runs(dag) if run["run_type"] == "backfill"]
        return [run for run in candidates if first <= datetime.fromisoformat(run["logical_date"]) <= last]

    def _progress(self, dag: str, run: str, state: str) -> str:
        tasks = self.tasks(dag, run)
        ended = sum(task["state"] in ENDED for task in tasks)
        return f"{run} is {state}, {ended} of {len(tasks)} tasks have ended"

    def _tasks_in_words(self, dag: str, run: str) -> str:
        return ", ".join(f"{task['task_id']}[{task['map_index']}] {task['state']}" for task in self.tasks(dag, run))


def password(settings: Settings, user: str) -> str:
    secret: SecretStr = getattr(settings, f"airflow_{user}_password")
    return secret.get_secret_value()


def sign_in(settings: Settings, user: str, patience: float = 1.0) -> Airflow:
    credentials = {"username": user, "password": password(settings, user)}
    token = Airflow(settings).ask("POST", "/auth/token", credentials)["access_token"]
    return Airflow(settings, token, patience)
