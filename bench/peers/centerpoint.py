#!/usr/bin/env python3
"""CenterPoint on this machine: percept against PyTorch + spconv, ONNX Runtime and OpenVINO.

Compares the sparse part, the dense part and the whole network, skipping with not skipping, and peak memory,
on a LiDAR keyframe and on ten merged sweeps; shows how the sparse part grows with the number of voxels.
README.md tells how to read it. Without --spconv only what needs no PyTorch is compared.
"""

import sys
import tempfile
from pathlib import Path

import clouds
import harness
import tensors
from agreement import agreement
from growth import grow, growth_table
from harness import HERE, run
from rounds import Contender, compare_memory
from tables import agreement_table, memory_table

MEMORY_LIMIT_BYTES = 300 * 10**6
# How many times faster than its fastest peer percept must be: {threads: ratio}.
SPARSE_BARS = {"keyframe": {1: 1.5, 2: 2.5}, "ten-sweeps": {1: 1.9, 2: 3.2}}
DENSE_BARS = {1: 2.4, 2: 2.2}
WHOLE_BARS = {1: 3.2, 2: 5.5}
SKIPPING_BARS = {"keyframe": 1.12, "ten-sweeps": 1.03}


class Bench:
    """Starts percept and its peers on the parts of CenterPoint, with the files that they share."""

    def __init__(self, args, python, directory):
        self.percept, self.python, self.directory = args.percept, python, Path(directory)
        self.rounds, self.spconv = args.rounds, args.spconv
        self.onnx = self.directory / "dense.onnx"
        self.results = {"speed": [], "memory": [], "agreement": []}

    def prepare(self, sweeps):
        for name, cloud in sweeps.items():
            clouds.write_input(self.input(name), cloud)

    def input(self, name):
        return self.directory / f"{name}.safetensors"

    def prepare_dense(self):
        """Exports the dense part, and makes its input from the keyframe."""
        run([self.percept, "export", "centerpoint-dense", "--onnx", self.onnx])
        tensors.write(self.input("bev"), self.outputs("percept", "centerpoint-sparse", "keyframe"))

    def ours(self, model, source, threads, name="percept", options=()):
        command = [self.percept, "bench", model, "--input", self.input(source), *options]
        return Contender(name, [*command, "--threads", str(threads), "--paced"], threads)

    def theirs(self, engine, model, source, threads):
        return Contender(engine, [*self.worker(engine, model, source), "--threads", str(threads)], threads)

    def worker(self, engine, model, source):
        network = ["--onnx", self.onnx] if engine in ("ort", "openvino") else ["--torch-model", model]
        return [self.python, HERE / "worker.py", "--engine", engine, "--input", self.input(source), *network]

    def outputs(self, engine, model, source):
        path = self.directory / "outputs.safetensors"
        if engine == "percept":
            run([self.percept, "run", model, "--input", self.input(source), "--save", path])
        else:
            run([*self.worker(engine, model, source), "--threads", "1", "--warmup", "0", "--save", path])
        return tensors.read(path)

    def agree(self, model, source, peers):
        """Checks that the peers compute the same network."""
        ours, *theirs = (self.outputs(engine, model, source) for engine in ("percept", *peers))
        ours.pop("detections", None)  # Only percept decodes; its head maps are outputs too.
        result = agreement(f"{model} {source}", ours, dict(zip(peers, theirs)))
        self.results["agreement"].append(result)
        print(agreement_table([result]) + "\n")

    def compare(self, rows):
        return harness.compare_rows(rows, self.rounds, self.results)


def sparse(bench):
    """Points to bird's-eye map. spconv has one thread at most: with more, its CPU path gives wrong rows."""
    bench.agree("centerpoint-sparse", "keyframe", ["spconv"])
    bench.compare(
        (
            f"sparse part, {source}",
            bench.ours("centerpoint-sparse", source, threads),
            [bench.theirs("spconv", "centerpoint-sparse", source, threads=1)],
            bar,
        )
        for source, bars in SPARSE_BARS.items()
        for threads, bar in bars.items()
    )


def dense(bench):
    """Bird's-eye map to heads. percept computes every cell here: it does not know which are empty."""
    peers = ["ort", "openvino", *(["spconv"] if bench.spconv else [])]
    bench.prepare_dense()
    bench.agree("centerpoint-dense", "bev", peers)
    bench.compare(
        (
            "dense part",
            bench.ours("centerpoint-dense", "bev", threads),
            [bench.theirs(peer, "centerpoint-dense", "bev", threads) for peer in peers],
            bar,
        )
        for threads, bar in DENSE_BARS.items()
    )


def whole(bench):
    """Points to boxes for percept, voxels to heads for the peer."""
    bench.agree("centerpoint", "keyframe", ["spconv"])
    bench.compare(
        (
            "whole, keyframe",
            bench.ours("centerpoint", "keyframe", threads),
            [bench.theirs("spconv", "centerpoint", "keyframe", threads=1)],
            bar,
        )
        for threads, bar in WHOLE_BARS.items()
    )


def skipping(bench):
    """percept against itself: where a map is empty, copy, compute, or do not look."""
    def ours(source, empty):
        return bench.ours("centerpoint", source, threads=1, name=empty, options=["--empty", empty])

    bench.compare(
        (f"skipping, {source}", ours(source, "skip"), [ours(source, "compute"), ours(source, "ignore")], bar)
        for source, bar in SKIPPING_BARS.items()
    )


def memory(bench):
    peers = [bench.theirs("spconv", "centerpoint", "keyframe", threads=1)] if bench.spconv else []
    subject = bench.ours("centerpoint", "keyframe", threads=1)
    result = compare_memory("whole, keyframe", subject, peers, MEMORY_LIMIT_BYTES)
    bench.results["memory"].append(result)
    print(memory_table([result]) + "\n", flush=True)


SECTIONS = {"sparse": sparse, "dense": dense, "whole": whole, "skipping": skipping, "memory": memory}
NEED_SPCONV = ("sparse", "whole")


def arguments():
    options = harness.parser(__doc__)
    options.add_argument("--spconv", action="store_true", help="compare with PyTorch + spconv too (several GB)")
    options.add_argument("--keyframe", type=Path, metavar="F", help="nuScenes .pcd.bin (default: a synthetic one)")
    options.add_argument("--ten-sweeps", type=Path, metavar="F", help="merged sweeps, float16 x 5 (default: synthetic)")
    options.add_argument("--only", help=f"sections, comma-separated, of {','.join(SECTIONS)}")
    options.add_argument("--growth", action="store_true", help="show growth with the number of voxels instead")
    args = harness.parse(options)
    possible = [name for name in SECTIONS if args.spconv or name not in NEED_SPCONV]
    wanted = args.only.split(",") if args.only else possible
    unknown = set(wanted) - set(SECTIONS)
    if unknown:
        options.error(f"unknown section {', '.join(sorted(unknown))}; known: {', '.join(SECTIONS)}")
    if not set(wanted) <= set(possible):
        options.error(f"{' and '.join(NEED_SPCONV)} need --spconv")
    args.sections = wanted
    return args


def sweeps(args, directory):
    """The clouds to measure on, by name."""
    made = {}
    if not (args.keyframe and args.ten_sweeps):
        made = dict(zip(("keyframe", "ten-sweeps"), clouds.synthetic(args.percept, directory / "world")))
    if args.keyframe:
        made["keyframe"] = clouds.read_sweep(args.keyframe)
    if args.ten_sweeps:
        made["ten-sweeps"] = clouds.read_half(args.ten_sweeps)
    return made


def main():
    args = arguments()
    python = None if args.growth else harness.ensure_environment(args.venv, "-spconv" if args.spconv else "")
    with tempfile.TemporaryDirectory(prefix="percept-peers-") as directory:
        inputs = sweeps(args, Path(directory))
        bench = Bench(args, python, directory)
        if args.growth:
            results = {"growth": grow(bench, inputs["ten-sweeps"])}
            print(growth_table(results["growth"]))
        else:
            bench.prepare(inputs)
            for name in args.sections:
                SECTIONS[name](bench)
            results = bench.results
    if args.json:
        harness.write_record(args.json, args.rounds, results)
    return harness.exit_code(results)


if __name__ == "__main__":
    sys.exit(main())
