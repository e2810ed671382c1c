#!/usr/bin/env python3
"""Makes a PrometheusRule of ../prometheus/rules.yml, as it is, comments included.

Without arguments it writes rules.yml beside this file. `--check` only says whether that is up to date (exit status 1: it is not).
`--runbooks URL` puts that URL before the runbook links, which lead to this repository, and prints to stdout. So does `--label KEY=VALUE`,
any number of times, for an operator that takes only resources with a label, such as `release=NAME` for kube-prometheus-stack.
"""
import argparse
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent / "prometheus" / "rules.yml"
TARGET = HERE / "rules.yml"
LINK = "runbook_url: "
HEAD = """\
# Made by make_rules.py of ../prometheus/rules.yml: change that.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: headroom
  namespace: headroom
  labels:
    app.kubernetes.io/part-of: headroom
"""
# What Kubernetes allows: an optional domain before the key.
WORD = r"[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?"
LABEL = re.compile(rf"((?:[a-z0-9.-]{{1,253}}/)?{WORD})=({WORD}|)", re.ASCII)


def label(text):
    found = LABEL.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text}: not KEY=VALUE, as labels of Kubernetes are")
    return found.groups()


def manifest(rules, runbooks="", labels=()):
    lines = rules.splitlines()
    if "groups:" not in lines:
        raise SystemExit(f"make_rules.py: {SOURCE}: no line 'groups:' at the left margin")
    indented = ("  " + line if line else "" for line in lines)
    more = "".join(f"    {key}: '{value}'\n" for key, value in dict(labels).items())
    return HEAD + more + "spec:\n" + "".join(line.replace(LINK, LINK + runbooks, 1) + "\n" for line in indented)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--runbooks", metavar="URL", help="such as https://git.example/headroom/blob/main/")
    parser.add_argument("--label", metavar="KEY=VALUE", type=label, action="append", default=[], help="such as release=monitoring")
    arguments = parser.parse_args()
    rules = SOURCE.read_text(encoding="utf-8")
    if arguments.runbooks or arguments.label:
        sys.stdout.write(manifest(rules, arguments.runbooks or "", arguments.label))
    elif arguments.check:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != manifest(rules):
            raise SystemExit(f"make_rules.py: {TARGET} is not what {SOURCE} makes: run make_rules.py")
    else:
        TARGET.write_text(manifest(rules), encoding="utf-8")


if __name__ == "__main__":
    main()
