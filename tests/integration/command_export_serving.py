"""`headroom export` as a server: pages, addresses, settings, TLS, passwords, and clients of all kinds."""
import base64
import concurrent.futures
import gzip
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import unittest
import urllib.error
import urllib.request

from command_runner import COMMAND, PATIENCE
from export_runner import ExportTest, USER_LINE, parse, total, whole


def basic(words):
    return {"Authorization": "Basic " + base64.b64encode(words.encode()).decode()}


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
