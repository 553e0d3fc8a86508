#!/usr/bin/env python3
"""percept against ONNX Runtime, OpenVINO and PyTorch on this machine: speed, memory, and equal outputs.

Makes a Python environment with pinned engines, exports percept's networks to ONNX, runs every engine on
them in its own process with interleaved rounds, and prints a table. README.md tells how to read it.
"""

import argparse
import array
import contextlib
import dataclasses
import json
import math
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import tensors

HERE = Path(__file__).resolve().parent
PEERS = ("ort", "openvino", "torch")
ROUNDS = 15
SLACK = 0.03  # A bar holds when the interval's lower end is above the bar less this share of it.
TOLERANCE = 1e-3  # Largest difference of an output, in its standard deviations, for `fast` mode.
MEMORY_INFERENCES = 10
MEBIBYTE = 1 << 20
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
    network("efficientnet-b0", 1, 224, 224, {1: 0.9, 2: 0.9}),
    network("efficientnet-b0", 8, 224, 224, {1: 0.9, 2: 0.9}),
]


class Engine:
    """A running process that answers one line with one inference."""

    def __init__(self, name, command, threads):
        # OpenMP's threads must not spin while another engine has its turn.
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
        self.name = name
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"error: {self.name} ended early with exit code {self.process.wait()}")
        return json.loads(line)

    def infer(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()

    def finish(self):
        """Ends the process; returns its last words, with the peak memory."""
        self.process.stdin.close()
        return self.answer()


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

    def start(self, engine, work, threads):
        if engine == "percept":
            command = [self.percept, "bench", *work.percept_options(), "--threads", str(threads), "--paced"]
        else:
            command = self.worker(engine, work, threads)
        return Engine(engine, command, threads)

    def outputs(self, engine, work):
        """What an engine makes of the work item's input."""
        path = self.file(work, f"{engine}.safetensors")
        if engine == "percept":
            options = work.percept_options()
            run([self.percept, "run", *options, "--input-tensors", self.file(work, INPUT), "--save", path])
        else:
            run([*self.worker(engine, work, threads=1), "--warmup", "0", "--save", path])
        return tensors.read(path)


def run(command):
    """Runs a command whose chatter nobody needs unless it fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        words = " ".join(map(str, command))
        raise SystemExit(f"{result.stdout}error: exit code {result.returncode} from: {words}")


def ensure_environment(directory, with_torch):
    """The Python of a virtual environment that has the pinned engines; pip is quick when it is complete."""
    python = directory / "bin" / "python"
    if not python.exists():
        size = "several GB" if with_torch else "about 0.5 GB"
        print(f"making the Python environment {directory} ({size})", file=sys.stderr)
        run([sys.executable, "-m", "venv", directory])
    requirements = HERE / ("requirements-torch.txt" if with_torch else "requirements.txt")
    run([python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "-r", requirements])
    return python


def difference(ours, theirs):
    """The largest difference of any output, in standard deviations of that output."""
    if ours.keys() != theirs.keys():
        raise SystemExit(f"error: outputs differ by name: {sorted(ours)} and {sorted(theirs)}")
    worst = 0.0
    for name, (shape, data) in ours.items():
        if list(shape) != list(theirs[name][0]):
            raise SystemExit(f"error: {name} has shape {shape} and {theirs[name][0]}")
        a, b = array.array("f", data), array.array("f", theirs[name][1])
        gaps = [abs(x - y) for x, y in zip(a, b)]
        # max() would drop a NaN that is not the first; a sum keeps it.
        largest = max(gaps) if math.isfinite(sum(gaps)) else math.inf
        mean = math.fsum(a) / len(a)
        deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in a) / len(a))
        worst = max(worst, largest / deviation if deviation else largest)
    return worst


def measure(bench, work, peers, threads, rounds):
    """Interleaved rounds, one process an engine, all alive: versions and a list of {engine: [milliseconds]}."""
    # One thread is judged by the CPU time it used, which neighbours on the machine disturb least.
    clock = "cpu_ms" if threads == 1 else "wall_ms"
    with contextlib.ExitStack() as stack:
        engines = {name: stack.enter_context(bench.start(name, work, threads)) for name in ("percept", *peers)}
        versions = {name: engine.answer().get("version") for name, engine in engines.items()}
        samples = []
        for _ in range(rounds):
            samples.append({name: [] for name in engines})
            for peer in peers:
                for name in ("percept", peer):
                    samples[-1][name].append(engines[name].infer()[clock])
        return versions, samples


def median(samples, engine):
    return statistics.median(value for sample in samples for value in sample[engine])


def ratio(samples, peer):
    return median(samples, peer) / median(samples, "percept")


def ratio_interval(samples, peer, resamples=2000):
    """The 95 % bootstrap interval of the ratio of medians. Whole rounds are drawn: their noise is shared."""
    draw = random.Random(0)
    ratios = sorted(ratio(draw.choices(samples, k=len(samples)), peer) for _ in range(resamples))
    return ratios[int(0.025 * resamples)], ratios[int(0.975 * resamples)]


def speed(bench, work, peers, threads, rounds):
    versions, samples = measure(bench, work, peers, threads, rounds)
    fastest = min(peers, key=lambda peer: median(samples, peer))
    low, high = ratio_interval(samples, fastest)
    bar = work.bars.get(threads)
    return {
        "work": work.name,
        "threads": threads,
        "clock": "cpu" if threads == 1 else "wall",
        "median_ms": {engine: median(samples, engine) for engine in ("percept", *peers)},
        "fastest_peer": fastest,
        "ratio": ratio(samples, fastest),
        "ratio_interval": [low, high],
        "bar": bar,
        "holds": None if bar is None else low > bar * (1 - SLACK),
        "versions": versions,
        "samples_ms": samples,
    }


def memory(bench, work, peers):
    """Peak resident memory of a process that loads the network and runs it, one thread."""
    peak, beyond_import = {}, {}
    for name in ("percept", *peers):
        with bench.start(name, work, threads=1) as engine:
            imported = engine.answer().get("import_memory_bytes", 0)
            for _ in range(MEMORY_INFERENCES):
                engine.infer()
            peak[name] = engine.finish()["peak_memory_bytes"]
            beyond_import[name] = peak[name] - imported
    smallest = min(beyond_import[peer] for peer in peers)
    return {
        "work": work.name,
        "peak_bytes": peak,
        "beyond_import_bytes": beyond_import,
        "holds": peak["percept"] < smallest,
    }


def table(header, rows):
    """Left-aligned first column, right-aligned others."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = []
    for row in (header, *rows):
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append("  ".join(cells))
    return "\n".join(lines)


def verdict(holds):
    return {True: "holds", False: "FAILS", None: "-"}[holds]


def speed_table(results, peers):
    header = ["work", "threads", "percept ms", *(f"{peer} ms" for peer in peers)]
    header += ["fastest", "ratio", "95 % interval", "bar", "verdict"]
    rows = []
    for result in results:
        low, high = result["ratio_interval"]
        rows.append(
            [result["work"], f"{result['threads']} {result['clock']}"]
            + [f"{milliseconds:.2f}" for milliseconds in result["median_ms"].values()]
            + [result["fastest_peer"], f"{result['ratio']:.2f}x", f"{low:.2f}-{high:.2f}"]
            + [f"{result['bar']}x" if result["bar"] else "-", verdict(result["holds"])]
        )
    return table(header, rows)


def memory_table(results, peers):
    header = ["peak memory, MiB (beyond imports)", "percept", *peers, "verdict"]
    rows = []
    for result in results:
        peak, beyond = result["peak_bytes"], result["beyond_import_bytes"]
        cells = [f"{peak[peer] / MEBIBYTE:.0f} ({beyond[peer] / MEBIBYTE:.0f})" for peer in peers]
        rows.append([result["work"], f"{peak['percept'] / MEBIBYTE:.0f}", *cells, verdict(result["holds"])])
    return table(header, rows)


def agreement_table(results, peers):
    header = ["largest difference / output std", *peers, "verdict"]
    rows = [
        [result["work"], *(f"{result['difference'][peer]:.1e}" for peer in peers), verdict(result["holds"])]
        for result in results
    ]
    return table(header, rows)


def arguments():
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--percept", default="percept", help="the percept command (default: from PATH)")
    parser.add_argument(
        "--venv",
        type=Path,
        default=Path(os.environ.get("PERCEPT_PEERS_VENV") or cache / "percept" / "peers"),
        help="Python environment to make or use (default: $PERCEPT_PEERS_VENV, or %(default)s)",
    )
    parser.add_argument("--torch", action="store_true", help="compare with PyTorch too (a download of several GB)")
    parser.add_argument("--engines", help=f"peers, comma-separated, of {','.join(PEERS)}")
    parser.add_argument("--only", default="", help="work items whose name contains one of these, comma-separated")
    parser.add_argument("--threads", default="1,2", help="thread counts, comma-separated (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds a measurement (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="F", help="also write every sample to this file")
    args = parser.parse_args()
    if not shutil.which(args.percept):
        parser.error(f"no command {args.percept}; build it with cargo build --release and name it by --percept")
    args.engines = args.engines.split(",") if args.engines else [*PEERS[:2], *(["torch"] if args.torch else [])]
    unknown = set(args.engines) - set(PEERS)
    if unknown:
        parser.error(f"unknown engine {', '.join(sorted(unknown))}; known: {', '.join(PEERS)}")
    args.threads = [int(count) for count in args.threads.split(",")]
    if min(args.threads) < 1 or args.rounds < 1:
        parser.error("--threads and --rounds must be at least 1")
    args.work = [work for work in WORK if any(part in work.name for part in args.only.split(","))]
    if not args.work:
        parser.error(f"--only {args.only} matches none of: {', '.join(work.name for work in WORK)}")
    return args


def main():
    args = arguments()
    peers = args.engines
    python = ensure_environment(args.venv, "torch" in peers)
    if args.rounds < ROUNDS:
        print(f"note: fewer than {ROUNDS} rounds are a look, not a measurement", file=sys.stderr)
    speeds, memories, agreements = [], [], []
    with tempfile.TemporaryDirectory(prefix="percept-peers-") as directory:
        bench = Bench(args.percept, python, directory)
        for work in args.work:
            print(work.name, file=sys.stderr)
            bench.prepare(work)
            ours = bench.outputs("percept", work)
            gaps = {peer: difference(ours, bench.outputs(peer, work)) for peer in peers}
            agreements.append({"work": work.name, "difference": gaps, "holds": max(gaps.values()) <= TOLERANCE})
            for threads in args.threads:
                speeds.append(speed(bench, work, peers, threads, args.rounds))
                print(f"  threads {threads}: {speeds[-1]['ratio']:.2f}x", file=sys.stderr)
            if work.memory:
                memories.append(memory(bench, work, peers))
            bench.clean(work)
    print(speed_table(speeds, peers))
    if memories:
        print("\n" + memory_table(memories, peers))
    print("\n" + agreement_table(agreements, peers))
    if args.json:
        record = {
            "schema_version": 1,
            "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "system": platform.platform()},
            "rounds": args.rounds,
            "speed": speeds,
            "memory": memories,
            "agreement": agreements,
        }
        args.json.write_text(json.dumps(record, indent=1) + "\n")
    failed = any(result["holds"] is False for result in [*speeds, *memories, *agreements])
    return 1 if failed else 0


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    sys.exit(main())
