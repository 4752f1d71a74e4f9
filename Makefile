# Everything runs in .venv, which is made on first use and again only when pyproject.toml or constraints.txt change.
PYTHON ?= python3
BENCH_FLAGS ?=
BIN := .venv/bin
# torchvision, which laplace-torch asks for and these do not use, breaks beside a CPU build of torch: hence --no-deps.
PEERS := laplace-torch==0.3 asdfghjkl==0.1a4 backpack-for-pytorch==1.7.1 curvlinops-for-pytorch==3.0.1 einconv==0.1.0 \
  einops==0.8.2 linear_operator==0.6.1 opt_einsum==3.4.0 unfoldNd==0.2.3
LOWEST_PYTHON ?= python3.11
LOWEST_TORCH ?= 2.13.0
LOWEST := .venv-lowest/bin

.PHONY: demo test lint check docs bench dist lowest peers prior-sites prior-maps prior-explore .venv

demo: .venv
	$(BIN)/python -m examples.demo --out demo

test: .venv
	$(BIN)/pytest --numprocesses auto --dist loadfile

lint: .venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict

check: lint test

# The documentation site, in site/: a warning, such as a broken link, is an error.
docs: .venv
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "written: site/index.html"

# All benchmarks take over two hours on two cores; `make bench BENCH_FLAGS=--quick` takes about ten minutes.
bench: .venv
	$(BIN)/python -m benchmarks all $(BENCH_FLAGS)

# Peers of `python -m benchmarks table` that pip cannot install beside the CPU build of torch.
peers: .venv
	$(BIN)/python -m pip install --quiet --no-deps $(PEERS)
	$(BIN)/python -c 'import laplace'

# Wheel and sdist, in dist/: the same bytes on every day and machine, for the versions of constraints.txt.
dist: .venv
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	sha256sum dist/*

# Tests of the core beside the oldest dependencies that pyproject.toml allows, in .venv-lowest. They need Python 3.11, the
# oldest, and take a newer torch than its lower bound, whose builds are gigabytes of CUDA. Old packages may warn.
lowest: .venv
	$(LOWEST_PYTHON) -m venv --clear .venv-lowest
	$(LOWEST)/python -m pip install --quiet --only-binary :all: torch==$(LOWEST_TORCH) pytest hypothesis \
	  $$($(BIN)/python -m tests.packaging.lower_bounds arviz bench geotiff parquet report sklearn solar tensorboard)
	$(LOWEST)/python -m pip install --quiet --no-deps --editable .
	$(LOWEST)/python -m pytest -p no:cacheprovider --override-ini filterwarnings=default --disable-warnings \
	  tests/forecasts tests/methods tests/tasks tests/test_*.py

# The prior over plants that the package brings along, and its pooled network: about 15 minutes on one core.
prior-sites: .venv
	$(BIN)/python -m metaprior.solar.sites.training metaprior/solar/sites/prior

# The prior over satellite products that the package brings along: about 50 minutes on two cores, 4 GB of temporary files.
prior-maps: .venv
	$(BIN)/python -m metaprior.solar.maps.nowcast.training metaprior/solar/maps/nowcast/prior

# The learners and forecasts of the page of `metaprior explore`: about 7 minutes on one core.
prior-explore: .venv
	$(BIN)/python -m metaprior.explore.training

.venv: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "make: '$(PYTHON)' is not Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "make: '$(PYTHON)' has no venv module; install it (Debian, Ubuntu: python3-venv)"; exit 1; }
	@echo "Installing into .venv (once, a minute or two) ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' || \
	  { echo "make: installing failed, see above; pip needs to reach a package index"; exit 1; }
	@touch $@
