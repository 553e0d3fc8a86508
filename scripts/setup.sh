#!/usr/bin/env bash
# Installs what building percept needs and says plainly what it cannot install.
set -euo pipefail
install() {
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@"
  else
    echo "error: please install: $*" >&2
    exit 3
  fi
}
command -v cc >/dev/null || install gcc libc6-dev
if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
  export PATH="$HOME/.cargo/bin:$PATH"
fi
if ! command -v cargo >/dev/null; then
  command -v rustup >/dev/null || install rustup
  rustup toolchain install 1.95 --profile minimal --component rustfmt --component clippy
fi
if command -v rustup >/dev/null; then
  for component in rustfmt clippy; do
    cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 || rustup component add "$component"
  done
fi
