"""The sources that clang-tidy looks at, each ended by a NUL; build/tidy gets the compile commands for it.

tests/lint/tidy_sources.py [N]   of the N that changed last (default: all)

Without precompiled headers, which are g++'s: each source is looked at with what it includes itself.
"""
import json, pathlib, re, subprocess, sys
root, ours = pathlib.Path.cwd(), ("lib", "exporter", "viewer", "adapters", "tests")
entries = json.load(open("build/dev/compile_commands.json"))
for entry in entries:
    entry["command"] = re.sub(r" -Winvalid-pch| -include \S*cmake_pch\.hxx", "", entry["command"])
pathlib.Path("build/tidy").mkdir(exist_ok=True)
json.dump(entries, open("build/tidy/compile_commands.json", "w"))
files = {(pathlib.Path(entry["directory"]) / entry["file"]).resolve() for entry in entries if not entry["file"].endswith("cmake_pch.hxx.cxx")}
names = sorted(str(file.relative_to(root)) for file in files if file.is_relative_to(root) and file.relative_to(root).parts[0] in ours)
if len(sys.argv) > 1:
    # What is not committed yet first, then by commit; a header stands for the source of its name.
    git = lambda *words: subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.splitlines()
    changed = git("diff", "--name-only", "HEAD") + git("ls-files", "--others", "--exclude-standard") + git("log", "--format=", "--name-only")
    order = {name: place for place, name in reversed(list(enumerate(re.sub(r"\.hpp$", ".cpp", name) for name in changed)))}
    names = sorted((name for name in names if name in order), key=order.get)[:int(sys.argv[1])]
print(f"tidy: {len(names)} sources", file=sys.stderr)
print("".join(f"{root / name}\0" for name in names), end="")
