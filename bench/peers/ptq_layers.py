#!/usr/bin/env python3
"""Writes what each layer of CenterPoint multiplies when it is quantised, as PyTorch and spconv compute it.

A small cloud in a small square, in the arithmetic of NVIDIA's pytorch-quantization: all layers in 8 bits, with ranges that were
measured beforehand ("static") and at hand ("dynamic"). Two engines whose sums differ in their last bits round a number that lies
near the middle between two integers to different ones, and a few layers later nothing agrees any more. So clouds are tried until
none of a cloud's numbers, up to the heads, is near such a middle: on that one, engines that compute the same give the same integers throughout.
percept's tests compare with it, layer by layer (crates/percept-models/tests/quantized.rs). Needs requirements-spconv.txt.
"""

import argparse
import copy
import functools
import itertools
import json
import struct
from pathlib import Path

import numpy as np
import spconv.pytorch as spconv
import torch
from torch import nn

import torch_centerpoint
from torch_models import seed_weights

LAYOUT = torch_centerpoint.Layout(range_m=1.2)
# How near to the middle between two integers no number may be, in steps: several times what the order of f32 sums changes.
MARGIN = 2e-5
REACH = 127.0
PADDED = ("backbone_2d.blocks.0.1", "backbone_2d.blocks.1.1")
LAYERS = (spconv.SubMConv3d, spconv.SparseConv3d, nn.Conv2d, nn.ConvTranspose2d)


def quantize(x, amax):
    """Integers, and what one of them stands for."""
    scale = REACH / amax
    return torch.clamp(torch.round(x * scale), -REACH - 1, REACH), scale


def cloud(seed):
    """Ground and a wall with intensities that set the first layer's step, as raw ones do."""
    random = np.random.default_rng(seed)
    ground = random.uniform([-1.2, -1.2, -1.9], [1.2, 1.2, -1.7], (18, 3))
    wall = random.uniform([-1.0, 0.4, -1.8], [0.6, 0.5, 0.4], (8, 3))
    places = np.concatenate([ground, wall])
    intensity = random.uniform(0, 255, (len(places), 1))
    ages = random.choice([0.0, 0.05, 0.1], (len(places), 1))
    return np.concatenate([places, intensity, ages], axis=1).astype(np.float32)


@functools.cache
def seeded():
    module = seed_weights(torch_centerpoint.CenterPoint(LAYOUT))
    for path, part in module.named_modules():
        if isinstance(part, torch_centerpoint.SparseBlock):
            part.absorb_biases(path)
    return module.eval().requires_grad_(False)


def build():
    return copy.deepcopy(seeded())


def as_percept_has_it(name, x, values):
    """Rows by (z, y, x); maps without the border that a module of its own puts around those of a first layer."""
    if isinstance(x, spconv.SparseConvTensor):
        return values[np.lexsort(x.indices.numpy().T[::-1])]
    return values[:, :, 1:-1, 1:-1] if name in PADDED else values


def hook_layers(module, hook):
    """Has `hook(name, x, features)` say what each layer multiplies instead."""
    for name, layer in module.named_modules():
        if isinstance(layer, LAYERS):
            def before(_, args, name=name):
                (x,) = args
                sparse = isinstance(x, spconv.SparseConvTensor)
                features = hook(name, x, x.features if sparse else x)
                return (x.replace_feature(features) if sparse else features,)

            layer.register_forward_pre_hook(before)


def ranges(points):
    """The largest magnitude that each layer of the float network reads."""
    amax = {}

    def look(name, _, features):
        amax[name] = features.abs().max()
        return features

    module = build()
    hook_layers(module, look)
    module(*torch_centerpoint.voxelize(points, LAYOUT))
    return amax


def run(points, static):
    """Integers and range of each layer's input in the quantised network, its outputs, and how near a number is to a middle."""
    module, layers, nearest = build(), {}, [0.5]
    for layer in module.modules():
        if isinstance(layer, LAYERS):
            rows = layer.weight.abs().reshape(len(layer.weight), -1).amax(1)
            integers, scale = quantize(layer.weight, rows.reshape(-1, *[1] * (layer.weight.dim() - 1)))
            layer.weight.copy_(integers / scale)

    def look(name, x, features):
        amax = static[name] if static else features.abs().max()
        integers, scale = quantize(features, amax)
        layers[name] = (as_percept_has_it(name, x, integers.numpy()).astype(np.int8), float(amax))
        if "heads_list" not in name:
            nearest.append(float(((features * scale).remainder(1) - 0.5).abs().min()))
        return integers / scale

    hook_layers(module, look)
    outputs = module(*torch_centerpoint.voxelize(points, LAYOUT))
    return layers, outputs, min(nearest)


def write(path, tensors, metadata):
    kinds = {"int8": "I8", "float32": "F32"}
    header, data = {"__metadata__": metadata}, b""
    for name, values in tensors.items():
        values = np.ascontiguousarray(values)
        end = len(data) + values.nbytes
        header[name] = {"dtype": kinds[values.dtype.name], "shape": list(values.shape), "data_offsets": [len(data), end]}
        data += values.tobytes()
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("path", type=Path)
    path = options.parse_args().path
    torch.set_num_threads(1)  # spconv gives wrong rows with more
    for seed in itertools.count():
        points = cloud(seed)
        mirrored = points * np.array([-1, -1, 1, 1, 1], np.float32)
        ways = {"static": run(points, ranges(mirrored))}
        if ways["static"][2] >= MARGIN:
            ways["dynamic"] = run(points, None)
            if ways["dynamic"][2] >= MARGIN:
                break
    tensors = {"points": points}
    for way, (layers, outputs, nearest) in ways.items():
        print(f"cloud {seed}, {way}: no number is nearer than {nearest:.1e} steps to a middle")
        tensors[f"{way}.amax"] = np.array([amax for _, amax in layers.values()], np.float32)
        tensors |= {f"{way}.{name}": integers for name, (integers, _) in layers.items()}
        tensors |= {f"{way}.{name}": values.numpy() for name, values in outputs.items()}
    write(path, tensors, {"layers": json.dumps(list(layers))})


if __name__ == "__main__":
    main()
