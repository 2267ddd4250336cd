"""Where every service is and with which credential: one set of settings for every part of the platform.

They come, first found first, from the arguments, the environment (`TRUELOG_…`) and `settings.env` in the
home folder, which set-up writes with mode 0600. Secrets are `SecretStr`: they print as asterisks, and the
methods below are the only places that take them out.
"""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import AliasChoices, Field, PositiveFloat, PositiveInt, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from truelog.support.errors import NotSetUp

PROJECT = Path(__file__).parents[3]
ENVIRONMENT_FILE = "settings.env"
CATALOG = "archive"
# A process that is suspended within a transaction of the catalog would lock its tables for everybody.
_NOT_IDLE = "-cidle_in_transaction_session_timeout=15s"


def default_home() -> Path:
    """Where state lives: `TRUELOG_HOME`, or `.truelog` beside the code."""
    return Path(os.environ.get("TRUELOG_HOME") or PROJECT / ".truelog").absolute()


class Settings(BaseSettings):
    """Immutable; `Settings()` loads the default home, `Settings(home=…)` another one."""

    model_config = SettingsConfigDict(env_prefix="TRUELOG_", frozen=True, extra="forbid")

    home: Path = Field(default_factory=default_home)
    jars_folder: Path | None = Field(
        default=None, validation_alias=AliasChoices("jars_folder", "TRUELOG_JARS", "TRUELOG_JARS_FOLDER")
    )

    kafka_bootstrap: str
    kafka_user: str = "truelog"
    kafka_password: SecretStr
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

    collector_host: str = "127.0.0.1"
    collector_port: int = 0
    # A dead letter carries an event in base64, four thirds of its size, and Kafka takes a megabyte.
    collector_event_bytes: PositiveInt = Field(default=512 * 1024, le=700_000)
    collector_body_bytes: PositiveInt = 4 * 2**20
    collector_body_events: PositiveInt = 10_000
    collector_body_seconds: PositiveFloat = 30.0  # that a body may take to arrive
    collector_room_requests: PositiveInt = 256  # under way at once
    collector_room_bytes: PositiveInt = 64 * 2**20
    collector_acknowledge_seconds: PositiveFloat = 10.0  # after which Kafka counts as away

    lag_host: str = "127.0.0.1"  # of the poller's metrics
    lag_port: int = 0

    # The first API keys, whole; others are known only to their holders.
    producer_key: SecretStr = SecretStr("")
    reader_key: SecretStr = SecretStr("")
    admin_key: SecretStr = SecretStr("")

    # Wanted only by the embedded services: who may administer and who may look.
    kafka_controller_port: int = 0
    kafka_controller_password: SecretStr = SecretStr("")
    postgres_password: SecretStr = SecretStr("")
    analyst_password: SecretStr = SecretStr("")
    airflow_password: SecretStr = SecretStr("")  # of its role in the database
    airflow_port: int = 0
    airflow_parallelism: PositiveInt = 4  # tasks at once
    airflow_parse_seconds: PositiveInt = 30  # between two readings of a DAG file
    otlp_endpoint: str = ""  # where Airflow's own metrics are sent; nowhere by default
    otlp_seconds: PositiveFloat = 60.0  # between two sendings
    airflow_admin_password: SecretStr = SecretStr("")  # of those who sign in
    airflow_oncall_password: SecretStr = SecretStr("")
    airflow_analyst_password: SecretStr = SecretStr("")
    airflow_secret_key: SecretStr = SecretStr("")
    airflow_jwt_secret: SecretStr = SecretStr("")
    airflow_fernet_key: SecretStr = SecretStr("")

    # Key of the hash by which an imported access log's visitors are known; another key, other visitors.
    visitor_salt: SecretStr = SecretStr("")

    log_day_seconds: PositiveInt = 86_400
    archive_trigger_seconds: PositiveFloat = 30
    straggler_seconds: PositiveFloat = 3600.0  # from an event to its coming to the log: more is a straggler
    stream_trigger_seconds: PositiveFloat = 1.0
    max_offsets_per_trigger: PositiveInt = 100_000
    tick_seconds: PositiveFloat = 1.0
    spark_master: str = "local[*]"
    shuffle_partitions: PositiveInt = 2
    archive_wait_seconds: PositiveFloat = 120  # that a comparison or a repair waits for the archive
    repair_share: float = Field(default=0.01, ge=0, le=1)  # of a view's rows; more is left to a person, at 0 all is
    repair_rows: PositiveInt = 10  # as many may be repaired of the smallest view: a person can still look at each
    batch_answer_seconds: PositiveFloat = 120.0  # that readers may be without a batch, and then without a new answer
    batch_grace_seconds: PositiveFloat = 5.0  # after which a batch no longer waits for a slow view
    silence_seconds: PositiveFloat = 120.0  # without a batch, beyond its trigger, after which an application has hung
    start_seconds: PositiveFloat = 600.0  # that an application may take to its first batch
    stop_seconds: PositiveFloat = 30.0  # that it may take to end
    deaths_allowed: PositiveInt = 5  # within `deaths_seconds`, after which it rests until they are over
    deaths_seconds: PositiveFloat = 300.0
    lag_poll_seconds: PositiveFloat = 10.0
    lag_keep_seconds: PositiveFloat = 3 * 86_400.0  # of the history of lag
    lag_late_seconds: PositiveFloat = 60.0  # behind, beyond its trigger, from which a reader is warned of
    lag_falling_seconds: PositiveFloat = 6 * 3600.0  # before retention overtakes a reader, from which it is told
    data_docs_keep_seconds: PositiveFloat = 90 * 86_400.0  # of what Great Expectations' renderer made of judgements
    # Who is told of alerts: nobody, unless it is set here.
    alertmanager_url: SecretStr = SecretStr("")
    alertmanager_token: SecretStr = SecretStr("")
    pagerduty_url: str = "https://events.pagerduty.com/v2/enqueue"
    pagerduty_key: SecretStr = SecretStr("")  # the integration's routing key
    alert_email: str = ""  # addresses, with commas between them
    heartbeat_url: SecretStr = SecretStr("")  # of the dead-man's switch
    alert_pages_url: str = ""  # where people reach Airflow; by default on this machine
    alert_runbooks_url: str = "docs/runbooks"  # where people find them

    alert_answer_seconds: PositiveFloat = 10.0  # that a receiver may take to answer
    alert_repeat_seconds: PositiveFloat = 4 * 3600.0  # after which an open alert is told again
    alert_keep_seconds: PositiveFloat = 90 * 86_400.0  # after an alert was resolved, or a silence ended
    alert_deaths: PositiveInt = 3  # of an application within ten minutes
    alert_undecided_seconds: PositiveFloat = 3 * 3600.0  # without an answer of reconcile
    alert_unproved_seconds: PositiveFloat = 6 * 3600.0  # since a view's newest certificate was made
    alert_unaudited_seconds: PositiveFloat = 36 * 3600.0  # since the archive was last audited
    alert_dead_letters: PositiveFloat = 1.0  # a second, in the last five minutes
    alert_disk_share: float = Field(default=0.1, gt=0, lt=1)  # of the disk that must be free
    applications: dict[str, str] = Field(default_factory=dict)  # view → stream application; "stream" by default
    views_folder: Path = PROJECT / "spark_apps" / "views"
    dags_folder: Path = PROJECT / "dags"
    plugins_folder: Path = PROJECT / "plugins"

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise NotSetUp(_what_is_wrong(error, Path(given.get("home") or default_home()))) from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Which file is read depends on the home, so the file's source is made here."""
        given = init_settings.init_kwargs if isinstance(init_settings, InitSettingsSource) else {}
        home = Path(given.get("home") or default_home())
        return (
            init_settings,
            env_settings,
            DotEnvSettingsSource(settings_cls, env_file=home / ENVIRONMENT_FILE),
        )

    @property
    def jars_home(self) -> Path:
        """Jars may be shared by several homes; by default each home has its own."""
        return self.jars_folder or self.home / "jars"

    def jars(self, kind: str) -> list[Path]:
        """The jars of one configuration of `ivy.xml`: spark, kafka or s3."""
        found = sorted((self.jars_home / kind).glob("*.jar"))
        if not found:
            raise NotSetUp(f"no {kind} jars in {self.jars_home}: run `make install`")
        return found

    def database(self) -> dict[str, Any]:
        """Arguments of `psycopg.connect`; every session counts time in UTC."""
        return {
            "host": self.database_host,
            "port": self.database_port,
            "dbname": self.database_name,
            "user": self.database_user,
            "password": self.database_password.get_secret_value(),
            "options": "-c timezone=UTC",
        }

    def database_uri(self, scheme: str = "postgresql") -> str:
        """The same as a URI, for ADBC and (`postgresql+psycopg`) SQLAlchemy. It holds the password."""
        password = quote(self.database_password.get_secret_value(), safe="")
        user = quote(self.database_user, safe="")
        return f"{scheme}://{user}:{password}@{self.database_host}:{self.database_port}/{self.database_name}"

    def kafka(self) -> dict[str, Any]:
        """Configuration of any `confluent_kafka` client."""
        return {
            "bootstrap.servers": self.kafka_bootstrap,
            "security.protocol": self.kafka_protocol,
            "sasl.mechanism": self.kafka_mechanism,
            "sasl.username": self.kafka_user,
            "sasl.password": self.kafka_password.get_secret_value(),
        }

    def spark_kafka(self) -> dict[str, str]:
        """Options of Spark's Kafka source. It reads committed records only: aborted ones never happened."""
        return {
            "kafka.bootstrap.servers": self.kafka_bootstrap,
            "kafka.security.protocol": self.kafka_protocol,
            "kafka.sasl.mechanism": self.kafka_mechanism,
            "kafka.sasl.jaas.config": jaas(
                self.kafka_mechanism, self.kafka_user, self.kafka_password.get_secret_value()
            ),
            "kafka.isolation.level": "read_committed",
            # Each task asks ahead for what no record may follow yet, and its next question waits behind that one.
            "kafka.fetch.max.wait.ms": "10",
        }

    @property
    def warehouse(self) -> str:
        return f"s3://{self.s3_bucket}/warehouse"

    def iceberg(self) -> dict[str, str]:
        """Properties of the archive's catalog for pyiceberg; its tables live in the schema `iceberg`."""
        return {
            "type": "sql",
            "uri": f"{self.database_uri('postgresql+psycopg')}?options={quote(f'-csearch_path=iceberg {_NOT_IDLE}')}",
            "warehouse": self.warehouse,
            "s3.endpoint": self.s3_endpoint,
            "s3.region": self.s3_region,
            "s3.access-key-id": self.s3_access_key,
            "s3.secret-access-key": self.s3_secret_key.get_secret_value(),
        }

    def spark_catalog(self) -> dict[str, str]:
        """The same catalog for Spark, set on a session that runs: secrets never stand in a command line."""
        server = f"{self.database_host}:{self.database_port}/{self.database_name}"
        conf = {
            "type": "jdbc",
            "uri": f"jdbc:postgresql://{server}?currentSchema=iceberg&options={quote(_NOT_IDLE)}",
            "jdbc.user": self.database_user,
            "jdbc.password": self.database_password.get_secret_value(),
            "jdbc.schema-version": "V1",
            "retryable_status_codes": "57P01,57P02,57P03",  # PostgreSQL was started again: connect again
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
    """The line by which a Java client of Kafka signs in."""
    package = "org.apache.kafka.common.security"
    module = (
        f"{package}.scram.ScramLoginModule" if mechanism.startswith("SCRAM") else f"{package}.plain.PlainLoginModule"
    )
    return f'{module} required username="{user}" password="{password}";'


def _what_is_wrong(error: ValidationError, home: Path) -> str:
    """Names and reasons, never the values: one of them may be a password."""
    wrong = [f"{'.'.join(map(str, e['loc']))} ({e['msg']})" for e in error.errors(include_input=False)]
    return f"settings in {home / ENVIRONMENT_FILE}: {', '.join(wrong)}; `truelog up` writes that file"
