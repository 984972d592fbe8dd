# Everything here needs Python 3.11 or newer (with venv), git and GNU make. `make` alone lists the targets.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
# The tests of what needs mlx, which is large and has no place in everybody's environment, run in one of their own.
MLX := .venv-mlx
# Arguments for the tool behind `test` and `bench`: make test ARGS="-k links"
ARGS ?=

# What an inherited environment must not change.
unexport PYTHONHOME
unexport PYTHONPATH
unexport VIRTUAL_ENV

# The environment belongs to one lock file and one folder (an editable install knows its path), so both name its stamp.
key = $(shell { pwd; cat $(1); } | cksum | cut -d ' ' -f 1)
KEY := $(call key,requirements.lock)
LOCKED := $(VENV)/locked-$(KEY)
INSTALLED := $(VENV)/installed-$(KEY)
MLX_KEY := $(call key,requirements-mlx.lock)
MLX_LOCKED := $(MLX)/locked-$(MLX_KEY)
MLX_INSTALLED := $(MLX)/installed-$(MLX_KEY)

# Sets $$python to the first Python that will do; PYTHON=... on the command line names the only one to try.
define FIND_PYTHON
python=; \
for each in $(or $(PYTHON),python3.13 python3.12 python3.11 python3 python); do \
  if "$$each" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
    python=$$each; break; \
  fi; \
done; \
if [ -z "$$python" ]; then \
  echo "No Python 3.11 or newer with its venv module was found (on Debian: apt install python3-venv)." >&2; \
  echo "Name one with: make PYTHON=/path/to/python3 ..." >&2; \
  exit 1; \
fi
endef

PIP := python -m pip --disable-pip-version-check --quiet --no-input

# Makes the environment $(1) with what the lock file $(2) has.
define CREATE
@$(FIND_PYTHON); \
echo "Creating $(1) with $$("$$python" --version)"; \
rm -rf $(1) && "$$python" -m venv $(1)
@$(1)/bin/$(PIP) install --require-hashes -r $(2)
@touch $@
endef

# The build backend comes from the lock as well, so nothing is fetched here.
define INSTALL
@$(1)/bin/$(PIP) install --no-deps --no-build-isolation --editable .
@touch $@
endef

.PHONY: help venv demo test test-mlx check bench build lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

venv: $(INSTALLED) ## create .venv with the locked dependencies and this checkout

demo: $(INSTALLED) ## index, search and an editor session on examples/vault
	@$(BIN)/python examples/demo.py

test: $(INSTALLED) ## run the tests; ARGS="-k words" selects
	$(BIN)/python -m pytest $(ARGS)

test-mlx: $(MLX_INSTALLED) ## run the tests of what needs mlx, in .venv-mlx
	$(MLX)/bin/python -m pytest tests/mlx $(ARGS)

check: $(INSTALLED) ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(INSTALLED) ## how to measure
	@cat benchmarks/README.md

build: $(INSTALLED) ## the wheel and the source archive, in dist/
	$(BIN)/python -m hatchling build

# The only target that chooses versions. The resolver lives in a folder of its own, so that it needs no place in the lock.
# What both environments have is the same in both.
lock: ## choose new versions for the lock files
	@$(FIND_PYTHON); \
	set -e; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	"$$python" -m venv "$$tmp/venv"; \
	"$$tmp/venv/bin/python" -m pip --disable-pip-version-check --quiet install uv; \
	choose() { \
	  sed '/^[^#]/,$$d' "$$1" > "$$tmp/lock"; \
	  "$$tmp/venv/bin/uv" pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --upgrade \
	    --no-header --no-annotate --no-emit-index-url --quiet $$2 >> "$$tmp/lock"; \
	  mv "$$tmp/lock" "$$1"; \
	}; \
	choose requirements.lock "--group dev"; \
	choose requirements-mlx.lock "--extra mlx --group mlx --constraint requirements.lock"

clean: ## remove the environment, caches and dist/
	rm -rf $(VENV) $(MLX) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(LOCKED): requirements.lock
	$(call CREATE,$(VENV),$<)

$(MLX_LOCKED): requirements-mlx.lock
	$(call CREATE,$(MLX),$<)

$(INSTALLED): $(LOCKED) pyproject.toml vault_lsp/__init__.py
	$(call INSTALL,$(VENV))

$(MLX_INSTALLED): $(MLX_LOCKED) pyproject.toml vault_lsp/__init__.py
	$(call INSTALL,$(MLX))
