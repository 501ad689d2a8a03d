# What a newcomer types. `make` alone lists it.

SHELL := bash
.DEFAULT_GOAL := help

# Compiling librdkafka beside rustc takes memory: no more jobs than cores, and no more than four.
export CARGO_BUILD_JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))
# Tests on real servers wait more than they compute.
TEST_THREADS ?= 3
# Modules of tests/it that also run on the other versions of PostgreSQL.
MATRIX_TESTS ?= smoke:: types:: crash:: keepalive:: publication:: shutdown:: stray:: failover::
MATRIX_VERSIONS ?= 14 17 18
# How long, how fast and how often `make soak` tries; SEED repeats the same faults in the same order, FIRST_SEED the same
# simulated histories. EVENTS are written with bad ones among them, twice.
MINUTES ?= 60
RATE ?= 2000
EVENTS ?= 1000000
SEEDS ?= $(shell awk 'BEGIN { printf "%d", $(MINUTES) * 50000 }')
FIRST_SEED ?= $(shell shuf -i 0-4000000000 -n 1)
SCRIPTS := scripts/setup scripts/cache-dir .ci/run $(wildcard scripts/fuzz)

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 17

.PHONY: build
build: ## build the release binary
	scripts/setup build
	cargo build --release --locked

.PHONY: demo
demo: ## see events flow from a throw-away PostgreSQL into an embedded broker
	scripts/setup demo
	cargo run --release --locked --quiet -- demo

.PHONY: test
test: ## run every test, on real PostgreSQL and real Apache Kafka
	scripts/setup test
	cargo test --locked --no-fail-fast -- --test-threads=$(TEST_THREADS)

.PHONY: test-matrix
test-matrix: ## run the version-dependent tests on PostgreSQL 14, 17 and 18
	scripts/setup matrix
	for version in $(MATRIX_VERSIONS); do \
	    echo "== PostgreSQL $$version"; \
	    OUTBOXD_TEST_PG=$$version cargo test --locked --test it -- --test-threads=$(TEST_THREADS) $(MATRIX_TESTS) || exit 1; \
	done

.PHONY: soak
soak: ## break everything at random for MINUTES=60 under RATE=2000 events/s, after SEEDS simulated histories and EVENTS with bad ones
	scripts/setup test
	OUTBOXD_SEEDS=$(SEEDS) OUTBOXD_FIRST_SEED=$(FIRST_SEED) cargo test --release --locked --test pipeline -- --nocapture
	OUTBOXD_SOAK_EVENTS=$(EVENTS) cargo test --release --locked --test soak a_million_events -- --ignored --nocapture --test-threads=1
	OUTBOXD_SOAK_MINUTES=$(MINUTES) OUTBOXD_SOAK_RATE=$(RATE) OUTBOXD_SOAK_SEED=$(SEED) \
	    cargo test --release --locked --test soak -- --ignored --nocapture --exact soak; code=$$?; \
	    echo "the whole table: target/soak/report.md"; tail -n 18 target/soak/report.md; exit $$code

.PHONY: bench
bench: ## race against the limits of this machine; BENCH="--debezium" with the incumbent, "--events 100000 --rounds 1 --only one-row" for less
	scripts/setup $(if $(findstring --debezium,$(BENCH)),race,test)
	cargo bench --locked --bench race -- $(BENCH)

.PHONY: record-debezium
record-debezium: ## record what the real Debezium publishes, for tests/debezium; ONLY=part,of,names for some cases
	scripts/setup race
	OUTBOXD_RECORD_ONLY=$(ONLY) cargo test --locked --test debezium -- --ignored --nocapture record::

.PHONY: test-debezium
test-debezium: ## take over from the real Debezium, under load; every recorded case on real servers
	scripts/setup race
	cargo test --locked --test debezium -- --ignored --nocapture --test-threads=1 takeover:: replay::

.PHONY: mutants
mutants: ## put defects into a copy of the pure rooms: the simulation must notice each (part of `make test`)
	cargo test --locked --test mutants -- --nocapture

.PHONY: lint
lint: ## formatting, clippy, documentation, shell scripts, packaging
	scripts/setup build
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --document-private-items
	if command -v shellcheck >/dev/null; then shellcheck $(SCRIPTS); else echo "shellcheck is not installed: skipped"; fi
	scripts/validate-packaging

.PHONY: fmt
fmt: ## format the code
	cargo fmt

.PHONY: fuzz
fuzz: ## fuzz the decoders
	scripts/fuzz

.PHONY: clean
clean: ## remove what was built; the servers in the cache stay
	cargo clean
