#!/usr/bin/env python3
"""Makes the pictures of the README: the pages of one program and of a machine, over replays of the recorded histories in tests/data.

    HEADROOM_COMMAND=build/release/bin/headroom python3 tests/integration/page_pictures.py exporter/pictures [--seconds 75] [--dark]

The replays are `headroom replay` under the names of jobs that people have. It takes as long as the timeline shall show, and needs a
Chromium (HEADROOM_CHROMIUM, or what Debian calls it); with the font Inter (Debian's fonts-inter) letters are those of the README.
"""
import argparse
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from browser import Browser, find_chromium
from command_runner import COMMAND, DATA

MOST_BYTES = 300_000
# Name, history, and how it is replayed.
ALONE = ("train", "resnet", "--budget 2900MiB --loop forever --stretch 24s --hook spare-workspace:384MiB:1 --tag size")
MACHINE = [
    ("train-resnet", "resnet", "--budget 3GiB --loop forever --stretch 24s --hook prefetch-cache:256MiB:1"),
    ("finetune-gpt2", "gpt2", "--budget 2GiB --loop forever --stretch 40s"),
    ("serve-vit", "vit_threads", "--budget 1GiB --loop forever --stretch 30s"),
    ("embed-documents", "gpt2", "--budget 4GiB --stop-after 6000 --hold 1h"),
    ("evaluate", "oom_batch", "--budget 6GiB --loop forever --stretch 20s"),
    ("notebook", "resnet", "--stop-after 3000 --hold 1h"),
]
KILLED = ("score-batch", "resnet", "--budget 3200MiB --stop-after 4000 --hold 1h")
EXITED = ("nightly-export", "vit_threads", "--budget 2GiB --stretch 5s")


class Jobs:
    def __init__(self, folder):
        self.folder = Path(folder)
        (self.folder / "flights").mkdir(mode=0o700)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
        self.environment = {**kept, "HEADROOM_DIR": str(self.folder / "flights"), "HEADROOM_DUMP": "off"}
        self.running = []

    def start(self, name, *arguments):
        """The command under another name; its log is `.log`."""
        link = self.folder / name
        link.symlink_to(Path(COMMAND).resolve())
        log = open(self.folder / f"{name}.log", "w+")
        process = subprocess.Popen([link, *arguments], env=self.environment, stdout=subprocess.DEVNULL, stderr=log)
        process.log = log
        self.running.append(process)
        return process

    def replay(self, name, history, options, *more):
        return self.start(name, "replay", DATA / f"{history}.csv.xz", *options.split(), *more)

    def url(self, process):
        for _ in range(600):
            process.log.seek(0)
            for line in process.log.read().splitlines():
                if "serving " in line:
                    return line.split("serving ")[1].split(" on ")[0].removesuffix("metrics")
            time.sleep(0.1)
        raise SystemExit(f"{process.args[0]} does not serve")

    def end(self):
        for process in self.running:
            process.kill()
            process.wait()
            process.log.close()


TIGHT = "[...document.querySelectorAll('.chip')].some(chip => /high|critical/.test(chip.textContent))"


def take(page, path):
    """When something is tight, which is what the page is for, and without a bar for scrolling."""
    deadline = time.monotonic() + 90
    while not page.ask(TIGHT) and time.monotonic() < deadline:
        time.sleep(0.1)
    page.size(1280, page.ask("Math.min(1500, Math.ceil(document.querySelector('main').getBoundingClientRect().bottom))"))
    page.screenshot(path, whole=False)
    size = os.path.getsize(path)
    print(f"{path}: {size} bytes")
    if page.errors or size > MOST_BYTES:
        raise SystemExit(f"errors {page.errors}; at most {MOST_BYTES} bytes were expected")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=75, help="of history that the pictures show")
    parser.add_argument("--dark", action="store_true")
    arguments = parser.parse_args()
    if find_chromium() is None:
        raise SystemExit("there is no Chromium (chromium-headless-shell, or HEADROOM_CHROMIUM)")
    arguments.folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as alone_folder, tempfile.TemporaryDirectory() as machine_folder, Browser() as browser:
        alone, machine = Jobs(alone_folder), Jobs(machine_folder)
        try:
            exporter = machine.start("headroom", "export", "--listen", "127.0.0.1:0")
            for job in MACHINE:
                machine.replay(*job)
            one = alone.url(alone.replay(*ALONE, "--listen", "127.0.0.1:0"))
            pages = [browser.open(one), browser.open(machine.url(exporter))]
            for page in pages:
                page.prefer("dark" if arguments.dark else "light")
                page.size(1280, 760)
            time.sleep(max(0, arguments.seconds - 14))
            killed = machine.replay(*KILLED)
            machine.replay(*EXITED)
            time.sleep(6)
            killed.send_signal(signal.SIGKILL)
            time.sleep(8)
            take(pages[0], arguments.folder / "status-page.png")
            take(pages[1], arguments.folder / "machine-page.png")
        finally:
            alone.end()
            machine.end()


if __name__ == "__main__":
    main()
