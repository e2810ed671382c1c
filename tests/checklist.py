#!/usr/bin/env python3
"""Checks that every test named in a checklist exists, ran and passed.

  tests/checklist.py JUNIT FILE…        JUNIT: what ctest wrote; FILE: such as tests/seed-a.md

A checklist is a Markdown file with one table whose rows are | number | item | tests | what would break it |. Numbers run from 1
without a gap; a line <!-- rows: N --> says how many there are. The tests column holds names as ctest shows them, each in
backquotes; `suite/Name.test` also stands for its instances `suite/Name.test/…`. An item that nothing can test says "context: why"
instead. Prints one line for each problem, then "FILE: N rows, M tests, K context". Exit status 0: no problem, 1: problems,
2: something could not be read.
"""
import re
import sys
import xml.etree.ElementTree as tree

ROW = re.compile(r"^\|\s*(\d+)\s*\|(.*)\|\s*$")
NAME = re.compile(r"`([^`]+)`")


def results(path):
    """Name → passed, failed or skipped."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f]", "?", file.read())
    found = {}
    for case in tree.fromstring(text).iter("testcase"):
        # A parametrised test carries its value behind its name: "unit.A.b/0  # GetParam() = …".
        name = re.sub(r"\s+# GetParam.*", "", case.get("name", ""), flags=re.DOTALL)
        skip = case.find("skipped")
        if case.get("status") == "run":
            found[name] = "passed"
        elif skip is not None and (skip.get("message") or "").startswith("SKIP_"):
            found[name] = "skipped"
        else:
            found[name] = "failed"
    return found


def check_test(name, found):
    """What is wrong with a named test, or nothing."""
    instances = {key: value for key, value in found.items() if key == name or key.startswith(name + "/")}
    if not instances:
        return "does not exist, or was not run"
    failed = sorted(key for key, value in instances.items() if value == "failed")
    if failed:
        return "failed: " + ", ".join(failed)
    return None if "passed" in instances.values() else "was skipped"


def check_file(path, found):
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    problems, number, tests, context = [], 0, set(), 0
    declared = next((int(match[1]) for line in lines if (match := re.match(r"^<!-- rows: (\d+) -->$", line))), None)
    for at, line in enumerate(lines, 1):
        row = ROW.match(line)
        if not row:
            continue
        number += 1
        if int(row[1]) != number:
            problems.append(f"{path}:{at}: row {row[1]}, expected {number}")
            number = int(row[1])
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row[2])]
        if len(cells) != 3 or not all(cells):
            problems.append(f"{path}:{at}: row {row[1]} has {len(cells) + 1} columns, expected number, item, tests, what would break it")
            continue
        names = NAME.findall(cells[1])
        if not names:
            if re.match(r"context: \S", cells[1]):
                context += 1
            else:
                problems.append(f"{path}:{at}: row {row[1]} names no test, and does not say “context: why”")
        for name in names:
            tests.add(name)
            wrong = check_test(name, found)
            if wrong:
                problems.append(f"{path}:{at}: row {row[1]}: {name} {wrong}")
    if declared is None:
        problems.append(f"{path}: no line <!-- rows: N -->")
    elif number != declared:
        problems.append(f"{path}: {number} rows, expected {declared}")
    print("".join(f"{problem}\n" for problem in problems), end="")
    print(f"{path}: {number} rows, {len(tests)} tests, {context} context")
    return not problems


def main(arguments):
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        found = results(arguments[0])
        return 0 if all([check_file(path, found) for path in arguments[1:]]) else 1
    except (OSError, tree.ParseError) as error:
        print(f"checklist.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
