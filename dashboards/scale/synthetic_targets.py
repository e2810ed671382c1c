#!/usr/bin/env python3
"""Many made-up nodes on loopback, each of which serves what a real node exporter served once.

    synthetic_targets.py TEXT CONTENT-TYPE COUNT [--delay SECONDS]

TEXT is a file with the scrape. Every target has an address of its own (127.1.0.1, 127.1.0.2, …, one port), so that Prometheus holds a
connection to each, as to real nodes. Names of hosts, runs, pids and GPUs differ from target to target; what counts grows by its own size
every minute, so that buckets stay cumulative; bytes in use go up and down below their peak. Answers are packed with gzip for whoever accepts
it. "serving PORT" is printed once all listen; it ends when stdin does.
"""
import argparse
import asyncio
import json
import math
import re
import resource
import socket
import subprocess
import sys
import time
import zlib
from pathlib import Path

from local_prometheus import ends_with_parent

GROWS_BY_ITS_SIZE_IN = 60.0  # seconds
WAVE = 120.0  # seconds from peak to peak of the bytes in use
SAMPLE = re.compile(r"^(\w+)(\{.*\})? (\S+)$")
TYPE = re.compile(r"^# TYPE (\w+) (\w+)$")
IN_USE = re.compile(r"^headroom_(allocated|claimed|tag_allocated|node_folded_allocated)_bytes$")
MANAGER = re.compile(r'\bmanager="(?:[^"\\]|\\.)*"')
PID = re.compile(r'\bpid="[^"]*"')


def is_whole(text):
    return text.isdigit()


class Template:
    """A scrape with places for what differs between targets and times."""

    def __init__(self, text):
        kinds, claimed = {}, {}
        samples = [match.groups() if (match := SAMPLE.match(line)) else line for line in text.splitlines()]
        for sample in samples:
            if isinstance(sample, str):
                if match := TYPE.match(sample):
                    kinds[match[1]] = match[2]
            elif sample[0] == "headroom_claimed_bytes":
                claimed[self._of_manager(sample[1])] = int(sample[2])
        self.lines, self.figures = [], []  # figures: of each %s, (kind, base, base of what it depends on)
        for sample in samples:
            if isinstance(sample, str):
                self.lines.append(sample.replace("%", "%%"))
                continue
            name, labels, value = sample
            figure = self._figure(name, labels or "", value, kinds, claimed)
            value = value if figure is None else "%s"
            self.lines.append(f"{name}{(labels or '').replace('%', '%%')} {value}")
            if figure is not None:
                self.figures.append(figure)
        self.text = "\n".join(self.lines) + "\n"

    @staticmethod
    def _of_manager(labels):
        return tuple(match[0] for pattern in (PID, MANAGER) if (match := pattern.search(labels)))

    def _figure(self, name, labels, value, kinds, claimed):
        if IN_USE.match(name) and is_whole(value):
            return ("in_use", int(value), 0)
        if name == "headroom_remaining_bytes":
            return ("remaining", int(value), claimed.get(self._of_manager(labels), 0))
        if name == "headroom_last_activity_timestamp_seconds":
            return ("now", 0, 0)
        family = re.sub(r"_(bucket|sum|count|total)$", "", name)
        counts = kinds.get(name) == "counter" or kinds.get(family) in ("counter", "histogram")
        if not counts or float(value) == 0:
            return None
        return ("count", int(value), 0) if is_whole(value) else ("amount", float(value), 0)

    def values(self, growth, use, now):
        made = []
        for kind, base, other in self.figures:
            if kind == "count":
                made.append(int(base * growth))
            elif kind == "amount":
                made.append(repr(base * growth))
            elif kind == "in_use":
                made.append(int(base * use))
            elif kind == "remaining":
                made.append(base + other - int(other * use))
            else:
                made.append(repr(now))
        return tuple(made)


class Target:
    def __init__(self, template, number, began):
        self.template, self.number, self.began = template, number, began
        node = f"node-{number:05}"
        text = re.sub(r'\bhost="[^"]*"', f'host="{node}"', template.text)
        text = re.sub(r'\bpid="(\d+)"', lambda match: f'pid="{int(match[1]) + 7 * number}"', text)
        text = re.sub(r'\brun="([0-9a-f]{8})"', lambda match: f'run="{(int(match[1], 16) + 2654435761 * number) % 2**32:08x}"', text)
        self.text = re.sub(r'\buuid="[A-Z]+-(\w{8})', lambda match: match[0][:-8] + f"{number:08x}", text)

    def scrape(self):
        now = time.time()
        passed = now - self.began
        growth = 1.0 + passed / GROWS_BY_ITS_SIZE_IN
        use = 0.8 + 0.2 * math.sin(2 * math.pi * (passed / WAVE + self.number * 0.618))
        return (self.text % self.template.values(growth, use, now)).encode()


class Connection(asyncio.Protocol):
    """One of GET after the other; nobody but the Prometheus of the measurement asks."""

    def __init__(self, target, content_type, delay):
        self.target, self.content_type, self.delay, self.got = target, content_type, delay, b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.got += data
        while b"\r\n\r\n" in self.got:
            head, self.got = self.got.split(b"\r\n\r\n", 1)
            asyncio.get_running_loop().call_later(self.delay, self.answer, head.lower())

    def answer(self, head):
        body, packed = self.target.scrape(), ""
        if re.search(rb"accept-encoding:[^\r]*gzip", head):
            packing = zlib.compressobj(1, zlib.DEFLATED, 31)
            body = packing.compress(body) + packing.flush()
            packed = "Content-Encoding: gzip\r\n"
        self.transport.write(f"HTTP/1.1 200 OK\r\nContent-Type: {self.content_type}\r\n{packed}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def address_of(number):
    """Of target 1, 2, …: all of 127.0.0.0/8 is this machine."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


def bind_all(count):
    """A socket for each target, all with the same port: the kernel finds one for the first."""
    for _ in range(20):
        sockets, port = [], 0
        try:
            for number in range(1, count + 1):
                made = socket.socket()
                sockets.append(made)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                made.bind((address_of(number), port))
                port = made.getsockname()[1]
            return sockets, port
        except OSError as error:
            failure = error
            for made in sockets:
                made.close()
    raise failure


async def serve(arguments):
    template = Template(Path(arguments.text).read_text())
    began = time.time()
    loop = asyncio.get_running_loop()
    sockets, port = bind_all(arguments.count)
    for number, listening in enumerate(sockets, 1):
        target = Target(template, number, began)
        await loop.create_server(lambda target=target: Connection(target, arguments.content_type, arguments.delay), sock=listening)
    print(f"serving {port}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


class Targets:
    """The program that serves them."""

    def __init__(self, text, content_type, count, folder, delay=0.0):
        path = Path(folder) / "node.txt"
        path.write_text(text)
        self.process = subprocess.Popen(
            ends_with_parent([sys.executable, __file__, path, content_type, count, "--delay", delay]), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline().split()
        if said[:1] != ["serving"]:
            raise RuntimeError("the made-up targets do not serve")
        self.addresses = [f"{address_of(number)}:{said[1]}" for number in range(1, count + 1)]

    def discovery(self, path):
        """Writes a file for file_sd_configs."""
        Path(path).write_text(json.dumps([{"targets": self.addresses}]))
        return path

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("content_type")
    parser.add_argument("count", type=int)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds until an answer")
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(serve(arguments))


if __name__ == "__main__":
    main()
