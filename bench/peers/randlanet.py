#!/usr/bin/env python3
"""RandLA-Net on this machine: percept against PyTorch, and its search for neighbours against k-d trees.

Compares the network without its search, the search (one level, and all levels), the whole, a training step, and peak memory.
README.md tells how to read it.
"""

import array
import random
import sys
from pathlib import Path

import harness
import tensors
from agreement import agreement
from harness import HERE, run
from rounds import Contender, peak_memory
from tables import MEBIBYTE, agreement_table, table, verdict

TREES = ("pykdtree", "small_gicp", "scipy")
# How many times faster than its fastest peer percept must be, by points.
NETWORK_BARS = {45_056: 8.0, 131_072: 10.0}
SEARCH_BAR, SORTED_BAR, LEVELS_BAR, MILLION_BAR, TRAINING_BAR = 8.0, 5.0, 12.0, 15.0, 5.0
CROP, CLOUD, MILLION = 45_056, 131_072, 1_000_000
# The part of PyTorch's memory beyond its imports that percept may take, and the part of its own `keep`.
MEMORY_SHARE, KEEP_SHARE, TRAINING_SHARE = 1 / 3, 0.6, 0.5
CACHE = ["--set", "cache=4000"]


class Bench:
    """Starts percept and its peers on clouds, with the files that they share."""

    def __init__(self, args, python, directory):
        self.percept, self.python, self.directory = args.percept, python, Path(directory)
        self.rounds, self.threads = args.rounds, args.threads
        self.results = {"speed": [], "memory": [], "agreement": []}

    def input(self, name):
        return self.directory / f"{name}.safetensors"

    def prepare(self, points, order):
        """Writes a cloud of so many points of the street, shuffled or in Morton order; the first ones stay."""
        name = f"{order}-{points}"
        if self.input(name).exists():
            return name
        cloud = self.cloud(points)
        if order == "sorted":
            cloud.sort(key=morton)
        flat = array.array("f", (value for point in cloud for value in point))
        ranks, counts = array.array("i", range(points)), array.array("i", [points])
        written = {
            "points": ((points, 3), flat.tobytes()),
            "priority": ((points,), ranks.tobytes()),
            "counts": ((1,), counts.tobytes()),
        }
        tensors.write(self.input(name), written, integers=("priority", "counts"))
        return name

    def cloud(self, points):
        """Points of percept's synthetic street: as many sweeps as it takes, each at its own place, shuffled."""
        folder = self.directory / "world"
        if not folder.exists():
            command = [self.percept, "world", "make", "--kind", "semantickitti", "--frames", "12", "--out", folder]
            run(command)
        rows, frame_m = [], 5.0
        for number, path in enumerate(sorted(folder.rglob("*.bin"))):
            scan = array.array("f", path.read_bytes())
            rows += zip((x + number * frame_m for x in scan[0::4]), scan[1::4], scan[2::4])
            if len(rows) >= points:
                break
        if len(rows) < points:
            raise SystemExit(f"error: the street has only {len(rows)} points")
        random.Random(7).shuffle(rows)
        return rows[:points]

    def ours(self, model, source, threads, options=(), name="percept"):
        command = [self.percept, "bench", model, "--input", self.input(source), "--quiet", *options]
        return Contender(name, [*command, "--threads", str(threads), "--paced"], threads)

    def worker(self, engine, model, source, search):
        command = [self.python, HERE / "worker.py", "--engine", engine, "--torch-model", model]
        return [*command, "--set", f"search={search}", "--input", self.input(source)]

    def theirs(self, engine, model, source, threads, search=None, name=None):
        command = self.worker(engine, model, source, search or engine)
        return Contender(name or engine, [*command, "--threads", str(threads)], threads)

    def agree(self, model, source, engine, search, output):
        path = self.directory / "outputs.safetensors"
        seeded = ["--weights", "seeded"]
        run([self.percept, "run", model, *seeded, "--input", self.input(source), "--save", path])
        ours = tensors.read(path)
        run([*self.worker(engine, model, source, search), "--threads", "1", "--warmup", "0", "--save", path])
        theirs = tensors.read(path)
        result = agreement(f"{model} {source}", {output: ours[output]}, {engine: {output: theirs[output]}})
        self.results["agreement"].append(result)
        print(agreement_table([result]) + "\n", flush=True)

    def compare(self, rows, rounds=None):
        return harness.compare_rows(rows, rounds or self.rounds, self.results)

    def weigh(self, work, subject, other, share, beyond_imports):
        """Peaks of two, and whether the first is at most this share of the second."""
        (peak, _), (against, imported) = peak_memory(subject), peak_memory(other)
        against -= imported if beyond_imports else 0
        result = {"work": work, "peak_bytes": peak, "against": other.name, "against_bytes": against}
        self.results["memory"].append(result | {"share": share, "holds": peak <= share * against})


def morton(point):
    """Where a point lies on the Z curve of cells of 5 cm."""
    code = 0
    cells = [int((value + 500.0) / 0.05) for value in point]
    for bit in range(16):
        for axis in range(3):
            code |= (cells[axis] >> bit & 1) << (3 * bit + axis)
    return code


def network(bench):
    """What PyTorch computes behind the search; percept takes its lists from a cache, which it finds by content."""
    bench.agree("randlanet", bench.prepare(CROP, "shuffled"), "points", "scipy", "logits")
    bench.compare(
        (
            f"network without search, {points}",
            bench.ours("randlanet", bench.prepare(points, "shuffled"), threads, CACHE),
            [bench.theirs("points", "randlanet", bench.prepare(points, "shuffled"), threads, "pykdtree", "torch")],
            bar,
        )
        for points, bar in NETWORK_BARS.items()
        for threads in bench.threads
    )


def whole(bench):
    """Search and network; PyTorch with the fastest tree."""
    bench.compare(
        (
            f"search and network, {points}",
            bench.ours("randlanet", bench.prepare(points, "shuffled"), threads),
            [bench.theirs("points", "randlanet-whole", bench.prepare(points, "shuffled"), threads, "pykdtree", "torch")],
            None,
        )
        for points in NETWORK_BARS
        for threads in bench.threads
    )


def search(bench):
    """16 neighbours of each point, tree and questions; the peers get sorted points too, percept never."""
    source = bench.prepare(CLOUD, "shuffled")
    rows = [("search, shuffled", "shuffled", SEARCH_BAR), ("search, peers sorted", "sorted", SORTED_BAR)]
    bench.compare(
        (
            f"{work}, {CLOUD}",
            bench.ours("knn", source, threads),
            [bench.theirs(tree, "knn", bench.prepare(CLOUD, order), threads) for tree in TREES],
            bar,
        )
        for work, order, bar in rows
        for threads in bench.threads
    )


def million(bench):
    source = bench.prepare(MILLION, "shuffled")
    bench.compare(
        (
            f"search, shuffled, {MILLION}",
            bench.ours("knn", source, threads),
            [bench.theirs("pykdtree", "knn", source, threads)],
            MILLION_BAR,
        )
        for threads in bench.threads
    )


def levels(bench):
    """All four levels and the way back up; scipy is what the PyTorch pipeline has."""
    source = bench.prepare(CLOUD, "shuffled")
    for tree, bar in (("scipy", LEVELS_BAR), ("pykdtree", None)):
        bench.compare(
            (
                f"all levels, {CLOUD}",
                bench.ours("randlanet-levels", source, threads),
                [bench.theirs(tree, "randlanet-levels", source, threads)],
                bar,
            )
            for threads in bench.threads
        )


def memory(bench):
    source = bench.prepare(CLOUD, "shuffled")
    ours = bench.ours("randlanet", source, 1)
    torch = bench.theirs("points", "randlanet-whole", source, 1, "pykdtree", "torch, beyond imports")
    keep = bench.ours("randlanet", source, 1, ["--memory", "keep"], "percept --memory keep")
    bench.weigh(f"search and network, {CLOUD}", ours, torch, MEMORY_SHARE, beyond_imports=True)
    bench.weigh(f"search and network, {CLOUD}", ours, keep, KEEP_SHARE, beyond_imports=False)
    print_memory(bench)


def training(bench):
    """Forward and backward; percept searches and moves its parameters too."""
    source = bench.prepare(CROP, "shuffled")
    step = ["--train", "--batch", "1"]
    ours = lambda threads: Contender(
        "percept", [bench.percept, "bench", "randlanet", *step, "--threads", str(threads), "--paced"], threads
    )
    torch = lambda threads: bench.theirs("points", "randlanet-training", source, threads, "pykdtree", "torch")
    bench.compare((f"training step, {CROP}", ours(threads), [torch(threads)], TRAINING_BAR) for threads in bench.threads)
    bench.weigh(f"training step, {CROP}", ours(1), torch(1), TRAINING_SHARE, beyond_imports=True)
    print_memory(bench)


def print_memory(bench):
    header = ["peak memory, MiB", "percept", "against", "MiB", "share", "bar", "verdict"]
    rows = [
        [
            result["work"],
            f"{result['peak_bytes'] / MEBIBYTE:.0f}",
            result["against"],
            f"{result['against_bytes'] / MEBIBYTE:.0f}",
            f"{result['peak_bytes'] / result['against_bytes']:.2f}",
            f"{result['share']:.2f}",
            verdict(result["holds"]),
        ]
        for result in bench.results["memory"]
    ]
    print(table(header, rows) + "\n", flush=True)


SECTIONS = {
    "network": network, "whole": whole, "search": search, "million": million, "levels": levels, "memory": memory,
    "training": training,
}


if __name__ == "__main__":
    sys.exit(harness.run_sections(__doc__, SECTIONS, "-points", Bench))
