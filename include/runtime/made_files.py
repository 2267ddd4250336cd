"""`python -m runtime.made_files`: writes the parts of files that follow from the declarations of Truelog's services.

A line with `Begin` and a line with `End` enclose a part, and name it. The rest of each file is written by hand.
`tests/library/runtime/test_made_files.py` fails if a part is out of date.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from runtime import chart
from runtime.credentials import PORTS
from runtime.ports import LOOPBACK
from truelog.services import registry
from truelog.services.declaration import METRICS, Service
from truelog.support.settings import PROJECT

CHART = "deploy/helm/truelog"
FILES = (
    "docker-compose.yml",
    ".devcontainer/devcontainer.json",
    "docs/monitoring/prometheus.yml",
    f"{CHART}/processes.yaml",
    f"{CHART}/values.schema.json",
)
_PART = re.compile(
    r"(?P<begin>[^\n]* Begin (?P<name>[\w ]+) \([^\n]*\n).*?(?P<end>[^\n]* End (?P=name)[^\w\n]*\n)", re.DOTALL
)
_STORES = (
    "TRUELOG_KAFKA_BOOTSTRAP=kafka:29092",
    "TRUELOG_S3_ENDPOINT=http://s3:18333",
    "TRUELOG_DATABASE_HOST=postgresql",
    "TRUELOG_DATABASE_PORT=5432",
)
_READY = "from runtime.services import SERVICES; from truelog.support.settings import Settings; "


def written(text: str) -> str:
    """The text of a file, with its parts as the declarations say."""
    return _PART.sub(lambda part: part["begin"] + "".join(_PARTS[part["name"]]()) + part["end"], text)


def _containers() -> Iterator[str]:
    for number, service in enumerate(registry.SERVICES):
        yield ("\n" if number else "") + f"  {service.name}:\n"
        yield from (f"    {line}\n" for line in _container(service))


def _container(service: Service) -> Iterator[str]:
    yield "<<: *truelog"
    yield f"command: [python, -m, {service.module}]"
    if service.folders:
        volumes = (f'"./{folder}:/opt/truelog/{folder}:ro"' for folder in ("include", *service.folders))
        yield f"volumes: [{', '.join(volumes)}]"
    if service.access.role:
        yield "configs:"
        yield f'  - {{source: {service.name}, target: /etc/truelog/settings.env, uid: "1000", mode: 0400}}'
    yield "depends_on:"
    yield from (f"  {needed}: {{condition: service_healthy}}" for needed in service.after)
    if service.http:
        yield f'ports: ["{LOOPBACK}:{service.http.port}:{service.http.port}"]'
    yield "healthcheck:"
    yield "  <<: *truelog-check"
    yield "  test:"
    yield from (f"    - {word}" for word in ("CMD", "python", "-c"))
    yield f'    - {_READY}SERVICES["{service.name}"].ready(Settings())'


def _settings() -> Iterator[str]:
    """What services without a role of their own need: the passwords of their principals, and where services listen."""
    users = (service.kafka for service in registry.SERVICES if service.kafka and not service.access.role)
    for user in dict.fromkeys(users):
        yield f"      {_filled(user.password_setting)}\n"
    for name in registry.HTTP:
        yield from (f"      {line}\n" for line in _listening(name))


def _configurations() -> Iterator[str]:
    """The settings of each service with a role of its own."""
    for service in registry.SERVICES:
        if service.access.role:
            yield f"  {service.name}:\n    content: |\n"
            yield from (f"      {line}\n" for line in (*_STORES, *_secrets_of(service), *_listening(service.name)))


def _secrets_of(service: Service) -> Iterator[str]:
    """The secrets as for a pod, and the address of the receiver of spans. Compose's Kafka needs no tokens."""
    secrets = chart.secrets_of_services()[service.name]
    address = ["spans_endpoint"] if "spans_headers" in secrets else []
    optional = {*chart.optional(), *address}
    wanted = (each for each in (*secrets, *address) if each != "kafka_oauth_client_secret")
    return (_filled(each, is_required=each not in optional) for each in wanted)


def _filled(setting: str, *, is_required: bool = False) -> str:
    """The line of a setting whose value Compose takes from the file of set-up. A required value may not be empty."""
    name = chart.variable(setting)
    return f"{name}=${{{name}:{'?see the head of this file' if is_required else '-'}}}"


def _listening(service: str) -> Iterator[str]:
    """An address that the other containers reach."""
    if service in registry.HTTP:
        yield f"TRUELOG_{service.upper()}_HOST=0.0.0.0"
        yield f"TRUELOG_{service.upper()}_PORT={registry.HTTP[service].port}"


def _ports() -> Iterator[str]:
    labels = {PORTS["airflow"]: "Airflow"} | {http.port: http.label for http in registry.HTTP.values()}
    lines = [f'"{port}": {{ "label": {json.dumps(label)} }}' for port, label in sorted(labels.items())]
    yield f'  "forwardPorts": {sorted(labels)},\n  "portsAttributes": {{\n    '
    yield ",\n    ".join(lines) + "\n  },\n"


def _targets() -> Iterator[str]:
    ports = [http.port for http in registry.HTTP.values() if METRICS in http.routes]
    yield f"      - targets: {json.dumps([f'{LOOPBACK}:{port}' for port in ports])}\n"


_PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "containers": _containers,
    "settings": _settings,
    "configurations": _configurations,
    "ports": _ports,
    "targets": _targets,
    "processes": chart.processes,
    "setting names": chart.setting_names,
}


def main(project: Path = PROJECT) -> None:
    for name in FILES:
        file = project / name
        file.write_text(written(file.read_text()))


if __name__ == "__main__":
    main()
