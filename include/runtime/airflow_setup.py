"""`python -m runtime.airflow_setup`: creates or migrates Airflow's database, users, Spark connection and pool.

The set-up does not change existing entries. Users may have changed their passwords, and an existing `spark_default`
connection alone determines the Spark master.
"""

from collections.abc import Iterable

from airflow.models import Connection, Pool
from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder
from airflow.providers.fab.www.security.permissions import ACTION_CAN_READ, RESOURCE_PLUGIN
from airflow.utils.db import merge_conn, upgradedb
from airflow.utils.providers_configuration_loader import providers_configuration_loaded

from runtime.airflow import POOL, POOL_SLOTS, ROLES
from truelog.spark.submit import SPARK
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings


@providers_configuration_loaded
def set_up(settings: Settings) -> None:
    """Create all missing entries. Idempotent."""
    upgradedb()
    passwords = {
        "admin": settings.airflow_admin_password,
        "oncall": settings.airflow_oncall_password,
        "analyst": settings.airflow_analyst_password,
    }
    _create_users({user: (role, passwords[user].get_secret_value()) for user, role in ROLES.items()})
    _allow_pages(ROLES.values())
    merge_conn(Connection(conn_id=SPARK, conn_type="spark", host=settings.spark_master))
    if Pool.get_pool(POOL) is None:
        Pool.create_or_update_pool(
            POOL, POOL_SLOTS, "Batch jobs, limited so that they do not slow down the streams", False
        )


def _create_users(wanted: dict[str, tuple[str, str]]) -> None:
    with get_application_builder() as builder:
        for user, (role, password) in wanted.items():
            if builder.sm.find_user(user) is None:
                address = f"{user}@localhost.localdomain"
                made = builder.sm.add_user(user, user, "", address, builder.sm.find_role(role), password)
                if not made:
                    raise NotSetUp(f"Airflow could not create the {user} user; the log above shows the reason")


def _allow_pages(roles: Iterable[str]) -> None:
    """Let these roles list the plugin pages. The Airflow UI lists them as its user, but FAB forbids this by default."""
    with get_application_builder() as builder:
        allowed = builder.sm.create_permission(ACTION_CAN_READ, RESOURCE_PLUGIN)
        for role in roles:
            builder.sm.add_permission_to_role(builder.sm.find_role(role), allowed)


if __name__ == "__main__":
    set_up(Settings())
