# Each target first sets up everything that it needs. Start with `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR
# Empty: Python keeps what it compiled. Otherwise each process that a test starts compiles the sources again.
export PYTHONDONTWRITEBYTECODE :=
RELEASE := $(CARGO_TARGET_DIR)/release
CONSOLE := src/tradewind/service/static
# The profile of the programs: libraries are compiled once for both. No crate has tests in its documentation.
RUST_TESTS := cargo test --release --workspace --lib --bins --tests --locked --quiet --no-fail-fast
# Tradewind's own crates are compiled without optimisation for `make test`: their tests build in a fifth of the time.
# Only `wire` is optimised a little: otherwise its simulations take seven times as long.
UNOPTIMISED := $(foreach crate,contract gateway split store,--config profile.release.package.tradewind-$(crate).opt-level=0) \
  --config profile.release.package.tradewind-wire.opt-level=1
# Tests mostly wait for timers, links and processes, so several can share one processor.
WORKERS ?= 6
# The files with tests of a marker, in the order of their names: of long tests the last begin first (tests/conftest.py).
# To collect the others, each worker would need several seconds.
marked = $(sort $(shell grep --recursive --files-with-matches --include='*.py' 'mark\.$(1)\b' tests))

.PHONY: help setup programs console console-if-npm demo demo-cloud test rust-tests python-tests servers clusters test-all fuzz check format schema docs bench lock static image wheel clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## Build and install tradewind, tradewind-gateway and tradewind-wan into .venv/bin
	@command -v cargo >/dev/null || { echo "error: cargo is not on PATH; install Rust 1.89 or newer: https://rustup.rs" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "error: no C compiler (cc) on PATH; install one, e.g. gcc" >&2; exit 1; }
	@# Download libraries and build the console while the programs compile.
	@$(MAKE) --no-print-directory --jobs 3 $(VENV)/tools.stamp programs console-if-npm
	@cmp -s $(RELEASE)/tradewind-gateway $(BIN)/tradewind-gateway \
	  && cmp -s $(RELEASE)/tradewind-wan $(BIN)/tradewind-wan && [ $(BIN)/tradewind -nt pyproject.toml ] \
	  || $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@# Compile the sources once, as pip does for files that it copies: otherwise, if their folder is read-only, each
	@# start compiles them again.
	@$(BIN)/python -m compileall -q src/tradewind
	@touch $(BIN)/tradewind

programs:
	cargo build --release --locked --package tradewind-gateway --package tradewind-wan

# Without npm, or without its registry, everything but the console works.
console-if-npm:
	@! command -v npm >/dev/null || $(MAKE) --no-print-directory console \
	  || echo "the web console was not built; run make console to see why" >&2

console: $(CONSOLE)/index.html ## Build the web console, which tradewind serve shows (Node 20)

$(CONSOLE)/index.html: $(shell find console -type f -not -path '*/node_modules/*' -not -path '*/e2e/*')
	@command -v npm >/dev/null || { echo "error: npm is not on PATH; install Node 20 or newer: https://nodejs.org" >&2; exit 1; }
	cd console && npm ci --silent --no-audit --no-fund && npm run --silent build -- --logLevel warn

$(VENV)/tools.stamp: requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "error: $(PYTHON) is missing or older than 3.10; name another: make PYTHON=python3.12 …" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "error: $(PYTHON) cannot make virtual environments; install its venv module, e.g. apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements-dev.lock
	@touch $@

demo: setup ## Race a planned overlay against the direct path (root; else five local gateways), kill a relay, prove every byte
	$(BIN)/tradewind demo

demo-cloud: setup ## Rent machines of emulated clouds (root), kill one during a transfer from AWS to Google Cloud, leave nothing
	$(BIN)/tradewind demo --cloud

# numpy starts a thread for each processor, which costs each process of a test 40 ms. Tradewind multiplies no large matrices.
test: export OPENBLAS_NUM_THREADS := 1
test: setup ## Run all tests that are not slow; tests that measure run last
	$(MAKE) --no-print-directory --jobs 3 servers python-tests rust-tests
	$(BIN)/python -m tests.run -m "not slow and alone and not host" --numprocesses 3 --dist load --maxschedchunk 1 $(call marked,alone)
	$(BIN)/python -m tests.run -m "not slow and host" $(call marked,host)

python-tests:
	@# Compile the tests once. Otherwise each worker compiles all of them when it collects them.
	@# What fails here fails there, too.
	@$(BIN)/python -m pytest --collect-only --quiet >/dev/null || true
	$(BIN)/python -m tests.run -m "not slow and not alone" --numprocesses $(WORKERS) --dist loadscope --no-loadscope-reorder

# Run at a lower priority than the Python tests, because those have time limits.
rust-tests:
	@nice -n 5 $(RUST_TESTS) $(UNOPTIMISED) >$(CARGO_TARGET_DIR)/tests.log 2>&1; code=$$?; cat $(CARGO_TARGET_DIR)/tests.log; exit $$code

# Download the servers. If one is missing, the test that needs it downloads it again, or fails with the reason.
servers:
	@$(BIN)/python -m testbed.servers install

clusters: setup ## Build the Kubernetes clusters of the slow tests (root; once, 5 to 15 minutes)
	@$(BIN)/python -m testbed.kubelab install

test-all: setup ## Run all tests, also slow ones, 10,000 simulations, and each fuzz target for a minute
	SIMULATION_SEEDS=10000 TRADEWIND_SIMULATION_RUNS=10000 $(RUST_TESTS) -- --include-ignored
	@# Building takes longer than a test may. Without the clusters their tests are skipped with the reason.
	-@$(BIN)/python -m testbed.kubelab install
	-@$(BIN)/python -m testbed.servers install --all
	TRADEWIND_SEEDS=300 $(BIN)/python -m pytest
	fuzz/run

fuzz: ## Run each fuzz target for a minute (fuzz/run SECONDS: for longer); skipped if cargo-fuzz cannot be installed
	fuzz/run

check: setup ## Check format, lint, types, and that generated files are current
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	! command -v npm >/dev/null || { cd console && npm ci --silent --no-audit --no-fund && npm run --silent check; }
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(BIN)/tradewind-gateway schema | diff -u contract/gateway-v1.schema.json - \
	  || { echo "error: contract/gateway-v1.schema.json differs from the schema that the gateway prints; run make schema" >&2; exit 1; }
	$(BIN)/python docs/generate.py --check

format: setup ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	cargo fmt --all

schema: setup ## Regenerate the contract's schema
	$(BIN)/tradewind-gateway schema > contract/gateway-v1.schema.json

docs: setup ## Regenerate the reference pages
	$(BIN)/python docs/generate.py

bench: setup ## Install the peers and benchmark against them; see docs/benchmarks.md (quick: make bench BENCH=--quick)
	$(BIN)/python -m benchmarks $(BENCH)

lock: $(VENV)/tools.stamp ## Update the pinned development tools
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.10 \
	  --custom-compile-command "make lock" requirements-dev.in --output-file requirements-dev.lock

static: $(VENV)/tools.stamp ## Build static programs in dist/ (Debian 12 or newer; STATIC=x86_64: for one processor)
	$(BIN)/python -m portable.static $(STATIC)

image: static ## Pack the static gateways of dist/ into an OCI image (STATIC=x86_64: for one processor)
	$(BIN)/python -m portable.image

wheel: static console ## Pack the static programs of dist/ into wheels, which install without Rust (STATIC=x86_64: for one processor)
	$(BIN)/python -m portable.wheel

clean: ## Remove everything that was built
	rm -rf $(VENV) $(CARGO_TARGET_DIR) $(CONSOLE) console/node_modules build dist .mypy_cache .ruff_cache .pytest_cache
