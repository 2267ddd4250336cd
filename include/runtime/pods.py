"""What pods need in place of `truelog up`, which prepares and starts one machine (`deploy/helm/truelog/`).

    python -m runtime.pods secrets   prints new passwords and keys, for a Secret of Kubernetes
    python -m runtime.pods stores    creates what the platform needs in the stores, and migrates the database
    python -m runtime.pods home      writes the settings of the environment, and Airflow's, into the home

The applications that Airflow starts read their settings from the home's file only.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping

from dotenv import dotenv_values

from runtime import airflow_configuration, chart, services
from runtime.credentials import generated_secrets
from runtime.service import private_folder
from truelog.support.errors import NotSetUp
from truelog.support.files import write_private
from truelog.support.settings import ENVIRONMENT_FILE, Settings, default_home

_PREFIX = "TRUELOG_"
_OTHER_ROLES = ("airflow_password", "analyst_password")
_PLACES = ("TRUELOG_HOME", "TRUELOG_JARS")  # the environment has them, and the file does not


def secrets() -> None:
    """Print the secrets that the chart's processes need, except the secrets of the stores' operators."""
    wanted = chart.used_secrets() - {*chart.GIVEN}
    for name, value in generated_secrets().items():
        if name in wanted:
            sys.stdout.write(f"{chart.variable(name)}={value}\n")


def stores() -> None:
    """Prepare the stores that the settings name. Idempotent.

    Raises:
        NotSetUp: a role or a principal has an empty password. Its pods have no other one.
    """
    settings = Settings()
    needed = {each: getattr(settings, each) for each in (*chart.ROLES, *_OTHER_ROLES)}
    if settings.kafka_protocol.startswith("SASL") and not settings.kafka_uses_oauth:
        needed |= {each: getattr(settings, each) for each in chart.PRINCIPALS}
    if empty := sorted(chart.variable(name) for name, value in needed.items() if not value):
        raise NotSetUp(
            f"The Secret has no value for {', '.join(empty)}: `python -m runtime.pods secrets` prints new ones."
        )
    services.prepare_own_stores(settings)


def home() -> None:
    """Write `settings.env` and `airflow.cfg`. Only their owner may read them."""
    folder = private_folder(default_home())
    file = folder / ENVIRONMENT_FILE
    wanted = {name: value for name, value in os.environ.items() if name.startswith(_PREFIX) and name not in _PLACES}
    write_private(file, settings_text(wanted))
    read = dotenv_values(file)
    if wrong := sorted(name for name, value in wanted.items() if read.get(name) != value):
        file.unlink()
        raise NotSetUp(f"{', '.join(wrong)}: a settings file cannot contain this value; choose one without $")
    airflow_configuration.write(Settings(home=folder))


def settings_text(variables: Mapping[str, str]) -> str:
    """The text of a settings file with these variables."""
    quoted = {name: value.replace("\\", "\\\\").replace("'", "\\'") for name, value in variables.items()}
    return "".join(f"{name}='{value}'\n" for name, value in sorted(quoted.items()))


_COMMANDS: Mapping[str, Callable[[], None]] = {"secrets": secrets, "stores": stores, "home": home}


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    command = _COMMANDS.get(" ".join(sys.argv[1:]))
    if command is None:
        sys.exit(__doc__)
    command()


if __name__ == "__main__":
    main()
