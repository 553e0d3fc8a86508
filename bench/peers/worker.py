"""One engine in one process, paced by its parent: the same protocol as `percept bench --paced`.

Loads and warms up, prints {"ready": true, ...}; then runs one inference for each line on stdin and
prints {"wall_ms": ..., "cpu_ms": ...}; at the end of stdin prints {"peak_memory_bytes": ...}.
"""

import argparse
import importlib
import json
import sys
import time

import numpy as np

import tensors


def ort_engine(args, inputs):
    """A loader returns two functions: one inference, and the outputs of the latest as {name: array}."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = args.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Spin inside an inference (fastest), but not between two: the next engine has its turn then.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = ort.InferenceSession(args.onnx, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    # Outputs bound once are reused, so that no inference pays for fresh pages.
    binding = session.io_binding()
    # One input may have any name in the file; several have those of the network.
    taken = [given.name for given in session.get_inputs()]
    fed = dict(zip(taken, inputs.values())) if len(taken) == 1 else {name: inputs[name] for name in taken}
    for name, value in fed.items():
        binding.bind_cpu_input(name, value)
    first = session.run(names, fed)
    for name, value in zip(names, first):
        binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(value))
    del first, value

    def infer():
        session.run_with_iobinding(binding)

    return infer, lambda: dict(zip(names, binding.copy_outputs_to_cpu()))


def openvino_engine(args, inputs):
    import openvino

    (image,) = inputs.values()
    core = openvino.Core()
    model = core.read_model(args.onnx)
    model.reshape(image.shape)
    settings = {
        "INFERENCE_NUM_THREADS": args.threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    del model
    # The request does not own a shared tensor: `infer` keeps the array alive.
    shared = openvino.Tensor(image, shared_memory=True)
    request.set_input_tensor(shared)

    def infer(_keep=(image, shared)):
        request.infer()

    def outputs():
        return {output.get_any_name(): request.get_tensor(output).data for output in request.model_outputs}

    return infer, outputs


def torch_engine(args, inputs):
    import torch
    import torch_models

    (image,) = inputs.values()
    settings = dict(setting.split("=", 1) for setting in args.set)
    model = torch_models.build(args.torch_model, settings)
    # The faster memory format for most of the convolutional work items; a ViT has one convolution.
    model = model.to(memory_format=torch.channels_last)
    batch = torch.from_numpy(image).to(memory_format=torch.channels_last)
    return eager(args, model, batch)


def spconv_engine(args, inputs):
    import torch
    import torch_centerpoint

    model = torch_centerpoint.build(args.torch_model)
    if "points" in inputs:
        return eager(args, model, *torch_centerpoint.voxelize(inputs["points"]))
    return eager(args, model, torch.from_numpy(inputs["bev"]))


def spconv_training_engine(args, inputs):
    """Training steps of centerpoint-small, or with `--set backward=no` their forward passes."""
    import torch
    import torch_centerpoint

    set_threads(torch, args.threads)
    clouds = np.split(inputs["points"], np.cumsum(inputs["counts"].astype(int))[:-1])
    return torch_centerpoint.training_step(clouds, backward="backward=no" not in args.set)


def training_engine(args, inputs):
    """Forward and backward passes instead of inferences."""
    import torch
    import torch_training

    set_threads(torch, args.threads)
    return torch_training.step(args.torch_model, inputs)


def points_engine(args, inputs):
    """RandLA-Net: its network alone, with its search, a step of its training, its search alone, or one search."""
    import point_trees

    settings = dict(setting.split("=", 1) for setting in args.set)
    search = point_trees.SEARCHES[settings["search"]](args.threads)
    points = np.ascontiguousarray(inputs["points"][:, :3])
    if args.torch_model == "knn":
        return searching(lambda: point_trees.neighbours(points, search))
    if args.torch_model == "randlanet-levels":
        return searching(lambda: point_trees.levels(points, search)[0][1])
    import torch
    import torch_randlanet as randla

    if args.torch_model == "randlanet-training":
        set_threads(torch, args.threads)
        return randla.training_step(points, search)
    model = randla.build()
    if args.torch_model == "randlanet-whole":
        return eager(args, lambda: model(randla.as_tensors(point_trees.levels(points, search))))
    return eager(args, model, randla.as_tensors(point_trees.levels(points, search)))


def lcpr_engine(args, inputs):
    import torch
    import torch_lcpr

    model = torch_lcpr.build().to(memory_format=torch.channels_last)
    return eager(args, model, *(torch.from_numpy(inputs[name]) for name in ("camera", "range")))


def faiss_engine(args, inputs):
    """Exact search of rows that both sides draw alike, by percept's stream of numbers."""
    import faiss
    from torch_models import uniform

    faiss.omp_set_num_threads(args.threads)
    settings = {key: int(value) for key, value in (setting.split("=", 1) for setting in args.set)}
    width = settings["width"]
    draw = lambda name, rows: (uniform(name, rows * width) - np.float32(0.5)).reshape(rows, width)
    index = faiss.IndexFlatL2(width)
    index.add(draw("places", settings["places"]))
    queries = draw("queries", settings["queries"])
    latest = {}

    def infer():
        latest["rows"] = index.search(queries, settings["top"])[1]

    return infer, lambda: {"rows": latest["rows"].astype(np.float32)}


def omama_engine(args, inputs):
    """O-MaMa: its backbone, descriptors of masks, its head, or a step of the head's training."""
    import torch
    import torch_omama

    settings = dict(setting.split("=", 1) for setting in args.set)
    if args.torch_model == "omama-training":
        set_threads(torch, args.threads)
        return torch_omama.training_step(inputs, int(settings["batch"]))
    works = {
        "omama-backbone": torch_omama.backbone, "omama-descriptors": torch_omama.descriptors,
        "omama-head": torch_omama.head,
    }
    return eager(args, works[args.torch_model](inputs))


def searching(search):
    """Two functions of a search for neighbours, which are sets: their numbers are put in order."""
    latest = {}

    def infer():
        latest["neighbours"] = search()

    def outputs():
        return {"neighbours": np.sort(latest["neighbours"], axis=1).astype(np.float32)}

    return infer, outputs


def set_threads(torch, threads):
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)


def eager(args, model, *batch):
    """PyTorch's two functions."""
    import torch

    set_threads(torch, args.threads)
    latest = {}

    def infer():
        nonlocal latest
        with torch.inference_mode():
            latest = model(*batch)

    return infer, lambda: {name: value.numpy() for name, value in latest.items()}


# Each engine's loader and the Python modules that it needs, its own first.
ENGINES = {
    "ort": (ort_engine, "onnxruntime"),
    "openvino": (openvino_engine, "openvino"),
    "torch": (torch_engine, "torch", "torch_models"),
    "training": (training_engine, "torch", "torch_training"),
    "pykdtree": (points_engine, "pykdtree"),
    "scipy": (points_engine, "scipy"),
    "small_gicp": (points_engine, "small_gicp"),
    "points": (points_engine, "torch", "torch_randlanet"),
    "spconv-training": (spconv_training_engine, "spconv", "torch_centerpoint"),
    "lcpr": (lcpr_engine, "torch", "torch_lcpr"),
    "faiss": (faiss_engine, "faiss", "torch_models"),
    "omama": (omama_engine, "torch", "torch_omama"),
    "spconv": (spconv_engine, "spconv", "torch_centerpoint"),
}


def read_arrays(path):
    entries = tensors.read(path).items()
    return {name: np.frombuffer(bytearray(data), np.float32).reshape(shape) for name, (shape, data) in entries}


def memory_bytes(field):
    """VmRSS (resident now) or VmHWM (resident at the peak) of this process."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def say(**message):
    print(json.dumps(message), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--onnx", help="the network of ort and openvino")
    parser.add_argument("--torch-model", help="percept's name of the network, for torch and spconv")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="its settings, for torch")
    parser.add_argument("--input", help="safetensors file with the input tensors, where there are some")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=3, help="inferences before the ready line")
    parser.add_argument("--save", help="write the outputs to this safetensors file and end")
    args = parser.parse_args()

    load, *names = ENGINES[args.engine]
    modules = [importlib.import_module(name) for name in names]
    import_memory = memory_bytes("VmRSS")
    infer, outputs = load(args, read_arrays(args.input) if args.input else {})
    for _ in range(args.warmup):
        infer()
    if args.save:
        infer()
        arrays = {name: np.ascontiguousarray(value) for name, value in outputs().items()}
        tensors.write(args.save, {name: (value.shape, value.tobytes()) for name, value in arrays.items()})
        return
    say(ready=True, version=getattr(modules[0], "__version__", None), import_memory_bytes=import_memory)
    for _ in sys.stdin:
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        infer()
        wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
        say(wall_ms=wall / 1e6, cpu_ms=cpu / 1e6)
    say(peak_memory_bytes=memory_bytes("VmHWM"))


if __name__ == "__main__":
    main()
