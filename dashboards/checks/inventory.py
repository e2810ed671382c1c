"""Which metrics there are, of what type and with which labels: read from real scrapes, so that no second list has to be kept."""
import dataclasses
import re

SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ")
LABEL = re.compile(r'(\w+)="(?:[^"\\]|\\.)*"')
BY_SCRAPER = {"job", "instance"}


@dataclasses.dataclass
class Metric:
    type: str  # of its family: gauge, counter, histogram
    labels: set

    @property
    def only_grows(self):
        return self.type in ("counter", "histogram")


# Not headroom's. Prometheus adds the first three to every target; the last is one of NVIDIA's dcgm-exporter.
FOREIGN = {
    "up": Metric("gauge", set()),
    "scrape_duration_seconds": Metric("gauge", set()),
    "scrape_samples_scraped": Metric("gauge", set()),
    "DCGM_FI_DEV_GPU_TEMP": Metric("gauge", {"UUID", "gpu"}),
}


def read(scrapes):
    """All metrics of several scrapes in the text format; labels are those that any series of any scrape has."""
    metrics = {name: Metric(metric.type, metric.labels | BY_SCRAPER) for name, metric in FOREIGN.items()}
    for text in scrapes:
        kind = ""
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                kind = line.split()[3]
            elif match := SAMPLE.match(line):
                metric = metrics.setdefault(match[1], Metric(kind, set(BY_SCRAPER)))
                metric.labels.update(LABEL.findall(match[2] or ""))
    return metrics
