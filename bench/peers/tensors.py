"""The float32 and int32 part of the safetensors format, in plain Python: what percept and the peers exchange."""

import json
import struct


def read(path):
    """The tensors of a file as {name: (shape, little-endian float32 bytes)}."""
    with open(path, "rb") as file:
        (header_length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_length))
        data = file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            tensors[name] = (entry["shape"], data[begin:end])
    return tensors


def write(path, tensors, integers=()):
    """Writes {name: (shape, little-endian bytes)}: float32, or int32 where the name is among the integers."""
    header, offset = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "I32" if name in integers else "F32", "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        for _, data in tensors.values():
            file.write(data)
