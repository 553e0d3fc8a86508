#!/usr/bin/env python3
"""O-MaMa on this machine: percept against PyTorch, ONNX Runtime and OpenVINO.

Compares the backbone with registers at 700x700, descriptors of 32 masks, the head for one thing among 32 candidates, and a
training step on kept features. README.md tells how to read it.
"""

import array
import math
import random
import sys
import tempfile
from pathlib import Path

import harness
import tensors
from agreement import agreement
from harness import HERE, run
from rounds import Contender, peak_memory
from tables import MEBIBYTE, agreement_table, table, verdict

WIDTH, SOURCE, DEST, MASKS, SIDE = 768, 38 * 68, 50 * 50, 32, 700
BACKBONE_BAR, HEAD_BAR, TRAINING_BAR = 1.10, 4.0, 3.0
# 40 ms where PyTorch took 3139.
DESCRIPTORS_BAR = 78.0
BACKBONE = ["dinov2-vitb14", "--set", "registers=4", "--size", f"{SIDE}x{SIDE}"]


class Bench:
    """Starts percept and its peers, with the files that they share."""

    def __init__(self, args, python, directory):
        self.percept, self.python, self.directory = args.percept, python, Path(directory)
        self.rounds, self.threads, self.batch = args.rounds, args.threads, args.batch
        self.results = {"speed": [], "memory": [], "agreement": []}

    def noise(self, name, shapes):
        """Writes tensors of noise with unit variance; pools are means of patches."""
        path = self.directory / f"{name}.safetensors"
        if path.exists():
            return path
        draw, scale = random.Random(0).random, math.sqrt(3)
        written = {}
        for key, shape in shapes.items():
            count = math.prod(shape)
            if key.endswith("pool"):
                values = [draw() for _ in range(count)]
                values = [value * 2 / shape[-1] for value in values]
            else:
                values = [(2 * draw() - 1) * scale for _ in range(count)]
            written[key] = (shape, array.array("f", values).tobytes())
        tensors.write(path, written)
        return path

    def head_input(self):
        shapes = {
            "source_features": (1, SOURCE, WIDTH), "dest_features": (1, DEST, WIDTH),
            "source_pool": (1, 1, 2, SOURCE), "dest_pool": (1, MASKS, 2, DEST),
        }
        return self.noise("head", shapes)

    def ours(self, options, threads, name="percept"):
        command = [self.percept, "bench", *options, "--quiet", "--threads", str(threads), "--paced"]
        return Contender(name, command, threads)

    def worker(self, work, source, threads, engine="omama", extra=()):
        command = [self.python, HERE / "worker.py", "--engine", engine, "--torch-model", work, "--input", source]
        return [*command, "--threads", str(threads), *extra]

    def theirs(self, work, source, threads, name="torch", engine="omama", extra=()):
        return Contender(name, self.worker(work, source, threads, engine, extra), threads)

    def agree(self, work, options, source, output, extra=()):
        path = self.directory / "outputs.safetensors"
        run([self.percept, "run", *options, "--input", source, "--save", path])
        ours = tensors.read(path)
        run([*self.worker(work, source, 1, extra=extra), "--warmup", "0", "--save", path])
        theirs = tensors.read(path)
        result = agreement(work, {output: ours[output]}, {"torch": {output: theirs[output]}})
        self.results["agreement"].append(result)
        print(agreement_table([result]) + "\n", flush=True)

    def compare(self, rows):
        return harness.compare_rows(rows, self.rounds, self.results)


def backbone(bench):
    source = bench.noise("picture", {"image": (1, 3, SIDE, SIDE)})
    onnx = bench.directory / "backbone.onnx"
    run([bench.percept, "export", *BACKBONE, "--onnx", onnx])
    bench.agree("omama-backbone", BACKBONE, source, "x_norm_patchtokens")
    exported = ["--onnx", str(onnx)]
    bench.compare(
        (
            f"DINOv2-reg {SIDE}x{SIDE}",
            bench.ours(BACKBONE, threads),
            [
                bench.theirs("omama-backbone", source, threads),
                bench.theirs("", source, threads, "ort", "ort", exported),
                bench.theirs("", source, threads, "openvino", "openvino", exported),
            ],
            BACKBONE_BAR,
        )
        for threads in bench.threads
    )
    (peak, _), (against, imported) = (
        peak_memory(contender) for contender in (bench.ours(BACKBONE, 1), bench.theirs("omama-backbone", source, 1))
    )
    result = {"work": f"DINOv2-reg {SIDE}x{SIDE}", "peak_bytes": peak, "against_bytes": against - imported}
    bench.results["memory"].append(result | {"holds": peak <= against - imported})
    row = [result["work"], f"{peak / MEBIBYTE:.0f}", f"{(against - imported) / MEBIBYTE:.0f}", verdict(peak <= against - imported)]
    print(table(["peak memory, MiB", "percept", "torch, beyond imports", "verdict"], [row]) + "\n", flush=True)


def descriptors(bench):
    """percept takes means in the space of patches, one product; PyTorch enlarges the features, as published."""
    source = bench.head_input()
    bench.compare(
        (
            f"descriptors, {MASKS} masks",
            bench.ours(["omama-descriptors"], threads),
            [bench.theirs("omama-descriptors", source, threads)],
            DESCRIPTORS_BAR,
        )
        for threads in bench.threads
    )


def head(bench):
    source = bench.head_input()
    bench.agree("omama-head", ["omama-head"], source, "similarity")
    bench.compare(
        (
            f"head, 1 of {MASKS}",
            bench.ours(["omama-head", "--input", str(source)], threads),
            [bench.theirs("omama-head", source, threads)],
            HEAD_BAR,
        )
        for threads in bench.threads
    )


def training(bench):
    """A step of the head on features in memory; percept pools and moves its parameters too, as PyTorch does."""
    source = bench.head_input()
    batch = ["--set", f"batch={bench.batch}"]
    bench.compare(
        (
            f"training step, batch {bench.batch}",
            bench.ours(["omama", "--train", "--batch", str(bench.batch)], threads),
            [bench.theirs("omama-training", source, threads, extra=batch)],
            TRAINING_BAR,
        )
        for threads in bench.threads
    )


SECTIONS = {"backbone": backbone, "descriptors": descriptors, "head": head, "training": training}


def arguments():
    options = harness.parser(__doc__)
    options.add_argument("--only", help=f"sections, comma-separated, of {','.join(SECTIONS)}")
    options.add_argument("--threads", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2])
    options.add_argument("--batch", type=int, default=12, help="pairs of a training step (default: %(default)s)")
    args = harness.parse(options)
    args.sections = args.only.split(",") if args.only else list(SECTIONS)
    unknown = set(args.sections) - set(SECTIONS)
    if unknown:
        options.error(f"unknown section {', '.join(sorted(unknown))}; known: {', '.join(SECTIONS)}")
    return args


def main():
    args = arguments()
    python = harness.ensure_environment(args.venv, "-torch")
    with tempfile.TemporaryDirectory(prefix="percept-peers-") as directory:
        bench = Bench(args, python, directory)
        for name in args.sections:
            SECTIONS[name](bench)
    if args.json:
        harness.write_record(args.json, args.rounds, bench.results)
    return harness.exit_code(bench.results)


if __name__ == "__main__":
    sys.exit(main())
