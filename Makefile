# Two commands on a machine with Python 3.11 or later and make: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# Compiling every module of every package takes longer than installing them: each is compiled when it is first imported.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
export PYTHONDONTWRITEBYTECODE =
# One BLAS thread a test worker: two workers share two cores.
TEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: demo docs test quick-tests test-all test-kernels test-lanes lint style types format lock clean

demo: .venv/ready-run
	rm -rf runs/demo
	$(BIN)/trunkfirst compare nonlinear-conductivity --iterations 2000 --set branch.iterations=50 --workers 2 --out runs/demo
	$(BIN)/trunkfirst export runs/demo/two-step-seed0 --to html --out runs/demo/explorer.html
	@echo "report: runs/demo/report.html; interactive explorer: runs/demo/explorer.html"

docs: .venv/ready
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "open docs/_build/index.html"

# Types are checked while the tests run: the checker alone would leave a core idle.
test: style
	$(MAKE) -j 2 types quick-tests

# Tests compile much and compute little: XLA's older code generator compiles in half the time. `make test-all` takes the usual one.
quick-tests: .venv/ready
	XLA_FLAGS="$$XLA_FLAGS --xla_cpu_use_fusion_emitters=false" $(TEST) -m "not slow"

test-all: lint
	$(TEST)
	$(MAKE) test-kernels

# The numerical tests with the instructions of other processors.
test-kernels: .venv/ready
	$(BIN)/python tests/run_kernels.py -n 2 --dist worksteal

# The tests with Python 3.12, and with the oldest and the newest dependencies allowed.
test-lanes: .venv/ready
	$(BIN)/python tests/run_lanes.py

lint: style types

style: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/basedpyright
	$(BIN)/repo-review --show err .

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What running needs, and what developing needs, which includes it.
.venv/ready-run: requirements-run.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) --require-hashes -r requirements-run.lock
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

.venv/ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e .
	touch .venv/ready-run $@

# Needs uv. Pins everything that is installed above, with hashes and without a host; running uses the same versions.
LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet
lock:
	$(LOCK) --group dev --group build pyproject.toml -o requirements.lock
	$(LOCK) --group build -c requirements.lock pyproject.toml -o requirements-run.lock

clean:
	rm -rf .venv .lanes dist build docs/_build .pytest_cache .ruff_cache
