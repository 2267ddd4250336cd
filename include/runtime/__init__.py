"""The embedded platform, which is the default: how each service is fetched, configured and started on one machine."""

from runtime.credentials import set_up
from runtime.home import exclusive
from runtime.jars import fetch as fetch_jars
from runtime.services import EVERY, State, down, processes, status, stop_airflow, up

__all__ = ["EVERY", "State", "down", "exclusive", "fetch_jars", "processes", "set_up", "status", "stop_airflow", "up"]
