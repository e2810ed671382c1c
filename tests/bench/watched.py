#!/usr/bin/env python3
"""What being watched costs a program: a replay at full speed, alone and with headroom-viewer attached, in turn.

tests/bench/watched.py [build/release/bin] [--pairs N] [--loops N]

Each pair is a replay of tests/data/resnet.csv.xz in a loop (a thread that allocates and frees without a pause) with no viewer,
and one with a viewer that is started with it and draws until it ends, in an order that changes from pair to pair. Needs Xvfb
where there is no display. Graphics are rasterised by the CPU there, so this is the worst case: the viewer takes what it takes
from the same cores.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def display():
    """A display server of our own and its name, or None and the one that there is."""
    if os.environ.get("DISPLAY"):
        return None, os.environ["DISPLAY"]
    ours, theirs = os.pipe()
    server = subprocess.Popen(["Xvfb", "-noreset", "-displayfd", str(theirs), "-screen", "0", "1600x1000x24", "-nolisten", "tcp"],
                              pass_fds=[theirs], stderr=subprocess.DEVNULL)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        return server, f":{answer.readline().strip()}"


def replay(bin_folder, loops, watched, environment):
    """Events a second of `loops` replays; `watched`: with a viewer attached."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o700)
        environment = environment | {"HEADROOM_DIR": folder, "HEADROOM_DUMP": "off"}
        viewer = None
        begin = time.monotonic()
        started = subprocess.Popen([str(bin_folder / "headroom"), "replay", "tests/data/resnet.csv.xz", "--loop", str(loops), "--json"],
                                   env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            if watched:
                while not any(Path(folder).glob("*.flight")):
                    if started.poll() is not None:
                        raise SystemExit("watched: the replay ended before it could be watched: more --loops are wanted")
                    time.sleep(0.001)
                viewer = subprocess.Popen([str(bin_folder / "headroom-viewer"), "--forget", "--stay", "--dir", folder, str(started.pid)],
                                          env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            figures = json.load(started.stdout)
            started.wait()
            took = time.monotonic() - begin
            if viewer and viewer.poll() is not None:
                raise SystemExit(f"watched: the viewer ended with {viewer.returncode}")
        finally:
            started.kill()
            started.wait()
            if viewer:
                viewer.terminate()
                viewer.wait()
        return figures["events_recorded"] / took


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    arguments.add_argument("bin", nargs="?", default="build/release/bin", help="folder of the programs (default: %(default)s)")
    arguments.add_argument("--pairs", type=int, default=9, help="(default: %(default)s)")
    arguments.add_argument("--loops", type=int, default=5000, help="replays in each run (default: %(default)s)")
    given = arguments.parse_args()
    bin_folder = (ROOT / given.bin).resolve()
    server, name = display()
    environment = os.environ | {"DISPLAY": name}
    try:
        pairs = []
        for number in range(given.pairs):
            order = (False, True) if number % 2 == 0 else (True, False)
            rates = {watched: replay(bin_folder, given.loops, watched, environment) for watched in order}
            pairs.append((rates[False], rates[True]))
            print(f"pair {number + 1}: {rates[False] / 1e6:.3f} M events/s alone, {rates[True] / 1e6:.3f} M watched", file=sys.stderr)
    finally:
        if server:
            server.terminate()
            server.wait()
    losses = sorted(1 - watched / alone for alone, watched in pairs)
    print(f"{os.cpu_count()} cores, {given.pairs} pairs of {given.loops} replays: {statistics.median(a for a, _ in pairs) / 1e6:.3f} M events/s alone, "
          f"{statistics.median(w for _, w in pairs) / 1e6:.3f} M watched")
    print(f"lost to being watched: {100 * statistics.median(losses):.1f} %  (least {100 * losses[0]:.1f} %, most {100 * losses[-1]:.1f} %)")


if __name__ == "__main__":
    main()
