"""Whether ONNX Runtime and OpenVINO compute what percept does in integers: `qdq_agreement.py NETWORK [WEIGHTS] [--size HxW]`.

Quantises the network (seeded, on samples that percept makes, unless WEIGHTS are quantised ones already), exports it with QDQ, runs the
file and `percept run --exact-integers` on noise that it was not calibrated on, and tells of each output how many numbers lie within a
step of its own scale (its largest number through 127). With --layers it tells of every quantiser how many of the integers that ONNX
Runtime gives to the layer behind it differ, and how far the furthest is: the first layer that is not all zeros is where they part. The
tapped quantisers of percept multiply by 127 / amax, layers by one through amax / 127, so a lone integer in a million may differ by 1.
With --moved LAYER ONNX Runtime is compared with itself too, one random integer in front of that layer moved by one: what a single number
near the middle between two integers does to the outputs, where nothing else differs.
Needs a network with one input; run it with a Python that has numpy, onnx, onnxruntime and openvino.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import openvino
from onnx import numpy_helper

import tensors


def tool(*args):
    done = subprocess.run([str(one) for one in args], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)


def in_onnxruntime(model, x, optimised):
    """Every output of the model by its name."""
    options = ort.SessionOptions()
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, {session.get_inputs()[0].name: x})))


def in_openvino(path, x):
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = compiled([x])
    return {output.get_any_name(): results[output] for output in compiled.outputs}


def showing(model, values):
    """The model with these values as outputs too."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.extend(onnx.helper.make_empty_tensor_value_info(value) for value in values)
    return shown


def with_one_moved(model, layer, x, random):
    """What ONNX Runtime makes of x where one integer in front of a layer is nearer to zero by one."""
    changed = showing(model, [])
    nodes = changed.graph.node
    places = (at for at, node in enumerate(nodes) if node.output[0] == f"{layer}.input_quantizer/integers")
    at = next(places, None)
    if at is None:
        raise SystemExit(f"there are no integers in front of {layer}")
    before = nodes[at].input[0]
    integers = in_onnxruntime(showing(model, [before]), x, optimised=False)[before]
    which = random.choice(np.flatnonzero(integers))
    change = np.zeros_like(integers)
    change.flat[which] = -np.sign(integers.flat[which])
    changed.graph.initializer.append(numpy_helper.from_array(change, "moved/by"))
    nodes[at].input[0] = "moved"
    nodes.insert(at, onnx.helper.make_node("Add", [before, "moved/by"], ["moved"]))
    return in_onnxruntime(changed, x, optimised=False)


def layers(model, quantisers, ours, x):
    """How many integers in front of each layer differ from ONNX Runtime's."""
    constants = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    theirs = in_onnxruntime(showing(model, [node.output[0] for node in quantisers]), x, optimised=False)
    print(f"{'integers in front of':48} {'of':>9} differ, by at most")
    for node in quantisers:
        tap = node.output[0].removesuffix("/integers")
        per_unit = float(constants[f"{tap}/per_unit"])
        mine = np.rint(ours[tap].astype(np.float64) * per_unit).astype(int)
        gaps = np.abs(mine - theirs[node.output[0]].astype(int).reshape(mine.shape))
        print(f"{tap.removesuffix('.input_quantizer'):48} {gaps.size:9} {(gaps > 0).sum():6}, {gaps.max()}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("network")
    options.add_argument("weights", nargs="?", type=Path)
    options.add_argument("--percept", default="target/release/percept")
    options.add_argument("--size", default=None)
    options.add_argument("--samples", type=int, default=4, help="how many inputs are compared")
    options.add_argument("--layers", action="store_true")
    options.add_argument("--moved", metavar="LAYER", action="append", default=[])
    args = options.parse_args()
    size = ["--size", args.size] if args.size else []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        weights = args.weights or folder / "i8.safetensors"
        if not args.weights:
            tool(args.percept, "quantize", args.network, *size, "--measured", "1", "--samples", "8", "--to", weights)
        file = folder / "qdq.onnx"
        tool(args.percept, "export", args.network, "--weights", weights, *size, "--onnx", file)
        model = onnx.load(file)
        quantisers = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
        (taken,) = model.graph.input
        shape = [size.dim_value for size in taken.type.tensor_type.shape.dim]
        random, moving = np.random.default_rng(5), np.random.default_rng(6)
        worst = {}
        for sample in range(args.samples):
            x = random.uniform(-(3**0.5), 3**0.5, shape).astype(np.float32)
            tensors.write(folder / "in.safetensors", {taken.name: (x.shape, x.tobytes())})
            run = [args.percept, "run", args.network, "--weights", weights, *size, "--input", folder / "in.safetensors"]
            run += ["--exact-integers", "--save", folder / "out.npz"]
            tool(*run)
            ours = dict(np.load(folder / "out.npz"))
            if args.layers and sample == 0:
                taps = [one for node in quantisers for one in ("--tap", node.output[0].removesuffix("/integers"))]
                tool(*run[:-1], folder / "taps.npz", *taps)
                layers(model, quantisers, np.load(folder / "taps.npz"), x)
            plain = in_onnxruntime(model, x, optimised=False)
            everybody = {
                "ONNX Runtime": plain,
                "ONNX Runtime, optimised": in_onnxruntime(model, x, optimised=True),
                "OpenVINO": in_openvino(file, x),
            }
            pairs = [(f"{name} and percept", ours, theirs) for name, theirs in everybody.items()]
            pairs.append(("OpenVINO and ONNX Runtime", plain, everybody["OpenVINO"]))
            for layer in args.moved:
                pairs.append((f"ONNX Runtime, one moved in front of {layer}", plain, with_one_moved(model, layer, x, moving)))
            for name, ones, others in pairs:
                for output, values in ones.items():
                    gaps = np.abs(values.ravel() - others[output].ravel()) / (np.abs(values).max() / 127)
                    worst.setdefault(name, {}).setdefault(output, []).append(gaps)
        for name, outputs in worst.items():
            outputs = {output: np.concatenate(gaps) for output, gaps in outputs.items()}
            tell(name, np.concatenate(list(outputs.values())))
            # Two say where it is that engines part; those of a detector are many, and all alike.
            if len(outputs) == 2:
                for output, gaps in outputs.items():
                    tell(f"  {output}", gaps)


def tell(name, gaps):
    same = "the same bits" if gaps.max() == 0 else f"the furthest {gaps.max():.3g} steps away"
    print(f"{name:36} {(gaps <= 1).mean():.2%} of {gaps.size} within a step, {same}")


if __name__ == "__main__":
    sys.exit(main())
