#!/usr/bin/env python3
"""What a budget does to a recorded history, worked out without headroom: an independent witness for the replay tests.

    expected_refusals.py TRACE [--budget BYTES] [--stop-after N]      prints one JSON object

The rules, in words: requests are granted in file order while granted + request ≤ budget; a refused request's free is skipped; a
free of an address with nothing live there is unmatched. Two live blocks at one address (RMM writes a free after it happened, so
another thread's allocation may stand before it) are both kept, and a free takes the oldest of its size there, or else the oldest.
"""
import argparse
import gzip
import json
import lzma
from collections import defaultdict


def records(path):
    with open(path, "rb") as file:
        magic = file.read(6)
    opener = lzma.open if magic == b"\xfd7zXZ\0" else gzip.open if magic[:2] == b"\x1f\x8b" else open
    with opener(path, "rt", encoding="ascii", newline=None) as file:
        next(file)
        for line in file:
            if line.strip():
                _, _, action, pointer, size, _ = line.strip().split(",")
                yield action, 0 if pointer == "(nil)" else int(pointer, 0), int(size)


def simulate(path, budget=None, stop_after=None):
    result = dict(allocations=0, frees=0, trace_failures=0, refused=0, unmatched_frees=0, peak_bytes=0, live_bytes=0,
                  live_allocations=0)
    at = defaultdict(list)  # address → [size, granted] of each block there, oldest first
    used = 0
    for number, (action, pointer, size) in enumerate(records(path)):
        if stop_after is not None and number == stop_after:
            break
        if action == "allocate failure":
            result["trace_failures"] += 1
        elif action == "allocate":
            granted = budget is None or used + size <= budget
            at[pointer].append((size, granted))
            result["allocations" if granted else "refused"] += 1
            used += size if granted else 0
            result["peak_bytes"] = max(result["peak_bytes"], used)
        elif not at[pointer]:
            result["unmatched_frees"] += 1
        else:
            blocks = at[pointer]
            index = next((i for i, block in enumerate(blocks) if block[0] == size), 0)
            block_size, granted = blocks.pop(index)
            result["frees"] += granted
            used -= block_size if granted else 0
    result["live_bytes"] = used
    result["live_allocations"] = result["allocations"] - result["frees"]
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--budget", type=int)
    parser.add_argument("--stop-after", type=int)
    arguments = parser.parse_args()
    print(json.dumps(simulate(arguments.trace, arguments.budget, arguments.stop_after)))
