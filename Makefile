# Each target works on a fresh machine with make and Python >= 3.11; the environment is made on first use.
PYTHON  ?= python3
WORKERS ?= 2
ARGS    ?=

VENV  := .venv
PY    := $(VENV)/bin/python
STAMP := $(VENV)/.installed
WHOLE := $(VENV)/.installed-whole
FLAGS := $(VENV)/.xla-flags

# The compilation cache makes a second run fast and is empty on a clean checkout. One BLAS thread for each worker,
# so that workers do not compete for cores.
TEST_ENV = JAX_COMPILATION_CACHE_DIR="$(CURDIR)/build/jax-cache" JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=1 \
           NSDYN_CACHE="$(CURDIR)/build/cache" OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Most of the time of the tests goes into compiling programs that run for milliseconds: without the compiler's optimisations and
# its newer code generator that takes a third less. The latter's flag may be unknown, which would end the run: it is tried out.
PLAIN = --xla_backend_optimization_level=0
PLAINER = $(PLAIN) --xla_cpu_use_fusion_emitters=false
# One file for each room of the core is run with the code that users run: numerics and mechanics, constraints and stepping, laws,
# results, driver, analysis, checks, multibody, command line, integrators.
AS_USED = formulations traps non_ideal storage batches transition_report check_units chain cli orders
AS_USED_FILES = $(AS_USED:%=tests/test_%.py)
# And some with the types and shapes in signatures checked while they run, and with XLA alone.
TYPED_FILES = tests/test_contract.py
OR_NONE = || [ $$? -eq 5 ]  # 5: ARGS select none of these tests
PYTEST = $(PY) -m pytest -n $(WORKERS) --dist=loadfile --durations=15 -q
FAST = -m "not slow"
UNOPTIMISED = NSDYN_CXXFLAGS=-O0 XLA_FLAGS="$(XLA_FLAGS) $$(cat $(FLAGS))"

.DEFAULT_GOAL := help
.PHONY: help venv figures docs test test-xla test-typed test-all lint format types bench clean distclean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

venv: $(STAMP)  ## make .venv and install nsdyn into it, editable

# The stamp is written last: an interrupted installation is taken up again.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "nsdyn needs Python 3.11 or newer; '$(PYTHON)' is missing or older. Try: make PYTHON=python3.12 ..." >&2; \
	    exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

# What slow tests need besides, so that none is skipped for a missing package. Of the packages with models only files are read.
EXTRAS = test,browser,dask,docs,mjcf,peers
MODELS = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["robots"])
$(WHOLE): $(STAMP)
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]'
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps $$($(PY) -c '$(MODELS)')
	@touch $@

figures: $(STAMP)  ## compute and draw all figures into figures/, and a page with all of them
	$(VENV)/bin/nsdyn figures --out figures
	$(VENV)/bin/nsdyn report figures --out figures/report.html

# Warnings are errors: a page or a name that is missing ends the build.
docs: $(STAMP)  ## build the documentation into build/docs
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(PY) -m sphinx -W --keep-going -q docs build/docs
	@echo "build/docs/index.html"

$(FLAGS): $(STAMP)
	XLA_FLAGS="$(PLAINER)" $(PY) -c 'import jax; jax.devices()' 2>/dev/null && echo "$(PLAINER)" > $@ || echo "$(PLAIN)" > $@

# What needs one core runs side by side.
test: $(FLAGS)  ## lint, type check, run the tests but for slow ones; ARGS="-k name" selects
	$(MAKE) --no-print-directory -j2 lint types test-typed
	$(TEST_ENV) $(UNOPTIMISED) $(PYTEST) $(FAST) $(AS_USED_FILES:%=--ignore=%) $(TYPED_FILES:%=--ignore=%) $(ARGS) $(OR_NONE)
	$(TEST_ENV) $(PYTEST) $(FAST) $(AS_USED_FILES) $(ARGS) $(OR_NONE)

test-typed: $(STAMP)
	$(TEST_ENV) NSDYN_CHECK_TYPES=1 NSDYN_BACKEND=xla $(PYTEST) -n 0 $(FAST) $(TYPED_FILES) $(ARGS) $(OR_NONE)

test-xla: $(FLAGS)  ## run the same tests with XLA alone; those of native programs are skipped
	$(TEST_ENV) $(UNOPTIMISED) NSDYN_BACKEND=xla $(PYTEST) $(FAST) $(ARGS)

# As users run it, with the compiler's optimisations. Tests of the report page need Chromium and its driver, too.
test-all: $(WHOLE) lint types  ## the same with the slow ones: studies, long runs, more derivatives
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	    echo "no chromium or no chromedriver: the report page is not tested in a browser" >&2
	$(TEST_ENV) $(PYTEST) $(ARGS)

lint: $(STAMP)  ## check style and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: $(STAMP)  ## mend style and format in place
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

# Type checkers do not follow the package map, so the tree is checked as it is installed. build/lib goes too: setuptools
# would ship what lies there from modules deleted since.
types: $(STAMP)  ## type check the installed form of the package
	rm -rf build/tree build/lib build/bdist.*
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --target build/tree .
	cd build/tree && ../../$(PY) -m mypy --config-file ../../pyproject.toml --cache-dir ../mypy-cache -p nsdyn

bench: $(STAMP)  ## time integrators and laws on this machine
	$(VENV)/bin/nsdyn bench

clean:  ## remove what was built, but not .venv and figures/
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find nsdyn integrators problems studies tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## remove .venv as well
	rm -rf $(VENV)
