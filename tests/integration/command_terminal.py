"""The command at a terminal: help, colours, progress, and the completion of bash."""
import os
import pathlib
import pty
import random
import re
import select
import subprocess
import time
import unittest

from command_histories import history
from command_runner import COMMAND, HEADER, PATIENCE, CommandTest

COMPLETION = pathlib.Path(__file__).resolve().parents[2] / "exporter/command/headroom.bash"
COLOUR = "\x1b\\[[0-9]+m"
SUBCOMMANDS = re.findall(r"^  ([a-z]+) ", subprocess.run([COMMAND, "--help"], capture_output=True, text=True, check=True)
                         .stdout.split("Subcommands:")[1].split("\n\n")[0], re.MULTILINE)


class Help(CommandTest):
    def test_every_subcommand_has_an_example_and_its_exit_codes(self):
        for needed in ("ps", "summary", "diff", "fit", "replay", "check", "devices"):
            self.assertIn(needed, SUBCOMMANDS)
        for subcommand in SUBCOMMANDS:
            with self.subTest(subcommand):
                done = self.run_command(subcommand, "--help")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertRegex(done.stdout, rf"Examples?:\n  headroom {subcommand}")
                self.assertRegex(done.stdout, r"Exit status: 0 .*2 wrong usage")
                self.assertEqual(self.run_command(subcommand, "--frob").returncode, 2)

    def test_an_unknown_subcommand_names_the_known_ones(self):
        done = self.run_command("frob")
        self.assertEqual(done.returncode, 2)
        for subcommand in SUBCOMMANDS:
            self.assertIn(subcommand, done.stderr)


class Terminal(CommandTest):
    def on_terminal(self, *arguments, until=None, **environment):
        """What appears on a terminal that is stdout and stderr; up to `until`, where that is given."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen([COMMAND, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                                   env=self.environment(**{"TERM": "xterm", **environment}))
        os.close(theirs)
        seen = b""
        deadline = time.monotonic() + PATIENCE
        try:
            while time.monotonic() < deadline and (until is None or until not in seen):
                seen += os.read(ours, 65_536)
        except OSError:  # how a terminal says that the other side is gone
            pass
        finally:
            if process.poll() is None and until is not None:
                process.kill()
            process.wait()
            os.close(ours)
        return seen.decode()

    def test_colours_only_on_a_terminal_that_wants_them(self):
        # A progress line, on a machine that has no time, moves the cursor and has no colours.
        self.assertRegex(self.on_terminal("check", history("resnet")), COLOUR)
        self.assertNotRegex(self.on_terminal("check", history("resnet"), NO_COLOR="1"), COLOUR)
        self.assertNotRegex(self.on_terminal("check", history("resnet"), TERM="dumb"), "\x1b")
        self.assertNotIn("\x1b[", self.run_command("check", history("resnet")).stdout)

    def test_long_work_shows_how_far_it_is(self):
        # Ten thousand looks at a hundred thousand records: more than a second on any machine. It is killed at the first line.
        chance = random.Random(7)
        lines = []
        for i in range(50_000):
            size = chance.randrange(1, 1 << 30)
            lines.append(f"0,{i},allocate,{i % 500 + 1:#x},{size},0\n")
            lines.append(f"0,{i},free,{(i + 250) % 500 + 1:#x},1,0\n")
        path = self.write("long.csv", HEADER + "".join(lines))
        seen = self.on_terminal("fit", path, "--points", 10_000, until=b" of 10,001 budgets")
        self.assertRegex(seen, r"[\d,]+ of 10,001 budgets$")

    def test_a_replay_shows_how_far_it_is(self):
        seen = self.on_terminal("replay", history("resnet"), "--stretch", "1h", until=b" events")
        self.assertRegex(seen, r"[\d,]+ of 8,283 events")

    def test_nothing_of_it_where_there_is_no_terminal(self):
        done = self.run_command("replay", history("resnet"), "--stretch", "1s", "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Completion(CommandTest):
    def completed(self, *words):
        """What a real bash offers for the last word."""
        script = f'''
          source {COMPLETION} || exit 1
          COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
          _headroom
          [[ ${{#COMPREPLY[@]}} -eq 0 ]] || printf '%s\\n' "${{COMPREPLY[@]}}"'''
        done = subprocess.run(["bash", "--norc", "-c", script, "bash", COMMAND, *words], env=self.environment(), cwd=self.folder,
                              capture_output=True, text=True, timeout=240)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def test_it_is_registered_for_headroom(self):
        done = subprocess.run(["bash", "--norc", "-c", f"source {COMPLETION}; complete -p headroom"], capture_output=True, text=True)
        self.assertEqual(done.stdout, "complete -F _headroom headroom\n")

    def test_the_tab_key(self):
        ours, theirs = pty.openpty()
        path = f"{pathlib.Path(COMMAND).resolve().parent}:{os.environ['PATH']}"
        shell = subprocess.Popen(["bash", "--norc", "--noprofile", "-i"], stdin=theirs, stdout=theirs, stderr=theirs,
                                 env=self.environment(TERM="dumb", PATH=path, HISTFILE="/dev/null"), start_new_session=True)
        os.close(theirs)
        try:
            os.write(ours, f"source {COMPLETION}\nheadroom repl\t".encode())
            seen = b""
            while b"headroom replay " not in seen:
                ready, _, _ = select.select([ours], [], [], PATIENCE)
                self.assertTrue(ready, seen.decode())
                seen += os.read(ours, 65_536)
        finally:
            shell.kill()
            shell.wait()
            os.close(ours)

    def test_subcommands(self):
        self.assertEqual(self.completed(""), SUBCOMMANDS)
        self.assertEqual(self.completed("re"), ["replay"])
        self.assertEqual(self.completed("x"), [])
        self.assertEqual(self.completed("--v"), ["--version"])

    def test_options_are_those_of_the_help(self):
        for subcommand in SUBCOMMANDS:
            known = re.findall(r"^  (?:-\w,)?(--[a-z-]+)", self.run_command(subcommand, "--help").stdout, re.MULTILINE)
            self.assertIn("--help", known)
            self.assertEqual(self.completed(subcommand, "-"), known)
        self.assertEqual(self.completed("summary", "--f"), ["--fail-above"])
        self.assertEqual(self.completed("replay", "x.csv", "--sp"), ["--speed"])

    def test_values_of_options(self):
        self.assertEqual(self.completed("replay", "--order", ""), ["file", "free"])
        self.assertEqual(self.completed("replay", "--order", "=", "fr"), ["free"])
        self.assertEqual(self.completed("replay", "--tag", "s"), ["size", "stream"])
        self.assertEqual(self.completed("diff", "a", "b", "--at", "p"), ["peak"])
        for option, values in (("--order", ["file", "free"]), ("--tag", ["size", "thread", "stream", "recorded", "none"])):
            self.assertEqual(self.completed("replay", option, ""), values)
            for value in values:
                self.assertEqual(self.run_command("replay", history("oom_batch"), option, value, "--json").returncode, 0)

    def test_files_and_folders(self):
        self.write("history one.csv", HEADER)
        self.write("history.csv.xz", HEADER)
        self.assertEqual(sorted(self.completed("summary", "his")), ["history one.csv", "history.csv.xz"])
        self.assertEqual(self.completed("diff", "history.csv.xz", "history."), ["history.csv.xz"])
        self.assertEqual(self.completed("ps", "--dir", "fl"), ["flights"])
        self.assertEqual(self.completed("ps", "his"), [])

    def test_living_processes(self):
        process = self.start_command("replay", history("resnet"), "--stop-after", 100, "--hold", "1h")
        self.wait_for(process, "holding")
        self.assertEqual(self.completed("top", ""), [str(process.pid)])
        self.assertIn(str(process.pid), self.completed("dump", str(process.pid)[0]))
        self.kill(process)
        self.assertEqual(self.completed("top", ""), [])


if __name__ == "__main__":
    unittest.main()
