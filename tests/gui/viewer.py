"""headroom-viewer in a real window: under Xvfb, with keys and clicks by xdotool, and pictures that are looked at by ImageMagick.

HEADROOM_VIEWER names it, HEADROOM_COMMAND the command. Skipped (77) where one of the three programs is missing.
"""
import csv
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "integration"))
from command_runner import DATA, PATIENCE, CommandTest  # noqa: E402

VIEWER = os.environ.get("HEADROOM_VIEWER", "headroom-viewer")
RESNET = DATA / "resnet.csv.xz"
DARK, LIGHT = (0x0E, 0x12, 0x17), (0xF6, 0xF7, 0xF9)  # grounds of the themes


def start_display():
    """An X server of our own, and the name of its display."""
    ours, theirs = os.pipe()
    # -noreset: a server that starts afresh when its last window went refuses who comes in that moment.
    server = subprocess.Popen(["Xvfb", "-r", "-noreset", "-displayfd", str(theirs), "-screen", "0", "1600x1000x24",
                               "-nolisten", "tcp"],
                              pass_fds=[theirs], stderr=subprocess.DEVNULL)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        number = answer.readline().strip()
    return server, f":{number}"


class Viewer(CommandTest):
    rest = 2  # seconds that it is given at most, to come to rest after input

    @classmethod
    def setUpClass(cls):
        cls.server, cls.display = start_display()

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        cls.server.wait()

    def environment(self, **more):
        return super().environment(DISPLAY=self.display, XDG_CONFIG_HOME=str(self.folder / "config"), **more)

    def viewer(self, *arguments, status=0, environment=None):
        done = subprocess.run([VIEWER, *map(str, arguments)], env=environment or self.environment(), capture_output=True, text=True,
                              timeout=300)
        self.assertEqual(done.returncode, status, f"{arguments}: {done.stdout}{done.stderr}")
        return done

    def texts(self, *arguments):
        return self.viewer(*arguments, "--dump-text", "-").stdout

    def panels(self):
        words = " ".join(self.viewer("--help").stdout.split())
        return re.search(r"panel to show first, of: ((?:[a-z-]+, )*[a-z-]+)", words).group(1).split(", ")

    def colours(self, path):
        """How many pixels of a picture have which colour, and its size."""
        size = subprocess.run(["identify", "-format", "%w %h", path], capture_output=True, text=True, check=True).stdout.split()
        pixels = subprocess.run(["convert", path, "-depth", "8", "rgb:-"], capture_output=True, check=True).stdout
        counts = {}
        for at in range(0, len(pixels), 3 * 7):  # every seventh pixel tells enough
            colour = tuple(pixels[at:at + 3])
            counts[colour] = counts.get(colour, 0) + 1
        return tuple(map(int, size)), counts

    def hold(self, *arguments):
        process = self.start_command("replay", RESNET, "--stop-after", "4000", "--hold", "1h", *arguments)
        self.wait_for(process, "holding")
        return process

    # ── a person at it ──

    def x(self, *arguments):
        return subprocess.run(["xdotool", *map(str, arguments)], env=self.environment(), capture_output=True, text=True, check=True).stdout

    def start_viewer(self, *arguments):
        self.dump, self.dumped_places = self.folder / "texts", self.folder / "places"
        process = subprocess.Popen([VIEWER, *map(str, arguments), "--stay", "--dump-text", self.dump, "--dump-places",
                                    self.dumped_places], env=self.environment(), cwd=self.folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.end_with_test(process)
        self.addCleanup(process.stderr.close)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = subprocess.run(["xdotool", "search", "--onlyvisible", "--pid", str(process.pid)], env=self.environment(),
                                   capture_output=True, text=True).stdout.split()
            if found:
                self.window = found[-1]
                self.x("windowfocus", "--sync", self.window)
                self.process = process
                self.settle()
                return process
            if process.poll() is not None:
                self.fail(f"it ended with {process.returncode} before it had a window: {process.stderr.read()}")
            time.sleep(0.05)
        self.fail("no window")

    def shown(self):
        """The texts of each panel that is in sight, as they are now."""
        parts = re.split(r"^\[([a-z-]*)\]\n", self.dump.read_text() if self.dump.exists() else "", flags=re.MULTILINE)
        texts = {}
        for name, text in zip(parts[1::2], parts[2::2]):
            texts[name] = texts.get(name, "") + text
        return texts

    def wait_until(self, panel, condition):
        """What a panel shows, as soon as it is what the condition (a pattern, or a function) wants."""
        holds = condition if callable(condition) else re.compile(condition, re.MULTILINE).search
        deadline = time.monotonic() + PATIENCE
        while not holds(text := self.shown().get(panel, "")):
            self.assertLess(time.monotonic(), deadline, f"[{panel}] does not come to {condition}:\n{text}")
            time.sleep(0.05)
        return text

    def places(self, panel):
        rows = [line.split("\t", 5) for line in self.dumped_places.read_text().splitlines()]
        return [SimpleNamespace(x=int(x), y=int(y), width=int(width), height=int(height), text=text)
                for name, x, y, width, height, text in rows if name == panel]

    def click(self, place, button=1):
        self.x("mousemove", "--window", self.window, place.x + place.width // 2, place.y + place.height // 2)
        self.settle()
        self.x("click", button)
        self.settle()

    def click_text(self, panel, text):
        """The first text of a panel that begins so."""
        self.click(next(place for place in self.places(panel) if place.text.startswith(text)))

    def settle(self):
        """Until it has answered all input and sleeps, however busy the machine is: keys that come and go between two frames would be lost.
        On a living process it may never rest."""
        is_asleep = lambda: all(path.read_text().rsplit(")", 1)[1].split()[0] == "S"
                                for path in Path(f"/proc/{self.process.pid}/task").glob("*/stat"))
        deadline, quiet = time.monotonic() + self.rest, 0
        while quiet < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
            quiet = quiet + 1 if is_asleep() else 0

    def press(self, *keys):
        for key in keys:
            self.x("keydown", key)
            self.settle()
            self.x("keyup", key)
            self.settle()

    def quit(self, process):
        self.press("q")
        self.assertEqual(process.wait(PATIENCE), 0, process.stderr.read())
        return self.dump.read_text()

    # ── what it shows ──

    def test_what_it_says_of_a_process_is_what_the_books_say(self):
        process = self.hold("--budget", "4GiB")
        text = self.texts(process.pid)
        self.assertIn("3,129,743,888 B\tin\t748 allocations", text)
        self.assertIn("2.91 GiB\tof 4 GiB", text)
        books = next(one for one in self.json_of("ps", "--json") if one["pid"] == process.pid)
        self.assertEqual((books["allocated_bytes"], books["live_allocations"]), (3_129_743_888, 748))

    def test_a_killed_process_and_a_post_mortem_show_what_was_held(self):
        process = self.hold("--budget", "4GiB")
        self.kill(process)
        text = self.texts(process.pid)
        self.assertIn("killed\t", text)
        self.assertIn("3,129,743,888 B\tin\t748 allocations", text)
        dump = self.folder / "dump.json"
        done = self.run_command("dump", process.pid, "-o", dump)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = self.texts(dump)
        self.assertIn("post-mortem\t", text)
        self.assertIn("3,129,743,888 B\tin\t748 allocations", text)

    def test_a_history_ends_with_what_it_leaves_alive(self):
        figures = self.json_of("summary", RESNET, "--json")
        self.assertIn(f"{figures['live_bytes']:,} B\tin\t{figures['live_allocations']:,} allocations", self.texts(RESNET))

    def test_every_panel_can_be_shown_and_says_something(self):
        process = self.start_command("replay", DATA / "gpt2.csv.xz", "--budget", "7GiB", "--hook", "cache:512MiB:1", "--hold", "1h")
        self.wait_for(process, "holding")
        panels = self.panels()
        self.assertEqual(panels[:2], ["header", "timeline"])
        for panel in panels:
            picture = self.folder / f"{panel}.png"
            text = self.texts(process.pid, "--panel", panel, "--screenshot", picture, "--size", "1200x800")
            self.assertRegex(text, rf"\[{panel}\]\n\S")
            size, colours = self.colours(picture)
            self.assertEqual(size, (1200, 800))
            self.assertGreater(len(colours), 20, panel)

    def test_pictures_of_any_size_and_both_themes(self):
        for theme, ground in (("dark", DARK), ("light", LIGHT)):
            for size, scale in (("300x200", "1"), ("1280x800", "2"), *((("7680x4320", "2"),) if theme == "dark" else ())):
                picture = self.folder / "picture.png"
                self.viewer(RESNET, "--size", size, "--scale", scale, "--theme", theme, "--screenshot", picture)
                found, colours = self.colours(picture)
                self.assertEqual(found, tuple(map(int, size.split("x"))))
                self.assertGreater(colours.get(ground, 0), 50, f"{theme} {size}: the ground")
                self.assertGreater(len(colours), 10, f"{theme} {size}")

    def test_without_any_process_it_says_what_to_do(self):
        self.assertIn("No process of this user has written a flight file here", self.texts())

    # ── keys and clicks ──

    def test_every_tab_can_be_clicked(self):
        self.run_command("replay", DATA / "oom_batch.csv.xz", "--budget", "5GiB", "--hook", "cache:128MiB:1", "--hook",
                         "spill:256MiB:2:4MiB", "--policy", "retry", "--keep")
        viewer = self.start_viewer(next(self.flights.glob("*.flight")), "--size", "1500x950")
        self.wait_until("tabs", "Export")
        tabs = self.places("tabs")
        names = self.panels()[2:]
        self.assertEqual(len(tabs), len(names))
        for name, tab in [*zip(names, tabs), (names[0], tabs[0])]:
            self.click(tab)
            self.wait_until(name, r"\S")
        self.click_text("tabs", "Failure")
        self.wait_until("failure", r"^refused by\tmanager: over_budget$")
        self.click_text("failure", "show this moment")
        self.wait_until("header", r"as of\t\+\d")
        self.quit(viewer)

    def test_looking_for_what_is_large_and_taking_it_along(self):
        """Filter, zoom, pause, time travel, export: with figures that are known from the history itself."""
        with lzma.open(RESNET, "rt") as history:
            large = [row for row in csv.DictReader(history) if row["Action"] == "allocate" and int(row["Size"]) >= 64 << 20]
        self.assertGreater(len(large), 10)
        figures = self.json_of("summary", RESNET, "--json")
        viewer = self.start_viewer(RESNET, "--size", "1500x950")
        self.wait_until("event-log", rf"^{figures['allocations'] + figures['frees']:,} events$")
        axis = lambda text: next((line for line in text.splitlines() if line.startswith("+")), "")
        whole = axis(self.wait_until("timeline", r"^\+\d"))
        self.click_text("event-log", "filter:")
        self.x("type", "size>=64MiB kind:allocate")
        self.wait_until("event-log", rf"^{len(large):,} events$")
        self.press("Return", "Home")
        self.wait_until("timeline", lambda text: axis(text) == whole)
        times = [place for place in self.places("timeline") if place.text.startswith("+")]
        middle = SimpleNamespace(x=times[0].x, width=times[-1].x - times[0].x, y=times[0].y - 80, height=20)
        self.x("mousemove", "--window", self.window, middle.x + middle.width // 2, middle.y)
        self.x("click", "--repeat", 3, 4)
        self.wait_until("timeline", lambda text: axis(text) not in ("", whole))
        self.press("Home")
        self.wait_until("timeline", lambda text: axis(text) == whole)

        self.press("space")
        self.wait_until("header", r"\tPaused\t")
        self.press("space")
        self.wait_until("header", r"\tPause\t")
        self.press("p")
        self.wait_until("header", rf"{figures['peak_bytes']:,} B\tin\t")
        self.click(middle)
        self.wait_until("header", lambda text: "as of\t+" in text and f"{figures['peak_bytes']:,} B\t" not in text)

        self.press("ctrl+e")
        self.wait_until("export", r"as filtered: size>=64MiB kind:allocate")
        self.click_text("export", "write")
        self.wait_until("export", rf"^{len(large):,} rows written$")
        self.quit(viewer)
        with open(self.folder / "headroom-events.csv", newline="") as exported:
            rows = list(csv.DictReader(exported))
        self.assertEqual([(row["event"], int(row["bytes"]), int(row["address"], 16)) for row in rows],
                         [("allocate", int(row["Size"]), int(row["Pointer"], 16)) for row in large])

    def test_a_session(self):
        self.rest = 0.25
        process = self.start_command("replay", RESNET, "--budget", "2900MiB", "--loop", "forever", "--stretch", "10s")
        self.wait_for_file()
        viewer = self.start_viewer(process.pid, "--size", "1200x800")
        self.x("mousemove", "--window", self.window, 600, 300)
        for button in (4, 4, 5, 4):  # the wheel
            self.x("click", button)
            self.settle()
        self.press("w", "s", "a", "d", "Home", "l", "p", "n", "N", "Up", "Down", "Escape", "space")
        self.x("mousemove", "--window", self.window, 700, 300)
        self.x("click", 1)
        self.wait_until("header", r"as of\t\+\d")
        self.press("F1", "ctrl+equal")
        self.x("windowsize", self.window, 1000, 700)
        self.settle()
        text = self.quit(viewer)
        self.assertIn("Paused", text)
        self.assertRegex(text, r"as of\t\+\d")  # time travel
        self.assertIn("stand still; reading goes on", text)  # the help page
        remembered = json.loads((self.folder / "config/headroom/viewer.json").read_text())
        self.assertAlmostEqual(remembered["scale"], 1.1, places=3)
        self.assertEqual(remembered["size"], [1000, 700])

    def wait_for_file(self):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not list(self.flights.iterdir()):
            time.sleep(0.05)
        time.sleep(1)

    def test_a_range_is_selected_by_dragging_and_escape_forgets_it(self):
        viewer = self.start_viewer(RESNET, "--size", "1200x800")
        for step in (("mousemove", "--window", self.window, 400, 300), ("keydown", "ctrl"), ("mousedown", 1),
                     ("mousemove", "--window", self.window, 700, 320), ("mouseup", 1), ("keyup", "ctrl")):
            self.x(*step)
            self.settle()
        self.wait_until("timeline", r"\d ms selected")
        self.press("Escape")
        self.wait_until("timeline", lambda text: text and "selected" not in text)
        self.quit(viewer)

    def test_a_process_is_opened_from_the_list(self):
        process = self.hold()
        viewer = self.start_viewer(RESNET, "--size", "1200x800")
        self.press("ctrl+o")
        self.wait_until("processes", rf"headroom \({process.pid}\)")
        self.click_text("processes", f"headroom ({process.pid})")
        self.wait_until("header", "748 allocations")
        self.assertIn(f"headroom ({process.pid})", self.quit(viewer))

    def test_an_idle_viewer_rests(self):
        process = self.hold()
        viewer = self.start_viewer(process.pid)
        time.sleep(1)
        ticks = lambda: sum(map(int, Path(f"/proc/{viewer.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
        before, begin = ticks(), time.monotonic()
        time.sleep(5)
        share = (ticks() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begin)
        print(f"\nidle: {share:.1%} of a core")
        self.assertLess(share, 0.5, "it draws without pause though nothing happens")
        self.quit(viewer)

    # ── what is wrong ──

    def test_without_a_display_it_says_so(self):
        environment = {name: value for name, value in self.environment().items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
        done = self.viewer(RESNET, status=3, environment=environment)
        self.assertIn("no window could be opened", done.stderr)

    def test_broken_files_give_a_message(self):
        process = self.hold()
        flight = next(self.flights.glob("*.flight"))
        content = flight.read_bytes()
        self.kill(process)
        for name, bad in (("empty", b""), ("noise", bytes(range(256)) * 64), ("cut.flight", content[:5000]),
                          ("newer.flight", content[:8] + b"\xff\xff" + content[10:]), ("object.json", b'{"a": 1}'),
                          ("cut.csv", b"Thread,Time,Action,Pointer,Size,Stream\n1,2,alloc")):
            done = self.viewer(self.write(name, bad), "--frames", "2", status=3)
            self.assertIn(name, done.stderr)
        self.assertIn("no-such-file", self.viewer("no-such-file", status=3).stderr)

    def test_wrong_arguments_are_named(self):
        for arguments, word in ((("--size", "big"), "big"), (("--panel", "nowhere"), "nowhere"), (("--memory", "x"), "--memory"),
                                (("--scale", "9"), "--scale"), (("--theme", "red"), "red"), (("--frames", "0"), "--frames")):
            self.assertIn(word, self.viewer(*arguments, status=2).stderr)

    def test_a_file_that_is_truncated_under_it_ends_nothing(self):
        process = self.hold()
        flight = next(self.flights.glob("*.flight"))
        viewer = self.start_viewer(process.pid)
        process.send_signal(signal.SIGSTOP)  # or it would meet the truncation itself
        os.truncate(flight, 4096)
        time.sleep(1.5)
        text = self.quit(viewer)
        self.kill(process)
        self.assertIn("truncated", text)

    def test_what_being_watched_costs_can_be_measured(self):
        script = Path(__file__).resolve().parents[1] / "bench" / "watched.py"
        done = subprocess.run([sys.executable, script, Path(VIEWER).parent, "--pairs", "2", "--loops", "500"], env=self.environment(),
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        rates = [float(rate) for rate in re.findall(r"([0-9.]+) M", done.stderr)]
        self.assertEqual(len(rates), 4, done.stderr)
        self.assertGreater(min(rates), 0)
        self.assertRegex(done.stdout, r"lost to being watched: -?[0-9.]+ %")


if __name__ == "__main__":
    missing = [program for program in ("Xvfb", "xdotool", "convert") if shutil.which(program) is None]
    if missing:
        print(f"skipped: no {', '.join(missing)} here")
        sys.exit(77)
    unittest.main()
