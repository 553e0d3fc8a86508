"""An ONNX file in integers, by ONNX Runtime's own static quantiser: `quantize_onnx.py FLOATS.onnx INTEGERS.onnx SAMPLES.safetensors`.

QDQ, activations of 8 bits without a sign, weights with a sign and a scale a channel, ranges by their largest magnitudes. Weights
have 7 bits where the CPU multiplies bytes by an instruction that saturates (no VNNI).
"""

import sys
from pathlib import Path

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
import onnx

import tensors


class Samples(CalibrationDataReader):
    """Batches of the file's samples, as many at once as the network takes."""

    def __init__(self, path, network):
        taken = onnx.load(network).graph.input[0]
        batch = taken.type.tensor_type.shape.dim[0].dim_value
        ((shape, data),) = tensors.read(path).values()
        samples = np.frombuffer(data, np.float32).reshape(shape)
        self.batches = iter({taken.name: samples[at : at + batch]} for at in range(0, len(samples), batch))

    def get_next(self):
        return next(self.batches, None)


def main():
    floats, integers, samples = sys.argv[1:]
    prepared = Path(integers).with_suffix(".prepared.onnx")
    quant_pre_process(floats, str(prepared))
    quantize_static(
        str(prepared),
        integers,
        Samples(samples, floats),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        reduce_range="vnni" not in Path("/proc/cpuinfo").read_text(),
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )


if __name__ == "__main__":
    main()
