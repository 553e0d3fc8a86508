#!/usr/bin/env bash
# The whole check of the project: format, lints with warnings denied, tests. CI runs exactly this.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
# Tests that miss a folder or a tool pass, and say so in this list (crates/percept-testing).
PERCEPT_SKIPPED=$(mktemp)
export PERCEPT_SKIPPED
trap 'rm -f "$PERCEPT_SKIPPED"' EXIT
cargo test --workspace --locked
# A test may miss several things.
echo "tests skipped: $(sed 's/: .*//' "$PERCEPT_SKIPPED" | sort -u | wc -l)"
sort -u "$PERCEPT_SKIPPED" | sed 's/^/  /'
