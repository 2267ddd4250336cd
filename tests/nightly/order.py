"""Runs the tests of `make test` several times, each time in another order: `python -m tests.nightly.order [RUNS]`."""

import random
import subprocess
import sys
from collections.abc import Sequence

from tests.affected import MARKERS, TWO_FILES

RUNS = 3
_SEEDS = 1_000_000


def main(words: Sequence[str]) -> int:
    seeds = random.Random().sample(range(_SEEDS), int(words[0]) if words else RUNS)
    failed = []
    for seed in seeds:
        command = [sys.executable, "-m", "pytest", *TWO_FILES, "-m", MARKERS, "--seed", str(seed)]
        if subprocess.run(command, check=False).returncode:
            failed.append(seed)
    sys.stdout.write(f"seeds: {seeds}; failed: {failed}\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
