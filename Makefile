# Everything a contributor runs. Each target sets up what it needs by itself, in $(VENV), from package registries
# only; when nothing changed since, that costs nothing. `make` alone lists the targets.

PYTHON ?= python3
VENV   ?= .venv
SITE_VENV ?= .venv-site
SEEDS  ?= 50
SEED   ?=
MINUTES ?= 60
ARGS   ?=

BIN    := $(VENV)/bin
READY  := $(VENV)/.millstream-ready
PYTEST := $(BIN)/python -m pytest
EXPLORE = $(BIN)/python scripts/explore.py --minutes $(MINUTES) $(addprefix --seed=,$(SEED)) $(ARGS)

# What Python has compiled is kept beside its source, whatever the caller's environment says: tests start hundreds of
# processes, and each would compile all that it imports (1.2 of 2.4 s for `import millstream.table`).
unexport PYTHONDONTWRITEBYTECODE

# Sets of text are iterated in the same order in every process of every run, as all inputs of tests are the same. `make
# explore` has other orders.
export PYTHONHASHSEED := 0

.DEFAULT_GOAL := help
# Targets use both cores by themselves.
.NOTPARALLEL:
.PHONY: help setup java browser redis servers servers-beside demo test test-fast test-golden test-connectors test-spark test-wheel check \
    bench chaos explore docs site sql-oracle lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-zA-Z%-]+:.*## / { sub("%", "NAME", $$1); printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- set-up -------------------------------------------------------------------------------------------------

setup: $(READY) ## make the environment (every other target does this by itself)

$(READY): requirements-dev.lock pyproject.toml scripts/setup
	@scripts/setup "$(PYTHON)" "$(VENV)"
	@touch $@

java:
	@scripts/check-java

browser:
	@scripts/debian chromium chromium

# Kafka, MinIO, PostgreSQL, Redis, RabbitMQ, MariaDB: tests start them. Built once; MinIO takes minutes.
servers: java $(READY)
	@scripts/servers "$(BIN)/python"

# The same beside tests that need none of them. Whoever needs them next waits for this one, and makes what it could not.
servers-beside: java $(READY)
	@mkdir -p build
	@nice scripts/servers "$(BIN)/python" </dev/null >build/servers.log 2>&1 &

# For the example's contrast, and the benchmark's.
redis: $(READY)
	@scripts/debian redis-server redis-server
	@scripts/peers "$(BIN)/python" redis

lock: $(READY) ## resolve the dependencies again (ARGS=--upgrade for newer ones)
	@scripts/lock "$(VENV)" $(ARGS)

# --- see it run ---------------------------------------------------------------------------------------------

demo: java $(READY) ## a stream is processed, asked about, killed with -9, recovered and proved exact
	@$(BIN)/python examples/impressions/demo.py $(ARGS)

# --- tests --------------------------------------------------------------------------------------------------

test: servers-beside check test-fast test-golden test-connectors test-spark test-wheel ## everything, real servers and real kills included

test-fast: $(READY) ## tests and doctests that need no Java, under a minute
	$(PYTEST) --numprocesses=2 --dist=worksteal --timeout=120 -m 'not slow' --doctest-modules src tests/fast $(ARGS)

test-golden: $(READY) ## every program in every way, the model of the protocol, servers over HTTP; no Java, some minutes
	$(PYTEST) --numprocesses=2 --dist=worksteal -m 'slow or not fast' tests/golden tests/model tests/services tests/fast $(ARGS)

test-connectors: servers $(READY) ## sources and sinks on real servers
	$(PYTEST) --numprocesses=2 --dist=loadfile tests/connectors $(ARGS)

# All of tests/ except what ran before, so that a new folder of tests cannot be forgotten here. In the order of folders:
# long files with few tests (clusters, kills) come first, so that no worker is left with one of them at the end.
test-spark: java browser redis servers $(READY)
	$(PYTEST) --numprocesses=2 --dist=loadfile --no-loadscope-reorder $(addprefix --ignore=tests/,fast golden model services connectors) tests $(ARGS)

test-wheel: $(READY) ## build the wheel, install it in an environment of its own, run it there
	scripts/try-wheel "$(VENV)"

chaos: java servers $(READY) ## kill running jobs at SEEDS=N random moments, then explore
	MILLSTREAM_KILL_SEEDS=$(SEEDS) MILLSTREAM_CHANGELOGS=$(SEEDS) MILLSTREAM_KILL_TABLES_SEEDS=$(SEEDS) $(PYTEST) --timeout=0 tests/kill tests/cluster tests/golden/test_changing_tables.py tests/golden/test_collection_under_fire.py $(ARGS) || failed=1; \
	    $(EXPLORE) || failed=1; exit $${failed:-0}

explore: java servers $(READY) ## random tests with new inputs for MINUTES=60 (SEED=N repeats a run, ARGS='-k …' chooses)
	$(EXPLORE)

check: $(READY) ## lint, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

sql-oracle: java $(READY) ## ask Flink itself about SQL expressions and queries that have no answer yet, and keep what it says
	$(BIN)/python scripts/sql-oracle $(ARGS)
	$(BIN)/python scripts/nexmark-oracle

# --- measure ------------------------------------------------------------------------------------------------

bench: java $(READY) ## run every benchmark; fails if one misses its target
	@failed=; for file in bench/bench_*.py; do \
	    $(BIN)/python $$file $(ARGS) || failed="$$failed $$file"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi

bench-%: java $(READY) ## run bench/bench_NAME.py (ARGS=--json for machines)
	@test -f bench/bench_$*.py || { echo "there is no bench/bench_$*.py; there are:" bench/bench_*.py >&2; exit 2; }
	@$(BIN)/python bench/bench_$*.py $(ARGS)

# --- the rest -----------------------------------------------------------------------------------------------

docs: $(READY) ## check links and examples in the documents, list the public names in build/docs
	$(BIN)/python scripts/docs.py
	$(PYTEST) --quiet --doctest-glob='*.md' --doctest-modules src README.md CONTRIBUTING.md docs

site: ## build the documentation as a site in build/site, with search; it loads nothing from the network
	@scripts/site "$(PYTHON)" "$(SITE_VENV)"

clean: ## remove caches and builds (not the environment, not any job's store)
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse
	find src tests bench examples scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
