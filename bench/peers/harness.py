"""What both scripts need around a measurement: options, the Python environment, commands, the record."""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rounds import ROUNDS, compare
from tables import speed_table

HERE = Path(__file__).resolve().parent
DOWNLOADS = {"": "about 0.5 GB", "-torch": "several GB", "-spconv": "several GB", "-points": "several GB", "-places": "several GB"}


def parser(description):
    """The options that every comparison has."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--percept", default="percept", help="the percept command (default: from PATH)")
    options.add_argument(
        "--venv",
        type=Path,
        default=Path(os.environ.get("PERCEPT_PEERS_VENV") or cache / "percept" / "peers"),
        help="Python environment to make or use (default: $PERCEPT_PEERS_VENV, or %(default)s)",
    )
    options.add_argument("--rounds", type=int, default=ROUNDS, help="rounds a measurement (default: %(default)s)")
    options.add_argument("--json", type=Path, metavar="F", help="also write every sample to this file")
    return options


def parse(options):
    """The arguments, with those of `parser` checked."""
    args = options.parse_args()
    if not shutil.which(args.percept):
        options.error(f"no command {args.percept}; build it with cargo build --release and name it by --percept")
    if args.rounds < 1:
        options.error("--rounds must be at least 1")
    if args.rounds < ROUNDS:
        print(f"note: fewer than {ROUNDS} rounds are a look, not a measurement", file=sys.stderr)
    return args


def run_sections(description, sections, kind, make):
    """A comparison in sections, each of which measures with what `make(args, python, directory)` gives; the exit code."""
    options = parser(description)
    options.add_argument("--only", help=f"sections, comma-separated, of {','.join(sections)}")
    options.add_argument("--threads", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2])
    args = parse(options)
    chosen = args.only.split(",") if args.only else list(sections)
    unknown = set(chosen) - set(sections)
    if unknown:
        options.error(f"unknown section {', '.join(sorted(unknown))}; known: {', '.join(sections)}")
    python = ensure_environment(args.venv, kind)
    with tempfile.TemporaryDirectory(prefix="percept-peers-") as directory:
        bench = make(args, python, directory)
        for name in chosen:
            sections[name](bench)
    if args.json:
        write_record(args.json, args.rounds, bench.results)
    return exit_code(bench.results)


def compare_rows(rows, rounds, results):
    """Measures rows of (work, subject, peers, bar) that have the same engines, prints their table and keeps them."""
    measured = []
    for work, subject, peers, bar in rows:
        print(f"{work}, threads {subject.threads}", file=sys.stderr)
        measured.append(compare(work, subject, peers, rounds, bar))
    print(speed_table(measured) + "\n", flush=True)
    results["speed"] += measured
    return measured


def run(command):
    """Runs a command whose chatter nobody needs unless it fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        words = " ".join(map(str, command))
        raise SystemExit(f"{result.stdout}error: exit code {result.returncode} from: {words}")


def ensure_environment(directory, kind):
    """The Python of a virtual environment with the engines of requirements{kind}.txt; quick when it is complete."""
    python = directory / "bin" / "python"
    if not python.exists():
        print(f"making the Python environment {directory} ({DOWNLOADS[kind]})", file=sys.stderr)
        run([sys.executable, "-m", "venv", directory])
    requirements = HERE / f"requirements{kind}.txt"
    run([python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "-r", requirements])
    return python


def write_record(path, rounds, results):
    """Every result, with its samples, as JSON."""
    machine = {"cpu": cpu_name(), "cores": os.cpu_count(), "system": platform.platform()}
    record = {"schema_version": 1, "machine": machine, "rounds": rounds, **results}
    path.write_text(json.dumps(record, indent=1) + "\n")


def exit_code(results):
    """1 when a bar fails."""
    failed = any(result.get("holds") is False for group in results.values() for result in group)
    return 1 if failed else 0


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()
