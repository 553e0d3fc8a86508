"""Runs an ONNX file in ONNX Runtime: run_onnx.py MODEL FOLDER.

Reads each input from FOLDER/NAME.f32 (raw little-endian numbers) and writes each output beside it.
"""

import pathlib
import sys

import numpy
import onnxruntime

model, folder = sys.argv[1], pathlib.Path(sys.argv[2])
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
inputs = {
    value.name: numpy.fromfile(folder / f"{value.name}.f32", "<f4").reshape(value.shape)
    for value in session.get_inputs()
}
names = [value.name for value in session.get_outputs()]
for name, output in zip(names, session.run(names, inputs)):
    output.astype("<f4").tofile(folder / f"{name}.f32")
