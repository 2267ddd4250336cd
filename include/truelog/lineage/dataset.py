"""Datasets: the names by which every job reports a topic, a table of the archive and a view.

The names follow OpenLineage's rules for Kafka, S3 and PostgreSQL. An archive application, a stream and a batch job that
report the same topic or view use the same name, so their events form one graph.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from truelog.archive.table import identifier
from truelog.support.settings import Settings

Facets = dict[str, Any]


@dataclass(frozen=True)
class Dataset:
    """A dataset, and what an event says about it."""

    namespace: str
    name: str
    facets: Facets = field(default_factory=dict)

    def described(self, facets: Facets) -> "Dataset":
        """The same dataset with these facets too."""
        return replace(self, facets=self.facets | facets)

    def as_dict(self) -> dict[str, Any]:
        return {"namespace": self.namespace, "name": self.name, "facets": self.facets}


def topic(settings: Settings, name: str) -> Dataset:
    """A topic of Kafka. The first bootstrap server names the cluster."""
    host, port = settings.kafka_servers[0]
    return Dataset(f"kafka://{_host(host)}:{port}", settings.names.topic_of(name))


def archive_table(settings: Settings, name: str) -> Dataset:
    """The table of a topic in the archive."""
    return _iceberg(settings, identifier(name))


def view(settings: Settings, name: str) -> Dataset:
    """A view as readers see it."""
    server = f"postgres://{_host(settings.database_host)}:{settings.database_port}"
    return Dataset(server, f"{settings.database_name}.views.{name}")


def _iceberg(settings: Settings, name: str) -> Dataset:
    return Dataset(f"s3://{settings.s3_bucket}", name)


def _host(host: str) -> str:
    """The host as a part of a URI."""
    return f"[{host}]" if ":" in host else host
