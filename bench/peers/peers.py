#!/usr/bin/env python3
"""percept against ONNX Runtime, OpenVINO and PyTorch on this machine: speed, memory, and equal outputs.

Makes a Python environment with pinned engines, exports percept's networks to ONNX, runs every engine on
them in its own process with interleaved rounds, and prints a table. README.md tells how to read it.
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
from rounds import Contender, compare, compare_memory
from harness import HERE, run
from tables import agreement_table, memory_table, speed_table

PEERS = ("ort", "openvino", "torch")
INPUT = "input.safetensors"


@dataclasses.dataclass(frozen=True)
class Work:
    """One network (or layer) at one size, and how many times faster than the fastest peer percept must be."""

    name: str
    model: str
    input: str
    shape: tuple
    bars: dict  # threads -> required ratio
    settings: dict = dataclasses.field(default_factory=dict)
    memory: bool = False

    def percept_options(self):
        options = [f"--set={key}={value}" for key, value in self.settings.items()]
        if self.model != "conv2d":
            batch, _, height, width = self.shape
            options += ["--batch", str(batch), "--size", f"{height}x{width}"]
        return [self.model, *options]


def conv3x3(channels, side, bars):
    settings = {"in_channels": channels, "out_channels": channels, "height": side, "width": side}
    settings |= {"kernel": 3, "padding": 1}
    name = f"conv2d-3x3-{channels}-{side}x{side}"
    return Work(name, "conv2d", "x", (1, channels, side, side), bars, settings)


def network(model, batch, height, width, bars, memory=False):
    name = f"{model}-batch{batch}-{height}x{width}"
    return Work(name, model, "image", (batch, 3, height, width), bars, memory=memory)


WORK = [
    conv3x3(128, 180, {1: 2.7, 2: 2.4}),
    conv3x3(256, 90, {1: 2.7, 2: 2.4}),
    network("resnet18", 6, 256, 704, {1: 1.9, 2: 1.9}),
    network("resnet50", 1, 224, 224, {1: 1.15, 2: 1.1}),
    network("resnet50", 8, 224, 224, {1: 1.15, 2: 1.1}, memory=True),
    network("dinov2-vitb14", 1, 518, 518, {1: 1.08, 2: 1.08}, memory=True),
    network("efficientnet-b0", 1, 224, 224, {1: 1.1, 2: 1.1}),
    network("efficientnet-b0", 8, 224, 224, {1: 1.1, 2: 1.1}),
]


class Bench:
    """Starts percept and its peers on a work item, with the files that they share."""

    def __init__(self, percept, python, directory):
        self.percept, self.python, self.directory = percept, python, Path(directory)

    def file(self, work, kind):
        return self.directory / f"{work.name}.{kind}"

    def prepare(self, work):
        """Exports the network and draws its input: uniform, with unit variance."""
        run([self.percept, "export", *work.percept_options(), "--onnx", self.file(work, "onnx")])
        draw, scale = random.Random(0).random, math.sqrt(3)
        values = array.array("f", ((2 * draw() - 1) * scale for _ in range(math.prod(work.shape))))
        tensors.write(self.file(work, INPUT), {work.input: (work.shape, values.tobytes())})

    def clean(self, work):
        for path in self.directory.glob(f"{work.name}.*"):
            path.unlink()

    def worker(self, engine, work, threads):
        command = [self.python, HERE / "worker.py", "--engine", engine, "--input", self.file(work, INPUT)]
        if engine == "torch":
            command += ["--torch-model", work.model]
            command += [f"--set={key}={value}" for key, value in work.settings.items()]
        else:
            command += ["--onnx", self.file(work, "onnx")]
        return [*command, "--threads", str(threads)]

    def contender(self, engine, work, threads):
        if engine == "percept":
            command = [self.percept, "bench", *work.percept_options(), "--threads", str(threads), "--paced"]
        else:
            command = self.worker(engine, work, threads)
        return Contender(engine, command, threads)

    def contenders(self, work, peers, threads):
        return self.contender("percept", work, threads), [self.contender(peer, work, threads) for peer in peers]

    def outputs(self, engine, work):
        """What an engine makes of the work item's input."""
        path = self.file(work, f"{engine}.safetensors")
        if engine == "percept":
            options = work.percept_options()
            run([self.percept, "run", *options, "--input", self.file(work, INPUT), "--save", path])
        else:
            run([*self.worker(engine, work, threads=1), "--warmup", "0", "--save", path])
        return tensors.read(path)


def arguments():
    options = harness.parser(__doc__)
    options.add_argument("--torch", action="store_true", help="compare with PyTorch too (a download of several GB)")
    options.add_argument("--engines", help=f"peers, comma-separated, of {','.join(PEERS)}")
    options.add_argument("--only", default="", help="work items whose name contains one of these, comma-separated")
    options.add_argument("--threads", default="1,2", help="thread counts, comma-separated (default: %(default)s)")
    args = harness.parse(options)
    args.engines = args.engines.split(",") if args.engines else [*PEERS[:2], *(["torch"] if args.torch else [])]
    unknown = set(args.engines) - set(PEERS)
    if unknown:
        options.error(f"unknown engine {', '.join(sorted(unknown))}; known: {', '.join(PEERS)}")
    args.threads = [int(count) for count in args.threads.split(",")]
    if min(args.threads) < 1:
        options.error("--threads must be at least 1")
    args.work = [work for work in WORK if any(part in work.name for part in args.only.split(","))]
    if not args.work:
        options.error(f"--only {args.only} matches none of: {', '.join(work.name for work in WORK)}")
    return args


def main():
    args = arguments()
    peers = args.engines
    python = harness.ensure_environment(args.venv, "-torch" if "torch" in peers else "")
    results = {"speed": [], "memory": [], "agreement": []}
    with tempfile.TemporaryDirectory(prefix="percept-peers-") as directory:
        bench = Bench(args.percept, python, directory)
        for work in args.work:
            print(work.name, file=sys.stderr)
            bench.prepare(work)
            ours, theirs = bench.outputs("percept", work), {peer: bench.outputs(peer, work) for peer in peers}
            results["agreement"].append(agreement(work.name, ours, theirs))
            for threads in args.threads:
                bar = work.bars.get(threads)
                result = compare(work.name, *bench.contenders(work, peers, threads), args.rounds, bar)
                print(f"  threads {threads}: {result['ratio']:.2f}x", file=sys.stderr)
                results["speed"].append(result)
            if work.memory:
                results["memory"].append(compare_memory(work.name, *bench.contenders(work, peers, threads=1)))
            bench.clean(work)
    print(speed_table(results["speed"]))
    if results["memory"]:
        print("\n" + memory_table(results["memory"]))
    print("\n" + agreement_table(results["agreement"]))
    if args.json:
        harness.write_record(args.json, args.rounds, results)
    return harness.exit_code(results)


if __name__ == "__main__":
    sys.exit(main())
