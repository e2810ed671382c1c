"""The text of a node exporter's scrape, as Prometheus gets it: from the real `headroom export`, over real processes.

Python's standard library only.
"""
import os
import re
import subprocess
import time
import urllib.request
from pathlib import Path

from local_prometheus import PATIENCE, ends_with_parent

# What Prometheus 2.42 asks for.
ACCEPT = ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
          "text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
TRACE = Path(__file__).resolve().parents[2] / "tests" / "data" / "resnet.csv.xz"
# A training job at the end of its budget, with two hooks, as in `./run demo`; most of its histograms' buckets have something in them.
JOB = ("--budget", "2900MiB", "--hook", "cache:128MiB:1", "--hook", "spill:256MiB:2:4MiB", "--policy", "retry", "--stop-after", "4000",
       "--hold", "1h")


def environment_for(folder):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
    return {**kept, "HEADROOM_DIR": str(folder), "HEADROOM_DUMP": "off"}


class Started:
    """`headroom` with some arguments, until the end of a with block; `wait_for` finds a line of its stderr."""

    def __init__(self, command, arguments, folder, stem):
        self.error_path = Path(folder) / f"{stem}.stderr"
        with open(self.error_path, "wb") as errors:
            self.process = subprocess.Popen(ends_with_parent([command, *arguments]), env=environment_for(Path(folder) / "flights"),
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)

    def wait_for(self, pattern):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if match := re.search(pattern, self.error_path.read_text()):
                return match
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"'{pattern}' never came from headroom: {self.error_path.read_text()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def scrape(url):
    """The text, and its content type."""
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": ACCEPT}), timeout=PATIENCE) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def node_text(command, folder, processes, job=JOB, trace=TRACE):
    """One scrape of a node with so many processes that do the same `job`: (text, content type)."""
    (Path(folder) / "flights").mkdir(mode=0o700)
    jobs = []
    try:
        for number in range(processes):
            jobs.append(Started(command, ("replay", trace, *job), folder, f"job-{number}"))
        for started in jobs:
            started.wait_for("holding")
        with Started(command, ("export", "--listen", "127.0.0.1:0"), folder, "export") as exporter:
            url = exporter.wait_for(r"serving (\S+)")[1]
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                text, content_type = scrape(url)
                if len(re.findall(r"^headroom_process_up\{.*\} 1$", text, re.M)) == processes:
                    return text, content_type
                time.sleep(0.05)
        raise RuntimeError(f"the exporter never saw {processes} processes")
    finally:
        for started in jobs:
            started.__exit__()
