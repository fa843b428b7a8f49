# The course's commands; `make` alone lists them. Each makes what it needs, the
# environment in .venv included, and does nothing again that is done already.

PYTHON ?= python3
PORT   ?= 8000
VENV   := .venv
RUN    := $(VENV)/bin/python
BUILT  := tests/site tests/test_execution.py

# Charts belong into the notebook, whatever the shell at hand would rather have.
unexport MPLBACKEND

.PHONY: help book serve test test-package lint format notebooks repository lock clean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

book: $(VENV)/book ## Build the book and say where it is
	@$(RUN) tools/build_book.py

serve: book ## Show the book at http://localhost:8000 (PORT=… for another)
	$(RUN) -m http.server --bind 127.0.0.1 --directory _build/html $(PORT)

test: lint test-package notebooks ## Check everything: code, package, chapters, site
	@$(MAKE) --no-print-directory book
	$(RUN) -m pytest $(BUILT)

test-package: $(VENV)/test ## Run the tests that need no built book
	$(RUN) -m pytest $(BUILT:%=--ignore=%)

lint: $(VENV)/test ## Check style and types of code, and the chapters' rules
	$(RUN) -m ruff check --quiet .
	$(RUN) -m ruff format --check --quiet .
	$(RUN) -m mypy --no-error-summary
	$(RUN) tools/lint_notebooks.py

format: $(VENV)/test ## Put code and notebooks in their normal form
	$(RUN) -m ruff check --quiet --fix .
	$(RUN) -m ruff format --quiet .
	$(RUN) tools/lint_notebooks.py --fix

notebooks: $(VENV)/test ## Run every chapter from top to bottom, without the book
	OMP_NUM_THREADS=1 TQDM_DISABLE=1 \
	  $(RUN) -m pytest --nbmake --nbmake-timeout=300 --durations=0 book

repository: ## Set the repository's address everywhere: make repository URL=https://…
	@$(PYTHON) tools/set_repository.py $(if $(URL),'$(URL)')

lock: $(VENV)/test ## Refresh the pinned versions from the ranges in pyproject.toml
	$(RUN) -m pip install --quiet uv
	$(RUN) tools/lock.py

clean: ## Remove what was built (the environment in .venv stays)
	rm -rf _build build *.egg-info .mypy_cache .pytest_cache .hypothesis
	rm -rf .ruff_cache book/.ruff_cache

# The environment. The two stamps tell which requirements it holds already.
$(RUN):
	@command -v $(PYTHON) >/dev/null || { echo "There is no '$(PYTHON)' here: install\
	 Python 3.10 or newer, or name another: make book PYTHON=python3.12"; exit 1; }
	@$(PYTHON) tools/check_python.py
	@rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/book: requirements.txt pyproject.toml | $(RUN)
	@echo "Installing the book's environment into $(VENV): a few minutes, this once."
	@$(RUN) -m pip install --quiet --requirement requirements.txt
	@touch $@

$(VENV)/test: tests/requirements.txt $(VENV)/book
	@echo "Installing what the tests need beyond it."
	@$(RUN) -m pip install --quiet --requirement tests/requirements.txt
	@touch $@
