"""How clients of PostgreSQL connect: psycopg, ADBC, SQLAlchemy and JDBC, also to the database that is captured."""

from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote

from pydantic import SecretStr

from truelog.support.errors import NotSetUp
from truelog.support.setting_groups.capture import CaptureSettings
from truelog.support.setting_groups.certificates import trusted
from truelog.support.setting_groups.given import require_given

STAGER, CATALOG_ROLE, API_ROLE, ANALYST = "stager", "catalog", "api", "analyst"  # database roles
AIRFLOW_ROLE = "airflow"  # of Airflow's own database
# The roles of processes that face other networks, in place of the owner (`truelog.storage.process_roles`).
COLLECTOR_ROLE, API_SERVICE_ROLE = "collector", "api_service"
# Otherwise, a process that is suspended in a transaction would keep its locks indefinitely, as on the catalog's tables.
IDLE_TIMEOUT = "-cidle_in_transaction_session_timeout=15s"
_UTC = "-c timezone=UTC"
# A machine that has lost its power closes no session. Without limits, a client would wait for its answer for two hours,
# or for a quarter of an hour if the server has not confirmed what the client sent.
_TCP_LIMITS = {
    "tcp_user_timeout": "60000",  # milliseconds
    "keepalives_idle": "10",  # seconds
    "keepalives_interval": "5",  # seconds
    "keepalives_count": "3",
}
_VERIFYING = ("verify-ca", "verify-full")


class DatabaseSettings(CaptureSettings):
    """Where PostgreSQL is, and who signs in. `truelog.support.settings` says where values come from."""

    database_host: str = "127.0.0.1"
    database_port: int
    database_name: str = "truelog"
    database_user: str = "truelog"
    database_password: SecretStr = SecretStr("")  # of the owner; processes with a role of their own need none
    # As in libpq. With `verify-full`, the certificate must be signed by a trusted CA and contain the host's name.
    database_sslmode: Literal["prefer", "require", "verify-ca", "verify-full"] = "prefer"
    database_ca_file: Path | None = None  # a PEM file with the server's CA; the system's certificates by default

    # Database roles with few rights, for values that Spark ships to its tasks. Otherwise, tasks get the main role.
    stager_password: SecretStr = SecretStr("")  # may insert staged rows
    catalog_password: SecretStr = SecretStr("")  # may use the archive's catalog
    api_password: SecretStr = SecretStr("")  # may read `views`; the API refuses to start without it
    # Database roles of processes. Without its password, a process signs in as the owner.
    collector_password: SecretStr = SecretStr("")
    api_service_password: SecretStr = SecretStr("")

    @property
    def database_trust(self) -> str | None:
        """The file of the certificates that clients trust; None if they do not verify the server."""
        file, setting = self.database_ca_file, "TRUELOG_DATABASE_CA_FILE"
        return trusted(file, setting) if self.database_sslmode in _VERIFYING else None

    @property
    def source_trust(self) -> str | None:
        """The same for the captured database."""
        file, setting = self.source_ca_file or self.database_ca_file, "TRUELOG_SOURCE_CA_FILE"
        return trusted(file, setting) if self._source_sslmode in _VERIFYING else None

    def tcp_limits(self) -> dict[str, str]:
        """The parameters of libpq by which a session ends if its server is gone."""
        return _TCP_LIMITS

    @property
    def process_passwords(self) -> dict[str, SecretStr]:
        """The passwords of the roles of processes. A password may be empty."""
        return {COLLECTOR_ROLE: self.collector_password, API_SERVICE_ROLE: self.api_service_password}

    def signed_in_as(self, role: str) -> Self:
        """The settings of a process that signs in as its own role, or as the owner if the role has no password.

        Raises:
            NotSetUp: the process has neither password, as in a pod or a container.
        """
        if not (password := self.process_passwords[role]):
            require_given(self, "database_password", f"{role}_password")
            return self
        return self.model_copy(
            update={"database_user": self.names.in_postgresql(role), "database_password": password},
        )

    def database(self) -> dict[str, Any]:
        """Arguments for `psycopg.connect`. Every session uses UTC.

        Raises:
            NotSetUp: the settings have no password. An empty one must be given.
        """
        return {
            "host": self.database_host,
            "port": self.database_port,
            "dbname": self.database_name,
            "user": self.database_user,
            "password": self._database_secret(),
            "options": _UTC,
            **self.tcp_limits(),
            **self._database_tls(),
        }

    def source(self) -> dict[str, Any]:
        """Arguments for `psycopg.connect` to the captured database, as the role that captures."""
        return {
            "host": self.source_host or self.database_host,
            "port": self.source_port or self.database_port,
            "dbname": self.source_database,
            "user": self.source_role,
            **self.tcp_limits(),
            "password": self.source_password.get_secret_value(),
            "options": _UTC,
            **_tls(self._source_sslmode, self.source_trust),
        }

    def source_connector(self) -> dict[str, str]:
        """Properties of Debezium for the same database, without the password."""
        source = self.source()
        names = {"host": "hostname", "sslmode": "sslmode", "sslrootcert": "sslrootcert"}
        names |= {name: name for name in ("port", "user", "dbname")}
        return {f"database.{to}": str(source[name]) for name, to in names.items() if name in source}

    def api_database(self) -> dict[str, Any]:
        """Arguments for `psycopg.connect` as the role that may only read what readers see.

        Raises:
            NotSetUp: the role has no password.
        """
        if not self.api_password:
            raise NotSetUp("no TRUELOG_API_PASSWORD: run `truelog up`, or create the role `api` (docs/production.md)")
        return self.database() | {
            "user": self.names.in_postgresql(API_ROLE),
            "password": self.api_password.get_secret_value(),
        }

    def database_uri(self, scheme: str = "postgresql") -> str:
        """The database URI, or with `postgresql+psycopg` the URI for SQLAlchemy. It contains the password."""
        return self._uri(scheme, self.database_user, self._database_secret(), {})

    def catalog_uri(self) -> str:
        """The URI for SQLAlchemy of the archive's catalog, whose tables are in the schema `iceberg`."""
        options = {"options": f"-csearch_path=iceberg {IDLE_TIMEOUT}"}
        return self._uri("postgresql+psycopg", self.database_user, self._database_secret(), options)

    def catalog_jdbc(self) -> dict[str, str]:
        """The address of the same catalog for JDBC, and the role that may use the catalog and do nothing else."""
        user, password = self._limited_role(CATALOG_ROLE, self.catalog_password)
        query = _query({"currentSchema": "iceberg", "options": IDLE_TIMEOUT, **self._database_tls()})
        return {"uri": f"jdbc:postgresql://{self._server}{query}", "jdbc.user": user, "jdbc.password": password}

    def staging_uri(self) -> str:
        """The URI for ADBC of the role that may stage rows and read the inputs of Groups. Spark ships it to tasks."""
        return self._uri("postgresql", *self._limited_role(STAGER, self.stager_password), {})

    @property
    def _server(self) -> str:
        return f"{self.database_host}:{self.database_port}/{self.database_name}"

    @property
    def _source_sslmode(self) -> str:
        return self.source_sslmode or self.database_sslmode

    def _database_tls(self) -> dict[str, str]:
        return _tls(self.database_sslmode, self.database_trust)

    def _uri(self, scheme: str, user: str, password: str, query: dict[str, str]) -> str:
        login = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return f"{scheme}://{login}@{self._server}{_query(query | self.tcp_limits() | self._database_tls())}"

    def _limited_role(self, role: str, password: SecretStr) -> tuple[str, str]:
        """The role and its password; a database whose owner has not created the role has only the main role."""
        named = self.names.in_postgresql(role)
        if password:
            return named, password.get_secret_value()
        return self.database_user, self._database_secret(f"{role}_password")

    def _database_secret(self, instead_of: str = "") -> str:
        require_given(self, "database_password", instead_of)
        return self.database_password.get_secret_value()


def _tls(sslmode: str, trust: str | None) -> dict[str, str]:
    """What libpq and JDBC both understand. `prefer` is their own default."""
    chosen = {} if sslmode == "prefer" else {"sslmode": sslmode}
    return chosen | ({"sslrootcert": trust} if trust else {})


def _query(values: dict[str, str]) -> str:
    return f"?{'&'.join(f'{name}={quote(value)}' for name, value in values.items())}" if values else ""
