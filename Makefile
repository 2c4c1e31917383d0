# Everything runs in .venv, which the first target that needs it creates from
# the locks in requirements/. Nothing but python3 >= 3.11 and make is assumed.
PYTHON ?= python3
VENV ?= .venv
BUILD ?= build
WORKERS ?= 2
# What `make test` leaves to `make test-all`.
SELECT ?= not slow

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install -qq --progress-bar off
PLAN := PYTHONUNBUFFERED=1 $(BIN)/pdalloc plan
PAPER_CASE := experiments/paper_2603_04716/scenario.yaml
MIXED_CASE := experiments/mixed_fleet/scenario.yaml
# The source roots that hold Python so far.
PACKAGES := $(strip $(foreach root,models tests experiments paper, \
  $(if $(wildcard $(root)/*.py $(root)/*/*.py $(root)/*/*/*.py),$(root))))
SOURCES := $(PACKAGES) $(wildcard notebooks)
NOTEBOOKS := $(wildcard notebooks/*.py)
FIGURES := $(wildcard paper/figures/*.py paper/tables/*.py)
RUNS := $(wildcard experiments/*/run.py)

.DEFAULT_GOAL := help
.PHONY: help plan test test-all lint types lock notebooks paper-figures experiments clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

plan: $(VENV)/.run ## Plan and validate the paper's case and a mixed fleet (reports in build/plan)
	@$(PLAN) $(PAPER_CASE) --validate --out $(BUILD)/plan/paper_2603_04716
	@$(PLAN) $(PAPER_CASE) --variant calibrated --validate --out $(BUILD)/plan/paper_2603_04716_calibrated
	@$(PLAN) $(MIXED_CASE) --validate --out $(BUILD)/plan/mixed_fleet

test: lint types ## Lint, types, import order, then every test and doctest that is not slow
	$(BIN)/python -m pytest -n $(WORKERS) -m "$(SELECT)"

test-all: ## The same with the slow statistical checks
	@$(MAKE) test SELECT="slow or not slow"

lint: $(VENV)/.dev ## Ruff (rules and format) and the import order
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.dev ## mypy, strict
	$(BIN)/mypy $(PACKAGES)

notebooks: $(VENV)/.dev ## Execute notebooks/*.py and write their .ipynb twins
	@for source in $(NOTEBOOKS); do \
	  echo "executing $$source"; \
	  $(BIN)/jupytext --quiet --to ipynb --execute $$source || exit 1; \
	done

paper-figures: $(VENV)/.run ## Draw the paper's figures and tables from committed results
	@for script in $(FIGURES); do \
	  echo "running $$script"; \
	  $(BIN)/python $$script || exit 1; \
	done
	@cp paper/generated/fig_pairings.png docs/images/pairings.png
	@cp paper/generated/fig_paper_case.png docs/images/paper_case.png
	@cp paper/generated/fig_diverging.png docs/images/diverging.png
	@cp paper/generated/fig_delay_laws.png docs/images/delay_laws.png

experiments: $(VENV)/.run ## Run every experiment again and rewrite its results (long)
	@for script in $(RUNS); do \
	  case $$script in */catalogue/*) \
	    test -n "$$PDALLOC_REFERENCE_DATA" || { echo "skipping $$script (needs PDALLOC_REFERENCE_DATA)"; continue; };; esac; \
	  echo "running $$script"; \
	  $(BIN)/python $$script || exit 1; \
	done

# dev.txt is solved with run.txt as its constraint, so that it only adds to it.
# make lock LOCK_ARGS=--upgrade takes the newest releases.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate
lock: $(VENV)/.created ## Compile requirements/*.txt from pyproject.toml again
	@$(INSTALL) 'uv>=0.5'
	@echo 'setuptools>=77' | $(COMPILE) $(LOCK_ARGS) pyproject.toml - -o requirements/run.txt
	@echo 'setuptools>=77' | $(COMPILE) $(LOCK_ARGS) pyproject.toml - --extra dev \
	  -c requirements/run.txt -o requirements/dev.txt

clean: ## Remove build outputs and caches (rm -r .venv also forgets the environment)
	rm -rf $(BUILD) paper/generated .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(SOURCES) -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "pdalloc needs Python 3.11 or newer, and there is no '$(PYTHON)': install python3, or name one with make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "pdalloc needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1): name a newer one with make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot create virtual environments: install python3-venv (Debian, Ubuntu: apt install python3-venv) or python3-libs (Fedora: dnf install python3-libs)" >&2; exit 2; }
	@echo "creating $(VENV) with $$($(PYTHON) -V 2>&1)"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# The locks are complete, so pip need not resolve anything (--no-deps), and they
# hold setuptools, so the package builds in place (--no-build-isolation).
$(VENV)/.run: requirements/run.txt pyproject.toml $(VENV)/.created
	@echo "installing the run-time lock, $$(grep -c == requirements/run.txt) lines, about 0.8 GB: half a minute on a fast network ..."
	@$(INSTALL) --no-deps -r requirements/run.txt
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run
	@echo "installing the development lock on top ..."
	@$(INSTALL) --no-deps -r requirements/dev.txt
	@touch $@
