"""Engines in their own processes, run in turns, and what their times say: ratios of medians with an interval."""

import contextlib
import dataclasses
import json
import os
import random
import statistics
import subprocess

ROUNDS = 15
SLACK = 0.03  # A bar holds when the interval's lower end is above the bar less this share of it.
MEMORY_INFERENCES = 10


@dataclasses.dataclass(frozen=True)
class Contender:
    """An engine to be: its name in the tables and the command that answers each line with one inference."""

    name: str
    command: list
    threads: int


class Engine:
    """A running contender."""

    def __init__(self, contender):
        # OpenMP's threads must not spin while another engine has its turn.
        environment = os.environ | {"OMP_NUM_THREADS": str(contender.threads), "OMP_WAIT_POLICY": "PASSIVE"}
        self.name = contender.name
        self.process = subprocess.Popen(
            contender.command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"error: {self.name} ended early with exit code {self.process.wait()}")
        return json.loads(line)

    def infer(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()

    def finish(self):
        """Ends the process; returns its last words, with the peak memory."""
        self.process.stdin.close()
        return self.answer()


def interleave(subject, peers, clock, rounds):
    """Rounds in turns, all engines alive: versions and a list of {engine: [milliseconds]}, the subject first."""
    with contextlib.ExitStack() as stack:
        engines = {one.name: stack.enter_context(Engine(one)) for one in (subject, *peers)}
        versions = {name: engine.answer().get("version") for name, engine in engines.items()}
        samples = []
        for _ in range(rounds):
            samples.append({name: [] for name in engines})
            for peer in peers:
                for name in (subject.name, peer.name):
                    samples[-1][name].append(engines[name].infer()[clock])
        return versions, samples


def median(samples, engine):
    return statistics.median(value for sample in samples for value in sample[engine])


def ratio(samples, subject, peer):
    return median(samples, peer) / median(samples, subject)


def ratio_interval(samples, subject, peer, resamples=2000):
    """The 95 % bootstrap interval of the ratio of medians. Whole rounds are drawn: their noise is shared."""
    draw = random.Random(0)
    ratios = sorted(ratio(draw.choices(samples, k=len(samples)), subject, peer) for _ in range(resamples))
    return ratios[int(0.025 * resamples)], ratios[int(0.975 * resamples)]


def clock_of(subject):
    """One thread is judged by the CPU time it used, which neighbours on the machine disturb least."""
    return "cpu" if subject.threads == 1 else "wall"


def compare(work, subject, peers, rounds, bar=None):
    """How many times faster than the fastest peer the subject is, and whether that clears the bar."""
    clock = clock_of(subject)
    versions, samples = interleave(subject, peers, f"{clock}_ms", rounds)
    return judge(work, subject, [peer.name for peer in peers], clock, versions, samples, bar)


def judge(work, subject, peers, clock, versions, samples, bar=None):
    """What rounds say of the subject and the fastest of these peers."""
    fastest = min(peers, key=lambda peer: median(samples, peer))
    low, high = ratio_interval(samples, subject.name, fastest)
    return {
        "work": work,
        "threads": subject.threads,
        "clock": clock,
        "median_ms": {engine: median(samples, engine) for engine in samples[0]},
        "fastest_peer": fastest,
        "ratio": ratio(samples, subject.name, fastest),
        "ratio_interval": [low, high],
        "bar": bar,
        "holds": None if bar is None else low > bar * (1 - SLACK),
        "versions": versions,
        "samples_ms": samples,
    }


def peak_memory(contender):
    """Peak resident bytes of a process that loads the network and runs it, and what its imports alone held."""
    with Engine(contender) as engine:
        imported = engine.answer().get("import_memory_bytes", 0)
        for _ in range(MEMORY_INFERENCES):
            engine.infer()
        return engine.finish()["peak_memory_bytes"], imported


def compare_memory(work, subject, peers, limit=None):
    """Whether the subject's peak is below every peer's without its imports, and below the limit."""
    peak, beyond_import = {}, {}
    for one in (subject, *peers):
        peak[one.name], imported = peak_memory(one)
        beyond_import[one.name] = peak[one.name] - imported
    bounds = [beyond_import[peer.name] for peer in peers]
    if limit is not None:
        bounds.append(limit)
    return {
        "work": work,
        "peak_bytes": peak,
        "beyond_import_bytes": beyond_import,
        "limit_bytes": limit,
        "holds": peak[subject.name] < min(bounds),
    }
