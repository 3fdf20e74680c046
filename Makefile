# The commands a person needs. Each sets up what it needs first; `make setup` is free when nothing changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-again check fix bench torture mutants docs release clean

setup: $(STAMP)

# What running Dray needs; the demo waits for no more than this. The versions are those of the lock.
$(RUNTIME): pyproject.toml requirements-dev.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install -qq --constraint requirements-dev.lock --editable .
	@touch $(RUNTIME)

$(STAMP): $(RUNTIME)
	@$(BIN)/python -m pip install -qq --constraint requirements-dev.lock --group dev
	@touch $(STAMP)

demo: $(RUNTIME)
	@$(BIN)/dray demo

test: setup
	@$(BIN)/python scripts/system_packages.py
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not torture' || $(MAKE) --no-print-directory test-again

# Runs the failed tests once more, one at a time. The first failure stays in the output; a second one fails the run.
# The tests that pass only now are listed at the end, with their number: each one is a bug to mend.
test-again:
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none -m 'not torture' -p tests.second_try

torture: setup
	$(BIN)/python -m pytest -m torture -s --timeout 1800
	DRAY_FUZZ_EXAMPLES=3000 $(BIN)/python -m pytest tests/fuzz --timeout 3600

# Changes one token at a time and sees whether the room's tests notice: `make mutants`, or with MUTANTS="guard --seed 7 --count 30".
mutants: setup
	$(BIN)/python scripts/mutants.py $(MUTANTS)

check: setup
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/generate_api.py --check
	$(BIN)/python scripts/reference.py --check
	$(BIN)/python scripts/chart.py --check
	$(BIN)/python scripts/check_docs.py
	$(BIN)/python scripts/check_dependencies.py
	$(BIN)/python scripts/lock.py --check
	$(BIN)/python scripts/audit.py

fix: setup
	$(BIN)/python scripts/generate_api.py
	$(BIN)/ruff check --fix src tests benchmarks scripts
	$(BIN)/ruff format src tests benchmarks scripts
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/chart.py

# The documentation as a site, in build/site; needs no network once it is set up.
docs: setup
	$(BIN)/python scripts/site.py build/site

# Wheel, sdist, chart, plugin for krew, notes and checksums, in dist.
release: setup
	$(BIN)/python scripts/release.py --out dist

bench: setup
	$(BIN)/python benchmarks/run.py $(ROOMS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
