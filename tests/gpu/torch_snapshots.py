#!/usr/bin/env python3
"""A real PyTorch against `headroom`: each reads what the other wrote, and both count the same.

  torch_snapshots.py --programs DIR            every case; DIR holds the `headroom` command
  torch_snapshots.py --record whole|middle DIR (in a process of its own, under a Python with PyTorch) trains, dumps a snapshot there
  torch_snapshots.py --show FILE FILE          (likewise) what PyTorch's own tools make of two snapshots, as JSON

PyTorch's snapshots: a training loop is recorded, from its start and from its middle on; `headroom summary` and `replay` must count what
torch.cuda.memory_stats counted in the same run, to the byte. Ours: a history, and the flight files of replays on the GPU, are converted;
PyTorch's tools must read them without an error and add up to what `headroom summary` says.

It needs a Python with PyTorch (HEADROOM_TORCH_PYTHON, else this one, else `python3`) and a GPU. Without them it ends with 77; else with 0,
or with 1 when something is wrong.
"""
import argparse
import dataclasses
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "data"
NO_DEVICE = 77
LIMIT_SECONDS = 240
HOWS = ("whole", "middle")
TOO_MUCH = 1 << 42  # bytes that no GPU has
PARTS = ("current", "peak", "allocated", "freed")


@dataclasses.dataclass
class Outcome:
    case: str
    result: str  # passed, failed or skipped
    why: str = ""
    text: str = ""  # a table

    def __str__(self):
        return f"{self.result:8}{self.case}{': ' if self.why else ''}{self.why}" + (f"\n{self.text}" if self.text else "")


class Wrong(Exception):
    """A case failed; the message says why."""


# ── under a Python with PyTorch ─────────────────────────────────────────────────────────────────────────────────────

def train(torch, side, steps):
    """What lives on: model and optimiser."""
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1023), torch.nn.ReLU(),
                                torch.nn.Linear(1023, 77)).cuda()
    optimiser = torch.optim.Adam(model.parameters())
    for step in range(steps):
        with torch.profiler.record_function(f"step {step}"):
            batch = torch.randn(300 + 17 * step, 512, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                scaled = batch * 0.5
            batch.record_stream(side)
            torch.cuda.current_stream().wait_stream(side)
            scaled.record_stream(torch.cuda.current_stream())
            loss = model(scaled).square().mean()
            del batch, scaled
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return model, optimiser


def leave_pending(torch, side):
    """Memory that the program has freed, and that a busy stream may still use."""
    block = torch.empty(3_000_001, dtype=torch.uint8, device="cuda")
    with torch.cuda.stream(side):
        torch.cuda._sleep(1_000_000_000)
    block.record_stream(side)


def record(how, folder):
    import torch
    if not torch.cuda.is_available():
        sys.exit(NO_DEVICE)
    side = torch.cuda.Stream()
    kept = []
    if how == "middle":
        kept.append(train(torch, side, 3))
        leave_pending(torch, side)
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
    before = torch.cuda.memory_stats()
    torch.cuda.memory._record_memory_history(stacks="python", global_record_annotations=True)
    if how == "middle":
        kept.pop()
    kept.append(train(torch, side, 4))
    try:
        torch.empty(TOO_MUCH, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        pass
    kept.append(torch.randn(1000, 333, device="cuda"))
    leave_pending(torch, side)
    stats = torch.cuda.memory_stats()
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    with open(folder / "snapshot.pickle", "wb") as file:
        pickle.dump(snapshot, file)
    names = ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes", "allocation", "active", "segment")
    figures = {name: {part: stats[f"{name}.all.{part}"] for part in PARTS} for name in names}
    figures |= {"num_ooms": stats["num_ooms"], "before": before.get("active.all.current", 0),
                "before_bytes": before.get("requested_bytes.all.current", 0), "version": torch.__version__,
                "device": torch.cuda.get_device_name()}
    (folder / "figures.json").write_text(json.dumps(figures))
    torch.cuda.synchronize()


def show(paths):
    """Everything that PyTorch's tools print; flame graphs as the lines that they are drawn from, for the script is not here."""
    from torch.cuda import _memory_viz as viz

    def lines(text):
        return text

    def sum_of(text):
        return sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines())

    shown = []
    snapshots = []
    for path in paths:
        with open(path, "rb") as file:
            snapshots.append(pickle.load(file))
    for snapshot in snapshots:
        trace = viz.trace(snapshot).splitlines()
        stats = viz.segsum(snapshot)
        shown.append({
            "memory": sum_of(viz.memory(snapshot, format_flamegraph=lines)),
            "segments": sum_of(viz.segments(snapshot, format_flamegraph=lines)),
            "allocations": sum(" = " in line and " = cudaMalloc(" not in line for line in trace),
            "frees": sum(line.startswith("del ") for line in trace),
            "ooms": sum(line.startswith("raise OutOfMemoryError") for line in trace),
            "stats": {name: re.search(rf"^{name}: (\S+)", stats, re.MULTILINE)[1]
                      for name in ("segments", "total_reserved", "total_allocated")},
            "plots": [len(viz.trace_plot(snapshot)), len(viz.segment_plot(snapshot))],
        })
    real_stdout, sys.stdout = sys.stdout, sys.stderr  # compare() says there which segments differ
    try:
        compared = viz.compare(snapshots[0]["segments"], snapshots[1]["segments"], format_flamegraph=lines)
    finally:
        sys.stdout = real_stdout
    sides = {side: sum_of("\n".join(line for line in compared.splitlines() if line.startswith(side)))
             for side in ("only_before", "only_after")}
    print(json.dumps({"shown": shown, "compare": sides}))


def printed(size):
    """As PyTorch's tools print it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}TiB"


# ── the cases ───────────────────────────────────────────────────────────────────────────────────────────────────────

class Cases:
    def __init__(self, programs, folder, python, environment):
        self.headroom, self.folder, self.python = programs / "headroom", folder, python
        flights = folder / "flights"
        flights.mkdir(mode=0o700)
        self.flights = flights
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
        self.environment = {**kept, **environment, "HEADROOM_DIR": str(flights), "HEADROOM_DUMP": "off"}
        # PyTorch has its libraries of its own, and its allocator as it comes.
        self.torch_environment = {name: value for name, value in os.environ.items()
                                  if not name.startswith(("PYTORCH_", "HEADROOM_"))}

    def run(self, command, environment, statuses=(0,)):
        try:
            done = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True,
                                  timeout=LIMIT_SECONDS, errors="replace")
        except subprocess.TimeoutExpired as error:
            raise Wrong(f"{' '.join(map(str, command))} did not end within {LIMIT_SECONDS} s") from error
        if done.returncode not in statuses:
            tail = " | ".join((done.stderr or done.stdout).strip().splitlines()[-4:])
            raise Wrong(f"{' '.join(map(str, command))}: exit status {done.returncode}: {tail}")
        return done.stdout

    def ours(self, *arguments, statuses=(0,)):
        return self.run([self.headroom, *arguments], self.environment, statuses)

    def json_of(self, *arguments, statuses=(0,)):
        output = self.ours(*arguments, "--json", statuses=statuses)
        return json.loads(output[output.index("{\n"):])

    def torch(self, *arguments):
        return self.run([self.python, Path(__file__).resolve(), *arguments], self.torch_environment)

    # PyTorch's snapshot, our figures.

    def recorded(self, how):
        folder = self.folder / how
        folder.mkdir()
        self.torch("--record", how, folder)
        theirs = json.loads((folder / "figures.json").read_text())
        snapshot = folder / "snapshot.pickle"
        summary, replay = self.json_of("summary", snapshot), self.json_of("replay", snapshot)
        device, = summary["devices"]
        requested, active = theirs["requested_bytes"], theirs["active"]
        rows = [
            ("requested_bytes.current", requested["current"], "summary live_bytes", summary["live_bytes"]),
            ("requested_bytes.current", requested["current"], "replay live_bytes", replay["live_bytes"]),
            ("requested_bytes.peak", requested["peak"], "summary peak_bytes", summary["peak_bytes"]),
            ("requested_bytes.peak", requested["peak"], "replay peak_bytes", replay["peak_bytes"]),
            ("requested_bytes.current, before", theirs["before_bytes"], "from_before_bytes", device["from_before_bytes"]),
            ("active.current, before", theirs["before"], "from_before_allocations", device["from_before_allocations"]),
            ("allocation.allocated", theirs["allocation"]["allocated"], "summary allocations", summary["allocations"]),
            ("active.allocated + before", active["allocated"] + theirs["before"], "replay allocations", replay["allocations"]),
            ("active.freed", active["freed"], "summary frees", summary["frees"]),
            ("active.freed", active["freed"], "replay frees", replay["frees"]),
            ("active.current", active["current"], "summary live_allocations", summary["live_allocations"]),
            ("active.current", active["current"], "active_blocks", device["active_blocks"]),
            ("num_ooms", theirs["num_ooms"], "summary trace_failures", summary["trace_failures"]),
            ("num_ooms", theirs["num_ooms"], "replay trace_failures", replay["trace_failures"]),
            ("reserved_bytes.current", theirs["reserved_bytes"]["current"], "reserved_bytes", device["reserved_bytes"]),
            ("allocated_bytes.current", theirs["allocated_bytes"]["current"], "allocated_bytes", device["allocated_bytes"]),
            ("active_bytes.current", theirs["active_bytes"]["current"], "active_bytes", device["active_bytes"]),
            ("segment.current", theirs["segment"]["current"], "segments", device["segments"]),
            ("nothing", 0, "unmatched_frees", summary["unmatched_frees"]),
        ]
        if theirs["num_ooms"] == 0:
            raise Wrong(f"PyTorch was given {TOO_MUCH} bytes")
        if how == "middle" and theirs["before"] == 0:
            raise Wrong("nothing was live before the record")
        return f"PyTorch {theirs['version']} on {theirs['device']}", rows

    def whole(self):
        return self.recorded("whole")

    def middle(self):
        return self.recorded("middle")

    def back_again(self):
        """PyTorch's snapshot as one of ours is the same history."""
        snapshot, ours = self.folder / "whole" / "snapshot.pickle", self.folder / "again.pickle"
        self.ours("convert", snapshot, "--to", "torch", "-o", ours)
        before, after = self.json_of("summary", snapshot), self.json_of("summary", ours)
        names = ("allocations", "frees", "trace_failures", "unmatched_frees", "peak_bytes", "live_bytes", "live_allocations")
        return "", [(f"{name} of PyTorch's", before[name], f"{name} of ours", after[name]) for name in names]

    # Our snapshots, PyTorch's tools.

    def compared(self, sources):
        """Two files that `headroom` reads, converted, and shown by PyTorch's tools."""
        pickles, summaries = [], []
        for number, source in enumerate(sources):
            pickles.append(self.folder / f"{source.name}.{number}.pickle")
            self.ours("convert", source, "--to", "torch", "-o", pickles[-1])
            summaries.append(self.json_of("summary", source))
            for action in ("stats", "trace"):  # the others would fetch a script to draw with
                said = self.run([self.python, "-m", "torch.cuda._memory_viz", action, pickles[-1]], self.torch_environment)
                if "Device 0" not in said and "total_allocated" not in said:
                    raise Wrong(f"_memory_viz {action} says {said[:200]!r}")
        told = json.loads(self.torch("--show", *pickles))
        rows = []
        for name, summary, shown in zip(("first", "second"), summaries, told["shown"]):
            live = summary["live_bytes"]
            rows += [(f"{name}: memory", shown["memory"], "live_bytes", live),
                     (f"{name}: segments", shown["segments"], "live_bytes", live),
                     (f"{name}: stats, segments", int(shown["stats"]["segments"]), "live_allocations", summary["live_allocations"]),
                     (f"{name}: stats, total_reserved", shown["stats"]["total_reserved"], "live_bytes, as it prints", printed(live)),
                     (f"{name}: stats, total_allocated", shown["stats"]["total_allocated"], "live_bytes, as it prints", printed(live)),
                     (f"{name}: events lost", summary["events_lost"], "none", 0),
                     (f"{name}: trace, allocations", shown["allocations"], "allocations", summary["allocations"]),
                     (f"{name}: trace, frees", shown["frees"], "frees", summary["frees"]),
                     (f"{name}: trace, out of memory", shown["ooms"], "refused + trace_failures",
                      summary["refused"] + summary["trace_failures"])]
            if min(shown["plots"]) < 1000:
                raise Wrong(f"{name}: a plot of {min(shown['plots'])} characters")
        # Segments that both have drop out on both sides.
        difference = told["compare"]["only_after"] - told["compare"]["only_before"]
        rows.append(("compare: after - before", difference, "difference of live_bytes",
                     summaries[1]["live_bytes"] - summaries[0]["live_bytes"]))
        return "", rows

    def histories(self):
        return self.compared([DATA / "resnet.csv.xz", DATA / "oom_batch.csv.xz"])

    def flights_of_replays(self):
        files = []
        for options in (["--stop-after", "1500"], ["--stop-after", "1200", "--budget", "820MiB", "--hook", "cache:64MiB:1"]):
            before = set(self.flights.glob("*.flight"))
            self.json_of("replay", DATA / "oom_batch.csv.xz", "--device", "cuda:0", "--keep", *options, statuses=(0, 1))
            file, = set(self.flights.glob("*.flight")) - before
            files.append(file)
        return self.compared(files)


ALL = ("whole", "middle", "back_again", "histories", "flights_of_replays")


def table(rows):
    cells = [(theirs, f"{a:,}" if isinstance(a, int) else str(a), "=" if a == b else "IS NOT", f"{b:,}" if isinstance(b, int) else str(b),
              ours) for theirs, a, ours, b in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(5)]
    return "\n".join(f"  {row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:^{widths[2]}}  {row[3]:>{widths[3]}}  {row[4]}"
                     for row in cells)


def run_case(cases, name):
    try:
        what, rows = getattr(cases, name)()
    except (Wrong, ValueError, KeyError, OSError) as error:  # JSON that is not as it should be, too
        return Outcome(name, "failed", str(error) if isinstance(error, (Wrong, OSError)) else f"{type(error).__name__}: {error}")
    differ = [f"{theirs} {a}, {ours} {b}" for theirs, a, ours, b in rows if a != b]
    return Outcome(name, "failed" if differ else "passed", "; ".join([what] * bool(what) + differ), table(rows))


def find_python():
    """A Python whose PyTorch sees a GPU, or why there is none."""
    why = "no Python"
    places = [os.environ.get("HEADROOM_TORCH_PYTHON"), sys.executable, shutil.which("python3"), shutil.which("python")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTORCH_")}
    for place in dict.fromkeys(place for place in places if place):
        try:
            done = subprocess.run([place, "-c", "import torch; print(torch.cuda.is_available())"], capture_output=True, text=True,
                                  timeout=LIMIT_SECONDS, env=environment, errors="replace")
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
            continue
        if done.returncode == 0 and done.stdout.split() == ["True"]:
            return place, ""
        why = "PyTorch sees no GPU" if done.returncode == 0 else "no Python here has PyTorch"
    return None, why


def run_all(programs, environment=None, names=ALL):
    """`environment`: for the `headroom` command alone."""
    python, why = find_python()
    if not (programs / "headroom").exists():
        python, why = None, f"no headroom command in {programs}"
    if python is None:
        return [Outcome(name, "skipped", why) for name in names]
    with tempfile.TemporaryDirectory(prefix="headroom-snapshots-") as folder:
        cases = Cases(programs, Path(folder), python, environment or {})
        return [run_case(cases, name) for name in names]


def exit_code(outcomes):
    results = {outcome.result for outcome in outcomes}
    return 1 if "failed" in results else NO_DEVICE if results == {"skipped"} else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--record", nargs=2, metavar=("HOW", "DIR"))
    parser.add_argument("--show", nargs=2, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.record:
        if arguments.record[0] not in HOWS:
            parser.error(f"--record: found '{arguments.record[0]}', expected one of {', '.join(HOWS)}")
        record(arguments.record[0], Path(arguments.record[1]))
        return 0
    if arguments.show:
        show(arguments.show)
        return 0
    if arguments.programs is None:
        parser.error("expected --programs DIR, the folder of the built programs")
    outcomes = run_all(arguments.programs.resolve())
    for outcome in outcomes:
        print(outcome)
    return exit_code(outcomes)


if __name__ == "__main__":
    sys.exit(main())
