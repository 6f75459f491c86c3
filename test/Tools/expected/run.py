#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares all that tools print with what they printed when it was last looked at.

    run.py --bin=build/bin [--write] [name...]

Every line of table.txt is `name | command`. The command runs in a shell, in an
folder of its own that holds nothing but `examples`. What it prints, errors and
exit code included, is NAME.txt beside this file, without what differs between
runs and machines: the time of the search, the version, and digits of a number
behind the ninth.

--write writes the files anew: read the difference before you commit it. A plan
or a figure that changed without your wanting it is a fault that was found.
"""

import argparse
import concurrent.futures
import difflib
import itertools
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.abspath(os.path.join(HERE, "../../../examples"))


def nine_digits(number):
    digits = re.sub(r"e.*|^[0.]*|\.", "", number)
    return number if len(digits) <= 9 else f"{float(number):.9g}"


DIFFERS = [
    (re.compile(r"\bsearch \d+(\.\d+)? m?s\b"), "search TIME"),
    (re.compile(r'"(search-ms|search-seconds)": ?[-+.\de]+'), r'"\1": TIME'),
    (re.compile(r'"tool-version": ?"[^"]*"'), '"tool-version": "VERSION"'),
    (re.compile(r"\bgalvatron \d+\.\d+\.\d+\S*"), "galvatron VERSION"),
    (re.compile(r"\b\d+\.\d+(?:e[-+]?\d+)?\b"), lambda n: nine_digits(n.group())),
]


# JSON's lists and objects without others inside, of which short ones are shown on
# a line.
FLAT = re.compile(r"([\[{])\n\s*([^\[\]{}]*?)\s*\n\s*([\]}])")
WIDTH = 100


def on_a_line(match):
    begin, inner, end = match.groups()
    line = begin + re.sub(r"\s*\n\s*", " ", inner) + end
    return line if len(line) <= WIDTH else match.group()


def read_table(path):
    cases = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            fields = [field.strip() for field in line.split(" | ", 1)]
            if len(fields) != 2:
                sys.exit(f"{path}:{number}: expected `name | command`, found '{line}'")
            cases.append(tuple(fields))
    return cases


def printed(command, environment):
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(EXAMPLES, os.path.join(folder, "examples"))
        try:
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command], cwd=folder,
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            return "did not end within 120 s\n"
    text = done.stdout.decode(errors="replace")
    for pattern, replacement in DIFFERS:
        text = pattern.sub(replacement, text)
    text = FLAT.sub(on_a_line, text)
    return text + (f"exit code {done.returncode}\n" if done.returncode else "")


def differences(expected, found):
    """Lines that differ, around the first letter that does."""
    matcher = difflib.SequenceMatcher(None, expected, found, autojunk=False)
    for tag, begin, end, other, other_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        pairs = itertools.zip_longest(expected[begin:end], found[other:other_end],
                                      fillvalue="")
        for line, (old, new) in enumerate(pairs, begin + 1):
            at = max(0, len(os.path.commonprefix([old, new])) - 60)
            yield f"line {line}, letter {at + 1}:"
            yield f"- {old[at:at + 160]}"
            yield f"+ {new[at:at + 160]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    environment = dict(os.environ, LC_ALL="C", PYTHON=sys.executable)
    environment["PATH"] = os.path.abspath(options.bin) + ":" + environment["PATH"]

    cases = [case for case in read_table(os.path.join(HERE, "table.txt"))
             if not options.names or case[0] in options.names]
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        texts = pool.map(lambda case: printed(case[1], environment), cases)
        for (name, command), text in zip(cases, texts):
            path = os.path.join(HERE, name + ".txt")
            if options.write:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                continue
            expected = ""
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    expected = file.read()
            if text != expected:
                failures += 1
                print(f"FAIL {name}: {command}")
                lines = differences(expected.splitlines(), text.splitlines())
                for line in itertools.islice(lines, 30):
                    print("  " + line)
    print(f"{len(cases) - failures} of {len(cases)} outputs are as expected")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
