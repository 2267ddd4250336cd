import subprocess
import sys
from pathlib import Path

from runtime import credentials
from tests.deadline import deadline
from truelog.support.settings import Settings

ELSEWHERE = """
import sys
from pathlib import Path
from runtime import credentials
from tests.library.runtime.test_credentials import ports
print(*ports(credentials.set_up(Path(sys.argv[1]), random_ports=True)), flush=True)
sys.stdin.read()
"""


def ports(settings: Settings) -> set[int]:
    addresses = (settings.kafka_bootstrap, settings.s3_endpoint)
    numbers = (settings.kafka_controller_port, settings.database_port, settings.airflow_port, settings.connect_port)
    found = [int(address.rpartition(":")[2]) for address in addresses] + [*numbers]
    found += [settings.address(name).port for name in settings.services]
    assert len(found) == len(set(found)) == len(credentials.PORTS)
    return set(found)


def blocks(ports: set[int]) -> set[int]:
    return {port // 500 for port in ports}


def test_no_environment_gets_the_random_ports_of_another_whose_services_are_down(tmp_path: Path) -> None:
    made = [ports(credentials.set_up(tmp_path / str(number), random_ports=True)) for number in range(3)]
    assert len(set.union(*made)) == sum(map(len, made))


def test_no_process_gets_the_random_ports_of_another_that_runs(tmp_path: Path) -> None:
    """Each process has a block of ports, and its claim to it."""
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "elsewhere")]
    here = ports(credentials.set_up(tmp_path / "here", random_ports=True))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        there = set(map(int, other.stdout.readline().split()))
        other.communicate(timeout=deadline(30))
    assert not here & there
    assert len(blocks(here)) == len(blocks(there)) == 1
    assert blocks(here) != blocks(there)
