"""Runs `headroom export` for the integration tests, scrapes it, and reads what was scraped."""
import re
import signal
import time
import urllib.request

from command_runner import DATA, HEADER, PATIENCE, CommandTest

SAMPLE = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# bcrypt's published test vector: the password is U*U.
USER_LINE = "ada:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n"


def parse(text):
    """(name, labels, value) of each sample; no two may have the same name and labels."""
    samples, seen = [], set()
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = SAMPLE.match(line).groups()
        key = (name, labels)
        assert key not in seen, line
        seen.add(key)
        samples.append((name, dict(LABEL.findall(labels or "")), float(value)))
    return samples


def total(samples, name, **labels):
    wanted = labels.items()
    return sum(value for found, has, value in samples if found == f"headroom_{name}" and wanted <= has.items())


def found(samples, name, **labels):
    return [has for other, has, _ in samples if other == f"headroom_{name}" and labels.items() <= has.items()]


def whole(samples, name):
    """Of the series that there are, and of what has none any more."""
    return total(samples, name) + total(samples, f"exited_{name}")


class ExportTest(CommandTest):
    def export(self, *arguments):
        """An exporter that serves, with its URL."""
        where = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
        process = self.start_command("export", *where, *arguments)
        line = self.wait_for(process, "serving ")
        process.url = line.split("serving ")[1].split(" on ")[0].removesuffix("/metrics")
        return process

    def get(self, exporter, path="/metrics", headers=None, context=None):
        request = urllib.request.Request(exporter.url + path, headers=headers or {})
        with urllib.request.urlopen(request, timeout=PATIENCE, context=context) as answer:
            return answer.read().decode()

    def scrape(self, exporter, **options):
        return parse(self.get(exporter, **options))

    def scrape_until(self, exporter, is_enough):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            samples = self.scrape(exporter)
            if is_enough(samples):
                return samples
            time.sleep(0.05)
        self.fail("never seen in:\n" + self.get(exporter) + exporter.error_path.read_text())

    def held(self, name="oom_batch", records=500):
        process = self.start_command("replay", DATA / f"{name}.csv.xz", "--stop-after", records, "--hold", "1h")
        self.wait_for(process, "holding")
        return process

    def tiny_history(self):
        rows = [f"1,{i},allocate,0x{0x1000 * i:x},{256 * i},0" for i in (1, 2, 3)] + ["1,4,free,0x1000,256,0"]
        return self.write("tiny.csv", HEADER + "\n".join(rows) + "\n")

    def end(self, process):
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=PATIENCE)

    def flight_of(self, process):
        return next(self.flights.glob(f"*.{process.pid}.*.flight"))
