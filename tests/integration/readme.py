#!/usr/bin/env python3
"""The README is true: its ten lines are those of the compiled example, and every command in it runs.

Commands that build or test everything cannot run inside a test: they must be known to ./run, and .ci/run runs them.
"""
import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = ("guard", "ten_lines", "whole_device")
BIN = pathlib.Path(os.environ["HEADROOM_COMMAND"]).parent


def fenced(language):
    """The blocks fenced with exactly this language, in order."""
    blocks, inside = [], None
    for line in README.splitlines(keepends=True):
        if not line.startswith("```"):
            if inside is not None:
                inside[1].append(line)
        elif inside is None:
            inside = (line[3:].strip(), [])
        else:
            if inside[0] == language:
                blocks.append("".join(inside[1]))
            inside = None
    return blocks


class Readme(unittest.TestCase):
    def test_samples_are_those_of_the_examples(self):
        blocks = [block.removeprefix("#include <headroom/headroom.hpp>\n\n").rstrip() for block in fenced("cpp")]
        self.assertEqual(len(blocks), len(EXAMPLES))
        for example in EXAMPLES:
            with self.subTest(example=example):
                body = (ROOT / f"tests/examples/{example}.cpp").read_text(encoding="utf-8").split("// [readme]\n")[1]
                lines = [line[2:] if line.startswith("  ") else line for line in body.rstrip().splitlines()]
                self.assertIn("\n".join(lines).rstrip(), blocks)

    def test_samples_print_what_the_readme_says(self):
        for example in EXAMPLES:
            with self.subTest(example=example), tempfile.TemporaryDirectory() as folder:
                run = subprocess.run([BIN / f"example_{example}"], capture_output=True, text=True, timeout=240,
                                     env={**os.environ, "HEADROOM_DIR": folder, "HEADROOM_QUIET": "1"}, check=False)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertEqual(run.stderr, "")
                self.assertIn(run.stdout.strip(), [block.strip() for block in fenced("")])

    def test_every_command_runs_or_is_run_by_ci(self):
        commands = [line for block in fenced("sh") for line in block.splitlines() if line.strip()]
        self.assertGreaterEqual(len(commands), 8)
        known = subprocess.run([ROOT / "run", "help"], capture_output=True, text=True, timeout=240, check=True).stdout
        ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
        for command in commands:
            with self.subTest(command=command):
                words = shlex.split(command)
                if words[0] == "./run":
                    self.assertIn(f"./run {words[1]}", known)
                    self.assertTrue(f"./run {words[1]}" in ci, f".ci/run does not run {words[1]}")
                    continue
                self.assertTrue(words[0].startswith("build/"), "a command that no test knows how to run")
                program = BIN / pathlib.Path(words[0]).name
                if words[1] == "export":
                    self.serves_until_it_is_told_to_end(program, words)
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    run = subprocess.run([program, *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=240,
                                         env={**os.environ, "HEADROOM_DIR": folder}, check=False)
                self.assertIn(run.returncode, (0, 1), run.stderr)
                self.assertNotIn("0 tests from", run.stdout, "the filter names a test that does not exist")

    def serves_until_it_is_told_to_end(self, program, words):
        """On any free port: that of the README may be in use here."""
        words = [re.sub(r":\d+$", ":0", word) for word in words[1:]]
        with tempfile.TemporaryDirectory() as folder:
            server = subprocess.Popen([program, *words], cwd=ROOT, stderr=subprocess.PIPE, text=True, env={**os.environ, "HEADROOM_DIR": folder})
            try:
                self.assertIn("serving http://127.0.0.1:", server.stderr.readline())
                server.terminate()
                self.assertEqual(server.wait(timeout=240), 0)
            finally:
                server.kill()
                server.wait()
                server.stderr.close()

    def test_every_file_it_names_exists(self):
        text = re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE)  # `[&](Type name)` in a sample is no link
        for name in re.findall(r"\]\(([^)#]+)\)", text) + re.findall(r"`((?:tests|lib|exporter)/[\w./-]+\.\w+)`", README):
            self.assertTrue((ROOT / name).exists(), name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
