#!/usr/bin/env python3
"""The nuScenes detection metric: percept's figures and time beside nuscenes-devkit's, on the same files.

Predictions are made from the truth of a nuScenes folder (the world's, or --data), with noise, misses, false alarms and equal
scores, and written in the official layout. Both score them; every figure must agree within 1e-9.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import run

TOLERANCE = 1e-9
DEVKIT = "nuscenes-devkit==1.2.0"
HERE = Path(__file__).resolve().parent


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--percept", default="percept", help="the percept command, to make a world (default: from PATH)")
    parser.add_argument("--scorer", required=True, help="target/release/examples/nuscenes_eval of percept-metrics")
    parser.add_argument("--data", type=Path, help="a nuScenes folder (default: a world is made)")
    parser.add_argument("--frames", type=int, default=200, help="keyframes of that world (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the predictions (default: %(default)s)")
    parser.add_argument(
        "--venv",
        type=Path,
        default=Path(os.environ.get("PERCEPT_PEERS_VENV") or cache / "percept" / "nuscenes"),
        help="Python environment to make or use (default: %(default)s)",
    )
    parser.add_argument("--devkit", nargs=2, type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def environment(directory):
    """The Python of a virtual environment that has the devkit."""
    python = directory / "bin" / "python"
    if not python.exists():
        run([sys.executable, "-m", "venv", directory])
    pip = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    run([*pip, "-r", HERE / "requirements-nuscenes.txt"])
    run([*pip, "--no-deps", DEVKIT])
    return python


def tables(root):
    """The folder of JSON tables."""
    folders = sorted(path for path in root.iterdir() if path.name.startswith("v1.0-"))
    if not folders:
        raise SystemExit(f"error: {root} has no v1.0-* folder")
    return folders[-1]


def predictions(root, seed):
    """Noisy copies of the truth, with scores in hundredths, so that many are equal."""
    rng = random.Random(seed)
    load = lambda name: json.loads((tables(root) / f"{name}.json").read_text())
    categories = {row["token"]: row["name"] for row in load("category")}
    category_of = {row["token"]: categories[row["category_token"]] for row in load("instance")}
    attributes = {row["token"]: row["name"] for row in load("attribute")}
    frames = {row["token"]: [] for row in load("sample")}
    for row in load("sample_annotation"):
        name = CLASSES.get(category_of[row["instance_token"]])
        boxes = frames[row["sample_token"]]
        if name is None:
            continue
        for copy in range(2):
            far = copy == 1
            if rng.random() < (0.8 if far else 0.15) or len(boxes) >= 500:
                continue
            spread = 4.0 if far else 0.4
            yaw = 2 * math.atan2(row["rotation"][3], row["rotation"][0]) + rng.gauss(0, 0.3)
            attribute = attributes[row["attribute_tokens"][0]] if row["attribute_tokens"] else ""
            boxes.append(
                {
                    "sample_token": row["sample_token"],
                    "translation": [v + rng.gauss(0, spread) for v in row["translation"]],
                    "size": [v * math.exp(rng.gauss(0, 0.1)) for v in row["size"]],
                    "rotation": [math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)],
                    "velocity": [rng.gauss(0, 2), rng.gauss(0, 2)],
                    "detection_name": name,
                    "detection_score": rng.randrange(1, 100) / 100,
                    "attribute_name": attribute if rng.random() < 0.8 else "",
                }
            )
    meta = {f"use_{source}": source == "lidar" for source in ("camera", "lidar", "radar", "map", "external")}
    return {"meta": meta, "results": frames}


CLASSES = {
    "vehicle.car": "car",
    "vehicle.truck": "truck",
    "vehicle.construction": "construction_vehicle",
    "vehicle.bus.rigid": "bus",
    "vehicle.bus.bendy": "bus",
    "vehicle.trailer": "trailer",
    "movable_object.barrier": "barrier",
    "vehicle.motorcycle": "motorcycle",
    "vehicle.bicycle": "bicycle",
    "human.pedestrian.adult": "pedestrian",
    "human.pedestrian.child": "pedestrian",
    "human.pedestrian.construction_worker": "pedestrian",
    "human.pedestrian.police_officer": "pedestrian",
    "movable_object.trafficcone": "traffic_cone",
}


def devkit(root, results):
    """Runs inside the environment: the devkit's own evaluation of every scene, printed as JSON with its seconds."""
    from nuscenes import NuScenes
    from nuscenes.eval.common import loaders
    from nuscenes.eval.common.config import config_factory
    from nuscenes.eval.detection.evaluate import DetectionEval

    begin = time.process_time()
    nusc = NuScenes(version=tables(root).name, dataroot=str(root), verbose=False)
    # The devkit scores named splits of named versions only; here every scene of the folder belongs to one of them.
    split, nusc.version = "mini_val", "v1.0-mini"
    scenes = [scene["name"] for scene in nusc.scene]
    loaders.create_splits_scenes = lambda: {split: scenes}
    with tempfile.TemporaryDirectory() as out:
        evaluation = DetectionEval(nusc, config_factory("detection_cvpr_2019"), str(results), split, out, verbose=False)
        read = time.process_time() - begin
        metrics, _ = evaluation.evaluate()
    scored = time.process_time() - begin - read
    print(json.dumps({"figures": metrics.serialize(), "read_s": read, "scored_s": scored}))


def difference(ours, theirs):
    """The largest difference of two trees of figures; a figure that only one has is infinitely far off."""
    if isinstance(theirs, dict):
        return max(difference((ours or {}).get(str(key)), theirs[key]) for key in theirs)
    undefined = theirs is None or math.isnan(theirs)
    if undefined or ours is None:
        return 0.0 if undefined and ours is None else math.inf
    return abs(ours - theirs)


def main():
    args = options()
    if args.devkit:
        return devkit(*args.devkit)
    python = environment(args.venv)
    with tempfile.TemporaryDirectory() as folder:
        root = args.data or Path(folder) / "world"
        if not args.data:
            make = [args.percept, "world", "make", "--frames", str(args.frames), "--sweeps", "1", "--out", root]
            run([*make, "--quiet"])
        results = Path(folder) / "results.json"
        results.write_text(json.dumps(predictions(root, args.seed)))
        ours = subprocess.run([args.scorer, root, results], capture_output=True, text=True)
        theirs = subprocess.run([python, __file__, "--scorer", "", "--devkit", root, results], capture_output=True, text=True)
    for name, result in (("percept", ours), ("the devkit", theirs)):
        if result.returncode != 0:
            raise SystemExit(f"{result.stdout}{result.stderr}error: {name} failed")
    figures = json.loads(ours.stdout)
    peer = json.loads(theirs.stdout.splitlines()[-1])
    parts = ("label_aps", "mean_dist_aps", "mean_ap", "label_tp_errors", "tp_errors", "tp_scores", "nd_score")
    worst = max(difference(figures[part], peer["figures"][part]) for part in parts)
    print(f"mAP {figures['mean_ap']:.6f}  NDS {figures['nd_score']:.6f}  largest difference {worst:.2e} (at most {TOLERANCE:.0e})")
    print(f"percept: {ours.stderr.strip()}; nuscenes-devkit: read {peer['read_s']:.1f} s, scored {peer['scored_s']:.1f} s of CPU time")
    return 0 if worst <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
