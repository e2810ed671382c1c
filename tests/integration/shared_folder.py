#!/usr/bin/env python3
"""The shared folder of dashboards/kubernetes, with real users and namespaces in the place of pods.

Users, groups, commands and environment are those of the manifests. Every "pod" has its own mounts, processes (its program is process 1) and
host name; none has a capability. HEADROOM_COMMAND names the command. Needs root, namespaces and python3-yaml, else: skipped, 77.
"""
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from command_runner import COMMAND, DATA, PATIENCE

sys.path.append("/usr/lib/python3/dist-packages")  # Debian's package, where the Python that runs this is another one
try:
    import yaml
except ImportError:
    print("skipped: python3-yaml is not installed")
    sys.exit(77)

NAMESPACES = ("unshare", "--mount", "--propagation", "private", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc")
POWERLESS = ("--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"):
    print("skipped: only root can be other users (with unshare and setpriv of util-linux)")
    sys.exit(77)
if subprocess.run([*NAMESPACES, "sh", "-c", "mount -t tmpfs none /run"], capture_output=True).returncode != 0:
    print("skipped: no namespaces here, or no mounts in them")
    sys.exit(77)

KUBERNETES = pathlib.Path(__file__).resolve().parents[2] / "dashboards" / "kubernetes"
HELD = 401_897_335  # bytes that are live after the first 500 records of oom_batch.csv.xz
SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)

# $SHARED is the folder of the node. What a container runtime does, then what it runs.
PROGRAM = """
hostname "$POD" && mount -t tmpfs none /run && mkdir /run/headroom && mount --bind "$SHARED" /run/headroom &&
touch /run/command /run/trace && mount --bind "$COMMAND" /run/command && mount --bind "$TRACE" /run/trace || exit 99
umask "$UMASK"
exec setpriv "$@"
"""
EXPORTER = """
mount -t tmpfs none /var/lib && mkdir /var/lib/headroom && chown 0:"$GROUP" /var/lib/headroom && chmod 2777 /var/lib/headroom &&
mount -t tmpfs none /run && touch /run/command && mount --bind "$COMMAND" /run/command &&
mount --bind "$SHARED" /dev/shm && mount -o remount,ro,bind /dev/shm && mount -o remount,ro,bind / || exit 99
exec setpriv "$@"
"""


def documents(name):
    return list(yaml.safe_load_all((KUBERNETES / name).read_text(encoding="utf-8")))


class SharedFolder(unittest.TestCase):
    def setUp(self):
        daemon_set = next(each for each in documents("node-exporter.yml") if each["kind"] == "DaemonSet")
        self.pod = daemon_set["spec"]["template"]["spec"]
        self.user, self.group = (self.pod["securityContext"][key] for key in ("runAsUser", "runAsGroup"))
        self.job = documents("workload.yml")[0]["spec"]["template"]["spec"]
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="headroom-shared-", dir="/dev/shm"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.folder.chmod(0o755)
        self.shared = self.folder / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o755)  # as the kubelet makes it: root's, 0755
        self.logs = 0

    def prepare(self):
        """What the init container does, without a capability."""
        init = self.pod["initContainers"][0]
        who = init["securityContext"]
        self.assertEqual(who["capabilities"], {"drop": ["ALL"]})
        done = subprocess.run([*NAMESPACES, "sh", "-c", PROGRAM, "sh", "--reuid", str(who["runAsUser"]), "--regid", str(who["runAsGroup"]),
                               *POWERLESS, *init["command"]], env=self.environment(), capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
        return {**kept, "SHARED": str(self.shared), "COMMAND": os.path.realpath(COMMAND), "TRACE": str(DATA / "oom_batch.csv.xz"),
                "POD": "node", "UMASK": "022", "GROUP": str(self.group), "HOME": "/nonexistent", **more}

    def start(self, script, user, group, command, environment):
        self.logs += 1
        log = self.folder / f"log-{self.logs}"
        with open(log, "wb") as written:
            process = subprocess.Popen([*NAMESPACES, "sh", "-c", script, "sh", "--reuid", str(user), "--regid", str(group), *POWERLESS,
                                        *command], env=environment, stdin=subprocess.DEVNULL, stdout=written, stderr=written)
        process.log = log

        def end():
            # Its child first: --kill-child does not reach one that has become another user.
            for child in self.children_of(process):
                os.kill(child, signal.SIGKILL)
            process.kill()
            process.wait()
        self.addCleanup(end)
        return process

    def wait_for(self, process, words):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for line in process.log.read_text().splitlines(keepends=True):
                if words in line and line.endswith("\n"):
                    return line.strip()
            if process.poll() is not None:
                break
            time.sleep(0.02)
        self.fail(f"no '{words}' in: {process.log.read_text()}")

    def variables(self, user):
        """Of the job in the manifest, as that user."""
        container = self.job["containers"][0]
        known = str(self.job["securityContext"]["runAsUser"])
        return {each["name"]: each["value"].replace(known, str(user)) for each in container["env"]}

    def program(self, pod, user, group, umask="022", first=None, **variables):
        given = {**self.variables(user), **variables}
        environment = self.environment(POD=pod, UMASK=umask, HEADROOM_DUMP="off",
                                       **{name: value for name, value in given.items() if value is not None})
        command = ["/run/command", "replay", "/run/trace", "--budget", "2900MiB", "--stop-after", "500", "--hold", "1h"]
        if first:
            command = ["sh", "-c", f'{first}; exec "$@"', "sh", *command]
        process = self.start(PROGRAM, user, group, command, environment)
        self.wait_for(process, "holding")
        return process

    def exporter(self):
        container = self.pod["containers"][0]
        self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
        self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
        self.assertIn({"name": "shared", "mountPath": "/dev/shm", "readOnly": True}, container["volumeMounts"])
        command = ["127.0.0.1:0" if word == ":9479" else word for word in container["command"]]
        self.assertEqual(command[0], "headroom")
        process = self.start(EXPORTER, self.user, self.group, ["/run/command", *command[1:]], self.environment())
        process.url = self.wait_for(process, "serving ").split("serving ")[1].split(" on ")[0]
        return process

    def scrape(self, exporter):
        with urllib.request.urlopen(exporter.url, timeout=PATIENCE) as answer:
            return SAMPLE.findall(answer.read().decode())

    def scrape_until(self, exporter, is_enough):
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            samples = self.scrape(exporter)
            if is_enough(samples):
                return samples
            time.sleep(0.05)
        self.fail(f"never seen in:\n{samples}\n{exporter.log.read_text()}")

    @staticmethod
    def by_host(samples, name):
        return {re.search(r'host="([^"]*)"', labels)[1]: float(value) for found, labels, value in samples if found == f"headroom_{name}"}

    @staticmethod
    def total(samples, name, label=""):
        return sum(float(value) for found, labels, value in samples if found == f"headroom_{name}" and label in labels)

    def test_processes_of_all_users_are_seen_and_their_deaths(self):
        self.prepare()
        self.assertEqual((self.shared.stat().st_gid, stat.S_IMODE(self.shared.stat().st_mode)), (self.group, 0o3777))
        self.program("pod-a", 1001, 1001)
        exporter = self.exporter()
        second = self.program("pod-b", 1002, 2000)
        self.program("pod-c", 0, 0)
        self.program("pod-d", 1002, 2000)  # another pod of the same user: both are process 1
        samples = self.scrape_until(exporter, lambda samples: len(self.by_host(samples, "process_up")) == 4)
        self.assertEqual(self.by_host(samples, "allocated_bytes"), {f"pod-{letter}": HELD for letter in "abcd"})
        self.assertEqual(self.total(samples, "node_files_skipped_total"), 0)
        self.assertEqual(self.total(samples, "node_folders", 'state="refused"'), 0)
        for folder in self.shared.iterdir():
            self.assertEqual((folder.stat().st_gid, stat.S_IMODE(folder.stat().st_mode)), (self.group, 0o2750), folder)
            for file in folder.iterdir():
                self.assertEqual((file.stat().st_gid, stat.S_IMODE(file.stat().st_mode)), (self.group, 0o640), file)

        self.kill(second)
        samples = self.scrape_until(exporter, lambda samples: self.total(samples, "post_mortems_total") == 1)
        self.assertEqual(self.by_host(samples, "died_live_bytes"), {"pod-b": HELD})
        self.assertEqual(self.by_host(samples, "allocated_bytes"), {f"pod-{letter}": HELD for letter in "acd"})
        self.assertEqual(self.total(samples, "processes_died_total", 'state="killed"'), 1)
        self.assertEqual(self.total(samples, "exporter_errors_total") + self.total(samples, "post_mortem_failures_total"), 0)

    @staticmethod
    def children_of(process):
        if process.poll() is not None:
            return []
        return [int(pid) for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]

    def kill(self, process):
        """The program alone: its parent, the stand-in for a container runtime, goes when it has gone."""
        [child] = self.children_of(process)
        os.kill(child, signal.SIGKILL)
        process.wait()

    def test_commands_in_the_exporters_pod_see_what_it_sees(self):
        self.prepare()
        self.program("pod-a", 1001, 1001)
        done = subprocess.run([*NAMESPACES, "sh", "-c", EXPORTER, "sh", "--reuid", str(self.user), "--regid", str(self.group), *POWERLESS,
                               "/run/command", "ps", "--json", "--dir", "/dev/shm/headroom-1001"], env=self.environment(),
                              capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f'"allocated_bytes": {HELD}'.replace(" ", ""), done.stdout.replace(" ", ""))

    def test_users_cannot_read_each_other_and_the_exporter_cannot_write(self):
        self.prepare()
        self.program("pod-a", 1001, 1001)
        file = next((self.shared / "headroom-1001").glob("*.flight"))
        tries = ((1002, 1002, ["cat", file], "Permission denied"),
                 (1002, 1002, ["ls", file.parent], "Permission denied"),
                 (1002, 1002, ["mv", file.parent, self.shared / "mine"], "not permitted"),
                 (self.user, self.group, ["truncate", "--size=0", file], "Permission denied"),
                 (self.user, self.group, ["rm", "-f", file], "Permission denied"),
                 (self.user, self.group, ["cat", file], ""))
        for user, group, command, word in tries:
            done = subprocess.run(["setpriv", "--reuid", str(user), "--regid", str(group), *POWERLESS, *map(str, command)],
                                  env={**os.environ, "LC_ALL": "C"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                  timeout=PATIENCE)
            self.assertEqual((done.returncode != 0, word in done.stderr), (word != "", True), f"{user} {command}: {done.stderr}")

    def test_who_is_not_seen_runs_all_the_same(self):
        early = self.program("pod-z", 1009, 1009)  # before the init container: nobody may make a folder there yet
        self.assertIn("no flight file", early.log.read_text())
        self.prepare()
        self.program("pod-a", 1001, 1001)
        self.program("pod-b", 1002, 1002, HEADROOM_GROUP=None)
        wrong = self.program("pod-c", 1003, 1003, HEADROOM_DIR="/run/headroom/headroom-1001")
        self.assertIn("/run/headroom/headroom-1001: Permission denied", wrong.log.read_text())
        self.program("pod-d", 1004, 1004, umask="077", first="umask 027; mkdir -p $HEADROOM_DIR; umask 077")
        self.program("pod-e", 1005, 1005, umask="077")
        exporter = self.exporter()
        samples = self.scrape_until(exporter, lambda samples: len(self.by_host(samples, "process_up")) >= 2
                                    and self.total(samples, "node_files_skipped_total", 'reason="unreadable"') == 1)
        self.assertEqual(self.by_host(samples, "allocated_bytes"), {"pod-a": HELD, "pod-d": HELD})
        self.assertEqual(self.total(samples, "node_folders", 'state="refused"'), 0)


if __name__ == "__main__":
    unittest.main()
