"""How time and memory of percept's sparse part grow with the number of voxels."""

import statistics
import sys

import clouds
from rounds import Engine
from tables import MEBIBYTE, table

COPIES = 4  # Of a ten-sweep cloud: about half a million voxels.
MAX_VOXELS = 600_000
SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)


def grow(bench, cloud):
    """Sectors of one dense cloud: scenes of growing size that are equally dense everywhere. One thread."""
    dense = clouds.turned(cloud, COPIES)
    results = []
    for share in SHARES:
        part = clouds.sector(dense, share)
        clouds.write_input(bench.input("sector"), part)
        options = [f"--set=max_voxels={MAX_VOXELS}"]
        with Engine(bench.ours("centerpoint-sparse", "sector", threads=1, options=options)) as engine:
            engine.answer()
            times = [engine.infer()["cpu_ms"] for _ in range(bench.rounds)]
            peak = engine.finish()["peak_memory_bytes"]
        voxels = clouds.count_voxels(part)
        print(f"{voxels} voxels", file=sys.stderr)
        results.append({"voxels": voxels, "median_ms": statistics.median(times), "peak_bytes": peak})
    return results


def growth_table(results):
    """Each size, and what a further thousand voxels cost from there to the next size."""
    header = ["voxels", "ms", "MiB", "ms / 1000", "MiB / 1000", "further ms / 1000", "further MiB / 1000"]
    rows, previous = [], None
    for result in results:
        thousands, ms, mebibytes = result["voxels"] / 1000, result["median_ms"], result["peak_bytes"] / MEBIBYTE
        row = [f"{result['voxels']}", f"{ms:.1f}", f"{mebibytes:.0f}", f"{ms / thousands:.2f}"]
        row.append(f"{mebibytes / thousands:.2f}")
        if previous:
            more = thousands - previous[0]
            row += [f"{(ms - previous[1]) / more:.2f}", f"{(mebibytes - previous[2]) / more:.2f}"]
        else:
            row += ["-", "-"]
        rows.append(row)
        previous = thousands, ms, mebibytes
    return table(header, rows)
