"""Every service and every setting has its place in the Helm chart, or a reason to be left out.

`make chart` renders the chart (`rendered_chart.py`).
"""

import json
import re
from typing import Any

import yaml

import truelog
from runtime import chart
from runtime.credentials import generated_secrets
from runtime.services import SERVICES
from tests.library.runtime.helm import CHART, example
from truelog.services import registry
from truelog.support.settings import PROJECT, Settings

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


def test_each_service_that_is_left_out_exists() -> None:
    assert chart.SERVICES_LEFT_OUT.keys() < SERVICES.keys()


def test_the_values_name_each_service_of_our_own() -> None:
    several = {service.name for service in registry.SERVICES if service.several}
    assert VALUES["services"].keys() == {service.name for service in registry.SERVICES}
    assert {name for name, each in VALUES["services"].items() if "replicas" in each} == several
    declared = SCHEMA["properties"]["services"]["properties"]
    kinds = {name: each["$ref"].rpartition("/")[2] for name, each in declared.items()}
    assert kinds == {name: "several" if name in several else "process" for name in VALUES["services"]}


def test_the_values_and_their_schema_have_the_same_names() -> None:
    assert VALUES.keys() == SCHEMA["properties"].keys() - {"global"} == {*SCHEMA["required"]}
    for part in ("image", "airflow"):
        assert VALUES[part].keys() == SCHEMA["properties"][part]["properties"].keys()


def test_every_secret_has_its_place() -> None:
    secrets = {name for name in Settings.model_fields if chart.is_secret(name)}
    used = chart.used_secrets()
    assert used | chart.SECRETS_LEFT_OUT.keys() == secrets
    assert used & chart.SECRETS_LEFT_OUT.keys() == set()


def test_only_services_with_a_role_of_their_own_lack_the_owner() -> None:
    """Each service gets the passwords of what it uses. A new service says so in its declaration."""
    secrets = chart.secrets_of_services()
    assert {each.name for each in registry.SERVICES if each.access.role} == {"api", "collector"}
    for service in registry.SERVICES:
        role = f"{service.access.role}_password" if service.access.role else "database_password"
        assert {role} == {"database_password", "collector_password", "api_service_password"} & {*secrets[service.name]}
    owners = {"kafka_password", "database_password", "postgres_password", "s3_access_key", "s3_secret_key"}
    for name in ("api", "collector"):  # the internet reaches them
        assert owners & {*secrets[name]} == set()
    assert [name for name, each in secrets.items() if "kafka_password" in each] == ["lag"]  # it registers event types


def test_the_pod_in_which_people_use_the_cli_has_the_channels() -> None:
    """`truelog notifications add` refuses a channel that its settings lack."""
    assert "notification_channels" in chart.AIRFLOW


def test_the_values_can_set_no_secret() -> None:
    allowed = SCHEMA["properties"]["settings"]["propertyNames"]["enum"]
    assert [name for name in allowed if re.search(r"PASSWORD|SECRET|TOKEN$|_KEY$|SALT|CHANNELS", name)] == []


def test_a_secret_may_be_missing_only_if_set_up_generates_none() -> None:
    assert [name for name in chart.optional() if name in generated_secrets()] == []
    assert {"notification_channels", "pagerduty_key"} <= {*chart.optional()}
    assert [name for name in chart.GIVEN if name in chart.optional()] == []


def test_the_guide_names_known_values() -> None:
    values = example()
    assert values.keys() <= VALUES.keys()
    assert set(SCHEMA["properties"]["settings"]["required"]) <= values["settings"].keys()


def test_the_chart_and_the_image_have_the_version_of_the_library() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {about["version"], about["appVersion"]} == {truelog.__version__}
    assert f"truelog:{truelog.__version__}" in (PROJECT / "docs" / "production.md").read_text()
