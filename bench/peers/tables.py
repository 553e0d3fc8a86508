"""Results as text tables."""

MEBIBYTE = 1 << 20


def table(header, rows):
    """Left-aligned first column, right-aligned others."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = []
    for row in (header, *rows):
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append("  ".join(cells))
    return "\n".join(lines)


def verdict(holds):
    return {True: "holds", False: "FAILS", None: "-"}[holds]


def speed_table(results):
    """Results of `rounds.compare` with the same engines."""
    header = ["work", "threads", *(f"{engine} ms" for engine in results[0]["median_ms"])]
    header += ["fastest", "ratio", "95 % interval", "bar", "verdict"]
    rows = []
    for result in results:
        low, high = result["ratio_interval"]
        rows.append(
            [result["work"], f"{result['threads']} {result['clock']}"]
            + [f"{milliseconds:.2f}" for milliseconds in result["median_ms"].values()]
            + [result["fastest_peer"], f"{result['ratio']:.2f}x", f"{low:.2f}-{high:.2f}"]
            + [f"{result['bar']}x" if result["bar"] else "-", verdict(result["holds"])]
        )
    return table(header, rows)


def memory_table(results):
    """Results of `rounds.compare_memory` with the same engines."""
    subject, *peers = results[0]["peak_bytes"]
    header = ["peak memory, MiB (beyond imports)", subject, *peers, "verdict"]
    rows = []
    for result in results:
        peak, beyond = result["peak_bytes"], result["beyond_import_bytes"]
        cells = [f"{peak[peer] / MEBIBYTE:.0f} ({beyond[peer] / MEBIBYTE:.0f})" for peer in peers]
        rows.append([result["work"], f"{peak[subject] / MEBIBYTE:.0f}", *cells, verdict(result["holds"])])
    return table(header, rows)


def agreement_table(results):
    """Results of `agreement.agreement` with the same peers."""
    peers = list(results[0]["difference"])
    header = ["largest difference / output std", *peers, "verdict"]
    rows = [
        [result["work"], *(f"{result['difference'][peer]:.1e}" for peer in peers), verdict(result["holds"])]
        for result in results
    ]
    return table(header, rows)
