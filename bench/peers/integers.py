#!/usr/bin/env python3
"""Networks in integers on this machine: percept against ONNX Runtime and OpenVINO, with everybody's f32 beside it.

percept runs what `percept quantize` writes, the others what ONNX Runtime's own static quantiser (QDQ, a scale a channel) makes of
the exported network, with ranges of the same samples. README.md tells how to read it.
"""

import array
import dataclasses
import math
import random
import sys
from pathlib import Path

import harness
import peers
import tensors
from harness import HERE, run
from rounds import Contender, clock_of, compare_memory, interleave, judge
from tables import memory_table, speed_table

CALIBRATION = "samples.safetensors"
SAMPLES = 8
PEERS = ("ort", "openvino")
NETWORK_BARS = {"int8": 1.08, "f32": 1.6}


@dataclasses.dataclass(frozen=True)
class Row:
    """Work in integers, and how many times faster than the others' integers and than percept's own f32 it must be."""

    work: peers.Work
    bars: dict
    # A layer's input lies behind a ReLU.
    positive: bool = False
    memory: bool = False


def layer(kernel, inputs, outputs, side, bars, depth=1):
    settings = {"in_channels": inputs, "out_channels": outputs, "height": side, "width": side}
    settings |= {"kernel": kernel, "padding": kernel // 2}
    name = f"conv2d-{kernel}x{kernel}-{inputs}-{outputs}-{side}x{side}"
    if depth > 1:
        settings |= {"depth": depth}
        name += f"-{depth}deep"
    return Row(peers.Work(name, "conv2d", "x", (1, inputs, side, side), {}, settings), bars, positive=True)


MAP_BARS = {"int8": 2.2, "f32": 1.5}

SECTIONS = {
    "conv3x3": [layer(3, 128, 128, 180, MAP_BARS), layer(3, 256, 256, 90, MAP_BARS)],
    # What such layers cost inside of a network, where bytes flow from one to the next: CenterPoint's blocks.0 and blocks.1.
    "chain3x3": [layer(3, 128, 128, 180, MAP_BARS, depth=5), layer(3, 256, 256, 90, MAP_BARS, depth=5)],
    "conv1x1": [
        layer(1, inputs, outputs, side, {"f32": 1.8})
        for inputs, outputs, side in [(64, 256, 56), (256, 64, 56), (512, 128, 28), (1024, 256, 14), (512, 2048, 7)]
    ],
    "resnet50": [
        Row(peers.network("resnet50", 1, 224, 224, {}), NETWORK_BARS, memory=True),
        Row(peers.network("resnet50", 8, 224, 224, {}), NETWORK_BARS, memory=True),
    ],
    "dinov2": [Row(peers.network("dinov2-vitb14", 1, 518, 518, {}), {"f32": 1.35}, memory=True)],
}


class Bench:
    """Starts percept and its peers on a row, in integers or floats, with the files that they share."""

    def __init__(self, args, python, directory):
        self.percept, self.python, self.directory = args.percept, python, Path(directory)
        self.rounds, self.threads = args.rounds, args.threads
        self.results = {"speed": [], "memory": []}

    def file(self, row, kind):
        return self.directory / f"{row.work.name}.{kind}"

    def prepare(self, row):
        """Draws samples, lets both sides calibrate on them, and exports the network in floats."""
        work = row.work
        draw, scale = random.Random(0).random, math.sqrt(3)
        low = 0 if row.positive else -scale
        number = lambda: low + (scale - low) * draw()
        one = work.shape[1:]
        noise = lambda samples: array.array("f", (number() for _ in range(samples * math.prod(one)))).tobytes()
        tensors.write(self.file(row, CALIBRATION), {work.input: ((SAMPLES, *one), noise(SAMPLES))})
        tensors.write(self.file(row, peers.INPUT), {work.input: (work.shape, noise(work.shape[0]))})
        quantize = [self.percept, "quantize", *work.percept_options(), "--calibrate", self.file(row, CALIBRATION)]
        run([*quantize, "--samples", str(SAMPLES), "--measured", "1", "--to", self.file(row, "i8.safetensors")])
        run([self.percept, "export", *work.percept_options(), "--onnx", self.file(row, "f32.onnx")])
        files = [self.file(row, kind) for kind in ("f32.onnx", "int8.onnx", CALIBRATION)]
        run([self.python, HERE / "quantize_onnx.py", *files])

    def clean(self, row):
        for path in self.directory.glob(f"{row.work.name}.*"):
            path.unlink()

    def contender(self, engine, kind, row, threads):
        if engine == "percept":
            command = [self.percept, "bench", *row.work.percept_options(), "--threads", str(threads), "--paced"]
            command += ["--weights", self.file(row, "i8.safetensors") if kind == "int8" else "seeded"]
        else:
            command = [self.python, HERE / "worker.py", "--engine", engine, "--input", self.file(row, peers.INPUT)]
            command += ["--onnx", self.file(row, f"{kind}.onnx"), "--threads", str(threads)]
        return Contender(f"{engine} {kind}", command, threads)

    def measure(self, row, threads):
        """One run of everybody in turns, judged against the others' integers and against percept's own floats."""
        subject = self.contender("percept", "int8", row, threads)
        integers = [self.contender(engine, "int8", row, threads) for engine in PEERS]
        floats = [self.contender(engine, "f32", row, threads) for engine in ("percept", *PEERS)]
        clock = clock_of(subject)
        versions, samples = interleave(subject, [*integers, *floats], f"{clock}_ms", self.rounds)
        for against, names in (("int8", [one.name for one in integers]), ("f32", [floats[0].name])):
            judged = judge(row.work.name, subject, names, clock, versions, samples, row.bars.get(against))
            print(f"  threads {threads}: {judged['ratio']:.2f}x of {judged['fastest_peer']}", file=sys.stderr)
            self.results["speed"].append(judged)


def section(rows):
    def measured(bench):
        first, first_memory = len(bench.results["speed"]), len(bench.results["memory"])
        for row in rows:
            print(row.work.name, file=sys.stderr)
            bench.prepare(row)
            for threads in bench.threads:
                bench.measure(row, threads)
            if row.memory:
                own = [bench.contender("percept", kind, row, 1) for kind in ("int8", "f32")]
                bench.results["memory"].append(compare_memory(row.work.name, own[0], own[1:]))
            bench.clean(row)
        print(speed_table(bench.results["speed"][first:]) + "\n", flush=True)
        if bench.results["memory"][first_memory:]:
            print(memory_table(bench.results["memory"][first_memory:]) + "\n", flush=True)

    return measured


if __name__ == "__main__":
    sections = {name: section(rows) for name, rows in SECTIONS.items()}
    sys.exit(harness.run_sections(__doc__, sections, "", Bench))
