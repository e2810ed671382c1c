"""A Prometheus of one's own: real, on loopback, at a port that it chooses itself, with data, configuration and log in a folder that the
caller gives. It ends with stop(), and with the process that started it, however that one ends.

Python's standard library only. Not thread-safe, except for asking.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

PATIENCE = 240  # seconds until something that should happen at once has failed to happen, on a machine that has no time for it
ADDRESS = re.compile(r'msg="Listening on" address=(\S+)')
LEVEL = re.compile(r"\blevel=(\w+)")
# A machine without time makes up for a turn of the rules that it missed, and has evaluated that moment already. Rules that make one series
# twice are told differently ("same labelset").
TWICE_AT_ONCE = re.compile(r'component="rule manager".*(different value but same timestamp|out-of-order)')
WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"  # PR_SET_PDEATHSIG, SIGKILL


class QueryError(Exception):
    """What Prometheus answered instead of data, such as the place of a syntax error."""


def installed():
    return shutil.which("prometheus") is not None


def ends_with_parent(command):
    """The command, as a process that ends with the one that starts it: whoever is killed with SIGKILL can clean nothing up. A program in
    between does that, since code between fork and exec may not run where there are threads."""
    return [sys.executable, "-c", WITH_PARENT, *map(str, command)]


class Prometheus:
    def __init__(self, folder, configuration, *arguments, agent=False):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "prometheus.yml"
        path.write_text(configuration)
        self.log_path = self.folder / "log"
        storage = ["--enable-feature=agent", f"--storage.agent.path={self.folder / 'data'}"] if agent else [
            f"--storage.tsdb.path={self.folder / 'data'}"]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                ends_with_parent(["prometheus", f"--config.file={path}", *storage, "--web.listen-address=127.0.0.1:0", "--log.level=info",
                                  *arguments]), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        try:
            self.address = self._wait_for(lambda: next(iter(ADDRESS.findall(self.log())), None), "the address that it listens on")
            self.url = f"http://{self.address}"
            self._wait_for(self._is_ready, "an answer to /-/ready")
        except BaseException:
            self.stop()
            raise

    def _wait_for(self, look, what):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := look():
                return found
            time.sleep(0.05)
        raise RuntimeError(f"prometheus never showed {what}; its log:\n{self.log()}")

    def _is_ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=PATIENCE) as answer:
                return answer.status == 200
        except OSError:
            return False

    def stop(self):
        """At once: nobody reads its data afterwards."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def log(self):
        return self.log_path.read_text(errors="replace")

    def complaints(self):
        """What it logged at warn or above, such as samples that come twice or out of order."""
        return [line for line in self.log().splitlines()
                if (level := LEVEL.search(line)) and level[1] in ("warn", "error") and not TWICE_AT_ONCE.search(line)]

    def get(self, path, **parameters):
        """`data` of an answer of the API."""
        url = f"{self.url}/api/v1/{path}?" + urllib.parse.urlencode(parameters, doseq=True)
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            try:
                found = json.loads(text)
            except ValueError:
                raise QueryError(f"{error.code}: {text}") from error
        if found["status"] != "success":
            raise QueryError(f"{found['errorType']}: {found['error']}")
        return found["data"]

    def query(self, expression):
        return self.get("query", query=expression)["result"]

    def query_range(self, expression, start, end, step):
        return self.get("query_range", query=expression, start=start, end=end, step=step)["result"]

    def label_values(self, label, selector=""):
        """Of the series that the selector means, of all without one; as Grafana's label_values()."""
        return self.get(f"label/{label}/values", **({"match[]": selector} if selector else {}))

    def value(self, expression):
        """Of an expression that yields one number or nothing: None."""
        data = self.get("query", query=expression)
        if data["resultType"] == "scalar":
            return float(data["result"][1])
        if len(data["result"]) > 1:
            raise QueryError(f"{len(data['result'])} series where one was expected: {expression}")
        return float(data["result"][0]["value"][1]) if data["result"] else None

    def own_metrics(self):
        """What it says about itself: {name with labels: value}."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")}

    def rules(self):
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)


def cpu_seconds(pid):
    """That a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid, key="VmRSS"):
    """`key` as in /proc/PID/status: VmRSS now, VmHWM at its highest."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {key} of process {pid}")
