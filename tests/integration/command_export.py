"""`headroom export`: every process of a machine as one target; sums that hold whoever dies, and clients, files and settings of all kinds."""
import base64
import concurrent.futures
import gzip
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request

from command_runner import COMMAND, DATA, HEADER, PATIENCE, CommandTest
from expected_refusals import simulate

SAMPLE = re.compile(r'^(\w+)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
SUMMED = ("allocations_total", "frees_total", "allocation_bytes_total", "deallocation_bytes_total", "events_recorded_total")
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


def basic(words):
    return {"Authorization": "Basic " + base64.b64encode(words.encode()).decode()}


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


class Processes(ExportTest):
    def test_sums_hold_while_two_of_eight_are_killed_and_one_exits(self):
        exporter = self.export("--keep-dead", "1h")
        forgetful = self.export("--keep-dead", "1s", "--dump-dir", "off")
        held = (("oom_batch", 500), ("oom_batch", 1000), ("resnet", 2000), ("resnet", 4000), ("gpt2", 1000), ("gpt2", 3000),
                ("vit_threads", 2000), ("vit_threads", 4000))
        processes = [self.held(name, records) for name, records in held]
        allocations = sum(simulate(DATA / f"{name}.csv.xz", stop_after=records)["allocations"] for name, records in held)
        self.scrape_until(forgetful, lambda samples: total(samples, "node_processes", state="living") == 8)
        before = self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 8)
        self.assertEqual(whole(before, "allocations_total"), allocations)
        self.assertEqual(len(found(before, "allocated_bytes")), 8)

        for process in processes[:2]:
            self.kill(process)
        after_kill = self.scrape_until(exporter, lambda samples: total(samples, "processes_died_total", state="killed") == 2)
        self.assertEqual(len(found(after_kill, "allocated_bytes")), 6, "gauges of the dead are gone at once")
        self.assertEqual(len(found(after_kill, "allocations_total")), 8, "and their counters are not")
        self.end(processes[2])
        after = self.scrape_until(exporter, lambda samples: total(samples, "processes_died_total", state="exited") == 1)
        self.assertEqual(len(found(after, "allocated_bytes")), 5)
        later = self.scrape_until(forgetful, lambda samples: total(samples, "processes_died_total") == 3 and
                                  total(samples, "node_processes", state="kept") == 0)
        self.assertEqual(len(found(later, "allocations_total")), 5)
        self.assertGreater(total(later, "exited_allocations_total"), 0)

        print(f"\n{'':24}{'before':>16}{'two killed':>16}{'one exited':>16}{'kept no more':>16}")
        for name in SUMMED:
            figures = [whole(samples, name) for samples in (before, after_kill, after, later)]
            print(f"{name:24}" + "".join(f"{figure:16.0f}" for figure in figures))
            self.assertEqual(figures, sorted(figures), f"{name} fell")
            self.assertEqual(figures[0], figures[1], f"{name}: nobody did anything while two were killed")
            self.assertEqual(figures[2], figures[3], f"{name}: nobody did anything while time passed")
        self.assertEqual(whole(later, "allocations_total"), allocations)

        # What was killed is a post-mortem now, and its file is gone; who exited took his own along.
        self.scrape_until(exporter, lambda samples: total(samples, "post_mortems_total") == 2)
        self.assertEqual(len(list(self.dumps.glob("*.post-mortem.json"))), 2)
        deadline = time.monotonic() + PATIENCE
        while len(list(self.flights.glob("*.flight"))) != 5 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(len(list(self.flights.glob("*.flight"))), 5)
        self.end(exporter)
        self.assertEqual(exporter.returncode, 0)

    def test_short_jobs_count(self):
        exporter = self.export()
        history = self.tiny_history()
        started = time.monotonic()
        for _ in range(20):
            self.assertEqual(self.run_command("replay", history).returncode, 0)
        each = (time.monotonic() - started) / 20
        # On a machine that has no time for the exporter a job's file may be gone before it looks; then that is said.
        def missed(samples):
            return total(samples, "node_files_skipped_total", reason="vanished")

        def counted(samples):
            return total(samples, "processes_died_total", state="exited")
        samples = self.scrape_until(exporter, lambda samples: counted(samples) + missed(samples) == 20)
        self.assertEqual(whole(samples, "allocations_total"), 3 * counted(samples))
        self.assertEqual(whole(samples, "allocation_bytes_total"), (256 + 512 + 768) * counted(samples))
        self.assertEqual(total(samples, "node_files_skipped_total"), missed(samples))
        print(f"\n20 jobs of {1000 * each:.0f} ms each: {counted(samples):.0f} counted, {missed(samples):.0f} missed and said to be")

    def test_a_process_that_stands_still_is_shown_as_it_is_and_since_when(self):
        exporter = self.export()
        process = self.held("resnet", 4000)
        before = self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 1)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        for _ in range(3):
            samples = self.scrape(exporter)
            self.assertEqual(total(samples, "process_up", pid=str(process.pid)), 1)
            self.assertEqual(total(samples, "allocated_bytes"), total(before, "allocated_bytes"))
            self.assertEqual(total(samples, "last_activity_timestamp_seconds"), total(before, "last_activity_timestamp_seconds"))
            self.assertEqual(total(samples, "events_recorded_total"), total(before, "events_recorded_total"))
        self.assertGreater(total(before, "last_activity_timestamp_seconds"), 0)
        process.send_signal(signal.SIGCONT)

    def test_who_was_there_first_counts_and_who_was_dead_is_only_found(self):
        killed, living = self.held(), self.held()
        self.kill(killed)
        exporter = self.export()
        samples = self.scrape(exporter)
        self.assertEqual(len(found(samples, "allocations_total")), 1)
        self.assertEqual(found(samples, "process_up", pid=str(living.pid))[0]["process"], "headroom")
        self.assertEqual(total(samples, "node_processes_found_dead_total"), 1)
        self.assertEqual(total(samples, "processes_died_total"), 0)
        self.scrape_until(exporter, lambda samples: total(samples, "post_mortems_total") == 1)

    def test_a_post_mortem_that_cannot_be_written_is_counted_and_leaves_the_file(self):
        not_a_folder = self.write("file", "x")
        exporter = self.export("--dump-dir", not_a_folder)
        process = self.held()
        flight = self.flight_of(process)
        self.kill(process)
        samples = self.scrape_until(exporter, lambda samples: total(samples, "post_mortem_failures_total") == 1)
        self.assertEqual(total(samples, "post_mortems_total"), 0)
        self.assertIn(f"no post-mortem of {flight}", exporter.error_path.read_text())
        self.assertTrue(flight.exists())

    def test_without_post_mortems_the_files_stay(self):
        exporter = self.export("--dump-dir", "off")
        process = self.held()
        flight = self.flight_of(process)
        self.kill(process)
        self.scrape_until(exporter, lambda samples: total(samples, "processes_died_total", state="killed") == 1)
        time.sleep(0.6)  # two looks of the exporter: there is nothing to wait for
        self.assertTrue(flight.exists())
        self.assertFalse(self.dumps.exists())

    def test_a_post_mortem_tells_what_the_process_held(self):
        exporter = self.export()
        process = self.held("resnet", 4000)
        self.kill(process)
        self.scrape_until(exporter, lambda samples: total(samples, "post_mortems_total") == 1)
        dump = next(self.dumps.glob(f"headroom.{process.pid}.*.post-mortem.json"))
        self.assertEqual(self.json_of("summary", dump, "--json")["live_bytes"], 3_129_743_888)

    def test_a_file_that_is_truncated_ends_nobody(self):
        exporter = self.export()
        kept, cut = self.held("resnet", 4000), self.held("gpt2", 3000)
        before = self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 2)
        stop = threading.Event()
        errors = []

        def scrape_on():
            while not stop.is_set():
                try:
                    self.scrape(exporter)
                except Exception as error:  # whatever it is, it is what this test is about
                    errors.append(error)
                    return

        scrapers = [threading.Thread(target=scrape_on) for _ in range(2)]
        for scraper in scrapers:
            scraper.start()
        os.truncate(self.flight_of(cut), 8192)
        samples = self.scrape_until(exporter, lambda samples: total(samples, "node_files_skipped_total", reason="truncated") == 1)
        stop.set()
        for scraper in scrapers:
            scraper.join()
        self.assertEqual(errors, [])
        self.assertIsNone(exporter.poll())
        self.assertEqual(found(samples, "process_up", pid=str(cut.pid)), [])
        self.assertEqual(len(found(samples, "process_up", pid=str(kept.pid))), 1)
        for name in SUMMED[:4]:
            self.assertEqual(whole(samples, name), whole(before, name), name)
        self.wait_for(exporter, "was truncated")

    def test_a_run_that_comes_again_and_a_copy_of_a_file_count_once(self):
        exporter = self.export("--dump-dir", "off")
        process = self.held()
        flight = self.flight_of(process)
        before = self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 1)
        aside = self.folder / "aside"
        flight.rename(aside)
        shutil.copy(aside, self.flights / "copy.1.0123456789abcdef.flight")
        self.scrape_until(exporter, lambda samples: total(samples, "node_files_skipped_total", reason="duplicate") == 1)
        aside.rename(flight)
        self.kill(process)
        samples = self.scrape_until(exporter, lambda samples: total(samples, "processes_died_total") == 1)
        self.assertEqual(whole(samples, "allocations_total"), whole(before, "allocations_total"))

    def test_files_that_are_none_are_counted_by_reason_and_named_once(self):
        (self.flights / "broken.1.0123456789abcdef.flight").write_bytes(b"x" * 5000)
        (self.flights / "empty.1.0123456789abcdee.flight").write_bytes(b"")
        (self.flights / "link.1.0123456789abcded.flight").symlink_to("/etc/hostname")
        os.mkfifo(self.flights / "pipe.1.0123456789abcdec.flight")
        exporter = self.export()
        samples = self.scrape_until(exporter, lambda samples: total(samples, "node_files_skipped_total", reason="broken") == 2)
        self.assertEqual(total(samples, "node_files_skipped_total", reason="foreign"), 2)
        text = exporter.error_path.read_text()
        for name in ("broken", "empty", "link", "pipe"):
            self.assertEqual(text.count(f"{self.flights}/{name}.1."), 1, text)

    def test_two_processes_with_pid_1_are_served_as_themselves(self):
        unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
        if not shutil.which("unshare") or subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
            self.skipTest("unshare --pid is not permitted here")
        exporter = self.export()
        for records in (500, 1000):
            process = subprocess.Popen([*unshare, COMMAND, "replay", DATA / "oom_batch.csv.xz", "--stop-after", str(records), "--hold",
                                        "1h"], env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self.end_with_test(process)
        samples = self.scrape_until(
            exporter, lambda samples: sorted(value for name, _, value in samples if name == "headroom_allocations_total") ==
            sorted(simulate(DATA / "oom_batch.csv.xz", stop_after=records)["allocations"] for records in (500, 1000)))
        self.assertEqual([labels["pid"] for labels in found(samples, "process_up")], ["1", "1"])
        self.assertEqual(len({labels["run"] for labels in found(samples, "process_up")}), 2)

    def test_two_hundred_processes(self):
        exporter = self.export()
        history = self.tiny_history()

        def small_files():
            # As on a small tmpfs: the recorder halves its rings until its file fits.
            resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))

        for _ in range(200):
            process = subprocess.Popen([COMMAND, "replay", history, "--stop-after", "3", "--hold", "1h"], env=self.environment(),
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=small_files)
            self.end_with_test(process)
        samples = self.scrape_until(exporter, lambda samples: total(samples, "allocations_total") == 600)
        self.assertEqual(len(found(samples, "process_up")), 200)
        started = time.monotonic()
        text = self.get(exporter)
        seconds = time.monotonic() - started
        status = (f"/proc/{exporter.pid}/status")
        with open(status, encoding="utf-8") as lines:
            resident = next(line.split()[1] for line in lines if line.startswith("VmRSS"))
        print(f"\n200 processes: {len(text.splitlines())} lines, {len(text) >> 10} KiB in {1000 * seconds:.0f} ms, "
              f"resident {int(resident) >> 10} MiB")

    def test_promtool_is_silent(self):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed")
        exporter = self.export()
        living, killed = self.held(), self.held("resnet", 4000)
        self.kill(killed)
        self.scrape_until(exporter, lambda samples: total(samples, "processes_died_total") == 1)
        self.assertIsNone(living.poll())
        done = subprocess.run(["promtool", "check", "metrics"], input=self.get(exporter), capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


class Serving(ExportTest):
    def certificate(self, name):
        if not shutil.which("openssl"):
            self.skipTest("openssl is not installed")
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                       check=True, capture_output=True, timeout=PATIENCE)
        return certificate, key

    def status_of(self, exporter, path="/metrics", headers=None, context=None):
        try:
            self.get(exporter, path, headers, context)
            return 200
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 401:
                    self.assertIn("Basic realm=", error.headers["WWW-Authenticate"])
                return error.code

    def test_pages(self):
        exporter = self.export()
        process = self.held()
        self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 1)
        self.assertEqual(self.get(exporter, "/-/healthy"), "ok\n")
        self.assertIn(f"headroom (pid {process.pid}", self.get(exporter, "/"))
        self.assertEqual(self.status_of(exporter, "/nothing"), 404)

    def test_the_page_and_its_state_are_served_like_those_of_a_process(self):
        exporter = self.export()
        process = self.held()
        self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 1)
        request = urllib.request.Request(exporter.url + "/", headers={"Accept": "text/html"}, method="HEAD")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            self.assertEqual(answer.headers["Content-Type"], "text/html; charset=utf-8")
            self.assertIn("script-src 'nonce-", answer.headers["Content-Security-Policy"])
            self.assertEqual(answer.headers["Vary"], "Accept, Accept-Encoding")
            self.assertGreater(int(answer.headers["Content-Length"]), 10_000)
            self.assertEqual(answer.read(), b"")
        state = json.loads(self.get(exporter, "/api/state.json"))
        self.assertEqual([one["pid"] for one in state["processes"]], [process.pid])
        self.assertEqual(json.loads(self.get(exporter, "/snapshot.json"))["process"]["pid"], process.pid)

    def test_on_loopback_a_name_that_somebody_else_may_own_is_refused(self):
        exporter, everywhere = self.export(), self.export("--listen", ":0")
        port = int(exporter.url.rsplit(":", 1)[1])
        for path in ("/", "/metrics", "/api/state.json", "/snapshot.json", "/-/healthy"):
            self.assertEqual(self.status_of(exporter, path, {"Host": f"evil.example:{port}"}), 403)
            if path != "/snapshot.json":  # of nobody
                for host in (f"localhost:{port}", f"127.0.0.1:{port}", "a.localhost"):
                    self.assertEqual(self.status_of(exporter, path, {"Host": host}), 200)
        self.assertEqual(self.status_of(everywhere, headers={"Host": "node-7.example:9479"}), 200)
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as old:
            old.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            self.assertTrue(old.makefile("rb").readline().split()[1] == b"200")

    def test_open_metrics_for_who_asks_and_gzip(self):
        exporter = self.export()
        process = self.held()
        self.scrape_until(exporter, lambda samples: total(samples, "node_processes", state="living") == 1)
        request = urllib.request.Request(exporter.url + "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0",
                                                                             "Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            self.assertTrue(answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0"))
            self.assertEqual(answer.headers["Content-Encoding"], "gzip")
            text = gzip.decompress(answer.read()).decode()
        self.assertTrue(text.endswith("\n# EOF\n"))
        self.assertEqual(text.count("# EOF"), 1)
        self.assertEqual(whole(parse(text), "allocations_total"), whole(self.scrape(exporter), "allocations_total"))
        self.assertIsNone(process.poll())

    def test_every_address_and_the_environment(self):
        process = subprocess.Popen([COMMAND, "export"], env=self.environment(HEADROOM_EXPORT_LISTEN=":0"), stderr=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.end_with_test(process)
        self.addCleanup(process.stderr.close)
        line = process.stderr.readline()
        port = int(line.rsplit(":", 1)[1])
        for host in ("127.0.0.1", "::1"):
            try:
                connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
                connection.request("GET", "/-/healthy")
            except OSError as error:
                if host == "::1":
                    self.skipTest(f"no IPv6 here: {error}")
                raise
            self.assertEqual(connection.getresponse().status, 200)
            connection.close()

    def test_signals_end_it_in_good_order(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            exporter = self.export()
            with socket.create_connection(("127.0.0.1", int(exporter.url.rsplit(":", 1)[1]))):
                exporter.send_signal(number)
                self.assertEqual(exporter.wait(timeout=PATIENCE), 0)

    def test_a_port_that_is_taken_is_named(self):
        exporter = self.export()
        address = exporter.url.removeprefix("http://")
        done = self.run_command("export", "--listen", address)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"cannot listen on '{address}': Address already in use", done.stderr)

    def test_wrong_arguments_are_named(self):
        certificate, key = self.certificate("one")
        _, other_key = self.certificate("two")
        empty, users = self.write("empty", ""), self.write("users", "# nobody\nada:plain\n")
        passphrase = self.folder / "locked.key"
        subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", passphrase], check=True, timeout=PATIENCE)
        for status, words, arguments in (
                (2, "--keep-dead 'soon'; expected a time", ("--keep-dead", "soon")),
                (2, "'127.0.0.1:70000'", ("--listen", "127.0.0.1:70000")),
                (2, "a TLS certificate without its key", ("--tls-cert", certificate)),
                (2, "a TLS key without its certificate", ("--tls-key", key)),
                (3, f"key '{other_key}': does not belong to the certificate '{certificate}'",
                 ("--tls-cert", certificate, "--tls-key", other_key)),
                (3, f"certificate '{empty}': is empty", ("--tls-cert", empty, "--tls-key", key)),
                (3, f"certificate '{key}': holds no certificate", ("--tls-cert", key, "--tls-key", key)),
                (3, f"key '{certificate}': holds no private key", ("--tls-cert", certificate, "--tls-key", certificate)),
                (3, f"key '{passphrase}': needs a passphrase", ("--tls-cert", certificate, "--tls-key", passphrase)),
                (3, f"certificate '{self.folder}/none': No such file", ("--tls-cert", f"{self.folder}/none", "--tls-key", key)),
                (3, f"auth file '{users}': line 2 of user 'ada' is no bcrypt hash", ("--auth", users)),
                (3, f"auth file '{empty}': is empty", ("--auth", empty)),
                (3, f"{users}: is no folder", ("--dir", users))):
            where = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
            done = self.run_command("export", *where, *arguments)
            self.assertEqual(done.returncode, status, f"{arguments}: {done.stderr}")
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_tls_with_a_certificate_that_changes(self):
        certificate, key = self.certificate("one")
        exporter = self.export("--tls-cert", certificate, "--tls-key", key)
        self.assertTrue(exporter.url.startswith("https://127.0.0.1:"))
        trusting = ssl.create_default_context(cafile=certificate)
        self.assertGreater(len(self.scrape(exporter, context=trusting)), 10)
        self.assertEqual(json.loads(self.get(exporter, "/api/state.json", context=trusting))["serves"], "machine")
        self.assertTrue(self.get(exporter, "/", {"Accept": "text/html"}, trusting).startswith("<!doctype html>"))
        for path in ("/metrics", "/api/state.json"):
            with self.assertRaises(urllib.error.URLError):
                self.get(exporter, path, context=ssl.create_default_context())
        # Who speaks plain HTTP gets nothing, and costs nobody anything.
        port = int(exporter.url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain:
            plain.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                self.assertNotIn(b"headroom_", plain.recv(4096))
            except ConnectionResetError:
                pass  # shown the door with bytes unread
        # One connection, many requests, and a large answer.
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=trusting)
        for _ in range(20):
            connection.request("GET", "/metrics")
            self.assertIn(b"headroom_exporter_errors_total", connection.getresponse().read())
        connection.close()

        for name in ("two", "three"):
            new_certificate, new_key = self.certificate(name)
            shutil.copy(new_certificate, certificate)
            shutil.copy(new_key, key)
            exporter.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                if self.status_with(exporter, ssl.create_default_context(cafile=new_certificate)) == 200:
                    break
                time.sleep(0.05)
            self.assertEqual(self.status_with(exporter, ssl.create_default_context(cafile=new_certificate)), 200)
        good = ssl.create_default_context(cafile=certificate)
        key.write_text("broken")
        exporter.send_signal(signal.SIGHUP)
        self.wait_for(exporter, "everything stays as it was")
        self.assertEqual(self.status_with(exporter, good), 200)
        samples = self.scrape(exporter, context=good)
        self.assertEqual(total(samples, "exporter_errors_total"), 0)

    def status_with(self, exporter, context):
        try:
            return self.status_of(exporter, context=context)
        except urllib.error.URLError:
            return 0

    def test_only_who_has_a_password_reads(self):
        users = self.write("users", "# who may look\n\n" + USER_LINE)
        exporter = self.export("--auth", users)
        self.assertEqual(self.status_of(exporter, headers=basic("ada:U*U")), 200)
        self.assertEqual(self.status_of(exporter, headers=basic("ada:U*U")), 200)
        for headers in ({}, basic("ada:U*V"), basic("eve:U*U"), basic("ada"), {"Authorization": "Basic %%%"},
                        {"Authorization": "Bearer x"}):
            self.assertEqual(self.status_of(exporter, headers=headers), 401, headers)
            for path in ("/", "/api/state.json", "/snapshot.json", "/nothing"):
                self.assertEqual(self.status_of(exporter, path, headers=headers), 401, headers)
        for path in ("/", "/api/state.json"):
            self.assertEqual(self.status_of(exporter, path, headers=basic("ada:U*U")), 200)
        self.assertEqual(self.status_of(exporter, "/snapshot.json", headers=basic("ada:U*U")), 404)  # of nobody
        self.assertEqual(self.status_of(exporter, "/-/healthy"), 200)
        users.write_text(USER_LINE.replace("ada", "eve"))
        exporter.send_signal(signal.SIGHUP)
        self.wait_for(exporter, "read certificate and auth file again")
        self.assertEqual(self.status_of(exporter, headers=basic("ada:U*U")), 401)
        self.assertEqual(self.status_of(exporter, headers=basic("eve:U*U")), 200)

    def hostile_clients(self, exporter):
        port = int(exporter.url.rsplit(":", 1)[1])
        sockets = []
        for bytes_sent in (b"", b"G", b"GET /metrics HTTP/1.1\r\nHost:", b"\x16\x03\x01\x00\xff\x01", os.urandom(2000),
                           b"GET /" + b"a" * 100_000, b"GET / HTTP/1.1\r\nRange: bytes=" + b"0-0," * 5000 + b"\r\n\r\n"):
            for _ in range(12):
                client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
                sockets.append(client)
                try:
                    client.sendall(bytes_sent)
                except OSError:
                    pass  # it was shown the door
        return sockets

    def test_hostile_clients_cost_nobody_a_scrape(self):
        certificate, key = self.certificate("one")
        for context, arguments in ((None, ()), (ssl.create_default_context(cafile=certificate),
                                                ("--tls-cert", certificate, "--tls-key", key))):
            exporter = self.export(*arguments)
            sockets = self.hostile_clients(exporter)
            with concurrent.futures.ThreadPoolExecutor(4) as scrapers:
                for samples in scrapers.map(lambda _: self.scrape(exporter, context=context), range(8)):
                    self.assertGreater(len(samples), 10)
            for client in sockets:
                client.close()
            self.assertIsNone(exporter.poll())
            self.end(exporter)
            self.assertEqual(exporter.returncode, 0)


if __name__ == "__main__":
    unittest.main()
