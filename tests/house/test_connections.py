"""One place says how each kind of client reaches Kafka, PostgreSQL and the object store: the groups of settings.

Otherwise, one client could connect without TLS, or with other certificates, while all others are right.
"""

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.house.tree import PROJECT, modules, plant, unpermitted

WHERE = ("include/*.py", "dags/*.py", "plugins/*.py", "spark_apps/*.py")
GROUPS = "include/truelog/support/setting_groups/"

# The options of clients that say where a server is, who signs in, and whose certificates count.
_OPTION = re.compile(
    r"^((kafka|producer|consumer)\.)?(bootstrap\.servers|security\.protocol|sasl\..+|ssl\..+)$"
    r"|^(database\.)?(sslmode|sslrootcert|hostname)$|^jdbc:|^jdbc\.(user|password)$"
    r"|^s3\.(endpoint|region|access-key-id|secret-access-key|path-style-access)$"
    r"|^(endpoint_url|endpoint_override|tls_ca_file_path|aws_secret_access_key)$"
    r"|^postgresql(\+\w+)?://|javax\.net\.ssl"
)

# The modules that may name such options, and why.
ALLOWED = {
    "include/runtime/kafka.py": "configures the embedded broker, which is a server",
    "include/truelog/capture/connector.py": "writes what the settings say to Connect's files, without the password",
    "include/truelog/spark/trust_store.py": "gives Java the certificates of the settings in Java's own format",
    "include/truelog/storage/bucket.py": "names the properties that are a key of the shared clients",
}


def named_options(root: Path, allowed: Collection[str]) -> list[str]:
    """Modules that name an option of a client without permission, and unused permissions."""
    found = {
        name: f"{line} names {option}; call a method of the settings, or extend it"
        for name, tree in modules(root, *WHERE)
        if not name.startswith(GROUPS)
        for line, option in _options(tree)
    }
    return unpermitted(found, allowed, "names no option")


def _options(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _OPTION.search(node.value):
            yield node.lineno, node.value.partition("=")[0]
        elif isinstance(node, ast.keyword) and node.arg and _OPTION.search(node.arg):
            yield node.value.lineno, node.arg


def test_only_the_settings_say_how_clients_connect() -> None:
    assert named_options(PROJECT, ALLOWED) == []


def test_a_client_with_options_of_its_own_is_found(tmp_path: Path) -> None:
    planted = {
        f"{GROUPS}kafka.py": 'OWN = {"security.protocol": "SASL_SSL"}\n',
        "include/truelog/lag/one.py": 'made = Consumer({"bootstrap.servers": settings.kafka_bootstrap})\n',
        "include/truelog/lag/two.py": 'made = boto3.client("s3", endpoint_url=settings.s3_endpoint)\n',
        "plugins/three.py": "made = psycopg.connect(address, sslmode=mode)\n",
        "dags/four.py": "made = AdminClient(settings.kafka())\n",
    }
    plant(tmp_path, planted)
    assert named_options(tmp_path, {"include/truelog/lag/five.py": "a reason of the past"}) == [
        "include/truelog/lag/one.py:1 names bootstrap.servers; call a method of the settings, or extend it",
        "include/truelog/lag/two.py:1 names endpoint_url; call a method of the settings, or extend it",
        "plugins/three.py:1 names sslmode; call a method of the settings, or extend it",
        "include/truelog/lag/five.py is on the list, but names no option",
    ]
