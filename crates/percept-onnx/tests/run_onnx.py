"""Runs an ONNX file in ONNX Runtime: run_onnx.py MODEL FOLDER.

Reads each input from FOLDER/NAME.raw (little-endian numbers of its type) and writes each output to FOLDER/NAME.f32.
"""

import pathlib
import sys

import numpy
import onnxruntime

model, folder = sys.argv[1], pathlib.Path(sys.argv[2])
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
types = {"tensor(float)": "<f4", "tensor(int32)": "<i4"}
inputs = {
    value.name: numpy.fromfile(folder / f"{value.name}.raw", types[value.type]).reshape(value.shape)
    for value in session.get_inputs()
}
names = [value.name for value in session.get_outputs()]
for name, output in zip(names, session.run(names, inputs)):
    output.astype("<f4").tofile(folder / f"{name}.f32")
