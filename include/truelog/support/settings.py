"""Settings of the whole platform: addresses, credentials and limits.

Values come from the arguments, then from the environment (`TRUELOG_…`), then from `settings.env` in the home folder,
which setup writes with mode 0600. Secrets are of type `SecretStr`: they print as asterisks, and only the methods below
unwrap them.
"""

import os
from datetime import time
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

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
from truelog.support.setting_groups.capture import CaptureSettings
from truelog.support.setting_groups.notifications import NotificationSettings
from truelog.support.setting_groups.services import Address, ServiceSettings
from truelog.support.setting_groups.versions import VersionSettings

PROJECT = Path(__file__).parents[3]
ENVIRONMENT_FILE = "settings.env"
CATALOG = "archive"
STAGER, CATALOG_ROLE, API_ROLE = "stager", "catalog", "api"  # database roles
# Otherwise, a process that is suspended in a catalog transaction would lock the catalog's tables indefinitely.
_IDLE_TIMEOUT = "-cidle_in_transaction_session_timeout=15s"


class KafkaUser(StrEnum):
    """Kafka's principals. Each has the rights for one duty (`truelog.log.access`)."""

    ADMIN = "truelog"  # set-up
    COLLECTOR = "truelog-collector"
    CONNECT = "truelog-connect"
    ERASER = "truelog-eraser"
    PRODUCER = "truelog-producer"
    READER = "truelog-reader"
    TICKS = "truelog-ticks"
    RELAY = "truelog-relay"

    @property
    def password_setting(self) -> str:
        """The setting with the password of a principal with few rights."""
        return f"kafka_{self.name.lower()}_password"


def default_home() -> Path:
    """The folder for state: `TRUELOG_HOME`, or `.truelog` next to the code."""
    return Path(os.environ.get("TRUELOG_HOME") or PROJECT / ".truelog").absolute()


class Settings(ServiceSettings, AlertSettings, CaptureSettings, NotificationSettings, VersionSettings):
    """Immutable settings. `Settings()` loads the default home, and `Settings(home=…)` loads another home."""

    model_config = SettingsConfigDict(env_prefix="TRUELOG_", frozen=True, extra="forbid")

    home: Path = Field(default_factory=default_home)
    jars_folder: Path | None = Field(
        default=None, validation_alias=AliasChoices("jars_folder", "TRUELOG_JARS", "TRUELOG_JARS_FOLDER")
    )

    kafka_bootstrap: str
    kafka_user: str = "truelog"
    kafka_password: SecretStr
    # The principals with few rights. If one has no password, its duty falls to `kafka_user`.
    kafka_collector_password: SecretStr = SecretStr("")
    kafka_connect_password: SecretStr = SecretStr("")
    kafka_eraser_password: SecretStr = SecretStr("")
    kafka_producer_password: SecretStr = SecretStr("")
    kafka_reader_password: SecretStr = SecretStr("")
    kafka_ticks_password: SecretStr = SecretStr("")
    kafka_relay_password: SecretStr = SecretStr("")
    kafka_protocol: str = "SASL_PLAINTEXT"
    kafka_mechanism: str = "SCRAM-SHA-512"

    s3_endpoint: str
    s3_region: str = "us-east-1"
    s3_bucket: str = "truelog"
    s3_access_key: str
    s3_secret_key: SecretStr

    database_host: str = "127.0.0.1"
    database_port: int
    database_name: str = "truelog"
    database_user: str = "truelog"
    database_password: SecretStr

    analyst_seconds: PositiveFloat = 600.0  # longest transaction of an analyst, which the lag service then ends

    # The first API keys in full. Only their holders know the other keys.
    producer_key: SecretStr = SecretStr("")
    reader_key: SecretStr = SecretStr("")
    admin_key: SecretStr = SecretStr("")

    # Database roles with few rights, for values that Spark ships to its tasks. Otherwise, tasks get the main role.
    stager_password: SecretStr = SecretStr("")  # may insert staged rows
    catalog_password: SecretStr = SecretStr("")  # may use the archive's catalog
    api_password: SecretStr = SecretStr("")  # may read `views`; the API refuses to start without it

    # The secret with which the processes of a Spark cluster authenticate. Local Spark makes its own.
    spark_secret: SecretStr = SecretStr("")

    # Only the embedded services need these settings.
    kafka_controller_port: int = 0
    kafka_controller_password: SecretStr = SecretStr("")
    postgres_password: SecretStr = SecretStr("")
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
    data_docs_keep_seconds: PositiveFloat = 90 * 86_400.0  # how long Great Expectations' rendered pages are kept
    # How long upkeep keeps results and superseded versions: see `truelog.maintenance.retention`.
    history_keep_seconds: PositiveFloat = 90 * 86_400.0  # comparisons, validations, repairs, launches and audits
    audit_trail_keep_seconds: PositiveFloat = 365 * 86_400.0  # the operations of users
    command_keep_seconds: PositiveFloat = 30 * 86_400.0  # decisions of commands, and how long answers can be repeated
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

    def database(self) -> dict[str, Any]:
        """Arguments for `psycopg.connect`. Every session uses UTC."""
        return {
            "host": self.database_host,
            "port": self.database_port,
            "dbname": self.database_name,
            "user": self.database_user,
            "password": self.database_password.get_secret_value(),
            "options": "-c timezone=UTC",
        }

    def source(self) -> dict[str, Any]:
        """Arguments for `psycopg.connect` to the captured database, as the role that captures."""
        return self.database() | {
            "host": self.source_host or self.database_host,
            "port": self.source_port or self.database_port,
            "dbname": self.source_database,
            "user": self.source_user,
            "password": self.source_password.get_secret_value(),
        }

    def database_uri(self, scheme: str = "postgresql") -> str:
        """The database URI, or with `postgresql+psycopg` the URI for SQLAlchemy. It contains the password."""
        return self._uri(scheme, self.database_user, self._database_secret())

    def api_database(self) -> dict[str, Any]:
        """Arguments for `psycopg.connect` as the role that may only read what readers see.

        Raises:
            NotSetUp: the role has no password.
        """
        if not self.api_password:
            raise NotSetUp("no TRUELOG_API_PASSWORD: run `truelog up`, or create the role `api` (docs/production.md)")
        return self.database() | {"user": API_ROLE, "password": self.api_password.get_secret_value()}

    def staging_uri(self) -> str:
        """The URI for ADBC of the role that may stage rows and read the inputs of Groups. Spark ships it to tasks."""
        return self._uri("postgresql", *self._limited_role(STAGER, self.stager_password))

    def _uri(self, scheme: str, user: str, password: str) -> str:
        server = f"{self.database_host}:{self.database_port}/{self.database_name}"
        return f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{server}"

    def _limited_role(self, role: str, password: SecretStr) -> tuple[str, str]:
        """The role and its password; a database whose owner has not created the role has only the main role."""
        return (role, password.get_secret_value()) if password else (self.database_user, self._database_secret())

    def _database_secret(self) -> str:
        return self.database_password.get_secret_value()

    @property
    def kafka_passwords(self) -> dict[KafkaUser, SecretStr]:
        """The passwords of the principals with few rights. A password may be empty."""
        return {user: getattr(self, user.password_setting) for user in KafkaUser if user is not KafkaUser.ADMIN}

    def _kafka_login(self, user: KafkaUser) -> tuple[str, str]:
        """The name and the password of a principal, or of `kafka_user` if the principal has no password."""
        if user is not KafkaUser.ADMIN and (password := self.kafka_passwords[user]):
            return str(user), password.get_secret_value()
        return self.kafka_user, self.kafka_password.get_secret_value()

    def kafka(self, user: KafkaUser = KafkaUser.ADMIN) -> dict[str, Any]:
        """Configuration for a `confluent_kafka` client."""
        name, password = self._kafka_login(user)
        return {
            "bootstrap.servers": self.kafka_bootstrap,
            "security.protocol": self.kafka_protocol,
            "sasl.mechanism": self.kafka_mechanism,
            "sasl.username": name,
            "sasl.password": password,
        }

    def connect_kafka(self) -> dict[str, str]:
        """Properties for Kafka Connect and its producers, which write what they capture."""
        return {
            "security.protocol": self.kafka_protocol,
            "sasl.mechanism": self.kafka_mechanism,
            "sasl.jaas.config": jaas(self.kafka_mechanism, *self._kafka_login(KafkaUser.CONNECT)),
        }

    def spark_kafka(self) -> dict[str, str]:
        """Options for Spark's Kafka source, which plans batches up to the end of the committed records."""
        return {
            "kafka.bootstrap.servers": self.kafka_bootstrap,
            "kafka.security.protocol": self.kafka_protocol,
            "kafka.sasl.mechanism": self.kafka_mechanism,
            "kafka.sasl.jaas.config": jaas(self.kafka_mechanism, *self._kafka_login(KafkaUser.READER)),
            "kafka.isolation.level": "read_committed",
        }

    @property
    def warehouse(self) -> str:
        return f"s3://{self.s3_bucket}/warehouse"

    def iceberg(self) -> dict[str, str]:
        """PyIceberg properties of the archive catalog, whose tables are in the `iceberg` schema."""
        options = quote(f"-csearch_path=iceberg {_IDLE_TIMEOUT}")
        return {
            "type": "sql",
            "uri": f"{self.database_uri('postgresql+psycopg')}?options={options}",
            "warehouse": self.warehouse,
            **self.object_store(),
        }

    def object_store(self) -> dict[str, str]:
        """PyIceberg properties for access to the bucket alone. Spark ships them to tasks."""
        return {
            "s3.endpoint": self.s3_endpoint,
            "s3.region": self.s3_region,
            "s3.access-key-id": self.s3_access_key,
            "s3.secret-access-key": self.s3_secret_key.get_secret_value(),
        }

    def spark_catalog(self) -> dict[str, str]:
        """Spark properties of the same catalog, set on a running session so that no command line contains secrets.

        Spark ships them to its tasks, so they name the role that may use the catalog and do nothing else.
        """
        user, password = self._limited_role(CATALOG_ROLE, self.catalog_password)
        server = f"{self.database_host}:{self.database_port}/{self.database_name}"
        conf = {
            "type": "jdbc",
            "uri": f"jdbc:postgresql://{server}?currentSchema=iceberg&options={quote(_IDLE_TIMEOUT)}",
            "jdbc.user": user,
            "jdbc.password": password,
            "jdbc.schema-version": "V1",
            "retryable_status_codes": "57P01,57P02,57P03",  # PostgreSQL restarted: reconnect
            "warehouse": self.warehouse,
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": self.s3_endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": self.s3_access_key,
            "s3.secret-access-key": self.s3_secret_key.get_secret_value(),
            "client.region": self.s3_region,
        }
        prefix = f"spark.sql.catalog.{CATALOG}"
        catalog = {prefix: "org.apache.iceberg.spark.SparkCatalog"}
        return catalog | {f"{prefix}.{key}": value for key, value in conf.items()}


def jaas(mechanism: str, user: str, password: str) -> str:
    """The JAAS configuration of a Java Kafka client."""
    package = "org.apache.kafka.common.security"
    module = (
        f"{package}.scram.ScramLoginModule" if mechanism.startswith("SCRAM") else f"{package}.plain.PlainLoginModule"
    )
    return f'{module} required username="{user}" password="{password}";'


def _describe(error: ValidationError, home: Path) -> str:
    """The names of the invalid settings, with the reasons but without the values, which may include a password."""
    wrong = [f"{'.'.join(map(str, e['loc']))} ({e['msg']})" for e in error.errors(include_input=False)]
    return f"settings in {home / ENVIRONMENT_FILE}: {', '.join(wrong)}; `truelog up` writes that file"
