#!/usr/bin/env python3
"""Training steps of CenterPoint on this machine: percept against PyTorch + spconv, in speed and memory.

`centerpoint-small` with two sweeps: percept makes voxels and targets, goes forward and backward, and updates; the peer
goes forward and backward over voxels that are made beforehand, with a simpler loss. Where spconv's CPU path cannot go
backward, its error is shown and forward passes are compared. README.md tells how to read it.
"""

import math
import random
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

import harness
import tensors
from harness import HERE
from rounds import Contender, compare, compare_memory
from tables import memory_table, speed_table

SWEEPS = 2
# As percept's own rehearsal has them: points of a sweep, and how far and high they lie.
POINTS, RANGE_M = 20_000, 25.6
# How many times faster percept must be: {threads: ratio}. spconv has one thread: with more, its CPU path gives wrong rows.
BARS = {1: 2.0, 2: 3.5}


def cloud(draw):
    """A sweep over bumpy ground, denser where it is near."""
    for _ in range(POINTS):
        angle, far = draw.uniform(0, math.tau), draw.random() ** 2 * RANGE_M
        height = 2.5 if draw.random() < 0.3 else 0.1
        yield from (far * math.cos(angle), far * math.sin(angle), draw.uniform(-1.8, height - 1.8))
        yield from (draw.uniform(0, 255), 0.0)


class Bench:
    """Starts percept and its peer on steps of the same kind."""

    def __init__(self, percept, python, directory):
        self.percept, self.python = percept, python
        self.input = Path(directory) / "input.safetensors"
        draw = random.Random(0)
        points = array("f", (value for _ in range(SWEEPS) for value in cloud(draw)))
        counts = array("f", [POINTS] * SWEEPS)
        shapes = {"points": ((SWEEPS * POINTS, 5), points), "counts": ((SWEEPS,), counts)}
        tensors.write(self.input, {name: (shape, data.tobytes()) for name, (shape, data) in shapes.items()})

    def ours(self, threads, backward):
        work = ["--train"] if backward else []
        command = [self.percept, "bench", "centerpoint-small", *work, "--batch", str(SWEEPS), "--quiet"]
        return Contender("percept", [*command, "--threads", str(threads), "--paced"], threads)

    def theirs(self, backward):
        return Contender("spconv", [*self.worker(backward), "--threads", "1"], 1)

    def worker(self, backward):
        command = [self.python, HERE / "worker.py", "--engine", "spconv-training", "--input", self.input]
        return [*command, *([] if backward else ["--set", "backward=no"])]

    def error_of_backward(self):
        """What spconv says to a backward pass; nothing where it can."""
        command = [*self.worker(True), "--threads", "1", "--warmup", "0", "--save", self.input.with_name("loss.safetensors")]
        result = subprocess.run(command, capture_output=True, text=True)
        return result.stderr.strip() if result.returncode else None


def main():
    args = harness.parse(harness.parser(__doc__))
    python = harness.ensure_environment(args.venv, "-spconv")
    results = {"speed": [], "memory": [], "error": []}
    with tempfile.TemporaryDirectory(prefix="percept-peers-") as directory:
        bench = Bench(args.percept, python, directory)
        error = bench.error_of_backward()
        work = "forward" if error else "step"
        if error:
            print("spconv cannot go backward on this CPU:\n" + "\n".join(error.splitlines()[-3:]) + "\n")
            results["error"].append({"backward": error})
        for threads, bar in BARS.items():
            name = f"centerpoint-small, {work}, {SWEEPS} sweeps"
            ours, theirs = bench.ours(threads, not error), bench.theirs(not error)
            results["speed"].append(compare(name, ours, [theirs], args.rounds, bar))
        ours, theirs = bench.ours(1, not error), bench.theirs(not error)
        results["memory"].append(compare_memory(f"centerpoint-small, {work}", ours, [theirs]))
    print(speed_table(results["speed"]) + "\n\n" + memory_table(results["memory"]))
    if args.json:
        harness.write_record(args.json, args.rounds, results)
    return harness.exit_code(results)


if __name__ == "__main__":
    sys.exit(main())
