#!/usr/bin/env bash
# Kills a small training run at random moments (kill -9), resumes it each time, and compares the last checkpoint of every
# finished run, to the byte, with that of a run that nobody killed.
#
#   scripts/kill-runs.sh [KILLS=200]      about 2 seconds a kill
set -euo pipefail
cd "$(dirname "$0")/.."
kills=${1:-200}
cargo build --quiet --release -p percept-cli
percept=${CARGO_TARGET_DIR:-target}/release/percept
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
train=("$percept" train resnet18 --quiet --epochs 4
    --set width=8 --set batch=16 --set checkpoint.every_steps=3 --set data.birds.classes=4 --set data.birds.per_class=60)

newest() { find "$1" -name 'step-*.safetensors' | sort | tail -n 1; }

begun=$(date +%s%N)
"${train[@]}" --out "$place/whole" >/dev/null
took=$((($(date +%s%N) - begun) / 1000000))
expected=$(sha256sum <"$(newest "$place/whole")")
killed=0 finished=0 run=0
while ((killed < kills)); do
    "${train[@]}" --out "$place/run-$run" --resume >/dev/null &
    process=$!
    # Any moment of a whole run, from its start to its last checkpoint.
    delay=$(((RANDOM * 32768 + RANDOM) % took))
    sleep "$((delay / 1000)).$(printf %03d $((delay % 1000)))"
    if kill -9 "$process" 2>/dev/null; then
        wait "$process" 2>/dev/null && status=0 || status=$?
        if ((status == 137)); then
            ((killed += 1))
            ((killed % 20)) || echo "$killed kills" >&2
        fi
    else
        wait "$process" && status=0 || status=$?
    fi
    if ((status != 0 && status != 137)); then
        echo "the run ended with $status after $killed kills" >&2
        exit 1
    fi
    if ((status == 0)); then
        found=$(sha256sum <"$(newest "$place/run-$run")")
        if [[ $found != "$expected" ]]; then
            echo "other bits after $killed kills" >&2
            exit 1
        fi
        rm -rf "$place/run-$run"
        ((finished += 1, run += 1))
    fi
done
"${train[@]}" --out "$place/run-$run" --resume >/dev/null
found=$(sha256sum <"$(newest "$place/run-$run")")
[[ $found == "$expected" ]] || { echo "other bits after $killed kills" >&2; exit 1; }
echo "$killed kills, $((finished + 1)) finished runs, all with the bits of the run that nobody killed"
