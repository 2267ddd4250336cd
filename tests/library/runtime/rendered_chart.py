"""The Helm chart, as Helm renders it, is valid by Kubernetes' schemas, confined, and without secrets.

`make chart` runs this.
"""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from runtime import airflow, chart, own_services
from runtime.services import SERVICES
from tests.library.runtime.helm import (
    Manifest,
    careless,
    component,
    containers,
    example,
    invalid,
    lint,
    pod,
    refusal,
    render,
    workloads,
)
from truelog.services import registry
from truelog.support.settings import Settings

Values = dict[str, Any]
SETTINGS = "settings"
SIZE = {"cpu": "1", "memory": "1Gi"}


def changed(*path: str, **changes: Any) -> Values:
    """The guide's values with these changes at a path."""
    values = copy.deepcopy(example())
    part = values
    for key in path:
        part = part.setdefault(key, {})
    part.update(changes)
    return values


OTHERS = {
    "image": {"repository": "other/truelog", "tag": "7", "pullSecrets": [{"name": "registry"}]},
    "services": {"collector": {**SIZE, "replicas": 3}, "relay": SIZE},
    "secret": "other",
    "ca": "authorities",
    "airflow": {"url": "https://airflow.example", "storage": "20Gi"},
    "ingressFrom": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}, {"podSelector": {}}],
}
ALL = [changed(), changed(**OTHERS), changed(SETTINGS, TRUELOG_SPARK_CONF='{"a": "b: \'#"}')]


@pytest.fixture(scope="module", params=ALL, ids=["guide", "others", "json"])
def values(request: pytest.FixtureRequest) -> Values:
    found: Values = request.param
    return found


@pytest.fixture(scope="module")
def manifests(values: Values) -> list[Manifest]:
    return render(values)


def test_helm_finds_nothing_to_complain_of(values: Values) -> None:
    assert lint(values) == []


def test_all_manifests_are_valid(manifests: list[Manifest]) -> None:
    assert len(manifests) > 15
    assert [(component(each), problem) for each in manifests for problem in invalid(each)] == []


def test_all_pods_are_confined(manifests: list[Manifest]) -> None:
    assert [problem for each in workloads(manifests).values() for problem in careless(each)] == []


def test_every_service_is_in_the_chart_or_left_out(manifests: list[Manifest]) -> None:
    found = workloads(manifests)
    parts = {f"airflow-{each['name']}" for each in pod(found["airflow"])["containers"]}
    assert {*found, *parts} - {"airflow", "prepare"} == SERVICES.keys() - chart.SERVICES_LEFT_OUT.keys()


def test_every_process_has_its_command(manifests: list[Manifest]) -> None:
    found = workloads(manifests)
    for service in own_services.OWN:
        [container] = containers(found[service.name])
        assert container["command"] == ["python", *service.command(Settings.model_construct())[1:]]
    in_airflow = {f"airflow-{each['name']}": each["command"] for each in pod(found["airflow"])["containers"]}
    assert in_airflow == {
        each.name: ["python", *each.command(Settings.model_construct())[1:]] for each in airflow.SERVICES
    }


def secrets_in(manifest: Manifest) -> dict[str, Any]:
    """The entries of the containers' environments that are named like a secret, or come from a Secret."""
    secrets = {chart.variable(name) for name in Settings.model_fields if chart.is_secret(name)}
    entries = [each for container in containers(manifest) for each in container.get("env", [])]
    assert [each for container in containers(manifest) for each in container.get("envFrom", [])] == []
    return {each["name"]: each for each in entries if each["name"] in secrets or "valueFrom" in each}


def undeclared(manifest: Manifest) -> list[str]:
    """The secrets of a pod that the declaration of its process does not name."""
    declared = chart.secrets_of_services() | {"prepare": chart.PREPARE, "airflow": chart.AIRFLOW}
    named = {chart.variable(each) for each in declared[component(manifest)]}
    found = secrets_in(manifest)
    keys = {each["valueFrom"]["secretKeyRef"]["key"] for each in found.values() if "valueFrom" in each}
    return sorted((found.keys() | keys) - named)


def test_every_secret_comes_from_the_secret(values: Values, manifests: list[Manifest]) -> None:
    expected = chart.secrets_of_services() | {"prepare": chart.PREPARE, "airflow": chart.AIRFLOW}
    for name, manifest in workloads(manifests).items():
        found = secrets_in(manifest)
        assert found.keys() == {chart.variable(each) for each in expected[name]}
        assert undeclared(manifest) == []
        for variable, entry in found.items():
            reference = {"name": values.get("secret", "truelog"), "key": variable}
            is_optional = variable in {chart.variable(each) for each in chart.optional()}
            assert entry["valueFrom"] == {"secretKeyRef": reference | ({"optional": True} if is_optional else {})}


def test_every_setting_of_the_values_reaches_every_process(values: Values, manifests: list[Manifest]) -> None:
    for manifest in workloads(manifests).values():
        first = {each["name"]: each.get("value") for each in containers(manifest)[0]["env"]}
        assert first.items() >= values["settings"].items()
        assert first["TRUELOG_STORES"] == "own"
    first = {each["name"]: each.get("value") for each in containers(workloads(manifests)["airflow"])[0]["env"]}
    assert first["TRUELOG_ALERT_PAGES_URL"] == values.get("airflow", {}).get("url", "http://127.0.0.1:18081")


def test_no_other_container_of_airflow_has_a_setting(manifests: list[Manifest]) -> None:
    _, *others = containers(workloads(manifests)["airflow"])
    names = {each["name"] for container in others for each in container["env"]}
    assert [name for name in names if name.startswith("TRUELOG_")] == []


def test_only_declared_ports_can_be_reached(values: Values, manifests: list[Manifest]) -> None:
    ports = {name: http.port for name, http in registry.HTTP.items()} | {"airflow": 18081}
    services = {component(each): each["spec"] for each in manifests if each["kind"] == "Service"}
    assert {each["type"] for each in services.values()} == {"ClusterIP"}
    assert {name: each["ports"] for name, each in services.items()} == {
        name: [{"name": "http", "port": port, "targetPort": "http"}] for name, port in ports.items()
    }
    policies = {component(each): each["spec"] for each in manifests if each["kind"] == "NetworkPolicy"}
    assert policies.keys() == workloads(manifests).keys() - {"prepare"}
    peers = values.get("ingressFrom", [{"podSelector": {}}])
    allowed = [{"from": peers, "ports": [{"port": "http"}]}]
    for name, policy in policies.items():
        labels = workloads(manifests)[name]["spec"]["template"]["metadata"]["labels"]
        assert policy["podSelector"]["matchLabels"] == labels
        assert policy["ingress"] == (allowed if name in ports else [])


def test_only_several_processes_of_some_services_may_run(manifests: list[Manifest]) -> None:
    for service in registry.SERVICES:
        spec = workloads(manifests)[service.name]["spec"]
        assert service.several or (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_a_probe_asks_the_service_itself_and_none_restarts_it(manifests: list[Manifest]) -> None:
    for service in registry.SERVICES:
        [container] = containers(workloads(manifests)[service.name])
        if service.http:
            assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": "http"}
        else:
            assert f'SERVICES["{service.name}"].ready(' in container["startupProbe"]["exec"]["command"][-1]
        assert "livenessProbe" not in container


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({}, "/image/repository"),
        (changed("image", repository=""), "/image/repository"),
        (changed(replicas=2), "additional properties 'replicas'"),
        (changed(SETTINGS, TRUELOG_KAFKA_BOOTSTRAPP="k"), "TRUELOG_KAFKA_BOOTSTRAPP"),
        (changed(SETTINGS, TRUELOG_KAFKA_PASSWORD="hunter2"), "TRUELOG_KAFKA_PASSWORD"),
        (changed(SETTINGS, TRUELOG_S3_ACCESS_KEY="hunter2"), "TRUELOG_S3_ACCESS_KEY"),
        (changed(SETTINGS, TRUELOG_SPARK_MASTER="local[2]"), "TRUELOG_SPARK_MASTER"),
        (changed(SETTINGS, TRUELOG_DATABASE_PORT=5432), "want string"),
        (changed(settings={"TRUELOG_KAFKA_BOOTSTRAP": "k"}), "TRUELOG_DATABASE_HOST"),
        (changed("services", relay={"replicas": 2}), "additional properties 'replicas'"),
        (changed("services", collector={"replicas": 0}), "/services/collector/replicas"),
        (changed("services", connect=SIZE), "additional properties 'connect'"),
        (changed("services", api={"memory": "much"}), "/services/api/memory"),
        (changed("services", api=None), "services.api"),
        (changed("airflow", replicas=1), "additional properties 'replicas'"),
        (changed(ingressFrom=[]), "/ingressFrom"),
        (changed(ingressFrom=[{}]), "/ingressFrom/0"),
    ],
)
def test_wrong_values_are_refused(values: Values, named: str) -> None:
    assert named in refusal(values)


def _spec(manifest: Manifest) -> Any:
    return manifest["spec"]["template"]["spec"]


def _secret(manifest: Manifest, name: str, key: str) -> None:
    """Add an entry of the Secret to the environment."""
    reference = {"secretKeyRef": {"name": "truelog", "key": key}}
    _spec(manifest)["containers"][0]["env"].append({"name": name, "valueFrom": reference})


Fault = Callable[[Manifest], object]
FAULTS: list[tuple[Callable[[Manifest], list[str]], Fault]] = [
    (invalid, lambda each: each["spec"].update(replica=2)),
    (invalid, lambda each: each["spec"].update(replicas="2")),
    (invalid, lambda each: each["spec"].pop("selector")),
    (invalid, lambda each: _spec(each)["containers"][0].update(readOnly=True)),
    (invalid, lambda each: _spec(each)["containers"][0].update(image=None)),
    (invalid, lambda each: _spec(each)["containers"][0]["env"][0].update(value=1)),
    (careless, lambda each: _spec(each).update(enableServiceLinks=True)),
    (careless, lambda each: _spec(each).update(hostNetwork=False)),
    (careless, lambda each: _spec(each).pop("automountServiceAccountToken")),
    (careless, lambda each: _spec(each)["securityContext"].update(runAsUser=0)),
    (careless, lambda each: _spec(each)["volumes"].append({"name": "host", "hostPath": {"path": "/"}})),
    (careless, lambda each: _spec(each)["containers"][0]["securityContext"].pop("readOnlyRootFilesystem")),
    (careless, lambda each: _spec(each)["containers"][0]["resources"].pop("limits")),
    (careless, lambda each: _spec(each)["containers"][0].update(image="truelog:latest")),
    (undeclared, lambda each: _secret(each, "TRUELOG_POSTGRES_PASSWORD", "TRUELOG_POSTGRES_PASSWORD")),
    (undeclared, lambda each: _secret(each, "TRUELOG_KAFKA_RELAY_PASSWORD", "TRUELOG_ADMIN_KEY")),
]


@pytest.fixture(scope="module")
def relay() -> str:
    return json.dumps(workloads(render(example()))["relay"])


@pytest.mark.parametrize(("rule", "fault"), FAULTS, ids=[str(number) for number in range(len(FAULTS))])
def test_planted_faults_are_found(relay: str, rule: Callable[[Manifest], list[str]], fault: Fault) -> None:
    planted = json.loads(relay)
    assert rule(planted) == []
    fault(planted)
    assert rule(planted) != []
