# Every target works on a machine that has nothing but Python 3.11 or newer and make.

PYTHON ?= python3
WORKERS ?= 2
PORT ?= 8000
SECONDS ?= 120
DATABASE ?= both
REQUESTS ?= 100000
SITE ?= build/site
VENV := .venv
BENCH_VENV := .venv-bench
CLIENT_VENV := .venv-client
TORCH_VENV := .venv-torch
FLOWER_VENV := .venv-flower
JAX_VENV := .venv-jax
DIFFPRIVLIB_VENV := .venv-diffprivlib
DOCS_VENV := .venv-docs
AUDIT_VENV := .venv-audit
SBOM_VENV := .venv-sbom
BIN := $(VENV)/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# No test takes near as long: one that hangs fails by its name instead of holding up all others.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --timeout=600
SOURCES := service client migrations tests benchmarks examples deploy docs

# pytest-cov holds lines and branches together to the floor in pyproject.toml; this holds branches alone to it.
define BRANCH_COVERAGE
import json, sys
totals = json.load(sys.stdin)["totals"]
percent = 100 * totals["covered_branches"] / totals["num_branches"]
print(f"branch coverage of dpledger.accounting: {percent:.2f} % (at least 98)")
sys.exit(percent < 98)
endef
export BRANCH_COVERAGE

# The whole product, over every environment that tests run in.
define WHOLE_COVERAGE
import json, sys
files = json.load(sys.stdin)["files"].items()
for part in ("service", "client"):
    sums = [each["summary"] for name, each in files if name.startswith(part)]
    covered = {what: sum(each[what] for each in sums) for what in sums[0] if not what.startswith("percent_")}
    lines = 100 * covered["covered_lines"] / covered["num_statements"]
    print(f"{part}: lines {lines:.2f} %, branches {100 * covered['covered_branches'] / covered['num_branches']:.2f} %")
endef
export WHOLE_COVERAGE
WHOLE := --cov=dpledger --cov=dpledger_client --cov-branch --cov-report= --cov-fail-under=0
CHECK_BRANCHES := $(BIN)/coverage json --quiet --fail-under=0 -o - | $(BIN)/python -c "$$BRANCH_COVERAGE"

.DEFAULT_GOAL := help
.PHONY: help install run test test-client test-torch test-flower test-jax test-pld coverage coverage-all lint audit-dependencies format docs picture lock image manifests sbom bench-accounting bench-pld bench-client bench-ledger bench-scale bench-dashboard bench-queries bench-neighbours bench-startup soak mutants chaos audit fuzz test-ha bench-replicas bench-one-call bench-torch bench-utility clean

help: ## show what make can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## build .venv; again only when a pyproject.toml changed

run: install ## serve on 127.0.0.1 at PORT, 8000 by default, with the ledger in budget.db
	$(BIN)/dpledger serve --host 127.0.0.1 --port $(PORT) --database sqlite:///budget.db

test: install test-client $(DOCS_VENV)/.installed ## run every test, and hold the accounting package to its branch coverage
	$(PYTEST) --cov --cov-report= tests/accounting
	@$(CHECK_BRANCHES)
	$(PYTEST) --ignore=tests/accounting

# The folder's own rules end there (--confcutdir), because those above it need what this environment lacks.
test-client: $(CLIENT_VENV)/.installed ## test the client with nothing installed but its own dependencies and pytest
	$(CLIENT_VENV)/bin/python -m pytest -q --confcutdir=tests/client/thin -p no:cacheprovider tests/client/thin

ALONE := -p no:cacheprovider --confcutdir=tests/client/integrations
FLOWER_TESTS := $(ALONE) tests/client/integrations/with_flower.py
JAX_TESTS := $(ALONE) tests/client/integrations/with_jax.py
TORCH_TESTS := $(ALONE) $(filter-out %/with_flower.py %/with_jax.py,$(sort $(wildcard tests/client/integrations/with_*.py)))

# with_*.py are not names that pytest collects by itself: no environment but this one has torch and Opacus.
test-torch: $(TORCH_VENV)/.installed ## test torch modules as objectives and trainings by Opacus, Lightning and transformers, with the real ones
	OMP_NUM_THREADS=1 $(TORCH_VENV)/bin/python -m pytest -q $(TORCH_TESTS)

coverage: install ## run the tests of the accounting package alone and show what they miss
	$(PYTEST) --cov --cov-report=term tests/accounting
	@$(CHECK_BRANCHES)

coverage-all: install $(TORCH_VENV)/.installed $(FLOWER_VENV)/.installed $(JAX_VENV)/.installed ## run every test, torch, Flower and JAX included, and add up what they cover of service and client
	mkdir -p build/coverage && rm -f build/coverage/.coverage*
	COVERAGE_FILE=build/coverage/.coverage.main $(PYTEST) $(WHOLE) tests
	COVERAGE_FILE=build/coverage/.coverage.torch OMP_NUM_THREADS=1 $(TORCH_VENV)/bin/python -m pytest -q $(WHOLE) $(TORCH_TESTS)
	COVERAGE_FILE=build/coverage/.coverage.flower $(FLOWER_VENV)/bin/python -m pytest -q $(WHOLE) $(FLOWER_TESTS)
	COVERAGE_FILE=build/coverage/.coverage.jax $(JAX_VENV)/bin/python -m pytest -q $(WHOLE) $(JAX_TESTS)
	COVERAGE_FILE=build/coverage/.coverage $(BIN)/coverage combine --quiet build/coverage
	@COVERAGE_FILE=build/coverage/.coverage $(BIN)/coverage json --quiet --fail-under=0 -o - | $(BIN)/python -c "$$WHOLE_COVERAGE"

# The service runs in its own environment: Flower needs an older FastAPI than it does.
test-flower: install $(FLOWER_VENV)/.installed ## train by Flower over processes on loopback, some of which are killed or run out of budget
	$(FLOWER_VENV)/bin/python -m pytest -q $(FLOWER_TESTS)

# By itself: whoever trains by torch need not install JAX.
test-jax: $(JAX_VENV)/.installed ## train JAX functions by Optax under a ledger
	$(JAX_VENV)/bin/python -m pytest -q $(JAX_TESTS)

lint: install ## ruff, mypy --strict, the direction of imports, and bandit
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive service client migrations examples deploy

# Not part of the continuous integration: which versions are known to be vulnerable, only a service on the network can tell.
audit-dependencies: $(AUDIT_VENV)/.installed ## ask PyPI's advisories, over the network, about what the service's image installs
	$(AUDIT_VENV)/bin/pip-audit --strict --disable-pip --require-hashes --requirement deploy/requirements.lock

sbom: $(SBOM_VENV)/.installed ## list what the service's image installs, with hashes, as CycloneDX in build/sbom.json
	mkdir -p build
	$(SBOM_VENV)/bin/cyclonedx-py requirements --pyproject pyproject.toml --mc-type application --output-reproducible \
		--spec-version 1.6 --output-file build/sbom.json deploy/requirements.lock

format: install ## let ruff rewrite what it can
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

docs: $(DOCS_VENV)/.installed ## run the tutorials and build the documentation into SITE; a failing cell or a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --quiet --strict --site-dir $(SITE)

picture: install ## draw docs/images/dashboard.png: the dashboard with example data, in Debian's chromium
	$(BIN)/python -m tests.browser.picture

lock: $(DOCS_VENV)/.installed ## pin what the service's image installs, with hashes, in deploy/requirements.lock
	$(DOCS_VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --extra oidc --extra otel --generate-hashes --no-annotate \
		--no-header --no-emit-index-url --no-emit-find-links --output-file deploy/requirements.lock pyproject.toml

image: ## build the service's image as dpledger:latest without an engine; needs buildah, and the base image
	buildah bud --isolation chroot --format docker --tag dpledger:latest .

manifests: install ## render deploy/kubernetes/dpledger.yaml, the manifests without Helm, from the chart
	$(BIN)/helm template dpledger deploy/helm/dpledger --namespace dpledger --values deploy/kubernetes/values.yaml > deploy/kubernetes/dpledger.yaml

# QUICK=--quick plants the part of them that the continuous integration does.
mutants: install ## plant bugs in a copy of the tree; each must be killed by the test that it names
	$(BIN)/python -m tests.mutants $(QUICK)

chaos: install ## let a storm go over the service for SECONDS (SEED, DATABASE=sqlite|postgresql|both), and replay what it left
	$(BIN)/python -m tests.chaos --seconds $(SECONDS) --database $(DATABASE) $(if $(SEED),--seed $(SEED))

# QUICK=--quick trains less often, as the continuous integration does.
audit: install ## attack every method and integration with canaries; no lower bound on ε is above the charge, halved noise is caught
	$(BIN)/python -m tests.audit $(QUICK)

fuzz: install ## send REQUESTS odd requests to a served process (SEED); no 500, no hang, every answer as described, memory flat
	$(BIN)/python -m tests.fuzz --requests $(REQUESTS) $(if $(SEED),--seed $(SEED))

test-ha: install ## kill leaders of Patroni clusters of two and three members under load (SEED); needs patroni, etcd and postgresql
	$(BIN)/python -m tests.ha $(if $(SEED),--seed $(SEED))

bench-accounting: $(BENCH_VENV)/.installed ## time the accounting against Opacus, dp-accounting and autodp
	$(BENCH_VENV)/bin/python benchmarks/accounting.py

bench-pld: $(BENCH_VENV)/.installed ## time privacy-loss distributions against dp-accounting, Opacus PRV and prv_accountant
	$(BENCH_VENV)/bin/python benchmarks/pld.py

SEEDS ?= 0 10000

test-pld: install ## hold 10,000 drawn plans to their exact profiles, or those of SEEDS="first end"
	$(BIN)/python -m tests.accounting.test_pld_bounds $(SEEDS)

bench-client: install ## time DP-SGD with a reservation, in blocks and with one request per step against no accounting, and clipping
	$(BIN)/python -m benchmarks.client

bench-ledger: install ## time authorizations on SQLite and PostgreSQL against their durable floors, an empty route and a plain version
	$(BIN)/python -m benchmarks.ledger

soak: install ## keep the service busy at half its throughput for SECONDS; memory, files, threads and latency stay flat
	$(BIN)/python -m benchmarks.soak $(SECONDS)

bench-startup: install ## processor seconds of a start until it is ready, against the bare imports of its libraries
	$(BIN)/python -m benchmarks.startup

bench-replicas: install ## time authorizations by 1, 2 and 3 replicas on one PostgreSQL, over 1 to 1,000 datasets
	$(BIN)/python -m benchmarks.replicas

bench-scale: install ## time authorizations and budgets at a million entries against a hundred
	$(BIN)/python -m benchmarks.scale

bench-queries: install ## time authorizations beside 5,000 queries against authorizations alone
	$(BIN)/python -m benchmarks.queries

bench-neighbours: install ## time one tenant's authorizations beside another's attacks against without them, on both databases
	$(BIN)/python -m benchmarks.neighbours

bench-one-call: install ## fit the estimator with nothing but epsilon, delta, classes and bounds on 18 datasets, beside the majority
	$(BIN)/python -m benchmarks.one_call

bench-utility: install $(TORCH_VENV)/.installed $(DIFFPRIVLIB_VENV)/.installed ## compare private models on Adult and Bank with Opacus, diffprivlib and no privacy, within 15 minutes
	$(BIN)/python -m benchmarks.utility --opacus $(TORCH_VENV)/bin/python --diffprivlib $(DIFFPRIVLIB_VENV)/bin/python

# One thread, so that processor seconds are what a step takes on an idle machine.
bench-torch: $(TORCH_VENV)/.installed ## time a private step of TorchModule against one of Opacus, on an MLP and a CNN of MNIST's size
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(TORCH_VENV)/bin/python benchmarks/torch_steps.py

bench-dashboard: install ## time pages with 10,000 datasets and a million entries against pages with a handful
	$(BIN)/python -m benchmarks.dashboard

clean: ## remove the environments, caches and build products
	rm -rf $(VENV) $(BENCH_VENV) $(CLIENT_VENV) $(TORCH_VENV) $(FLOWER_VENV) $(JAX_VENV) $(DIFFPRIVLIB_VENV) $(DOCS_VENV) $(AUDIT_VENV) $(SBOM_VENV) build dist .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(AUDIT_VENV)/.installed: Makefile
	$(PYTHON) -m venv $(AUDIT_VENV)
	$(AUDIT_VENV)/bin/python $(PIP_INSTALL) 'pip-audit>=2.10,<3'
	@touch $@

$(SBOM_VENV)/.installed: Makefile
	$(PYTHON) -m venv $(SBOM_VENV)
	$(SBOM_VENV)/bin/python $(PIP_INSTALL) 'cyclonedx-bom>=7.0,<8'
	@touch $@

# The tutorials run in it, so that it has the service and the client as well.
$(DOCS_VENV)/.installed: Makefile pyproject.toml client/pyproject.toml
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python $(PIP_INSTALL) 'mkdocs>=1.6,<2' 'mkdocs-material>=9.7,<10' 'mkdocstrings[python]>=1.0,<2' uv \
		--editable . --editable 'client[receipts]' 'nbclient>=0.11,<0.12' 'ipykernel>=7,<8' 'matplotlib>=3.10' tqdm
	@touch $@

$(VENV)/.installed: pyproject.toml client/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "dpledger needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version 2>&1); try make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) --editable '.[dev]' --editable client
	@touch $@

$(CLIENT_VENV)/.installed: client/pyproject.toml
	$(PYTHON) -m venv $(CLIENT_VENV)
	$(CLIENT_VENV)/bin/python $(PIP_INSTALL) --editable client pytest
	@touch $@

# torch is pinned because its newer builds bring gigabytes of GPU libraries that nothing here needs.
TORCH := torch==2.13.0 opacus==1.6.0
TRAINERS := 'lightning>=2.6,<3' 'transformers>=5,<6' 'accelerate>=1.15,<2'

$(TORCH_VENV)/.installed: pyproject.toml client/pyproject.toml
	$(PYTHON) -m venv $(TORCH_VENV)
	$(TORCH_VENV)/bin/python $(PIP_INSTALL) --editable . --editable client $(TORCH) $(TRAINERS) pytest pytest-cov
	@touch $@

$(FLOWER_VENV)/.installed: client/pyproject.toml
	$(PYTHON) -m venv $(FLOWER_VENV)
	$(FLOWER_VENV)/bin/python $(PIP_INSTALL) --editable 'client[flower]' pytest pytest-cov
	@touch $@

$(JAX_VENV)/.installed: pyproject.toml client/pyproject.toml
	$(PYTHON) -m venv $(JAX_VENV)
	$(JAX_VENV)/bin/python $(PIP_INSTALL) --editable . --editable 'client[jax]' 'optax>=0.2.8,<0.3' pytest pytest-cov
	@touch $@

# By itself: it needs a scikit-learn older than ours.
$(DIFFPRIVLIB_VENV)/.installed: Makefile
	$(PYTHON) -m venv $(DIFFPRIVLIB_VENV)
	$(DIFFPRIVLIB_VENV)/bin/python $(PIP_INSTALL) 'diffprivlib>=0.6.6,<0.7' 'scikit-learn<1.7'
	@touch $@

$(BENCH_VENV)/.installed: pyproject.toml client/pyproject.toml
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python $(PIP_INSTALL) --editable . --editable client $(TORCH) autodp pytest 'dp-accounting>=0.6,<0.7' prv-accountant
	@touch $@
