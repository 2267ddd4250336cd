"""Settings of the whole platform: addresses, credentials and limits.

Values come from the arguments, then from the environment (`TRUELOG_…`), then from `settings.env` in the home folder,
which setup writes with mode 0600. Secrets are of type `SecretStr`: they print as asterisks, and only the methods below
unwrap them.
"""

import os
from datetime import time
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    AliasChoices,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from truelog.support.errors import NotSetUp
from truelog.support.setting_groups import services as service_settings
from truelog.support.setting_groups.alerts import AlertSettings
from truelog.support.setting_groups.jaas import jaas
from truelog.support.setting_groups.kafka import KafkaSettings, KafkaUser
from truelog.support.setting_groups.notifications import NotificationSettings
from truelog.support.setting_groups.object_store import ObjectStoreSettings
from truelog.support.setting_groups.other_systems import (
    LineageSettings,
    SchemaRegistrySettings,
    SpanSettings,
    otel_in_environment,
)
from truelog.support.setting_groups.postgresql import (
    AIRFLOW_ROLE,
    ANALYST,
    API_ROLE,
    API_SERVICE_ROLE,
    CATALOG_ROLE,
    COLLECTOR_ROLE,
    STAGER,
    DatabaseSettings,
)
from truelog.support.setting_groups.services import Address, ServiceSettings
from truelog.support.setting_groups.versions import VersionSettings

__all__ = [
    "AIRFLOW_ROLE",
    "ANALYST",
    "API_ROLE",
    "API_SERVICE_ROLE",
    "CATALOG",
    "CATALOG_ROLE",
    "COLLECTOR_ROLE",
    "ENVIRONMENT_FILE",
    "PROJECT",
    "STAGER",
    "KafkaUser",
    "Settings",
    "default_home",
    "jaas",
]

PROJECT = Path(__file__).parents[3]
ENVIRONMENT_FILE = "settings.env"
CATALOG = "archive"


def default_home() -> Path:
    """The folder for state: `TRUELOG_HOME`, or `.truelog` next to the code."""
    return Path(os.environ.get("TRUELOG_HOME") or PROJECT / ".truelog").absolute()


class Settings(
    KafkaSettings,
    DatabaseSettings,
    ObjectStoreSettings,
    ServiceSettings,
    AlertSettings,
    NotificationSettings,
    LineageSettings,
    SpanSettings,
    VersionSettings,
    SchemaRegistrySettings,
):
    """Immutable settings. `Settings()` loads the default home, and `Settings(home=…)` loads another home."""

    model_config = SettingsConfigDict(env_prefix="TRUELOG_", frozen=True, extra="forbid")

    home: Path = Field(default_factory=default_home)
    jars_folder: Path | None = Field(
        default=None, validation_alias=AliasChoices("jars_folder", "TRUELOG_JARS", "TRUELOG_JARS_FOLDER")
    )

    # `own` means that Kafka, PostgreSQL and the object store run elsewhere (docs/production.md).
    stores: Literal["embedded", "own"] = "embedded"

    analyst_seconds: PositiveFloat = 600.0  # longest transaction of an analyst, which the lag service then ends

    # The first API keys in full. Only their holders know the other keys.
    producer_key: SecretStr = SecretStr("")
    reader_key: SecretStr = SecretStr("")
    admin_key: SecretStr = SecretStr("")

    # The secret with which the processes of a Spark cluster authenticate. Local Spark makes its own.
    spark_secret: SecretStr = SecretStr("")

    # Only the embedded services and set-up need these settings.
    postgres_user: str = "postgres"  # PostgreSQL's administrator
    kafka_controller_port: int = 0
    kafka_controller_password: SecretStr = SecretStr("")
    postgres_password: SecretStr = SecretStr("")  # of `postgres_user`
    analyst_password: SecretStr = SecretStr("")
    airflow_password: SecretStr = SecretStr("")  # for Airflow's database role
    airflow_database: str = "airflow"  # the name of Airflow's own database
    airflow_port: int = 0
    airflow_parallelism: PositiveInt = 4  # concurrent tasks
    airflow_parse_seconds: PositiveInt = 30  # interval at which Airflow parses a DAG file again
    otlp_endpoint: str = ""  # destination of Airflow's own metrics; none by default
    otlp_seconds: PositiveFloat = 60.0  # interval between exports
    airflow_admin_password: SecretStr = SecretStr("")  # passwords of the users who sign in
    airflow_oncall_password: SecretStr = SecretStr("")
    airflow_analyst_password: SecretStr = SecretStr("")
    airflow_secret_key: SecretStr = SecretStr("")
    airflow_jwt_secret: SecretStr = SecretStr("")
    airflow_fernet_key: SecretStr = SecretStr("")

    # Key of the hash that identifies the visitors in an imported access log. A different key yields different visitors.
    visitor_salt: SecretStr = SecretStr("")
    # Key of the hashes by which erasures know their subjects. Another key would make the erasures cover nothing.
    erasure_secret: SecretStr = SecretStr("")

    log_day_seconds: PositiveInt = 86_400
    archive_trigger_seconds: PositiveFloat = 30
    straggler_seconds: PositiveFloat = 3600.0  # a record that arrives later than this after its event is a straggler
    stream_trigger_seconds: PositiveFloat = 0.5
    stream_rest_seconds: NonNegativeFloat = 0.5  # longest rest after a small batch, which makes the next one larger
    max_offsets_per_trigger: PositiveInt = 500_000
    tick_seconds: PositiveFloat = 1.0
    spark_master: str = "local[*]"
    spark_driver_host: str = "127.0.0.1"  # this machine's address, at which the executors of a cluster find the driver
    # Further Spark settings as JSON, without secrets, because they become process arguments.
    spark_conf: dict[str, str] = Field(default_factory=dict)
    shuffle_partitions: PositiveInt = 2
    explain_records: NonNegativeInt = 20_000_000  # a view with more records is explained on the command line only
    quick_records: NonNegativeInt = 5_000_000  # a log of at most this many records gets quick batch jobs
    archive_wait_seconds: PositiveFloat = 120  # how long a comparison or a repair waits for the archive
    # Largest automatic repair, as a share of the view's rows. If it is 0, no repair is automatic.
    repair_share: float = Field(default=0.01, ge=0, le=1)
    repair_rows: PositiveInt = 10  # always allowed, whatever the share: a person can inspect that many rows
    cause_seconds: PositiveFloat = 20.0  # how long a comparison searches for the causes of a view's differing rows
    base_rows: PositiveInt = 250_000  # an incremental comparison of a smaller view reads everything, which is faster
    base_seconds: PositiveFloat = 86_400.0  # time after which an incremental comparison reads everything again
    # Time without a batch before the batch layer answers, and the interval between its answers.
    batch_answer_seconds: PositiveFloat = 120.0
    batch_views_at: time = time(2, 30)  # the time of day (UTC) at which the batch-only views are built
    batch_grace_seconds: PositiveFloat = 5.0  # how long a batch of up to 100,000 records waits for a slow view
    hang_seconds: PositiveFloat = 90.0  # how long a view may work on one portion before it is reported as stalled
    # Time without a batch, in addition to the trigger interval, before an application counts as hung.
    silence_seconds: PositiveFloat = 120.0
    start_seconds: PositiveFloat = 600.0  # time limit for an application's first batch
    stop_seconds: PositiveFloat = 30.0  # time limit for its shutdown
    deaths_allowed: PositiveInt = 5  # failures within `deaths_seconds` before an application is paused
    deaths_seconds: PositiveFloat = 300.0
    lag_poll_seconds: PositiveFloat = 10.0
    lag_keep_seconds: PositiveFloat = 3 * 86_400.0  # how long lag samples are kept
    lag_late_seconds: PositiveFloat = 60.0  # a reader's lag, beyond its trigger, that raises a warning
    # An alert is raised if retention will overtake a reader within this time.
    lag_falling_seconds: PositiveFloat = 6 * 3600.0
    # Changed rows of a view that may wait while the relay or Kafka is down: see `truelog.maintenance.outbox_limit`.
    outbox_rows: PositiveInt = 10_000_000
    data_docs_keep_seconds: PositiveFloat = 90 * 86_400.0  # how long Great Expectations' rendered pages are kept
    # How long upkeep keeps results and superseded versions: see `truelog.maintenance.retention`.
    history_keep_seconds: PositiveFloat = 90 * 86_400.0  # comparisons, validations, repairs, launches, audits, DAG runs
    audit_trail_keep_seconds: PositiveFloat = 365 * 86_400.0  # the operations of users
    command_keep_seconds: PositiveFloat = 30 * 86_400.0  # decisions of commands, and how long answers can be repeated
    output_compaction_seconds: PositiveFloat = 86_400.0  # how long Kafka may keep replaced rows before it compacts them
    superseded_keep_seconds: PositiveFloat = 30 * 86_400.0  # tables and partials of versions that no longer run
    applications: dict[str, str] = Field(default_factory=dict)  # view → stream application; "stream" by default
    views_folder: Path = PROJECT / "spark_apps" / "views"
    events_folder: Path = PROJECT / "include" / "events"
    topic_check_seconds: PositiveFloat = 30.0  # interval at which an application examines its topics
    dags_folder: Path = PROJECT / "dags"
    plugins_folder: Path = PROJECT / "plugins"

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise NotSetUp(_describe(error, Path(values.get("home") or default_home()))) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Add the home's settings file as a source. Its path depends on the home, so it cannot be a constant."""
        values = init_settings.init_kwargs if isinstance(init_settings, InitSettingsSource) else {}
        home = Path(values.get("home") or default_home())
        return (
            init_settings,
            env_settings,
            InitSettingsSource(settings_cls, service_settings.in_environment(settings_cls.model_fields)),
            InitSettingsSource(settings_cls, otel_in_environment()),
            DotEnvSettingsSource(settings_cls, env_file=home / ENVIRONMENT_FILE),
        )

    _gather_addresses = model_validator(mode="before")(service_settings.gathered)

    def address(self, service: str) -> Address:
        """Where a service listens."""
        return self.services.get(service, Address())

    @property
    def jars_home(self) -> Path:
        """The folder that contains the jars. Homes may share this folder; by default, each home has its own."""
        return self.jars_folder or self.home / "jars"

    def jars(self, kind: str) -> list[Path]:
        """The jars of one `ivy.xml` configuration: spark, kafka, s3 or connect."""
        found = sorted((self.jars_home / kind).glob("*.jar"))
        if not found:
            raise NotSetUp(f"no {kind} jars in {self.jars_home}: run `make install`")
        return found

    def iceberg(self) -> dict[str, str]:
        """PyIceberg properties of the archive catalog, whose tables are in the `iceberg` schema."""
        return {"type": "sql", "uri": self.catalog_uri(), "warehouse": self.warehouse, **self.object_store()}

    def spark_catalog(self) -> dict[str, str]:
        """Spark properties of the same catalog, set on a running session so that no command line contains secrets.

        Spark ships them to its tasks, so they name the role that may use the catalog and do nothing else.
        """
        conf = {
            "type": "jdbc",
            **self.catalog_jdbc(),
            "jdbc.schema-version": "V1",
            "retryable_status_codes": "57P01,57P02,57P03",  # PostgreSQL restarted: reconnect
            "warehouse": self.warehouse,
            **self.spark_object_store(),
        }
        prefix = f"spark.sql.catalog.{CATALOG}"
        catalog = {prefix: "org.apache.iceberg.spark.SparkCatalog"}
        return catalog | {f"{prefix}.{key}": value for key, value in conf.items()}


def _describe(error: ValidationError, home: Path) -> str:
    """The names of the invalid settings, with the reasons but without the values, which may include a password."""
    wrong = [f"{'.'.join(map(str, e['loc']))} ({e['msg']})" for e in error.errors(include_input=False)]
    return f"settings in {home / ENVIRONMENT_FILE}: {', '.join(wrong)}; `truelog up` writes that file"
