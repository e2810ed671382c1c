#!/usr/bin/env python3
"""Prints Google Benchmark's JSON as a table: tests/bench/table.py [build/bench.json]

One row a benchmark. `median` is over the repetitions, in nanoseconds of real time that one iteration takes one thread. `p99` and `max` are of single
operations when the benchmark measured them (counters p99 or p99_ns, max or max_ns); otherwise they are of the repetitions and
stand in brackets. `target` shows the counter target_ns. All other counters follow at the end of the row; one that has a goal, the counter
goal_NAME, has it beside it.
"""
import json
import math
import os
import statistics
import sys

TO_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
STANDARD = {"name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions", "repetition_index", "threads",
            "iterations", "real_time", "cpu_time", "time_unit", "aggregate_name", "aggregate_unit", "label", "big_o", "rms",
            "error_occurred", "error_message", "skipped", "skip_message", "items_per_second", "bytes_per_second"}
OWN_COLUMNS = {"p99", "p99_ns", "max", "max_ns", "target_ns"}


def machine(context):
    """What the run wrote into the file, else this machine's /proc/cpuinfo."""
    if context.get("machine"):
        return context["machine"]
    model = "unknown processor"
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    return f"{model} with {context.get('num_cpus', os.cpu_count())} cores"


def number(value):
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}"


def percentile(values, share):
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def counter(runs, *names):
    """The median of a counter over the repetitions, or None when the benchmark has none of these names."""
    for name in names:
        values = [run[name] for run in runs if isinstance(run.get(name), (int, float))]
        if values:
            return statistics.median(values)
    return None


def goal(runs, name):
    found = counter(runs, f"goal_{name}")
    return "" if found is None else f" (goal {number(found)})"


def row(name, runs):
    broken = next((run.get("error_message") or run.get("skip_message") or "no reason given" for run in runs
                   if run.get("error_occurred") or run.get("skipped")), None)
    if broken is not None:
        return [name, "–", "–", "–", "–", f"not measured: {broken}"]
    # Google Benchmark divides by the iterations of all threads together: what one thread waits for is so many times longer.
    times = [run["real_time"] * TO_NS[run.get("time_unit", "ns")] * run.get("threads", 1) for run in runs]
    p99, largest = counter(runs, "p99_ns", "p99"), counter(runs, "max_ns", "max")
    rest = [f"{key}={number(counter(runs, key))}{goal(runs, key)}" for key, value in runs[0].items()
            if key not in STANDARD | OWN_COLUMNS and not key.startswith("goal_") and isinstance(value, (int, float))]
    return [name, number(statistics.median(times)),
            number(p99) if p99 is not None else f"[{number(percentile(times, 0.99))}]",
            number(largest) if largest is not None else f"[{number(max(times))}]",
            number(counter(runs, "target_ns")), " ".join(rest + ([runs[0]["label"]] if runs[0].get("label") else []))]


def main(arguments):
    path = arguments[0] if arguments else "build/bench.json"
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        context, benchmarks = data["context"], data["benchmarks"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"table.py: {path}: expected the JSON of a Google Benchmark run: {error}", file=sys.stderr)
        return 3
    runs = {}
    for run in benchmarks:
        if run.get("run_type", "iteration") == "iteration":
            runs.setdefault(run.get("run_name", run["name"]), []).append(run)
    if not runs:
        print(f"table.py: {path}: no measurement in it", file=sys.stderr)
        return 1
    rows = [["benchmark", "median ns", "p99 ns", "max ns", "target ns", ""]] + [row(name, group) for name, group in runs.items()]
    widths = [max(len(line[column]) for line in rows) for column in range(5)]
    print(f"machine   {machine(context)}")
    print(f"compiler  {context.get('compiler', 'not stated')}")
    print(f"date      {context.get('date', 'not stated')}, {max(len(group) for group in runs.values())} repetitions")
    if context.get("library_build_type") == "debug":
        print("note      the benchmark library itself is a debug build")
    print()
    for index, line in enumerate(rows):
        cells = [line[0].ljust(widths[0])] + [line[column].rjust(widths[column]) for column in range(1, 5)]
        print("  ".join([*cells, line[5]]).rstrip())
        if index == 0:
            print("─" * (sum(widths) + 8))
    print("\n[brackets]: of whole repetitions; without: of single operations. Times are real time of one iteration in one thread.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
