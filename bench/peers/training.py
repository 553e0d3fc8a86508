#!/usr/bin/env python3
"""Training steps on this machine: percept against PyTorch, in speed, memory and what they compute.

ResNet-50 (forward and backward, batch 8) and the contrast of PaCo-2 (PaC, forward and backward, batch 8 and 32) in its
vectorised, exact form. README.md tells how to read it.
"""

import array
import dataclasses
import math
import random
import sys
import tempfile
from pathlib import Path

import harness
import tensors
from agreement import agreement
from harness import HERE, run
from rounds import Contender, compare, compare_memory
from tables import agreement_table, memory_table, speed_table

NAIVE_ROUNDS = 3
# Rounds of a few milliseconds each: as many more tell as much.
SHORT_ROUNDS = 10


@dataclasses.dataclass(frozen=True)
class Work:
    """Training steps of one network (or loss) at one batch, and how many times faster than PyTorch percept must be."""

    name: str
    model: str
    batch: int
    inputs: dict  # name -> shape
    bars: dict  # threads -> required ratio
    memory: bool = False

    @property
    def is_loss(self):
        return self.model == "paco-contrast"


def contrast(batch, bars):
    shapes = {"parts": (2 * batch, 4, 64), "labels": (batch,)}
    return Work(f"paco-contrast-batch{batch}", "paco-contrast", batch, shapes, bars)


WORK = [
    contrast(8, {1: 2.0}),
    contrast(32, {1: None}),
    Work("resnet50-batch8", "resnet50", 8, {"image": (8, 3, 224, 224)}, {1: 1.2, 2: None}, memory=True),
]


class Bench:
    """Starts percept and PyTorch on a work item, with the file that they share."""

    def __init__(self, percept, python, directory):
        self.percept, self.python, self.directory = percept, python, Path(directory)
        self.input = self.directory / "input.safetensors"

    def prepare(self, work):
        """Draws the inputs: uniform with unit variance, or parts as images have them."""
        draw = random.Random(0).random
        uniform = lambda count: [(2 * draw() - 1) * math.sqrt(3) for _ in range(count)]
        values = {name: uniform(math.prod(shape)) for name, shape in work.inputs.items()}
        if work.is_loss:
            values["parts"] = self.parts(work.inputs["parts"], uniform)
            values["labels"] = [float(image) for image in range(work.batch)]
        packed = {name: (work.inputs[name], array.array("f", data).tobytes()) for name, data in values.items()}
        tensors.write(self.input, packed)

    @staticmethod
    def parts(shape, uniform):
        """The parts of an image resemble each other, and those of its other view: most triplets are active then."""
        views, count, d = shape
        images = [uniform(d) for _ in range(views // 2)]
        shake = lambda part: [value + 0.1 * noise for value, noise in zip(part, uniform(d))]
        first = [shake([0.4 * value for value in image]) for image in images for _ in range(count)]
        second = [shake(part) for part in first]
        return [value for part in first + second for value in part]

    def ours(self, work, threads, options=(), name="percept"):
        command = [self.percept, "bench", work.model, "--train", "--quiet", "--threads", str(threads), "--paced", *options]
        given = ["--input", self.input] if work.is_loss else ["--batch", str(work.batch)]
        return Contender(name, [*command, *given], threads)

    def theirs(self, work, threads):
        return Contender("torch", [*self.worker(work), "--threads", str(threads)], threads)

    def worker(self, work):
        command = [self.python, HERE / "worker.py", "--engine", "training", "--torch-model", work.model]
        return [*command, "--input", self.input]

    def agree(self, work):
        """Both losses of the same parts; PyTorch's in f64, which percept has inside."""
        path = self.directory / "outputs.safetensors"
        run([self.percept, "run", work.model, "--input", self.input, "--save", path])
        ours = tensors.read(path)
        run([*self.worker(work), "--threads", "1", "--warmup", "0", "--save", path])
        theirs = tensors.read(path)
        # A number has no shape in percept, and one of length 1 in the worker's file.
        return agreement(work.name, ours, {"torch": {name: (ours[name][0], theirs[name][1]) for name in ours}})


def main():
    options = harness.parser(__doc__)
    options.add_argument("--only", default="", help="work items whose name contains one of these, comma-separated")
    args = harness.parse(options)
    chosen = [work for work in WORK if any(part in work.name for part in args.only.split(","))]
    if not chosen:
        options.error(f"--only {args.only} matches none of: {', '.join(work.name for work in WORK)}")
    python = harness.ensure_environment(args.venv, "-torch")
    results = {"speed": [], "memory": [], "agreement": [], "naive": []}
    with tempfile.TemporaryDirectory(prefix="percept-peers-") as directory:
        bench = Bench(args.percept, python, directory)
        for work in chosen:
            print(work.name, file=sys.stderr)
            bench.prepare(work)
            rounds = args.rounds * (SHORT_ROUNDS if work.is_loss else 1)
            for threads, bar in work.bars.items():
                result = compare(work.name, bench.ours(work, threads), [bench.theirs(work, threads)], rounds, bar)
                print(f"  threads {threads}: {result['ratio']:.2f}x", file=sys.stderr)
                results["speed"].append(result)
            if work.is_loss:
                results["agreement"].append(bench.agree(work))
                naive = bench.ours(work, 1, ["--set", "loss=naive"], "naive")
                results["naive"].append(compare(work.name, bench.ours(work, 1), [naive], NAIVE_ROUNDS))
            if work.memory:
                results["memory"].append(compare_memory(work.name, bench.ours(work, 1), [bench.theirs(work, 1)]))
    print(speed_table(results["speed"]))
    if results["naive"]:
        print("\nthe published form of the same loss, in percept\n" + speed_table(results["naive"]))
        print("\n" + agreement_table(results["agreement"]))
    if results["memory"]:
        print("\n" + memory_table(results["memory"]))
    if args.json:
        harness.write_record(args.json, args.rounds, results)
    return harness.exit_code(results)


if __name__ == "__main__":
    sys.exit(main())
