"""A component of Airflow imports what it needs, then waits for its database, instead of ending again and again."""

import os
import subprocess
import sys
from pathlib import Path

from runtime import airflow_configuration
from tests.deadline import deadline, until
from tests.servers import copy_database, drop_database
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

LATER = "that_comes_later"
SAID = "a start waits for its services after OperationalError: "
COMPONENT = """
import sys
from runtime import airflow_component
airflow_component._wait_for_database()
print("airflow.jobs.triggerer_job_runner" in sys.modules)
"""


def test_a_component_waits_for_its_database_and_says_so(postgresql: Settings, tmp_path: Path) -> None:
    own = {
        "airflow_database": LATER,
        "airflow_password": postgresql.database_password,
        "home": tmp_path,
        "airflow_port": 1,
    }
    text = airflow_configuration.text(postgresql.model_copy(update=own))
    (tmp_path / "airflow.cfg").write_text(text.replace("//airflow:", f"//{postgresql.database_user}:"))
    command = [sys.executable, "-c", COMPONENT, "triggerer"]
    with (tmp_path / "said").open("w+b") as said:
        environment = os.environ | {"AIRFLOW_HOME": str(tmp_path)}
        with subprocess.Popen(command, env=environment, stdout=said, stderr=said) as component:

            def waits() -> None:
                text = (tmp_path / "said").read_text()
                if SAID not in text:
                    raise ServiceDown(text)

            try:
                until(waits, 60, "a component without its database")
                assert component.poll() is None
                copy_database(postgresql, "template1", LATER)
                assert component.wait(deadline(30)) == 0
            finally:
                component.kill()
                drop_database(postgresql, LATER)
    said_text = (tmp_path / "said").read_text()
    assert said_text.count(SAID) == 1
    assert said_text.rstrip().endswith("True")
