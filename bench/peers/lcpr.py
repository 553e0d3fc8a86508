#!/usr/bin/env python3
"""LCPR on this machine: percept against PyTorch and ONNX Runtime, and its search of places against faiss.

Compares a whole frame, peak memory, and the exact 20 nearest of a million descriptors. README.md tells how to read it.
"""

import array
import sys
from pathlib import Path

import harness
import tensors
from agreement import agreement
from harness import HERE, run
from rounds import Contender, peak_memory
from tables import MEBIBYTE, agreement_table, table, verdict

TORCH_BAR, ORT_BAR, FAISS_BAR = 3.0, 1.75, 1.0
CAMERA, RANGE = (1, 6, 3, 256, 704), (1, 1, 32, 1056)
PLACES, WIDTH, TOP, QUERIES = 1_000_000, 256, 20, (1, 64)


class Bench:
    """Starts percept and its peers, with the files that they share."""

    def __init__(self, args, python, directory):
        self.percept, self.python, self.directory = args.percept, python, Path(directory)
        self.rounds, self.threads = args.rounds, args.threads
        self.results = {"speed": [], "memory": [], "agreement": []}
        self.input, self.onnx = self.directory / "frame.safetensors", self.directory / "lcpr.onnx"

    def prepare(self):
        """A frame of noise, which costs what any frame costs, and the network for ONNX Runtime."""
        if self.onnx.exists():
            return
        noise, frame = 1, {}
        for name, shape in (("camera", CAMERA), ("range", RANGE)):
            values, count = array.array("f"), 1
            for side in shape:
                count *= side
            for _ in range(count):
                noise = noise * 1103515245 + 12345 & 0x7FFFFFFF
                values.append(noise / 0x7FFFFFFF * (50.0 if name == "range" else 1.0))
            frame[name] = (shape, values.tobytes())
        tensors.write(self.input, frame)
        run([self.percept, "export", "lcpr", "--onnx", self.onnx])

    def ours(self, threads):
        command = [self.percept, "bench", "lcpr", "--input", self.input, "--quiet"]
        return Contender("percept", [*command, "--threads", str(threads), "--paced"], threads)

    def worker(self, engine):
        onnx = ["--onnx", self.onnx] if engine == "ort" else []
        return [self.python, HERE / "worker.py", "--engine", engine, "--input", self.input, *onnx]

    def theirs(self, engine, threads):
        name = "torch" if engine == "lcpr" else engine
        return Contender(name, [*self.worker(engine), "--threads", str(threads)], threads)

    def compare(self, rows):
        return harness.compare_rows(rows, self.rounds, self.results)


def frame(bench):
    bench.prepare()
    path = bench.directory / "outputs.safetensors"
    run([bench.percept, "run", "lcpr", "--input", bench.input, "--save", path])
    ours, theirs = tensors.read(path), {}
    for engine in ("lcpr", "ort"):
        run([*bench.worker(engine), "--threads", "1", "--warmup", "0", "--save", path])
        theirs[engine] = tensors.read(path)
    result = agreement("lcpr, a frame", ours, theirs)
    bench.results["agreement"].append(result)
    print(agreement_table([result]) + "\n", flush=True)
    for engine, bar in (("lcpr", TORCH_BAR), ("ort", ORT_BAR)):
        bench.compare(
            ("lcpr, a frame", bench.ours(threads), [bench.theirs(engine, threads)], bar) for threads in bench.threads
        )


def memory(bench):
    bench.prepare()
    rows = []
    for one in (bench.ours(1), bench.theirs("lcpr", 1), bench.theirs("ort", 1)):
        peak, imported = peak_memory(one)
        bench.results["memory"].append({"engine": one.name, "peak_bytes": peak, "imported_bytes": imported})
        rows.append([one.name, f"{peak / MEBIBYTE:.0f}", f"{(peak - imported) / MEBIBYTE:.0f}"])
    print(table(["lcpr, a frame, 1 thread", "peak MiB", "beyond imports"], rows) + "\n", flush=True)


def search(bench):
    """The database is drawn by both sides from the same stream; percept answers with the same rows."""
    for queries in QUERIES:
        settings = {"places": PLACES, "width": WIDTH, "queries": queries, "top": TOP}
        faiss = [bench.python, HERE / "worker.py", "--engine", "faiss"]
        ours = [bench.percept, "place", "bench", "--quiet"]
        for key, value in settings.items():
            faiss += ["--set", f"{key}={value}"]
            ours += [f"--{key}", str(value)]
        path = bench.directory / "rows.safetensors"
        run([*faiss, "--threads", "2", "--warmup", "0", "--save", path])
        theirs = tensors.read(path)["rows"]
        run([*ours, "--threads", "2", "--save", path])
        same = tensors.read(path)["rows"] == theirs
        bench.results["agreement"].append({"work": f"search, {queries} queries", "holds": same})
        print(f"the same rows as faiss, {queries} queries: {verdict(same)}", flush=True)
        bench.compare(
            (
                f"{TOP} nearest of {PLACES}, {queries} queries",
                Contender("percept", [*ours, "--threads", str(threads), "--paced"], threads),
                [Contender("faiss", [*faiss, "--threads", str(threads)], threads)],
                FAISS_BAR,
            )
            for threads in bench.threads
        )


SECTIONS = {"frame": frame, "memory": memory, "search": search}


if __name__ == "__main__":
    sys.exit(harness.run_sections(__doc__, SECTIONS, "-places", Bench))
