"""No file names a folder of the machine it was written on, and all text is UTF-8. Data that is bad on purpose may be anything."""
import os, pathlib, re, subprocess, sys
root = pathlib.Path.cwd()
standard = {"bin", "boot", "dev", "etc", "home", "lib", "media", "mnt", "opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var"}
places = [str(root), os.path.expanduser("~")] + ([f"/{root.parts[1]}"] if root.parts[1] not in standard else [])
stray = re.compile(r"(?<![\w.~$}/-])(?:(?:" + "|".join(re.escape(p) for p in places if p.count("/") and len(p) > 1) + r")(?![\w-])|/home/\w|/Users/\w)")
listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True)
names = (listed.stdout.decode().split("\0") if listed.returncode == 0 else
         [str(p.relative_to(root)) for p in root.rglob("*") if p.relative_to(root).parts[0] not in ("build", ".git")])
bad = files = 0
for name in sorted(n for n in names if n):
    path = root / name
    if not path.is_file() or name.startswith(("tests/data/", "tests/fuzz/")) or path.suffix in (".xz", ".gz", ".png", ".ico", ".ttf"):
        continue
    files += 1
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        bad += 1
        print(f"{name}: byte {error.start} is not UTF-8")
        continue
    for number, line in enumerate(text.splitlines(), 1):
        if match := stray.search(line):
            bad += 1
            print(f"{name}:{number}: a path of this machine: {line[match.start():match.start() + 60].strip()}")
print(f"text: {files} files")
sys.exit(1 if bad else 0)
