"""LiDAR clouds as flat lists of (x, y, z, intensity, seconds before the keyframe), read, made and multiplied."""

import array
import json
import math
import random
import struct

import tensors
from harness import run

WIDTH = 5
VOXEL_M = (0.075, 0.075, 0.2)


def read_sweep(path):
    """A nuScenes sweep (float32 x 5). Its fifth column is the ring, which no network wants: the time is 0."""
    cloud = array.array("f", path.read_bytes())
    cloud[4::WIDTH] = array.array("f", bytes(4 * (len(cloud) // WIDTH)))
    return cloud


def read_half(path):
    """Merged sweeps as float16 x 5."""
    data = path.read_bytes()
    return array.array("f", struct.unpack(f"<{len(data) // 2}e", data))


def write_input(path, cloud):
    """The inputs of percept's CenterPoint: one sample."""
    points = len(cloud) // WIDTH
    counts = array.array("f", [points])
    tensors.write(path, {"points": ((points, WIDTH), cloud.tobytes()), "counts": ((1,), counts.tobytes())})


def synthetic(percept, directory):
    """A keyframe of percept's synthetic world, and the same with the nine sweeps before it."""
    run([percept, "world", "make", "--kind", "nuscenes", "--frames", "1", "--sweeps", "10", "--out", directory])
    tables = {name: read_table(directory, name) for name in ("sample_data", "ego_pose", "calibrated_sensor")}
    clouds = [row for row in tables["sample_data"].values() if row["filename"].endswith(".pcd.bin")]
    clouds.sort(key=lambda row: -row["timestamp"])
    latest = sensor_pose(tables, clouds[0])
    keyframe = read_sweep(directory / clouds[0]["filename"])
    merged = keyframe[:]
    for row in clouds[1:]:
        age = (clouds[0]["timestamp"] - row["timestamp"]) / 1e6
        merged += moved(read_sweep(directory / row["filename"]), sensor_pose(tables, row), latest, age)
    return keyframe, merged


def read_table(directory, name):
    (path,) = directory.glob(f"v1.0-*/{name}.json")
    return {row["token"]: row for row in json.loads(path.read_text())}


def sensor_pose(tables, row):
    """The sensor's rotation matrix and place in the world."""
    ego = tables["ego_pose"][row["ego_pose_token"]]
    mount = tables["calibrated_sensor"][row["calibrated_sensor_token"]]
    ego_turn, mount_turn = rotation(ego["rotation"]), rotation(mount["rotation"])
    turn = [[dot(line, column) for column in zip(*mount_turn)] for line in ego_turn]
    place = [dot(line, mount["translation"]) + shift for line, shift in zip(ego_turn, ego["translation"])]
    return turn, place


def rotation(quaternion):
    w, x, y, z = quaternion
    return [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def moved(cloud, origin, target, age):
    """A cloud of one sensor pose as another sees it, without the points on the car itself."""
    (turn, place), (target_turn, target_place) = origin, target
    back = list(zip(*target_turn))
    offset = [a - b for a, b in zip(place, target_place)]
    (a, b, c), (d, e, f), (g, h, i) = ([dot(line, column) for column in zip(*turn)] for line in back)
    u, v, w = (dot(line, offset) for line in back)
    result = array.array("f")
    for x, y, z, intensity in zip(*(cloud[axis::WIDTH] for axis in range(4))):
        if abs(x) >= 1 or abs(y) >= 1:
            at = a * x + b * y + c * z + u, d * x + e * y + f * z + v, g * x + h * y + i * z + w
            result.extend((*at, intensity, age))
    return result


def turned(cloud, copies):
    """The cloud and copies of it turned about the sensor and shaken by a voxel or so: denser, like more sweeps."""
    draw = random.Random(0).gauss
    columns = [cloud[axis::WIDTH] for axis in range(WIDTH)]
    result = cloud[:]
    for copy in range(1, copies):
        angle = 2 * math.pi * copy / copies
        cos, sin = math.cos(angle), math.sin(angle)
        for x, y, z, intensity, age in zip(*columns):
            x, y, z = (value + draw(0, side) for value, side in zip((x, y, z), VOXEL_M))
            result.extend((cos * x - sin * y, sin * x + cos * y, z, intensity, age))
    return result


def sector(cloud, share):
    """The points within a sector around the sensor: a smaller scene that is as dense."""
    limit = math.pi * share
    result = array.array("f")
    for point in zip(*(cloud[axis::WIDTH] for axis in range(WIDTH))):
        if abs(math.atan2(point[1], point[0])) <= limit:
            result.extend(point)
    return result


def count_voxels(cloud, range_m=54.0, height_m=(-5.0, 3.0)):
    """Voxels of CenterPoint's grid that hold a point."""
    low, high = (-range_m, -range_m, height_m[0]), (range_m, range_m, height_m[1])
    cells = set()
    for point in zip(*(cloud[axis::WIDTH] for axis in range(3))):
        if all(a <= value < b for a, value, b in zip(low, point, high)):
            cells.add(tuple(int((value - a) // side) for value, a, side in zip(point, low, VOXEL_M)))
    return len(cells)
