"""`airflow.cfg`, the Airflow configuration. It contains the secrets, so that no argument or variable contains any.

Options that are not set here have their Airflow defaults.
"""

from collections.abc import Mapping
from pathlib import Path

from runtime.ports import LOOPBACK
from runtime.service import private_folder
from truelog.support.files import write_private
from truelog.support.settings import AIRFLOW_ROLE, Settings

AUTH_MANAGER = "airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager"


def folder(settings: Settings) -> Path:
    """The AIRFLOW_HOME folder."""
    return settings.home / "airflow"


def url(settings: Settings) -> str:
    return f"http://{LOOPBACK}:{settings.airflow_port}"


def own_database(settings: Settings) -> Settings:
    """The same settings for the Airflow database and the Airflow role, which cannot read the Truelog database."""
    own = {
        "database_name": settings.airflow_database,
        "database_user": settings.names.in_postgresql(AIRFLOW_ROLE),
        "database_password": settings.airflow_password,
    }
    return settings.model_copy(update=own)


def write(settings: Settings) -> None:
    write_private(private_folder(folder(settings)) / "airflow.cfg", text(settings))


def text(settings: Settings) -> str:
    """The whole file. Every `%` is doubled, because Airflow treats a single `%` as the start of a reference."""
    sections = [*_platform(settings).items(), *_pace(settings).items()]
    return "\n".join(_section(name, options) for name, options in sections)


def _section(name: str, options: Mapping[str, object]) -> str:
    lines = [f"{option} = {str(value).replace('%', '%%')}" for option, value in options.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def _platform(settings: Settings) -> dict[str, dict[str, object]]:
    """Sign-in, secrets, folders and addresses."""
    home = folder(settings)
    database = own_database(settings).database_uri("postgresql+psycopg")
    return {
        "core": {
            "dags_folder": settings.dags_folder,
            "plugins_folder": settings.plugins_folder,
            "executor": "LocalExecutor",
            "parallelism": settings.airflow_parallelism,
            "load_examples": False,
            "dags_are_paused_at_creation": False,
            "auth_manager": AUTH_MANAGER,
            "fernet_key": settings.airflow_fernet_key.get_secret_value(),
            "execution_api_server_url": f"{url(settings)}/execution/",
        },
        "database": {"sql_alchemy_conn": database, "sql_alchemy_conn_async": database},
        "api": {
            "host": LOOPBACK,
            "port": settings.airflow_port,
            "base_url": url(settings),
            "workers": 1,
            "secret_key": settings.airflow_secret_key.get_secret_value(),
            "expose_config": False,
            "expose_stacktrace": False,
        },
        "api_auth": {"jwt_secret": settings.airflow_jwt_secret.get_secret_value()},
        "logging": {
            "base_log_folder": home / "logs",
            "dag_processor_child_process_log_directory": home / "logs" / "dag_processor",
            "file_task_handler_new_folder_permissions": "0o700",
            "file_task_handler_new_file_permissions": "0o600",
            "colored_console_log": False,
        },
        "metrics": {"statsd_on": False, "otel_on": bool(settings.otlp_endpoint)},
        "traces": {"otel_on": False},
    }


def _pace(settings: Settings) -> dict[str, dict[str, object]]:
    """Polling intervals, parallelism and timeouts."""
    return {
        "dag_processor": {
            "parsing_processes": 1,
            "refresh_interval": 10,  # seconds until a new DAG file is found
            "min_file_process_interval": settings.airflow_parse_seconds,
        },
        # A task survives a restart of the api-server, but a dead task is still retried soon.
        "workers": {"max_failed_heartbeats": 10},
        "scheduler": {"task_instance_heartbeat_timeout": 120},
    }
