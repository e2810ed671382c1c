"""Clients, ports and files that nobody wishes for: whatever they do, the next good scrape is answered.

The server within a program (`headroom replay --listen`) and `headroom export`, plain and with TLS, meet the same clients. How long the
next scrape took is printed beside the aim of one second; what decides is that it is answered at all, and whole.
"""
import concurrent.futures
import errno
import http.client
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
import unittest

from export_runner import ExportTest, USER_LINE, found, parse, total
from command_runner import COMMAND, DATA, PATIENCE
from expected_refusals import simulate

SERVING = re.compile(r"https?://\S+:(\d+)")


class Server:
    """Where it serves, and how a good client asks."""

    def __init__(self, name, process, port, context=None):
        self.name, self.process, self.port, self.context = name, process, port, context

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def speak(self):
        """As connect, past the handshake."""
        client = self.connect()
        return self.context.wrap_socket(client, server_hostname="127.0.0.1") if self.context else client

    def scrape(self):
        kind = http.client.HTTPSConnection if self.context else http.client.HTTPConnection
        more = {"context": self.context} if self.context else {}
        connection = kind("127.0.0.1", self.port, timeout=PATIENCE, **more)
        try:
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            body = answer.read().decode()
            assert answer.status == 200, (answer.status, body)
            return parse(body)
        finally:
            connection.close()


def reset(client):
    """So that closing sends RST and not FIN."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def send(client, data):
    """True: all of it. The server may show its guest the door at any moment."""
    try:
        client.sendall(data)
        return True
    except OSError:
        return False


class Dripper(threading.Thread):
    """A byte a second, for as long as the server takes it."""

    def __init__(self, client, stop):
        super().__init__(daemon=True)
        self.client, self.stop = client, stop

    def run(self):
        for byte in b"GET /metrics HTTP/1.1\r\nHost: " + b"x" * 10_000:
            if not send(self.client, bytes([byte])) or self.stop.wait(1):
                return


# What they do; each returns the sockets that stay open meanwhile, and whom to join.

def a_byte_a_second(server, stop, clients=1):
    sockets = [server.connect() for _ in range(clients)]
    drippers = [Dripper(client, stop) for client in sockets]
    for dripper in drippers:
        dripper.start()
    return sockets, drippers


def sixteen_drippers(server, stop):
    return a_byte_a_second(server, stop, 16)


def idle_200(server, _):
    return [server.connect() for _ in range(200)], []


def megabyte_of_header(server, _):
    client = server.speak()
    send(client, b"GET /metrics HTTP/1.1\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n")
    return [client], []


def reset_after_10_bytes(server, _):
    for _ in range(8):
        client = server.connect()
        send(client, b"GET /metri")
        reset(client)
    return [], []


def half_open(server, _):
    """Asked, our half closed, and never read."""
    sockets = []
    for _ in range(8):
        client = server.speak()
        send(client, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has closed already
        sockets.append(client)
    return sockets, []


def early_close_of_large_answers(server, _):
    """Gone, some in good order and some by RST, once the first bytes of an answer are there and the others do not fit any more."""
    for number in range(8):
        client = server.speak()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        send(client, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        try:
            client.recv(10)
        except OSError:
            pass
        reset(client) if number % 2 else client.close()
    return [], []


def stalled_handshakes(server, _):
    """The beginning of a ClientHello that announces 255 bytes more; and one that is whole, of which the answer is never read."""
    sockets = []
    for _ in range(8):
        client = server.connect()
        send(client, b"\x16\x03\x01\x00\xff\x01")
        sockets.append(client)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="x")
    try:
        hello.do_handshake()
    except ssl.SSLWantReadError:
        pass
    first_flight = outgoing.read()
    for _ in range(8):
        client = server.connect()
        send(client, first_flight)
        sockets.append(client)
    return sockets, []


def garbage(server, _):
    sockets = []
    for number in range(16):
        client = server.connect()
        send(client, bytes((number * 37 + i * i * 11) & 0xFF for i in range(3000)))
        sockets.append(client)
    return sockets, []


BEHAVIOURS = (a_byte_a_second, sixteen_drippers, idle_200, megabyte_of_header, reset_after_10_bytes, half_open,
              early_close_of_large_answers, stalled_handshakes, garbage)


class HostileTest(ExportTest):
    def within_a_program(self):
        process = self.start_command("replay", DATA / "resnet.csv.xz", "--stop-after", 4000, "--hold", "1h", "--listen", "127.0.0.1:0")
        self.wait_for(process, "holding")
        return Server("in the program", process, int(SERVING.search(process.error_path.read_text())[1]))

    def on_the_machine(self):
        exporter = self.export()
        return Server("headroom export", exporter, int(exporter.url.rsplit(":", 1)[1]))

    def with_tls(self):
        certificate, key = self.certificate("one")
        exporter = self.export("--tls-cert", certificate, "--tls-key", key)
        return Server("headroom export, TLS", exporter, int(exporter.url.rsplit(":", 1)[1]), ssl.create_default_context(cafile=certificate))

    def certificate(self, name, *more):
        if not shutil.which("openssl"):
            self.skipTest("openssl is not installed")
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                        f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate,
                        *(more or ("-days", "2"))], check=True, capture_output=True, timeout=PATIENCE)
        return certificate, key


class Clients(HostileTest):
    def visit(self, server, behaviour):
        """Seconds until a good client had its scrape, while all of these clients are still there."""
        stop = threading.Event()
        sockets, drippers = behaviour(server, stop)
        started = time.monotonic()
        samples = server.scrape()
        seconds = time.monotonic() - started
        self.assertGreater(len(samples), 10, behaviour.__name__)
        self.assertIsNone(server.process.poll(), behaviour.__name__)
        stop.set()
        for client in sockets:
            client.close()
        for dripper in drippers:
            dripper.join()
        return seconds

    def test_cost_nobody_a_scrape(self):
        servers = [self.within_a_program(), self.on_the_machine(), self.with_tls()]
        # Some megabytes to serve on the machine, so that an answer does not fit into a socket.
        for _ in range(8):
            self.held("resnet", 4000)
        print(f"\n{'seconds until the next good scrape':38}" + "".join(f"{server.name:>22}" for server in servers))
        late = 0
        for behaviour in BEHAVIOURS:
            took = [self.visit(server, behaviour) for server in servers]
            late += sum(seconds >= 1 for seconds in took)
            print(f"{behaviour.__name__.replace('_', ' '):38}" + "".join(f"{seconds:22.3f}" for seconds in took))
        print(f"{late} of {len(BEHAVIOURS) * len(servers)} took a second or more")
        for server in servers:
            self.assertEqual(total(server.scrape(), "exporter_errors_total"), 0, server.name)
        for server in servers[1:]:
            self.end(server.process)
            self.assertEqual(server.process.returncode, 0, server.name)

    def test_all_at_once_beside_several_good_ones(self):
        for server in (self.within_a_program(), self.on_the_machine(), self.with_tls()):
            stop = threading.Event()
            guests = [behaviour(server, stop) for behaviour in BEHAVIOURS]
            with concurrent.futures.ThreadPoolExecutor(4) as scrapers:
                for samples in scrapers.map(lambda _: server.scrape(), range(12)):
                    self.assertGreater(len(samples), 10)
            stop.set()
            for sockets, drippers in guests:
                for client in sockets:
                    client.close()
                for dripper in drippers:
                    dripper.join()
            self.assertIsNone(server.process.poll())

    def test_whoever_drips_is_shown_the_door(self):
        """A byte a second never ends a request: its connection does end, on its own."""
        for server in (self.within_a_program(), self.on_the_machine()):
            stop = threading.Event()
            (client,), (dripper,) = a_byte_a_second(server, stop)
            try:
                while client.recv(4096):
                    pass
            except ConnectionResetError:
                pass
            stop.set()
            dripper.join()
            client.close()


class Ports(HostileTest):
    def replay(self, *arguments, **options):
        return self.run_command("replay", self.tiny_history(), "--json", *arguments, **options)

    def taken_port(self, family=socket.AF_INET, host="127.0.0.1"):
        holder = socket.socket(family)
        self.addCleanup(holder.close)
        holder.bind((host, 0))
        holder.listen()
        return holder.getsockname()[1]

    def test_eight_processes_on_one_port(self):
        """Whatever the mode, every program runs on, or fails by its own choice; who serves is found in its flight file."""
        taken = self.taken_port()
        expected = simulate(DATA / "oom_batch.csv.xz", stop_after=500)["allocations"]
        for mode in ("next", "warn", "fail"):
            processes = [self.start_command("replay", DATA / "oom_batch.csv.xz", "--stop-after", 500, "--hold", "1h", "--listen",
                                            f"127.0.0.1:{taken}", "--bind", mode) for _ in range(8)]
            if mode == "fail":
                for process in processes:
                    self.assertEqual(process.wait(timeout=PATIENCE), 2)
                    self.assertIn(f"cannot listen on '127.0.0.1:{taken}': Address already in use", process.error_path.read_text())
                continue
            ports = set()
            for process in processes:
                self.wait_for(process, "holding")
                text = process.error_path.read_text()
                if mode == "warn":
                    self.assertIn("Address already in use; the program goes on without it", text)
                    self.assertIsNone(SERVING.search(text), text)
                else:
                    self.assertIn(f"'127.0.0.1:{taken}' is taken, serving on", text)
                    port = int(SERVING.search(text)[1])
                    self.assertNotIn(port, ports | {taken})
                    ports.add(port)
                    samples = Server(mode, process, port).scrape()
                    self.assertEqual([labels["pid"] for labels in found(samples, "process_up")], [str(process.pid)])
                    self.assertEqual(total(samples, "allocations_total"), expected)
            for process in processes:
                self.assertIsNone(process.poll())
                self.end(process)

    def test_eight_processes_start_on_one_free_port_at_once(self):
        """One has it and seven go on without, or beside it: nobody shares a port in silence."""
        for mode in ("next", "warn", "fail"):
            # Ours and then nobody's. Somebody else's at the worst, and then for all of them alike.
            holder = socket.socket()
            holder.bind(("127.0.0.1", 0))
            wanted = holder.getsockname()[1]
            holder.close()
            processes = [self.start_command("replay", DATA / "oom_batch.csv.xz", "--stop-after", 500, "--hold", "1h", "--listen",
                                            f"127.0.0.1:{wanted}", "--bind", mode) for _ in range(8)]
            serving = []
            for process in processes:
                if mode == "fail":
                    deadline = time.monotonic() + PATIENCE
                    while process.poll() is None and "holding" not in process.error_path.read_text():
                        self.assertLess(time.monotonic(), deadline)
                        time.sleep(0.02)
                else:
                    self.wait_for(process, "holding")
                if match := SERVING.search(process.error_path.read_text()):
                    serving.append(int(match[1]))
            self.assertEqual(len(serving), len(set(serving)), f"{mode}: two serve on one port")
            self.assertLessEqual(len(serving), 8 if mode == "next" else 1)
            failed = [process for process in processes if process.poll() is not None]
            self.assertEqual(len(failed), 8 - len(serving) if mode == "fail" else 0)
            for process in failed:
                self.assertEqual(process.returncode, 2)
            for process in processes:
                if process.poll() is None:
                    self.end(process)

    def test_a_port_in_time_wait_is_served_again(self):
        exporter = self.export()
        address = exporter.url.removeprefix("http://")
        port = int(address.rsplit(":", 1)[1])
        connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        connection.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertTrue(connection.recv(100))
        self.end(exporter)  # the server closes first: TIME_WAIT is on its side
        while connection.recv(4096):
            pass
        connection.close()
        with open("/proc/net/tcp", encoding="ascii") as table:
            states = {line.split()[3] for line in table if f":{port:04X} " in line}
        self.assertIn("06", states, "nothing is in TIME_WAIT, so nothing is tried")
        again = self.export("--listen", address)
        self.assertGreater(len(self.scrape(again)), 10)

    def without_rights(self):
        """What makes a command run without the right to ports below 1024."""
        with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", encoding="ascii") as file:
            if int(file.read()) <= 1:
                self.skipTest("every user may listen on every port here")
        if os.geteuid() != 0:
            return {}
        return {"user": 65534, "group": 65534, "extra_groups": []}

    def test_a_port_below_1024_without_rights(self):
        how = self.without_rights()
        if how:
            self.folder.chmod(0o755)
            shutil.chown(self.flights, 65534, 65534)
        history = self.tiny_history()

        def run(*arguments):
            done = subprocess.run([COMMAND, *map(str, arguments)], env=self.environment(), capture_output=True, text=True, timeout=PATIENCE,
                                  **how)
            if done.returncode == 127 or "cannot execute" in done.stderr:
                self.skipTest("another user cannot run the command here")
            return done
        try:
            done = run("replay", history, "--listen", "127.0.0.1:1")
        except PermissionError:
            self.skipTest("another user may not look into the folder of the command")
        reason = "cannot listen on '127.0.0.1:1': Permission denied"
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(reason + "; the program goes on without it", done.stderr)
        done = run("replay", history, "--listen", "127.0.0.1:1", "--bind", "next")
        self.assertEqual(done.returncode, 0, "a port that is forbidden is not taken: the next one is not tried")
        self.assertIn(reason, done.stderr)
        for arguments in (("replay", history, "--listen", "127.0.0.1:1", "--bind", "fail"), ("export", "--listen", "127.0.0.1:1")):
            done = run(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(reason, done.stderr)

    def test_ipv6_alone(self):
        try:
            port = self.taken_port(socket.AF_INET6, "::1")
        except OSError as error:
            self.skipTest(f"no IPv6 here: {error}")
        exporter = self.export("--listen", "[::1]:0")
        self.assertTrue(exporter.url.startswith("http://[::1]:"))
        self.assertGreater(len(self.scrape(exporter)), 10)
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(exporter.url.rsplit(":", 1)[1])), timeout=PATIENCE)
        done = self.run_command("export", "--listen", f"[::1]:{port}")
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"cannot listen on '[::1]:{port}': Address already in use", done.stderr)
        # All addresses are one socket: a port that is taken on IPv6 is not half served on IPv4.
        holder = self.taken_port(socket.AF_INET6, "::")
        self.assertIn("already in use", self.run_command("export", "--listen", f":{holder}").stderr)

    def test_addresses_that_are_none(self):
        for text in (" ", "localhost", "127.0.0.1", "127.0.0.1:", ":", ":x", "65536", "-1", "127.0.0.1:65536", "127.0.0.1:-1",
                     "127.0.0.1:80x", "127.0.0.1:0x50", "::1:9478", "[::1]", "[::1]9478", "[::1:9478", "[127.0.0.1]:80", "a b:80",
                     "http://127.0.0.1:80", "unix:/tmp/x"):
            for arguments in (("export", f"--listen={text}"), ("replay", self.tiny_history(), f"--listen={text}", "--bind", "fail")):
                done = self.run_command(*arguments)
                self.assertEqual(done.returncode, 2, f"{arguments}: {done.stderr}")
                self.assertIn(f"'{text}'", done.stderr)
                self.assertIn("expected", done.stderr)
        # Of the right form, and nobody's.
        for text in ("256.1.1.1:80", "192.0.2.1:0"):
            done = self.run_command("export", "--listen", text)
            self.assertEqual(done.returncode, 2, text)
            self.assertIn(f"cannot listen on '{text}'", done.stderr)


class Files(HostileTest):
    def refused(self, status, words, *arguments):
        done = self.run_command("export", "--listen", "127.0.0.1:0", *arguments)
        self.assertEqual(done.returncode, status, f"{arguments}: {done.stderr}")
        self.assertIn(words, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_certificates_and_keys(self):
        certificate, key = self.certificate("one")
        other_certificate, other_key = self.certificate("two")
        der, locked, chain = self.folder / "one.der", self.folder / "locked.key", self.folder / "chain.pem"
        subprocess.run(["openssl", "x509", "-in", certificate, "-outform", "DER", "-out", der], check=True, timeout=PATIENCE)
        subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", "pass:x", "-out", locked], check=True, timeout=PATIENCE)
        chain.write_text(certificate.read_text() + other_certificate.read_text()[:-100])
        empty, blank = self.write("empty", ""), self.write("blank", "\n\n")
        large = self.write("large", b"x" * ((1 << 20) + 1))
        for words, cert, its_key in (
                (f"key '{other_key}': does not belong to the certificate '{certificate}'", certificate, other_key),
                (f"certificate '{empty}': is empty", empty, key),
                (f"key '{empty}': is empty", certificate, empty),
                (f"certificate '{blank}': holds no certificate in PEM form", blank, key),
                (f"certificate '{der}': holds no certificate in PEM form", der, key),
                (f"key '{der}': holds no private key in PEM form", certificate, der),
                (f"certificate '{self.folder}': Is a directory", self.folder, key),
                (f"key '{self.folder}': Is a directory", certificate, self.folder),
                (f"key '{locked}': needs a passphrase; expected a key without one", certificate, locked),
                (f"certificate '{chain}': a certificate of its chain is broken", chain, key),
                (f"certificate '{large}': is larger than 1 MiB", large, key),
                (f"key '{self.folder}/none': No such file", certificate, self.folder / "none")):
            self.refused(3, words, "--tls-cert", cert, "--tls-key", its_key)

    def test_what_works_and_was_hardly_meant_is_said(self):
        help_text = subprocess.run(["openssl", "req", "-help"], capture_output=True, text=True, timeout=PATIENCE) if shutil.which(
            "openssl") else None
        certificate, key = self.certificate("one")
        key.chmod(0o644)
        exporter = self.export("--tls-cert", certificate, "--tls-key", key)
        self.wait_for(exporter, f"key '{key}': every user of this machine may read it; expected a mode such as 0600")
        self.assertGreater(len(self.scrape(exporter, context=ssl.create_default_context(cafile=certificate))), 10)
        self.assertNotIn("expired", exporter.error_path.read_text())
        if help_text is None or "-not_after" not in help_text.stdout + help_text.stderr:
            return  # an OpenSSL that cannot make one
        old, old_key = self.certificate("old", "-not_before", "20200101000000Z", "-not_after", "20200102000000Z")
        exporter = self.export("--tls-cert", old, "--tls-key", old_key)
        self.wait_for(exporter, f"certificate '{old}': expired 2020-01-02 00:00:00 UTC; clients that check it will refuse it")
        careless = ssl.create_default_context()
        careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
        self.assertGreater(len(self.scrape(exporter, context=careless)), 10)
        early, early_key = self.certificate("early", "-not_before", "20990101000000Z", "-not_after", "20990102000000Z")
        exporter = self.export("--tls-cert", early, "--tls-key", early_key)
        self.wait_for(exporter, f"certificate '{early}': not valid before 2099-01-01 00:00:00 UTC")

    def test_auth_files(self):
        long_cost = USER_LINE.replace("$05$", "$13$")
        for number, (text, words) in enumerate((
                ("ada\n", "line 1 has no ':'"),
                (":$2y$05$x\n", "line 1 has no user before the ':'"),
                ("ada:\n", "line 1 of user 'ada' is no bcrypt hash"),
                ("ada:secret\n", "line 1 of user 'ada' is no bcrypt hash"),
                ("ada:$apr1$abc$def\n", "line 1 of user 'ada' is no bcrypt hash"),
                ("ada:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n", "line 1 of user 'ada' is no bcrypt hash"),
                (USER_LINE[:-2] + "\n", "line 1 of user 'ada' is no bcrypt hash"),
                (USER_LINE + USER_LINE, "line 2 names user 'ada' again"),
                ("# x\n\n" + long_cost, "line 3 of user 'ada' has a cost of 13; expected 4 to 12"),
                ("# nobody\n", "has no user"),
                ("", "is empty"))):
            self.refused(3, words, "--auth", self.write(f"users-{number}", text))
        self.refused(3, f"auth file '{self.folder}': Is a directory", "--auth", self.folder)
        self.refused(3, f"auth file '{self.folder}/none': No such file", "--auth", self.folder / "none")


if __name__ == "__main__":
    unittest.main()
