"""GPUs as `headroom devices` and the exporter show them, through a made-up driver: the real path by dlopen, and never CUDA."""
import os
import re
import shutil
import subprocess
import sys
import time
import unittest
import urllib.request
from pathlib import Path

from command_runner import DATA, PATIENCE, CommandTest

DRIVER = Path(os.environ.get("HEADROOM_FAKE_DRIVER", "."))
GIB, MIB = 1 << 30, 1 << 20


def uuid(number):
    return f"GPU-{number:08x}-1111-2222-3333-444444444444"


class Devices(CommandTest):
    def setUp(self):
        super().setUp()
        self.mark = self.folder / "cuda-was-opened"
        self.driver = {"LD_LIBRARY_PATH": str(DRIVER / "whole"), "FAKE_CUDA_MARK": str(self.mark)}

    def environment(self, **more):
        kept = {name: value for name, value in super().environment().items() if not name.startswith("CUDA_")}
        return {**kept, **self.driver, **more}

    def devices(self, *arguments, status=0, **environment):
        return self.json_of("devices", "--json", *arguments, status=status, environment=self.environment(**environment))

    def test_eight_gpus_with_identity_and_four_figures(self):
        listing = self.devices(CUDA_VISIBLE_DEVICES="2,0")
        self.assertIsNone(listing["error"])
        devices = listing["devices"]
        self.assertEqual([device["uuid"] for device in devices], [uuid(number) for number in range(8)])
        self.assertEqual({key: value for key, value in devices[2].items() if key != "name"}, {
            "index": 2, "uuid": uuid(2), "pci_address": "0000:28:00.0", "visible": True, "cuda_ordinal": 0,
            "physical_total_bytes": 80 * GIB, "driver_reserved_bytes": 600 * MIB, "usable_bytes": 80 * GIB - 600 * MIB,
            "free_bytes": 70 * GIB, "mig": "disabled", "mig_instances": [], "problem": None})
        self.assertEqual(devices[2]["name"], "NVIDIA H100 80GB HBM3")
        self.assertEqual([device["cuda_ordinal"] for device in devices], [1, None, 0] + [None] * 5)
        self.assertEqual([device["visible"] for device in devices], [True, False, True] + [False] * 5)
        self.assertEqual(devices[7]["mig"], "enabled")
        self.assertEqual(devices[7]["mig_instances"][1], {
            "uuid": "MIG-00000007-0002-5555-6666-777777777777", "gpu_instance": 2, "compute_instance": 0, "visible": False,
            "cuda_ordinal": None, "physical_total_bytes": 20 * GIB, "driver_reserved_bytes": 100 * MIB,
            "usable_bytes": 20 * GIB - 100 * MIB, "free_bytes": 10 * GIB})

    def test_what_is_unknown_is_null(self):
        listing = self.devices()  # all eight, of which one is partitioned
        self.assertEqual({device["visible"] for device in listing["devices"]}, {None})
        self.assertIn("partitioned", listing["visible_note"])
        old = self.devices(FAKE_NVML="old", CUDA_VISIBLE_DEVICES="MIG-00000007-0001-5555-6666-777777777777")["devices"]
        self.assertEqual((old[0]["physical_total_bytes"], old[0]["free_bytes"]), (80 * GIB, 70 * GIB))
        self.assertEqual((old[0]["driver_reserved_bytes"], old[0]["usable_bytes"]), (None, None))
        self.assertEqual(old[7]["mig_instances"][0]["cuda_ordinal"], 0)
        self.assertEqual(old[7]["visible"], False)

    def test_the_table_says_the_same(self):
        done = self.run_command("devices", environment=self.environment(CUDA_VISIBLE_DEVICES="2,0"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        line = next(line for line in done.stdout.splitlines() if uuid(2) in line)
        self.assertEqual(line.split()[:4], ["2", "0", uuid(2), "0000:28:00.0"])
        self.assertIn("80 GiB", line)
        self.assertIn("600 MiB", line)
        self.assertIn("70 GiB", line)
        self.assertIn("instance 2/0", done.stdout)
        self.assertIn("hidden", next(line for line in done.stdout.splitlines() if uuid(5) in line))

    def test_no_library_is_an_answer(self):
        (self.folder / "libnvidia-ml.so.1").write_bytes(b"")  # found before one that this machine may have
        self.driver["LD_LIBRARY_PATH"] = str(self.folder)
        listing = self.devices()
        self.assertEqual((listing["devices"], listing["error"]["nvml_code"]), ([], 12))
        self.assertIn("libnvidia-ml.so.1", listing["error"]["message"])
        done = self.run_command("devices")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("no GPUs: the NVIDIA driver's library is missing", done.stdout)

    def test_no_driver_no_device_and_no_answer_are_told_apart(self):
        for code, status, words in [(9, 0, "the NVIDIA driver is not loaded"), (4, 1, "no permission"),
                                    (18, 1, "different versions"), (999, 1, "NVML failed")]:
            with self.subTest(code):
                listing = self.devices(FAKE_NVML=f"error:{code}", status=status)
                self.assertEqual((listing["devices"], listing["error"]["nvml_code"]), ([], code))
                self.assertIn(words, listing["error"]["message"])
                done = self.run_command("devices", environment=self.environment(FAKE_NVML=f"error:{code}"))
                self.assertEqual(done.returncode, status)
                self.assertIn(words, done.stdout if status == 0 else done.stderr)
        for none in ("none", "error:6", "error:28"):
            with self.subTest(none):
                listing = self.devices(FAKE_NVML=none)
                self.assertEqual((listing["devices"], listing["error"]), ([], None))
                done = self.run_command("devices", environment=self.environment(FAKE_NVML=none))
                self.assertEqual((done.returncode, done.stdout), (0, "no GPUs: the NVIDIA driver is there and finds none\n"))

    def test_a_library_without_a_function_is_named(self):
        listing = self.devices(LD_LIBRARY_PATH=str(DRIVER / "without_uuid"), status=1)
        self.assertEqual(listing["error"]["nvml_code"], 13)
        self.assertIn("nvmlDeviceGetUUID", listing["error"]["message"])

    def test_one_gpu_that_is_lost_spoils_no_other(self):
        listing = self.devices(FAKE_NVML="lost", status=1)
        self.assertEqual(listing["devices"][1]["free_bytes"], None)
        self.assertIn("fallen off the bus", listing["devices"][1]["problem"])
        self.assertEqual(listing["devices"][2]["free_bytes"], 70 * GIB)

    def test_a_driver_that_hangs_is_not_waited_for(self):
        listing = self.devices("--timeout", "0.2", FAKE_NVML="hang", status=1)
        self.assertEqual(listing["devices"], [])
        self.assertIn("did not answer within 200 ms", listing["error"]["message"])

    def test_bad_arguments_are_usage(self):
        for arguments in (["--timeout", "-1"], ["--timeout", "soon"], ["extra"]):
            self.assertEqual(self.run_command("devices", *arguments).returncode, 2, arguments)

    def opened_by(self, *arguments):
        """The libraries that the loader looked for."""
        done = self.run_command(*arguments, environment=self.environment(LD_DEBUG="libs"))
        self.assertEqual(done.returncode, 0)
        return set(re.findall(r"find library=(\S+)", done.stderr))

    def test_no_command_opens_cuda(self):
        # The control: the made-up libcuda tells when it is opened.
        subprocess.run([sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(DRIVER / 'whole' / 'libcuda.so.1')!r})"],
                       env=self.environment(), check=True)
        self.assertTrue(self.mark.exists())
        self.mark.unlink()

        devices = self.opened_by("devices")
        self.assertIn("libnvidia-ml.so.1", devices)
        others = self.opened_by("ps") | self.opened_by("summary", DATA / "oom_batch.csv.xz")
        self.assertNotIn("libnvidia-ml.so.1", others, "what shows no GPUs needs no driver")
        self.assertEqual({name for name in devices | others if name.startswith(("libcuda", "libcudart"))}, set())
        self.assertFalse(self.mark.exists())

    def serve(self, **environment):
        self.driver.update(environment)
        process = self.start_command("replay", DATA / "oom_batch.csv.xz", "--stop-after", 500, "--hold", 600, "--listen",
                                     "127.0.0.1:0")
        url = self.wait_for(process, "serving").split("serving ")[1]
        self.wait_for(process, "holding")
        return process, url

    def scrape(self, url):
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def scrape_until(self, url, wanted):
        deadline = time.monotonic() + PATIENCE
        while True:
            text = self.scrape(url)
            if wanted(text) or time.monotonic() > deadline:
                return text
            time.sleep(0.05)

    def errors(self, text):
        return float(re.search(r"^headroom_exporter_errors_total{[^}]*} (\S+)$", text, re.MULTILINE)[1])

    def gauges(self, text):
        """{(name, device, uuid): value} of the families that come from NVML."""
        found = {}
        for name, labels, value in re.findall(r"^headroom_device_(\w+)_bytes{([^}]*)} (\S+)$", text, re.MULTILINE):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if "uuid" in labels:
                found[name, labels.get("device"), labels["uuid"]] = float(value)
        return found

    def test_the_exporter_serves_them_and_opens_no_cuda(self):
        process, url = self.serve(CUDA_VISIBLE_DEVICES="2,0")
        # The first reading starts the driver, and may be later than the scrape that asked for it.
        text = self.scrape_until(url, self.gauges)
        self.assertEqual(self.gauges(text), {
            (name, device, gpu): value
            for device, gpu in (("0", uuid(2)), ("1", uuid(0)))
            for name, value in (("total", 80 * GIB), ("driver_reserved", 600 * MIB), ("usable", 80 * GIB - 600 * MIB),
                                ("free", 70 * GIB))})
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        self.assertIn("libnvidia-ml.so.1", maps)
        self.assertNotIn("libcuda", maps)
        self.assertFalse(self.mark.exists())
        if shutil.which("promtool"):
            checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
            self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))

    def export(self, **environment):
        self.driver.update(environment)
        process = self.start_command("export", "--listen", "127.0.0.1:0")
        return process, self.wait_for(process, "serving ").split("serving ")[1].split(" on ")[0]

    def test_an_exporter_of_the_machine_serves_each_device_once(self):
        process, url = self.export(CUDA_VISIBLE_DEVICES="2")  # which is about programs, and not about machines
        programs = [self.serve()[0] for _ in range(2)]
        text = self.scrape_until(url, lambda text: self.gauges(text) and text.count("\nheadroom_process_up{") == 2)
        whole = (("total", 80 * GIB), ("driver_reserved", 600 * MIB), ("usable", 80 * GIB - 600 * MIB), ("free", 70 * GIB))
        # The eighth is partitioned: its instances stand for it, and a sum over all is what the machine has to give.
        parts = {(name, "7", f"MIG-00000007-000{instance}-5555-6666-777777777777"): value
                 for instance, total in ((1, 40 * GIB), (2, 20 * GIB))
                 for name, value in (("total", total), ("driver_reserved", 100 * MIB), ("usable", total - 100 * MIB), ("free", 10 * GIB))}
        self.assertEqual(self.gauges(text),
                         {**{(name, str(index), uuid(index)): value for index in range(7) for name, value in whole}, **parts})
        series = re.findall(r"^headroom_device_(?:total|usable|free|driver_reserved)_bytes{.*uuid=.*$", text, re.MULTILINE)
        self.assertEqual(len(series), 9 * 4, "once, however many processes there are")
        for line in series:
            self.assertIn(f'process="headroom",pid="{process.pid}"', line)
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        self.assertIn("libnvidia-ml.so.1", maps)
        self.assertNotIn("libcuda", maps)
        self.assertFalse(self.mark.exists())
        if shutil.which("promtool"):
            checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
            self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))
        self.assertEqual([program.poll() for program in programs], [None, None])

    def test_an_exporter_of_the_machine_whose_driver_hangs_or_fails_serves_the_rest(self):
        for how in ("hang", "error:9"):
            process, url = self.export(FAKE_NVML=how)
            program, _ = self.serve()
            text = self.scrape_until(url, lambda text: f'pid="{program.pid}"' in text)
            self.assertEqual(self.gauges(text), {})
            self.assertRegex(text, r"(?m)^headroom_allocated_bytes{[^}]*} [1-9]")
            for ended in (program, process):
                ended.terminate()
                self.assertEqual(ended.wait(PATIENCE), 0)

    def test_a_driver_that_hangs_costs_its_own_figures_only(self):
        process, url = self.serve(FAKE_NVML="hang", CUDA_VISIBLE_DEVICES="0")
        for _ in range(3):
            text = self.scrape(url)
            self.assertEqual(self.gauges(text), {})
            self.assertRegex(text, r"(?m)^headroom_allocated_bytes{[^}]*} [1-9]")
        self.assertGreaterEqual(self.errors(self.scrape_until(url, self.errors)), 1, "and that it hangs is counted")
        process.terminate()
        self.assertEqual(process.wait(PATIENCE), 0, "and the program ends in good order")

    def test_without_a_driver_the_rest_is_served(self):
        _, url = self.serve(FAKE_NVML="error:9")
        text = self.scrape(url)
        self.assertEqual(self.gauges(text), {})
        self.assertRegex(text, r"(?m)^headroom_allocated_bytes{[^}]*} [1-9]")


if __name__ == "__main__":
    unittest.main()
