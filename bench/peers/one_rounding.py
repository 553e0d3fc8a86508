"""What one rounding does to a network in integers, in ONNX Runtime alone: `one_rounding.py NETWORK.qdq.onnx`.

Moves one number of the input by one step of its grid and tells how many of the integers in front of each layer differ, and how
many outputs stay within a step (the largest output through 127). Needs a network with one input and one output, from
`percept export` of quantised weights; run it with a Python that has onnx and onnxruntime.
"""

import sys

import numpy as np
import onnx
import onnxruntime as ort


def main():
    model = onnx.load(sys.argv[1])
    quantisers = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    output = model.graph.output[0].name
    for node in quantisers:
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(node.output[0]))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (taken,) = session.get_inputs()
    names = [one.name for one in session.get_outputs()]
    values = lambda x: dict(zip(names, session.run(names, {taken.name: x})))
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    step = float(constants[quantisers[0].input[1]])

    x = np.random.default_rng(0).uniform(-(3**0.5), 3**0.5, taken.shape).astype(np.float32)
    moved = x.copy()
    middle = tuple(size // 2 for size in x.shape)
    moved[middle] -= np.copysign(step, moved[middle])
    before, after = values(x), values(moved)
    print(f"{'integers in front of':40} differ")
    for node in quantisers:
        one = node.output[0]
        print(f"{one.split('.input_quantizer')[0]:40} {(before[one] != after[one]).mean():.1e}")
    gaps = np.abs(before[output] - after[output]) / (np.abs(before[output]).max() / 127)
    print(f"{output}: {(gaps <= 1).mean():.1%} within a step, the furthest {gaps.max():.1f} steps away")


if __name__ == "__main__":
    main()
