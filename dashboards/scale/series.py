#!/usr/bin/env python3
"""How many series there are, and what they cost a Prometheus: the arithmetic of scale.md.

    series.py        prints its tables, as they stand there

The figures of the formulas are counted in scrapes of the real exporter; tests/integration/prometheus_scale.py counts them again.
"""
from dataclasses import dataclass

# Of one manager, without what depends on its use: 9 gauges of the books, 4 counters, 5 operations in flight with count and age,
# 14 + 6 expected failures and the bytes of failed frees, pressure with 20 transitions, 4 policies with runs and recoveries, 5 figures
# of waiting and giving up, and three histograms with count and sum.
HISTOGRAM_BUCKETS = {"allocation_size_bytes": 48, "allocation_duration_seconds": 40, "budget_use_ratio": 64}
BUCKETS = sum(HISTOGRAM_BUCKETS.values())
MANAGER = 9 + 4 + 2 * 5 + 14 + 6 + 1 + 1 + 20 + 2 * 4 + 5 + BUCKETS + 2 * 3
BUDGET = 2  # budget and what remains of it: absent while unlimited
TAG = 3
HOOK_BUCKETS = 40
HOOK = 8 + HOOK_BUCKETS + 2
PROCESS = 10  # build, start, up, last activity, events recorded, refused for 3 reasons, tags folded, lanes
DEVICE = 3  # total, free, outside: of each device of a process, as far as they are known
DEVICE_ACCOUNT = 2  # a budget that managers share, which has one more while it is limited
# Of a process that ended, for --keep-dead: two gauges, and at most what is a counter or a histogram. Counters that are 0 are not kept.
KEPT_PROCESS = 2 + 5
KEPT_MANAGER = 4 + 14 + 6 + 20 + 2 * 4 + 4 + BUCKETS + 2 * 3
KEPT_TAG = 1
KEPT_HOOK = 7 + HOOK_BUCKETS + 2
# Of a node exporter itself, and of each name of a program that it ever saw.
NODE = 38
NAME = 16
# Of a process that serves itself: its events lost, its exporter's scrapes and errors, and what its closed managers had counted.
OWN_EXPORTER = 1 + 16 + 1 + 13
TARGET = 5  # that Prometheus adds to every target: up, scrape_duration_seconds, …


def manager(limited=True, tags=0, hooks=0):
    return MANAGER + BUDGET * limited + TAG * tags + HOOK * hooks


def kept_manager(tags=0, hooks=0):
    return KEPT_MANAGER + KEPT_TAG * tags + KEPT_HOOK * hooks


@dataclass(frozen=True)
class Node:
    """Processes of one kind, each with one manager on one device."""
    processes: int
    tags: int
    hooks: int

    def process_series(self, kept="everything"):
        whole = PROCESS + manager(tags=self.tags, hooks=self.hooks) + DEVICE
        return whole - KEPT[kept](BUCKETS + HOOK_BUCKETS * self.hooks)

    def series(self, kept="everything"):
        return self.processes * self.process_series(kept) + NAME + NODE + TARGET


# How many series of a process with so many buckets are dropped.
NOT_ASKED_FOR = 20 + 1  # pressure_transitions_total and remaining_bytes: no dashboard and no rule asks for them
KEPT = {
    "everything": lambda buckets: 0,
    "fewer-series.yml": lambda buckets: buckets * 3 // 4 + NOT_ASKED_FOR,
    "no buckets": lambda buckets: buckets + NOT_ASKED_FOR,
}
TRAINING = Node(processes=8, tags=16, hooks=2)  # a node of eight GPUs with one job that has a process for each
NODES = (10, 100, 1_000, 10_000)
INTERVALS = (15, 30, 60)
HEAD_BYTES = 7_000  # of memory for each series in the head; scale.md says what it was taken from


def people(number):
    """1234567 → 1.23 M"""
    for size, word in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.3g}{word}"
    return f"{number:.3g}"


def gigabytes(number):
    return f"{number / 1e9:.2g} GB" if number < 1e10 else f"{number / 1e9:.0f} GB"


def node_table(node=TRAINING):
    rows = ["| kept | series of a process | series of a node |", "| --- | --- | --- |"]
    rows += [f"| {kept} | {node.process_series(kept):,} | {node.series(kept):,} |" for kept in KEPT]
    return "\n".join(rows)


def fleet_table(node=TRAINING):
    intervals = " | ".join(f"samples/s at {interval} s" for interval in INTERVALS)
    rows = [f"| nodes | kept | series | {intervals} | head memory |", "| --- | --- | --- |" + " --- |" * (len(INTERVALS) + 1)]
    for nodes in NODES:
        for kept in KEPT:
            series = nodes * node.series(kept)
            samples = " | ".join(people(series / interval) for interval in INTERVALS)
            rows.append(f"| {nodes:,} | {kept} | {people(series)} | {samples} | {gigabytes(series * HEAD_BYTES)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(node_table(), fleet_table(), sep="\n\n")
