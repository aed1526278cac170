# Set-up and checks. Needed: Python 3.11 to 3.14 with venv and pip, make, sh, and the network for packages.
#
#   make demo       set up, then search a recipe for scikit-learn's digits (bundled: no download of data)
#   make install    the set-up alone: .venv with the pinned packages, also those of the extras, and the project, editable
#   make test       set up if needed, then lint, types, import contracts, quick tests: 8 minutes on 2 cores
#   make test-all   the same with all tests: an hour on 2 cores
#   make near       the quick tests of what differs from the last commit, and of what imports it (SINCE=main: from main)
#   make lint       without the tests           make format    apply ruff's formatting and fixes
#   make site       make the documentation's site in build/site, without the network
#   make lock       write requirements.lock again after pyproject.toml changed (ARGS=--upgrade: newest versions)
#   make clean      remove .venv and caches; searches stay
#
# PYTHON=/path/to/python3 chooses the interpreter; without it the newest found is taken. PROCESSES=5 runs the
# tests in five processes. The default is three: many tests wait for other processes, so three keep two cores busy.

VENV := .venv
PY := $(VENV)/bin/python
UV := $(PY) -m uv
READY := $(VENV)/.ready
INSTALLED := $(VENV)/.installed
PROCESSES := 3
PYTEST = $(PY) -m pytest --numprocesses $(PROCESSES)

# Bytecode is compiled once at the set-up: without it every worker process compiles torch and ray again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo install test test-all near lint format site lock clean

help:
	@sed -n 's/^#   make/make/p' Makefile

demo: install
	@$(VENV)/bin/tunebook search --data digits --trials 16 --epochs 30 --set "finalists={top: 2, seeds: 3}" \
		--set data.validation_fraction=.47 --set data.test_fraction=.48

install: $(INSTALLED)

# An environment that was left half made is made anew.
$(READY):
	@python=$$(sh .ci/find-python $(PYTHON)) || exit 1; \
	echo "Making $(VENV) with $$python ($$("$$python" --version))"; \
	"$$python" -m venv --clear $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check "$$(grep '^uv==' requirements.lock)"
	@touch $@

$(INSTALLED): $(READY) requirements.lock pyproject.toml
	@echo "Installing the pinned packages (the first time about 3.2 GB to download, with CUDA; 7.5 GB on disk)"
	@$(UV) pip install --python $(PY) --compile-bytecode --requirement requirements.lock
	@$(UV) pip install --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@

test: lint
	$(PYTEST) -m "smoke or not (slow or integration)"

# Inputs are fuzzed at full length.
test-all: lint
	TUNEBOOK_FUZZ=$${TUNEBOOK_FUZZ:-2000} $(PYTEST)

near: install
	@PROCESSES=$(PROCESSES) $(PY) tests/near.py $(SINCE) || [ $$? = 5 ]  # 5: all the tests there are slow

lint: install
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

format: install
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

site: install
	$(PY) docs/make_site.py

lock: $(READY)
	$(UV) pip compile --python $(PY) --universal --python-version 3.11 --no-emit-index-url --group dev \
		--extra run --extra shrink --custom-compile-command "make lock" --output-file requirements.lock pyproject.toml $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
