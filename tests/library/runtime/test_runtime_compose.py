"""docker-compose.yml is valid by the specification's schema, closed to other hosts and like the embedded platform."""

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from configparser import ConfigParser
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from jsonschema import Draft202012Validator

import runtime
import truelog
from runtime import airflow, airflow_configuration, chart, kafka, own_services, postgresql, s3
from runtime.credentials import PORTS
from runtime.ports import LOOPBACK
from runtime.service import Service
from runtime.services import SERVICES
from truelog.alerts.receiver import configured
from truelog.services import registry
from truelog.support.settings import ENVIRONMENT_FILE, PROJECT, Settings

COMPOSE: dict[str, Any] = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())
SCHEMA: dict[str, Any] = json.loads((Path(__file__).parent / "compose_spec" / "compose-spec.json").read_text())

VOLUMES = {"airflow", "kafka", "postgresql", "s3"}
CODE = {f"./{each}" for each in ("include", "spark_apps", "dags", "plugins", "docs/runbooks", ".truelog/jars")}
SECRETS = chart.secrets_of_services()
OF_ROLES = [service.name for service in registry.SERVICES if service.access.role]
NAMES_A_SECRET = re.compile(
    r"(?i)(?:password|passwd|secret|token|credential|identity|access_?key|user_controller)[\w.]*[\"']?\s*[=:]\s*[\"']?"
    r"(?P<value>[^\s\"';,\]]*)"
)
LOOKS_RANDOM = re.compile(r"\b[0-9a-fA-F]{24,}\b")
VARIABLE = re.compile(r"(?<!\$)\$\{(?P<name>\w+)(?::\?[^}]*|:-(?P<default>[^}]*))?\}")


def invalid(compose: dict[str, Any]) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in Draft202012Validator(SCHEMA).iter_errors(compose)]


def unwatched(compose: dict[str, Any]) -> list[str]:
    """Services without a health check or without a fixed version."""
    services = compose["services"].items()
    checks = {name: service.get("healthcheck", {}) for name, service in services}
    return [
        *(f"{name} has no health check" for name, c in checks.items() if not c.get("test") or c["test"][0] == "NONE"),
        *(f"{name} disables its health check" for name, check in checks.items() if check.get("disable")),
        *(f"{name} has no fixed image" for name, s in services if not re.search(r":(?!latest)", s.get("image", ""))),
    ]


def beyond_loopback(compose: dict[str, Any]) -> list[str]:
    """Ports that other machines can reach."""
    services = compose["services"].items()
    ports = [(name, port) for name, service in services for port in service.get("ports", [])]
    host = [name for name, service in services if service.get("network_mode") == "host"]
    return [f"{name} publishes {port}" for name, port in ports if _host(port) != LOOPBACK] + [
        f"{name} is on the host's network" for name in host
    ]


def careless(compose: dict[str, Any]) -> list[str]:
    """Services that could gain rights, keep capabilities, or see files of the checkout that they do not need."""
    services = compose["services"].items()
    return [
        *(f"{n} may gain rights" for n, s in services if s.get("security_opt") != ["no-new-privileges:true"]),
        *(f"{n} keeps its capabilities" for n, s in services if s.get("cap_drop") != ["ALL"]),
        *(f"{n} mounts {each}" for n, s in services for each in s.get("volumes", []) if not _is_needed(each)),
    ]


def _is_needed(volume: str) -> bool:
    source, _, rest = volume.partition(":")
    return source in VOLUMES or (source in CODE and rest.endswith(":ro"))


def _host(port: Any) -> str:
    return str(port.get("host_ip", "")) if isinstance(port, dict) else str(port).rpartition(":")[0].rpartition(":")[0]


def literal_secrets(compose: dict[str, Any]) -> list[str]:
    """Lines with a literal secret instead of the name of a variable or a file."""
    return [
        line
        for line in _lines(compose)
        if LOOKS_RANDOM.search(line)
        or any(
            not found["value"].startswith(("${TRUELOG_", "/run/secrets/")) for found in NAMES_A_SECRET.finditer(line)
        )
    ]


def secrets_without_need(compose: dict[str, Any]) -> list[str]:
    """Secrets in the settings of a service with a role of its own that its declaration does not name."""
    secrets = {chart.variable(name) for name in Settings.model_fields if chart.is_secret(name)}
    problems = []
    for service in OF_ROLES:
        [config] = compose["services"][service].get("configs", [{"source": "the shared settings"}])
        text = compose["configs"].get(config["source"], {"content": ""})["content"]
        found = secrets.intersection(re.findall(r"^(\w+)=", text, re.MULTILINE))
        problems += [] if config["source"] == service else [f"{service} has {config['source']}"]
        problems += [f"{service} has {each}" for each in sorted(found - set(map(chart.variable, SECRETS[service])))]
    return problems


def _lines(part: Any, name: str = "") -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            yield from _lines(value, str(key))
    elif isinstance(part, list):
        for value in part:
            yield from _lines(value)
    else:
        first, *more = str(part).splitlines() or [""]
        yield from (f"{name}={first}" if name else first, *more)


def test_no_two_services_have_the_same_port_by_default() -> None:
    assert len({*PORTS.values()}) == len(PORTS)


def test_it_is_valid_by_the_specification() -> None:
    assert invalid(COMPOSE) == []


def test_every_service_has_a_health_check_and_a_version() -> None:
    assert unwatched(COMPOSE) == []


def test_our_images_have_the_version_of_the_library() -> None:
    images = {each["image"] for each in COMPOSE["services"].values() if each["image"].startswith("truelog")}
    assert images == {f"truelog:{truelog.__version__}", f"truelog-airflow:{truelog.__version__}"}


def test_every_embedded_service_has_its_counterpart(made: Settings) -> None:
    by_default = {name for name, each in SERVICES.items() if each.is_wanted(made)}
    assert set(COMPOSE["services"]) == by_default


def test_every_port_is_on_loopback_at_the_default_number() -> None:
    assert beyond_loopback(COMPOSE) == []
    open_ones = {name: each["ports"] for name, each in COMPOSE["services"].items() if "ports" in each}
    published = {name: [port.split(":")[1] for port in ports] for name, ports in open_ones.items()}
    expected = {"airflow-api": "airflow"} | {name: name for name in ("kafka", "postgresql", "s3", *registry.HTTP)}
    assert published == {name: [str(PORTS[ours])] for name, ours in expected.items()}


def test_services_are_confined_and_see_only_code() -> None:
    assert careless(COMPOSE) == []
    code, views = "./include:/opt/truelog/include:ro", "./spark_apps:/opt/truelog/spark_apps:ro"
    mounted = {"collector": [code], "ticks": [code], "lag": [code, views], "relay": [code], "notifier": [code, views]}
    own = {name: COMPOSE["services"][name] for name in mounted}
    assert {name: each["volumes"] for name, each in own.items()} == mounted
    assert all(each["read_only"] for each in own.values())


def test_it_holds_no_secret() -> None:
    assert literal_secrets(COMPOSE) == []


Change = Callable[[dict[str, Any]], Any]


def _in(*path: str, **changes: Any) -> Change:
    def change(compose: dict[str, Any]) -> None:
        for key in path:
            compose = compose[key]
        compose.update(changes)

    return change


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        (invalid, _in("services", "s3", port=["127.0.0.1:1:1"])),
        (invalid, _in("services", "s3", restart=["always"])),
        (unwatched, _in("services", "s3", healthcheck={"interval": "1s"})),
        (unwatched, _in("services", "s3", healthcheck={"test": ["NONE"]})),
        (unwatched, _in("services", "s3", "healthcheck", disable=True)),
        (unwatched, _in("services", "s3", image="andrewgaul/s3proxy")),
        (unwatched, _in("services", "s3", image="andrewgaul/s3proxy:latest")),
        (beyond_loopback, _in("services", "kafka", ports=["19092:19092"])),
        (beyond_loopback, _in("services", "kafka", ports=["19092"])),
        (beyond_loopback, _in("services", "kafka", ports=["0.0.0.0:19092:19092"])),
        (beyond_loopback, _in("services", "kafka", ports=[{"target": 19092, "published": "19092"}])),
        (beyond_loopback, _in("services", "kafka", network_mode="host")),
        (careless, _in("services", "kafka", security_opt=[])),
        (careless, _in("services", "kafka", cap_drop=["NET_RAW"])),
        (careless, _in("services", "ticks", volumes=[".:/opt/truelog:ro"])),
        (careless, _in("services", "ticks", volumes=["./.truelog:/etc/truelog:ro"])),
        (careless, _in("services", "ticks", volumes=["./include:/opt/truelog/include"])),
        (secrets_without_need, lambda compose: compose["services"]["collector"].pop("configs")),
        (secrets_without_need, lambda compose: compose["services"]["api"]["configs"][0].update(source="truelog")),
        (secrets_without_need, _in("configs", "collector", content="TRUELOG_DATABASE_PASSWORD=${X}\n")),
        (secrets_without_need, _in("configs", "api", content="a=b\nTRUELOG_KAFKA_READER_PASSWORD=${X}\n")),
        (literal_secrets, _in("services", "postgresql", "environment", POSTGRES_PASSWORD="hunter2")),
        (literal_secrets, _in("services", "postgresql", environment=["POSTGRES_PASSWORD=hunter2"])),
        (literal_secrets, _in("configs", "s3proxy", content="a=b\ns3proxy.credential=hunter2\n")),
        (literal_secrets, _in("configs", "kafka_client", content='jaas username="truelog" password="hunter2";')),
        (literal_secrets, _in("configs", "kafka_format", content="--add-scram [name=truelog,password=hunter2]")),
        (literal_secrets, _in("services", "s3", command=["--key", "0123456789abcdef" * 2])),
    ],
)
def test_planted_faults_are_found(rule: Callable[[dict[str, Any]], list[str]], change: Change) -> None:
    planted = copy.deepcopy(COMPOSE)
    change(planted)
    assert rule(planted) != []


@pytest.fixture
def made(settings: Settings, tmp_path: Path) -> Settings:
    """A fresh home that set-up has written, with the test session's jars. No services are running."""
    return runtime.set_up(tmp_path, random_ports=True).model_copy(update={"jars_folder": settings.jars_home})


def _variables(made: Settings) -> dict[str, str]:
    lines = (made.home / ENVIRONMENT_FILE).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def _text(config: str, variables: dict[str, str]) -> str:
    """A configuration with its variables filled in the way Compose does it."""

    def filled(found: re.Match[str]) -> str:
        return variables[found["name"]] if found["default"] is None else variables.get(found["name"], found["default"])

    return VARIABLE.sub(filled, COMPOSE["configs"][config]["content"])


def _filled_in(config: str, variables: dict[str, str]) -> dict[str, str]:
    return dict(line.split("=", 1) for line in _text(config, variables).splitlines())


def test_set_up_writes_every_variable_that_it_asks_for(made: Settings) -> None:
    found = [found for line in _lines(COMPOSE) for found in VARIABLE.finditer(line)]
    required = {each["name"] for each in found if each["default"] is None}
    required |= {each["environment"] for each in COMPOSE["secrets"].values()}
    assert len(required) > 4
    assert required - set(_variables(made)) == set()


def test_its_broker_is_the_embedded_one(made: Settings) -> None:
    own = {"controller.quorum.bootstrap.servers", "listeners", "advertised.listeners", "log.dirs"}
    own |= {"listener.security.protocol.map"}
    ours = {name: str(value) for name, value in kafka._properties(made).items() if name not in own}
    theirs = {name: value for name, value in _filled_in("kafka_server", _variables(made)).items() if name not in own}
    inside = {name: value for name, value in theirs.items() if name.startswith("listener.name.inside.")}
    assert {name: value for name, value in theirs.items() if name not in inside} == ours
    # The listener between containers has the same requirements as the listener for other clients.
    assert {name.replace(".inside.", ".client."): value for name, value in inside.items()}.items() <= ours.items()
    assert "PLAINTEXT" not in COMPOSE["configs"]["kafka_server"]["content"].replace("SASL_PLAINTEXT", "")


def test_its_store_is_the_embedded_one(made: Settings) -> None:
    own = {"s3proxy.endpoint", "jclouds.filesystem.basedir"}
    s3.configure(made)
    written = (made.home / "s3" / "s3proxy.properties").read_text().splitlines()
    ours = {name: value for name, _, value in (line.partition("=") for line in written) if name not in own}
    theirs = {name: value for name, value in _filled_in("s3proxy", _variables(made)).items() if name not in own}
    assert theirs == ours


def test_its_database_is_the_embedded_one() -> None:
    own = {"listen_addresses", "unix_socket_directories"}
    ours = {f"-c{name}={value}" for name, value in postgresql.SERVER.items() if name not in own}
    assert set(COMPOSE["services"]["postgresql"]["command"]) == {"postgres", *ours}


def test_its_airflow_is_the_embedded_one(made: Settings) -> None:
    own = {("api", "host"), ("api", "port"), ("api", "base_url"), ("core", "execution_api_server_url")}
    own |= {("core", "dags_folder"), ("core", "plugins_folder")}
    own |= {("logging", "base_log_folder"), ("logging", "dag_processor_child_process_log_directory")}
    own |= {("database", "sql_alchemy_conn"), ("database", "sql_alchemy_conn_async")}
    ours = _options(airflow_configuration.text(made))
    theirs = _options(_text("airflow", _variables(made)))
    assert own <= set(ours)
    assert set(theirs) == set(ours)
    assert {name: theirs[name] for name in set(theirs) - own} == {name: ours[name] for name in set(ours) - own}


def test_its_airflow_runs_the_embedded_components_of_the_same_release() -> None:
    services = {name: each for name, each in COMPOSE["services"].items() if name.startswith("airflow-")}
    assert set(services) == {each.name for each in airflow.SERVICES}
    for each in airflow.SERVICES:
        words = each.command(Settings.model_construct())[3:]
        assert " ".join(["airflow", *words]) in " ".join(services[each.name]["command"])
        assert f"FROM apache/airflow:{version('apache-airflow')}-" in services[each.name]["build"]["dockerfile_inline"]


@pytest.mark.parametrize("service", own_services.OWN, ids=lambda each: each.name)
def test_it_runs_and_checks_our_own_services_like_the_embedded_platform(service: Service) -> None:
    theirs = COMPOSE["services"][service.name]
    assert theirs["command"] == ["python", *service.command(Settings.model_construct())[1:]]
    assert set(theirs["depends_on"]) == set(service.after)
    assert f'SERVICES["{service.name}"].ready(' in theirs["healthcheck"]["test"][-1]


@pytest.mark.parametrize("config", ["settings", "truelog", *OF_ROLES])
def test_they_find_the_other_services(made: Settings, tmp_path: Path, config: str) -> None:
    theirs = _inside(config, made, tmp_path / "inside")
    hosts = {theirs.kafka_bootstrap.partition(":")[0], theirs.database_host, str(urlsplit(theirs.s3_endpoint).hostname)}
    assert hosts == {"kafka", "postgresql", "s3"}


def test_containers_use_what_set_up_chose(made: Settings, tmp_path: Path) -> None:
    assert _inside("settings", made, tmp_path / "airflow").airflow_oncall_password == made.airflow_oncall_password
    inside = _inside("truelog", made, tmp_path / "truelog")
    assert inside.services.keys() == registry.HTTP.keys()
    for service, address in inside.services.items():
        assert COMPOSE["services"][service]["ports"] == [f"{LOOPBACK}:{address.port}:{address.port}"]


RECEIVERS = {"alertmanager_url": "http://alerts:9093", "pagerduty_key": "k", "alert_email": "ann@example.org"}
ALL_RECEIVERS = RECEIVERS | {"alertmanager_token": "t", "heartbeat_url": "http://beat", "alert_answer_seconds": "3"}
ALL_RECEIVERS |= {"alert_runbooks_url": "http://books", "alert_keep_seconds": "4"}


@pytest.mark.parametrize(("config", "wanted"), [("settings", ALL_RECEIVERS), ("truelog", RECEIVERS)])
def test_receivers_of_alerts_are_passed_on(made: Settings, tmp_path: Path, config: str, wanted: dict[str, str]) -> None:
    """Airflow sends the notifications that `lag` writes for the configured receivers. By default, there are none."""
    untouched = _inside(config, made, tmp_path / "untouched")
    defaults = Settings(home=made.home)
    for name in ("alert_repeat_seconds", "pagerduty_url", "alert_runbooks_url", *wanted):
        assert getattr(untouched, name) == getattr(defaults, name)
    with (made.home / ENVIRONMENT_FILE).open("a") as file:
        file.writelines(f"TRUELOG_{name.upper()}={value}\n" for name, value in wanted.items())
    changed, ours = _inside(config, made, tmp_path / "changed"), Settings(home=made.home)
    assert {name: getattr(changed, name) for name in wanted} == {name: getattr(ours, name) for name in wanted}
    assert configured(changed) == ["alertmanager", "pagerduty", "email"]


def test_documented_settings_of_receivers_reach_their_processes() -> None:
    """`lag` alone needs the interval between reminders. Airflow's tasks do the rest."""
    table = re.findall(r"^\| `(TRUELOG_\w+)` \|", (PROJECT / "docs" / "alerts.md").read_text(), re.MULTILINE)
    airflow, lag = ({*re.findall(r"\w+(?==)", COMPOSE["configs"][each]["content"])} for each in ("settings", "truelog"))
    assert {*table} - airflow == {"TRUELOG_ALERT_REPEAT_SECONDS"} <= lag


@pytest.mark.parametrize(
    ("configs", "needed"),
    [
        (("settings", "airflow"), chart.AIRFLOW),
        (("truelog",), [each for name, secrets in SECRETS.items() if name not in OF_ROLES for each in secrets]),
        *(((name,), SECRETS[name]) for name in OF_ROLES),
    ],
)
def test_containers_have_each_secret_that_their_processes_need(configs: Sequence[str], needed: Sequence[str]) -> None:
    """Airflow's own secrets are in its configuration. Compose's Kafka needs no tokens."""
    text = "".join(COMPOSE["configs"][each]["content"] for each in configs)
    passed_on = {found["name"] for found in VARIABLE.finditer(text)}
    assert {chart.variable(each) for each in needed} - passed_on <= {chart.variable("kafka_oauth_client_secret")}


def test_a_service_that_is_reached_has_no_other_secret() -> None:
    assert {"api", "collector"} <= {*OF_ROLES}
    assert secrets_without_need(COMPOSE) == []


def test_a_service_that_is_reached_does_not_start_without_its_secrets() -> None:
    """An upgrade brings new ones, and Compose would otherwise pass on empty ones without a word."""
    for name in OF_ROLES:
        found = VARIABLE.finditer(COMPOSE["configs"][name]["content"])
        defaults = {each["name"]: each["default"] for each in found}
        wanted = {chart.variable(each) for each in {*SECRETS[name]} - {*chart.optional()}}
        assert wanted
        assert {each for each, default in defaults.items() if default is None} == wanted


@pytest.mark.parametrize("config", ["settings", "truelog"])
def test_channels_of_notifications_are_passed_on(made: Settings, tmp_path: Path, config: str) -> None:
    assert _inside(config, made, tmp_path / "untouched").notification_channels == {}
    channels = {"ops": {"kind": "webhook", "url": "http://hook", "token": "a b#c"}}
    with (made.home / ENVIRONMENT_FILE).open("a") as file:
        file.write(f"TRUELOG_NOTIFICATION_CHANNELS={json.dumps(channels)}\n")
    changed = _inside(config, made, tmp_path / "changed").notification_channels
    assert changed == Settings(home=made.home).notification_channels
    assert changed["ops"].token.get_secret_value() == "a b#c"


def _inside(config: str, made: Settings, home: Path) -> Settings:
    """The settings that a container loads."""
    home.mkdir()
    (home / ENVIRONMENT_FILE).write_text(_text(config, _variables(made)))
    return Settings(home=home)


def _options(text: str) -> dict[tuple[str, str], str]:
    parser = ConfigParser()
    parser.read_string(text)
    return {(section, name): value for section in parser.sections() for name, value in parser[section].items()}
