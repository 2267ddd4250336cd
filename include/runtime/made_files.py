"""`python -m runtime.made_files`: writes the parts of files that follow from the declarations of Truelog's services.

A line with `Begin` and a line with `End` enclose a part, and name it. The rest of each file is written by hand.
`tests/library/runtime/test_made_files.py` fails if a part is out of date.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from runtime import chart
from runtime.credentials import LOOPBACK, PORTS
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
    """The services' settings: the passwords of their principals, and addresses that the other containers reach."""
    for user in dict.fromkeys(service.kafka for service in registry.SERVICES if service.kafka):
        name = f"TRUELOG_{user.password_setting.upper()}"
        yield f"      {name}=${{{name}:-}}\n"
    for name, http in registry.HTTP.items():
        yield f"      TRUELOG_{name.upper()}_HOST=0.0.0.0\n      TRUELOG_{name.upper()}_PORT={http.port}\n"


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
