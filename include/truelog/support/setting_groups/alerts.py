"""The settings of alerts: receivers, and when an alert opens (docs/alerts.md)."""

from pydantic import Field, PositiveFloat, PositiveInt, SecretStr
from pydantic_settings import BaseSettings


class AlertSettings(BaseSettings):
    """Receivers and limits. `truelog.support.settings` says where values come from."""

    # Alert receivers. There are none by default.
    alertmanager_url: SecretStr = SecretStr("")
    alertmanager_token: SecretStr = SecretStr("")
    pagerduty_url: str = "https://events.pagerduty.com/v2/enqueue"
    pagerduty_key: SecretStr = SecretStr("")  # the integration's routing key
    alert_email: str = ""  # addresses, separated by commas
    heartbeat_url: SecretStr = SecretStr("")  # URL of the dead man's switch
    alert_pages_url: str = ""  # URL at which people reach Airflow; this machine by default
    alert_runbooks_url: str = "docs/runbooks"  # URL of the runbooks

    alert_answer_seconds: PositiveFloat = 10.0  # time limit for a receiver's response
    alert_repeat_seconds: PositiveFloat = 4 * 3600.0  # interval between reminders of an open alert
    alert_keep_seconds: PositiveFloat = 90 * 86_400.0  # how long resolved alerts and expired silences are kept
    alert_deaths: PositiveInt = 3  # failures of an application within ten minutes
    alert_undecided_seconds: PositiveFloat = 3 * 3600.0  # time without a verdict from reconcile
    alert_unproved_seconds: PositiveFloat = 6 * 3600.0  # age of a view's newest certificate
    alert_unbuilt_seconds: PositiveFloat = 36 * 3600.0  # time since a batch-only view was last built
    alert_unaudited_seconds: PositiveFloat = 36 * 3600.0  # age of the archive's last audit
    alert_dead_letters: PositiveFloat = 1.0  # per second, in the last five minutes
    alert_dropped_share: float = Field(default=0.01, ge=0, lt=1)  # of a view's events in two hours, dropped as too late
    alert_command_seconds: PositiveFloat = Field(default=60.0, le=240.0)  # between a command's event and its reader
    alert_disk_share: float = Field(default=0.1, gt=0, lt=1)  # minimum free share of the disk
