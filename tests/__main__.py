"""Every test, by `python -m tests`: three parts, two of them side by side, each with services of its own.

A Spark application that starts, and a scene that waits, leave half of two cores idle; another part uses them. Which
test is in which part is settled, so that the same tests follow each other in every run. The scenes with Airflow come
after the tests that are no scenes and keep a Spark of their own: both at once would want too much memory.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from truelog.settings import PROJECT

SIDE_BY_SIDE = 2
WITH_AIRFLOW = [f"tests/scenes/test_{name}.py" for name in ("airflow", "backfill", "streams")]
PARTS = {
    "scenes ": ["tests/scenes", *(f"--ignore={file}" for file in WITH_AIRFLOW)],
    "others ": ["--ignore=tests/scenes"],
    "airflow": WITH_AIRFLOW,
}


def run(part: str) -> int:
    """Its exit code; its lines are told as they come, with its name before them."""
    command = [sys.executable, "-m", "pytest", *PARTS[part]]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            sys.stdout.write(f"{part} | {line}")
            sys.stdout.flush()
    return process.returncode


def main() -> int:
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return int(any([*pool.map(run, PARTS)]))


if __name__ == "__main__":
    sys.exit(main())
