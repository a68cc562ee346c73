# Each target sets up all that it needs. `make demo` and `make test` are the two to know.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR
RELEASE := $(CARGO_TARGET_DIR)/release
RUST_TESTS := cargo test --workspace --locked --quiet

.PHONY: help setup demo test test-all fuzz check format schema docs bench lock clean

help: ## Say what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(VENV)/tools.stamp ## Leave .venv/bin/tradewind, tradewind-gateway and tradewind-wan ready
	@command -v cargo >/dev/null || { echo "error: cargo is not on PATH; install Rust 1.89 or newer: https://rustup.rs" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "error: no C compiler (cc) on PATH; install one, e.g. gcc" >&2; exit 1; }
	cargo build --release --locked --package tradewind-gateway --package tradewind-wan
	@cmp -s $(RELEASE)/tradewind-gateway $(BIN)/tradewind-gateway \
	  && cmp -s $(RELEASE)/tradewind-wan $(BIN)/tradewind-wan && [ $(BIN)/tradewind -nt pyproject.toml ] \
	  || $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@# As pip does for what it copies: else each start compiles the sources where nothing may write beside them.
	@$(BIN)/python -m compileall -q src/tradewind
	@touch $(BIN)/tradewind

$(VENV)/tools.stamp: requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "error: $(PYTHON) is missing or older than 3.10; name another: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "error: $(PYTHON) cannot make virtual environments; install its venv module, e.g. apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-dev.lock
	@touch $@

demo: setup ## Race a planned overlay against the direct path (root; else five local gateways), kill a relay, prove every byte
	$(BIN)/tradewind demo

test: setup ## All tests that are not slow; those that measure run one at a time, after the others
	@# The test servers come over the network meanwhile. A test that misses one tries again, and says why it failed.
	$(BIN)/python -m testbed.servers install & servers=$$!; $(RUST_TESTS); code=$$?; wait $$servers; exit $$code
	$(BIN)/python -m pytest -m "not slow and not alone" --numprocesses 4 --dist worksteal
	$(BIN)/python -m pytest -m "not slow and alone"

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
