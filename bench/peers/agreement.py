"""Whether engines computed the same thing."""

import array
import math

TOLERANCE = 1e-3  # Largest difference of an output, in its standard deviations, for `fast` mode.


def difference(ours, theirs):
    """The largest difference of any output, in standard deviations of that output."""
    if ours.keys() != theirs.keys():
        raise SystemExit(f"error: outputs differ by name: {sorted(ours)} and {sorted(theirs)}")
    worst = 0.0
    for name, (shape, data) in ours.items():
        if list(shape) != list(theirs[name][0]):
            raise SystemExit(f"error: {name} has shape {shape} and {theirs[name][0]}")
        a, b = array.array("f", data), array.array("f", theirs[name][1])
        gaps = [abs(x - y) for x, y in zip(a, b)]
        # max() would drop a NaN that is not the first; a sum keeps it.
        largest = max(gaps) if math.isfinite(sum(gaps)) else math.inf
        mean = math.fsum(a) / len(a)
        deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in a) / len(a))
        worst = max(worst, largest / deviation if deviation else largest)
    return worst


def agreement(work, ours, theirs_by_peer):
    """How far each peer's outputs are from ours, and whether that is within the tolerance."""
    gaps = {peer: difference(ours, theirs) for peer, theirs in theirs_by_peer.items()}
    return {"work": work, "difference": gaps, "holds": max(gaps.values()) <= TOLERANCE}
