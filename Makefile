# Every target sets up what it needs: a virtual environment in .venv with the pinned dependencies.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1

heading = @printf '\n== %s ==\n'

.PHONY: help demo playground test test-slow doctest mutants faults bench reproduce docs format pins clean

help:
	@echo 'make demo             run every method on a small data set; prints where the report is'
	@echo 'make playground       a local page on which posteriors are seen to come about'
	@echo 'make test             lint, types, import layers, doctests, tests'
	@echo 'make test-slow        the tests that need minutes'
	@echo 'make mutants NUM=...  how many small wrong changes of the numerical core the tests notice (hours)'
	@echo 'make faults           crashes, damage, full disks, rivals, signals, fuzz: an hour; goes on where it was ended'
	@echo 'make bench NAME=...   a benchmark against its peers'
	@echo 'make reproduce        the classics at small budget (45 minutes); goes on where it was ended, says what is left'
	@echo 'make docs             build the documentation into site/'
	@echo 'make format           sort imports, fix lint, format'
	@echo 'make pins             renew the pins in requirements*.txt'
	@echo 'make clean            remove caches and built documentation (keeps .venv)'

demo: .venv/.installed
	@$(BIN)/marginax demo

playground: .venv/.installed
	@$(BIN)/marginax playground $(OPTIONS)

test: .venv/.installed
	$(heading) 'lint'
	@$(BIN)/ruff check .
	$(heading) 'format'
	@$(BIN)/ruff format --check .
	$(heading) 'types'
	@$(BIN)/pyright
	$(heading) 'import layers'
	@$(BIN)/lint-imports --no-logo
	$(heading) 'doctests'
	@$(PYTEST) -q --doctest-modules src/marginax
	$(heading) 'tests'
	@$(PYTEST) -q --durations=10

test-slow: .venv/.installed-docs
	@$(PYTEST) -m slow --durations=10

NUM ?= 60
mutants: .venv/.installed
	@$(BIN)/python -m tests.mutants --num $(NUM)

faults: .venv/.installed
	@$(BIN)/python -m tests.faults $(OPTIONS)

bench: .venv/.installed
	@$(BIN)/python -m benchmarks $(NAME)

BUDGET ?= small
reproduce: .venv/.installed
	@$(BIN)/marginax reproduce classics --budget $(BUDGET) --out reproductions

docs: .venv/.installed-docs
	@$(BIN)/mkdocs build --strict
	@echo 'documentation: site/index.html'

format: .venv/.installed
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

.venv/.installed: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else \
	    f"marginax needs Python 3.11 or newer, got {v[0]}.{v[1]}: try make PYTHON=python3.12")'
	@echo 'Setting up .venv (once; a minute or two) ...'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv \
	    || { $(PYTHON) -m venv --clear --without-pip .venv && $(PYTHON) -m pip --python .venv install -q pip; }
	@$(PIP) install --quiet -r requirements.txt
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

.venv/.installed-docs: .venv/.installed requirements-docs.txt
	@$(PIP) install --quiet -r requirements-docs.txt
	@touch $@

# The newest releases that pyproject.toml allows, as names and versions; use the oldest Python supported.
pins:
	@rm -rf .pins && $(PYTHON) -m venv .pins
	@.pins/bin/pip install --quiet '.[dev]'
	@.pins/bin/pip freeze --exclude marginax > requirements.txt
	@.pins/bin/pip install --quiet -c requirements.txt '.[docs]'
	@.pins/bin/pip freeze --exclude marginax | grep -vxFf requirements.txt > requirements-docs.txt
	@rm -rf .pins

clean:
	@rm -rf __pycache__ site dist .pins .pytest_cache .ruff_cache .import_linter_cache
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
