# Each target sets up all that it needs. `make demo` and `make test` are the two to know.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR
RELEASE := $(CARGO_TARGET_DIR)/release
RUST_TESTS := cargo test --workspace --locked --quiet
# Tests mostly wait, for timers, links and processes, so there may be several for each processor.
WORKERS ?= 4

.PHONY: help setup programs demo test rust-tests python-tests servers test-all fuzz check format schema docs bench lock clean

help: ## Say what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## Leave .venv/bin/tradewind, tradewind-gateway and tradewind-wan ready
	@command -v cargo >/dev/null || { echo "error: cargo is not on PATH; install Rust 1.89 or newer: https://rustup.rs" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "error: no C compiler (cc) on PATH; install one, e.g. gcc" >&2; exit 1; }
	@# Python's libraries come over the network while the programs compile.
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/tools.stamp programs
	@cmp -s $(RELEASE)/tradewind-gateway $(BIN)/tradewind-gateway \
	  && cmp -s $(RELEASE)/tradewind-wan $(BIN)/tradewind-wan && [ $(BIN)/tradewind -nt pyproject.toml ] \
	  || $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@# As pip does for what it copies: else each start compiles the sources where nothing may write beside them.
	@$(BIN)/python -m compileall -q src/tradewind
	@touch $(BIN)/tradewind

programs:
	cargo build --release --locked --package tradewind-gateway --package tradewind-wan

$(VENV)/tools.stamp: requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "error: $(PYTHON) is missing or older than 3.10; name another: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "error: $(PYTHON) cannot make virtual environments; install its venv module, e.g. apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-dev.lock
	@touch $@

demo: setup ## Race a planned overlay against the direct path (root; else five local gateways), kill a relay, prove every byte
	$(BIN)/tradewind demo

test: setup ## All tests that are not slow; those that measure come last
	$(MAKE) --no-print-directory --jobs 3 servers python-tests rust-tests
	$(BIN)/python -m pytest -m "not slow and alone and not host" --numprocesses 3 --dist load --maxschedchunk 1
	$(BIN)/python -m pytest -m "not slow and host"

python-tests:
	$(BIN)/python -m pytest -m "not slow and not alone" --numprocesses $(WORKERS) --dist load --maxschedchunk 1

# They get what the Python tests, which have time limits, leave of the processors.
rust-tests:
	@nice -n 5 $(RUST_TESTS) >$(CARGO_TARGET_DIR)/tests.log 2>&1; code=$$?; cat $(CARGO_TARGET_DIR)/tests.log; exit $$code

# Over the network. A test that misses one tries again, and says why it failed.
servers:
	@$(BIN)/python -m testbed.servers install

test-all: setup ## Also the slow ones, 10,000 simulations, and each fuzz target for a minute
	SIMULATION_SEEDS=10000 $(RUST_TESTS) -- --include-ignored
	$(BIN)/python -m pytest
	fuzz/run

fuzz: ## Run each fuzz target for a minute (other: fuzz/run SECONDS); skipped where cargo-fuzz cannot be installed
	fuzz/run

check: setup ## Format, lint, types, schema drift
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(BIN)/tradewind-gateway schema | diff -u contract/gateway-v1.schema.json - \
	  || { echo "error: contract/gateway-v1.schema.json is not what the gateway prints; run make schema" >&2; exit 1; }
	$(BIN)/python docs/generate.py --check

format: setup ## Put the code into its form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	cargo fmt --all

schema: setup ## Write the contract's schema anew
	$(BIN)/tradewind-gateway schema > contract/gateway-v1.schema.json

docs: setup ## Write the generated reference pages
	$(BIN)/python docs/generate.py

bench: setup ## Measure beside the peers, which it installs; see docs/benchmarks.md (quick: make bench BENCH=--quick)
	$(BIN)/python -m benchmarks $(BENCH)

lock: $(VENV)/tools.stamp ## Pin the development tools anew
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.10 \
	  --custom-compile-command "make lock" requirements-dev.in --output-file requirements-dev.lock

clean: ## Remove all that was built
	rm -rf $(VENV) $(CARGO_TARGET_DIR) build dist .mypy_cache .ruff_cache .pytest_cache
