# evenhand: the commands a person or CI types. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Where this is set, every process compiles every file anew, and the tests start hundreds of them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo docs test test-light test-slow test-portable check bench bench-literature bench-cluster bench-rl reproduce release-check lock clean

help:  ## list what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(STAMP)-dev: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(STAMP)-rl: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[rl]'
	@touch $@

$(STAMP)-docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

# A database, a browser, a proxy and a clock to set back for the tests, where this is Debian or Ubuntu and we may install; elsewhere the tests say what is missing.
SYSTEM := postgresql chromium nginx-light openssl faketime
$(STAMP)-system:
	@mkdir -p $(VENV)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! { ls /usr/lib/postgresql/*/bin/initdb && command -v chromium && command -v nginx && command -v openssl && command -v faketime; } >/dev/null 2>&1; then \
		echo "As root, this installs Debian packages that the tests use: $(SYSTEM). make test-light needs none of them."; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(SYSTEM) >/dev/null; fi
	@touch $@

demo: $(STAMP)  ## solve the paper's problem, compare every policy, leave demo/report.html
	@mkdir -p demo
	$(BIN)/evenhand solve machine-replacement -p num_arms=5 -p operating_cost=exponential
	$(BIN)/evenhand compare machine-replacement -p num_arms=5 -p operating_cost=exponential --report demo/report.html
	@echo
	@echo "The report is demo/report.html. Next, try:"
	@echo "  $(BIN)/evenhand problems"
	@echo "  $(BIN)/evenhand solve heterogeneous-machine-replacement -p num_arms=200"
	@echo "  $(BIN)/evenhand problems crew-maintenance --out model.toml   (edit it, then compare model.toml)"

reproduce: $(STAMP)-rl  ## every table and figure of the paper beside our numbers, in reproduction/report.html
	$(BIN)/python -m paper all --out reproduction

test: $(STAMP)-system $(STAMP)-dev  ## run the test suite
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

test-light: $(STAMP)-dev  ## run the tests that need no package of the system; others are skipped
	EVENHAND_TEST_LIGHT=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -rs

test-slow: $(STAMP)-dev $(STAMP)-system  ## run the long tests, and every property on all its examples
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -m 'slow or hypothesis' --hypothesis-profile=slow

test-portable: $(STAMP)-dev $(STAMP)-system  ## run the numerically sensitive tests as on other processors and thread counts
	$(BIN)/python tests/portable.py

check: $(STAMP)-dev  ## format, lint, types, import layers, language
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/language.py

docs: $(STAMP)-docs  ## build the documentation site in docs/_build/html
	$(BIN)/python -m sphinx -q -W -n -b html docs docs/_build/html
	@echo "The site is docs/_build/html/index.html."

bench: $(STAMP)-dev  ## side-by-side benchmarks
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks

bench-literature: $(STAMP)-dev  ## policies on the instances of the literature, beside published results; resumable
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.literature

bench-cluster: $(STAMP)-dev  ## the fair relaxation by blocks: processes, Ray, kills, growth to 10^7 arms
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.cluster

bench-rl: $(STAMP)-dev  ## how well and how fast deep reinforcement learning does
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks rl

release-check:  ## build wheel and sdist, and try them in new environments on every Python there is
	$(PYTHON) tests/release.py

lock:  ## pin what the service installs, with hashes, in requirements/service.txt
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	@mkdir -p requirements
	$(VENV)-lock/bin/uv pip compile pyproject.toml --extra service --constraint constraints.txt --universal --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet -o requirements/service.txt
	rm -rf $(VENV)-lock

clean:  ## remove what was made
	rm -rf $(VENV) demo build dist docs/_build docs/_api .mypy_cache .ruff_cache .pytest_cache .hypothesis
