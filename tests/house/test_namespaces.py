"""Names on shared servers come from one place: `Names`, the clients in `truelog.kafka`, or a listed module.

Otherwise, one name would be the same in two environments, and one of them could fence, read or destroy the other.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.house.tree import PROJECT, modules, plant

WHERE = ("include/*.py", "dags/*.py", "plugins/*.py", "spark_apps/*.py")
GROUPS = "include/truelog/support/setting_groups/"
CLIENTS = "include/truelog/kafka/"
OUTSIDERS = "include/truelog/client/"  # readers of outputs, who give Kafka's own names

# Options of Java programs and fields of messages whose values are names on shared servers.
_OPTION = re.compile(
    r"^(subscribe|assign|subscribePattern|(starting|ending)Offsets|groupIdPrefix|kafka\.group\.id)$"
    r"|^(topic\.prefix|slot\.name|publication\.name|transforms\.topic\.replacement)$"
    r"|^(dedup_key|Idempotency-Key|alertname)$|^User:"
)
# SQL about roles or slots that names one itself.
_ROLES = r"(analyst|stager|catalog|api|api_service|collector|airflow|readers|capture)"
_SQL = re.compile(
    rf"\b(GRANT|REVOKE|DEFAULT PRIVILEGES)\b.*\b(TO|FROM) {_ROLES}\b|\bROLE {_ROLES}\b|\bGRANT {_ROLES} TO\b"
    rf"|\b(usename|rolname|grantee)\b[^;]*'{_ROLES}'|\b(slot_name|pubname) = 'truelog|\bPUBLICATION truelog",
    re.DOTALL,
)
_CONSTANTS = {"STAGER", "CATALOG_ROLE", "API_ROLE", "ANALYST", "AIRFLOW_ROLE", "COLLECTOR_ROLE", "API_SERVICE_ROLE"}
_MADE = {"Consumer", "Producer", "AdminClient"}

# The modules that may name such options, and why.
ALLOWED = {
    "include/runtime/kafka.py": "names the superuser of the embedded broker",
    "include/truelog/alerts/receiver.py": "asks `Names` for the key of an alert",
    "include/truelog/capture/connector.py": "asks `Names` for each name of a connector",
    "include/truelog/commands/request.py": "reads the header of a request, not of a message",
    "include/truelog/log/access.py": "turns each rule into one of the environment before it is created",
    "include/truelog/log/records.py": "turns the topics of Spark's source into Kafka's",
    "include/truelog/notifications/channel.py": "sends the key of the message",
    "include/truelog/notifications/message.py": "asks `Names` for the keys of a message and its incident",
}


def names_of_their_own(root: Path, allowed: Mapping[str, str]) -> list[str]:
    """Places that name something on a shared server themselves, and unused permissions."""
    found = [(name, *each) for name, tree in modules(root, *WHERE) for each in _names(name, tree)]
    problems = [f"{name}:{line} {what}" for name, line, what, is_option in found if not (is_option and name in allowed)]
    used = {name for name, _, _, is_option in found if is_option}
    return problems + [f"{name} is on the list, but names no option" for name in allowed if name not in used]


def _names(module: str, tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    if module.startswith((GROUPS, OUTSIDERS)):
        return
    asks = any(isinstance(node, ast.Attribute) and node.attr == "in_postgresql" for node in ast.walk(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _OPTION.search(node.value):
                yield node.lineno, f"names {node.value}; let `Names` choose its value", True
            elif _SQL.search(node.value):
                yield node.lineno, "names a role or a slot in SQL; ask `Names.in_postgresql`", False
        elif isinstance(node, ast.Call) and not module.startswith(CLIENTS) and (made := _client(node)):
            yield node.lineno, f"makes a {made} itself; use truelog.kafka", False
        elif isinstance(node, ast.Name) and node.id in _CONSTANTS and isinstance(node.ctx, ast.Load) and not asks:
            yield node.lineno, f"uses {node.id} without `Names.in_postgresql`", False


def _client(call: ast.Call) -> str:
    """The client of Kafka that a call makes, if it makes one."""
    made = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return made if made in _MADE else ""


def test_only_the_listed_places_name_what_environments_share() -> None:
    assert names_of_their_own(PROJECT, ALLOWED) == []


def test_a_name_of_its_own_is_found(tmp_path: Path) -> None:
    planted = {
        f"{GROUPS}kafka.py": 'OWN = {"groupIdPrefix": "spark"}\n',
        f"{CLIENTS}producer.py": "made = confluent_kafka.Producer(config)\n",
        f"{OUTSIDERS}table.py": "made = Consumer(config)\n",
        "include/truelog/lag/one.py": "made = confluent_kafka.Consumer(settings.kafka())\n",
        "include/truelog/lag/two.py": 'made = {"subscribe": "page_view"}\n',
        "include/truelog/lag/three.py": 'made = "GRANT SELECT ON t TO analyst"\n',
        "include/truelog/lag/four.py": "made = sql.Identifier(STAGER)\n",
        "include/truelog/lag/five.py": "made = sql.Identifier(names.in_postgresql(STAGER))\n",
        "plugins/six.py": "made = \"SELECT FROM pg_roles WHERE rolname = 'stager'\"\n",
        "dags/seven.py": 'event = {"dedup_key": key}\nmade = "ALTER ROLE {analyst} SET x = 1"\n',
    }
    plant(tmp_path, planted)
    assert sorted(names_of_their_own(tmp_path, {"dags/seven.py": "a reason", "dags/eight.py": "a former one"})) == [
        "dags/eight.py is on the list, but names no option",
        "include/truelog/lag/four.py:1 uses STAGER without `Names.in_postgresql`",
        "include/truelog/lag/one.py:1 makes a Consumer itself; use truelog.kafka",
        "include/truelog/lag/three.py:1 names a role or a slot in SQL; ask `Names.in_postgresql`",
        "include/truelog/lag/two.py:1 names subscribe; let `Names` choose its value",
        "plugins/six.py:1 names a role or a slot in SQL; ask `Names.in_postgresql`",
    ]
