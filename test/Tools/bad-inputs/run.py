#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gives the tools wrong inputs and looks at what they say.

    run.py --bin=build/bin [--every=N] [table] [name...]

Every line of the table is `name | exit code | part of the message | command`. The
command runs in a shell, in a folder of its own that holds the files of Inputs/
and what the lines of `setup` made of them. It must end within a minute with that
code, and say so on standard error, shortly, without a signal or an assertion. With
--every=N one line of N is taken.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

CRASHES = ("Assertion", "Stack dump", "AddressSanitizer", "runtime error:",
           "terminate called", "PLEASE submit a bug report")


def read_table(path):
    setup, cases = [], []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            if line.startswith("setup "):
                setup.append(line[len("setup "):].strip())
                continue
            fields = [field.strip() for field in line.split(" | ", 3)]
            if len(fields) != 4 or not fields[1].isdigit():
                sys.exit(f"{path}:{number}: expected `name | exit code | message "
                         f"| command`, found '{line}'")
            cases.append((fields[0], int(fields[1]), fields[2], fields[3]))
    return setup, cases


def shell(command, folder, environment):
    try:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], cwd=folder,
            env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return None, ""
    text = done.stderr.decode(errors="replace")
    return done.returncode, text


def main():
    parser = argparse.ArgumentParser()
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--bin", required=True)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("table", nargs="?", default=os.path.join(here, "table.txt"))
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    setup, cases = read_table(options.table)
    environment = dict(os.environ)
    environment["PATH"] = os.path.abspath(options.bin) + ":" + environment["PATH"]
    environment["LC_ALL"] = "C"
    environment["PYTHON"] = sys.executable
    environment["EXAMPLES"] = os.path.abspath(
        os.path.join(os.path.dirname(__file__), "../../../examples")
    )

    failures = ran = 0
    with tempfile.TemporaryDirectory() as scratch:
        good = os.path.join(scratch, "good")
        shutil.copytree(os.path.join(here, "Inputs"), good)
        for command in setup:
            code, text = shell(command, good, environment)
            if code != 0:
                sys.exit(f"setup failed with {code}: {command}\n{text}")
        for name, expected, message, command in cases[::options.every]:
            if options.names and name not in options.names:
                continue
            ran += 1
            folder = os.path.join(scratch, name)
            shutil.copytree(good, folder)
            code, text = shell(command, folder, environment)
            problems = []
            if code is None:
                problems.append("did not end within 60 s")
            elif code != expected:
                problems.append(f"expected exit code {expected}, found {code}")
            if message not in text:
                problems.append(f"expected '{message}' in the message")
            if len(text) > 2000:
                problems.append(f"expected a short message, found {len(text)} bytes")
            problems += [f"found '{word}' in the message"
                         for word in CRASHES if word in text]
            if problems:
                failures += 1
                print(f"FAIL {name}: {'; '.join(problems)}\n  {command}")
                print("".join(f"  > {line[:200]}\n" for line in text.splitlines()[:12]))
            elif options.names:
                print(f"ok   {name}\n  {text.strip()}")
            shutil.rmtree(folder)
    print(f"{ran - failures} of {ran} wrong inputs were refused as the table says")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
