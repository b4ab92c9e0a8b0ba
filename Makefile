# Two commands do everything: `make demo` and `make test`. Each sets up .venv when needed.
PYTHON ?= python3
BIN := .venv/bin
# pip's own index settings are the user's affair; the pins name versions only.
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test test-integrations fake-nvml lint docs calibrate studies bench figure schemas lock clean

.venv/pip.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "joulewise needs Python 3.11 or newer; say which with: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing; on Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/run.stamp: .venv/pip.stamp requirements.txt pyproject.toml
	@echo 'Installing joulewise and what it needs into .venv ...'
	$(PIP) install --quiet -r requirements.txt
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

.venv/dev.stamp: .venv/pip.stamp requirements-dev.txt pyproject.toml
	@echo 'Installing joulewise and what its tests need into .venv ...'
	$(PIP) install --quiet -r requirements-dev.txt
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@ .venv/run.stamp

demo: .venv/run.stamp
	$(BIN)/joulewise tune --max-slowdown 0.6% --out runs/demo
	@echo 'To go on: . .venv/bin/activate; joulewise --help'

test: .venv/dev.stamp fake-nvml
	$(BIN)/python -m pytest -m "not integration" -n 2 --dist worksteal

# Frameworks and foreign clients come on top of what the core tests need.
.venv/integrations.stamp: .venv/dev.stamp requirements-integrations.txt
	$(PIP) install --quiet -r requirements-integrations.txt
	@touch $@

# A fake NVIDIA driver: libnvidia-ml.so.1 with the physics of the virtual GPUs, for LD_LIBRARY_PATH.
# It is a Linux library; on other systems its tests are skipped.
ifeq ($(shell uname -s),Linux)
fake-nvml: .venv/run.stamp
	@command -v gcc >/dev/null || \
	  { echo "gcc is missing; on Debian: apt-get install gcc libc6-dev"; exit 1; }
	@$(MAKE) -s -C tools/fake-nvml PYTHON=$(CURDIR)/$(BIN)/python OUT=$(CURDIR)/build/fake-nvml
else
fake-nvml:
	@echo 'The fake NVIDIA driver is a Linux library; what needs it is skipped here.'
endif

test-integrations: .venv/integrations.stamp fake-nvml
	$(BIN)/python -m pytest -m integration -n 2 --dist worksteal

lint: .venv/dev.stamp docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .

docs: .venv/dev.stamp
	$(BIN)/sphinx-build -n -W -q docs docs/_build/html

calibrate: .venv/dev.stamp
	$(BIN)/python calibration/calibrate.py

studies: .venv/dev.stamp fake-nvml
	$(BIN)/python studies/promise.py --seeds 200 --jobs 2
	$(BIN)/python studies/kills.py --count 500 --jobs 2

# Peers have a venv of their own: what they need and what joulewise needs do not go together.
.venv-peers/pip.stamp: requirements-peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip --disable-pip-version-check install --quiet -r requirements-peers.txt
	@touch $@

bench: .venv/dev.stamp .venv-peers/pip.stamp fake-nvml
	@missed=0; for part in planner transitions pipelines loop nvml daemon import; do \
	  $(BIN)/python benchmarks/bench_$$part.py || missed=1; done; exit $$missed

figure: .venv/run.stamp
	$(BIN)/python scripts/readme_figure.py runs/demo docs/images/frontier.png

schemas: .venv/run.stamp
	$(BIN)/python -m joulewise.store.schemas docs/schemas

# Needs pip-tools; the pins carry no index address on purpose.
lock:
	pip-compile -q --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras --no-header --no-annotate --build-deps-for editable -o requirements.txt pyproject.toml
	pip-compile -q --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras --no-header --no-annotate --build-deps-for editable --extra dev --extra docs -o requirements-dev.txt pyproject.toml
	pip-compile -q --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --strip-extras --no-header --no-annotate --build-deps-for editable --extra dev --extra docs --extra clients --extra cuda --extra fuzz --extra torch --extra transformers -c requirements-dev.txt -o requirements-integrations.txt pyproject.toml
	sed -i "s/+cpu$$//" requirements-integrations.txt

clean:
	rm -rf .venv .venv-peers build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
