"""The chart, as Helm renders it, and rules for the manifests."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from truelog.support.settings import PROJECT

CHART = PROJECT / "deploy" / "helm" / "truelog"
GUIDE = PROJECT / "docs" / "production.md"
PYTHON = PROJECT / ".venv-helm" / "bin" / "python"
_PROGRAM = Path(__file__).with_name("helm_program.py")
_SCHEMAS: dict[str, Any] = json.loads((Path(__file__).parent / "kubernetes_schemas" / "v1.37.json").read_text())
_CONFINED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
_BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)

Manifest = dict[str, Any]


def example() -> dict[str, Any]:
    """The values of the guide."""
    text = "".join(line.removeprefix("   ") for line in GUIDE.read_text().splitlines(keepends=True))
    [block] = [block for block in _BLOCK.findall(text) if "repository:" in block]
    values: dict[str, Any] = yaml.safe_load(block)
    return values


def _ask(values: dict[str, Any], *, lint: bool = False) -> Any:
    assert PYTHON.exists(), "Helm is not installed: run `make chart`"
    request = json.dumps({"chart": str(CHART), "values": values, "lint": lint})
    ended = subprocess.run([PYTHON, _PROGRAM], input=request, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def lint(values: dict[str, Any]) -> list[str]:
    """What `helm lint --strict` complains of, besides hints such as a missing icon."""
    found = _ask(values, lint=True)
    return [*found["errors"], *(each["error"] for each in found["messages"] if each["severity"] > 1)]


def refusal(values: dict[str, Any]) -> str:
    """Why Helm refuses the values; empty if it does not."""
    return str(_ask(values).get("refused", ""))


def render(values: dict[str, Any]) -> list[Manifest]:
    answer = _ask(values)
    assert "rendered" in answer, answer
    return [each for text in answer["rendered"].values() for each in yaml.safe_load_all(text) if each]


def invalid(manifest: Manifest) -> list[str]:
    """What Kubernetes' schema of the kind, which knows no further properties, finds in a manifest."""
    schema = {**_SCHEMAS["kinds"][manifest["kind"]], "$defs": _SCHEMAS["$defs"]}
    found = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(schema).iter_errors(manifest)]
    return found + [f"{path} has no value" for path in _holes(manifest)]


def _holes(part: Any, path: str = "$") -> Iterator[str]:
    """Empty places, which the schemas permit."""
    if part is None:
        yield path
    for name, each in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        yield from _holes(each, f"{path}.{name}")


def workloads(manifests: list[Manifest]) -> dict[str, Manifest]:
    """The manifests with pods, by the component."""
    return {component(each): each for each in manifests if "template" in each["spec"]}


def component(manifest: Manifest) -> str:
    return str(manifest["metadata"]["labels"]["app.kubernetes.io/component"])


def pod(manifest: Manifest) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return found


def containers(manifest: Manifest) -> list[dict[str, Any]]:
    found = pod(manifest)
    return [*found.get("initContainers", []), *found["containers"]]


def careless(manifest: Manifest) -> list[str]:
    """Rights that a pod does not need, and limits that it lacks."""
    found, name = pod(manifest), component(manifest)
    context = found.get("securityContext", {})
    rules = {
        "runs as root": context.get("runAsNonRoot") is True and context.get("runAsUser", 0) > 0,
        "has no filter of system calls": context.get("seccompProfile") == {"type": "RuntimeDefault"},
        "gets a token of Kubernetes": found.get("automountServiceAccountToken") is False,
        # A Service truelog-api would be in the environment as TRUELOG_API_PORT=tcp://…
        "gets variables of Services": found.get("enableServiceLinks") is False,
        "uses the node": not {"hostNetwork", "hostPID", "hostIPC"} & found.keys(),
        "mounts other volumes": all({"emptyDir", "configMap"} & each.keys() for each in found["volumes"]),
    }
    broken = [f"{name} {rule}" for rule, is_kept in rules.items() if not is_kept]
    return broken + [f"{name}: {each['name']} {rule}" for each in containers(manifest) for rule in _careless(each)]


def _careless(container: dict[str, Any]) -> Iterator[str]:
    context = container.get("securityContext", {})
    if context != _CONFINED:
        yield "is not confined"
    resources = container.get("resources", {})
    if set(resources.get("requests", ())) != {"cpu", "memory"} or "memory" not in resources.get("limits", ()):
        yield "has no resources"
    if not re.search(r":(?!latest)[\w.-]+$", container["image"]):
        yield "has no fixed image"
