"""`python -m runtime.airflow_setup`: Airflow's database made or migrated, with its users, its connection, its pool.

What is there already is left as it is: users may have changed their passwords, and `spark_default` is the one truth
about Spark's master from the moment it exists.
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
    """Each step may run again."""
    upgradedb()
    passwords = {
        "admin": settings.airflow_admin_password,
        "oncall": settings.airflow_oncall_password,
        "analyst": settings.airflow_analyst_password,
    }
    _users({user: (role, passwords[user].get_secret_value()) for user, role in ROLES.items()})
    _show_pages(ROLES.values())
    merge_conn(Connection(conn_id=SPARK, conn_type="spark", host=settings.spark_master))
    if Pool.get_pool(POOL) is None:
        Pool.create_or_update_pool(POOL, POOL_SLOTS, "Batch jobs that must not hurt the streams", False)


def _users(wanted: dict[str, tuple[str, str]]) -> None:
    with get_application_builder() as builder:
        for user, (role, password) in wanted.items():
            if builder.sm.find_user(user) is None:
                address = f"{user}@localhost.localdomain"
                made = builder.sm.add_user(user, user, "", address, builder.sm.find_role(role), password)
                if not made:
                    raise NotSetUp(f"Airflow refuses to make the user {user}: its log above says why")


def _show_pages(roles: Iterable[str]) -> None:
    """Airflow's UI asks which pages there are in the name of whoever looks, and FAB's lower roles may not know."""
    with get_application_builder() as builder:
        allowed = builder.sm.create_permission(ACTION_CAN_READ, RESOURCE_PLUGIN)
        for role in roles:
            builder.sm.add_permission_to_role(builder.sm.find_role(role), allowed)


if __name__ == "__main__":
    set_up(Settings())
