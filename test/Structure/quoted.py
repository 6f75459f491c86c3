#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Messages that the documentation quotes are those of the sources.

  quoted.py ROOT [--bin=build/bin]

A block behind `<!-- quoted -->`, and every piece of code with 25 letters or more
in the second column of a table below "### What goes wrong", is printed by the
tools, but for what differs from run to run. Words of it that are in no string of
the sources of runtime/ must be names in quotes, or have digits, or be part of a
path or an address. Options of tools in blocks of `sh` on the same pages are
those that the tools' --help has.
"""

import glob
import os
import re
import subprocess
import sys

ROOT = sys.argv[1]
BIN = next((a[6:] for a in sys.argv if a.startswith("--bin=")), None)
PAGES = ["docs/cuda.md", "docs/operations.md"]

LITERALS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# Words that programs, files and cards have, not the tools.
GIVEN = re.compile(r"\d|^/|^NCCL_|^(NCCL|Open|MPI|NVIDIA|H100|HBM3|Ring|Tree|alpha|beta|"
                   r"sdp|dp|tp|gpt2|bf16|adamw|all-reduce|all_reduce|eth0|ib0|lo|"
                   r"real|Connection|refused|Address|already|in|use|Killed|DR|GPU)$")


def strings():
    """Every string of the sources, neighbours joined."""
    found = set()
    for pattern in ("runtime/src/**/*", "runtime/tools/**/*",
                    "runtime/backends/**/*"):
        for path in glob.glob(os.path.join(ROOT, pattern), recursive=True):
            if not path.endswith((".cpp", ".h")) or "/tests/" in path:
                continue
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for group in LITERALS.finditer(text):
                joined = "".join(m.group(1) for m in
                                 LITERAL.finditer(group.group(0)))
                found.add(joined.replace('\\"', '"').replace("\\n", "\n"))
    # What printf puts in is left out.
    pieces = set()
    for one in found:
        pieces.update(re.split(r"%[-+.\d]*l*[a-z%]|\n", one))
    return pieces


def uncovered(line, pieces, words):
    """The words of a line that are in no string."""
    free = [True] * len(line)

    def cover(start, end):
        free[start:end] = [False] * (end - start)

    for piece in pieces:
        start = line.find(piece)
        while start >= 0:
            cover(start, start + len(piece))
            start = line.find(piece, start + 1)
        # A quotation may end before the message does.
        if not line.endswith(piece):
            start = line.rfind(piece[:8])
            if start >= 0 and piece.startswith(line[start:]):
                cover(start, len(line))
    # Names in quotes are the user's.
    for match in re.finditer(r"'[^']*'", line):
        cover(*match.span())
    missing = []
    for match in re.finditer(r"[\w/.:-]+", line):
        word = match.group().strip(".:-")
        if any(free[match.start():match.end()]) and len(word) > 1 and not (
                word in words or word.rstrip("s") in words
                or GIVEN.search(word)):
            missing.append(word)
    return missing


def quoted(text):
    for block in re.finditer(r"<!-- quoted -->\n```\n(.*?)^```$", text,
                             re.DOTALL | re.MULTILINE):
        yield from block.group(1).splitlines()
    for section in re.finditer(r"^### What goes wrong.*?(?=^#)", text,
                               re.DOTALL | re.MULTILINE):
        for row in re.findall(r"^\|[^|]*\|([^|]*)\|", section.group(0),
                              re.MULTILINE):
            for code in re.findall(r"`([^`]*)`", row):
                if len(code) >= 25:
                    yield code


def options_used(text):
    for block in re.findall(r"^```sh\n(.*?)^```$", text,
                            re.DOTALL | re.MULTILINE):
        for command in block.replace("\\\n", " ").splitlines():
            for tool, rest in re.findall(r"(galvatron-[a-z]+) ([^#;&|]*)",
                                         command.split("#")[0]):
                for option in re.findall(r"(?<=\s)--[a-z-]+", " " + rest):
                    yield tool, option


def main():
    problems, lines, options = [], 0, 0
    found = strings()
    pieces = [piece for piece in found if len(piece) >= 8]
    words = {word for piece in found if len(piece) < 8
             for word in re.findall(r"[\w/-]+", piece)}
    helps = {}
    for page in PAGES:
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            text = file.read()
        for line in quoted(text):
            lines += 1
            missing = uncovered(line, pieces, words)
            if missing:
                problems.append(
                    f"{page}: no source says {', '.join(missing)}: {line}")
        for tool, option in options_used(text) if BIN else ():
            options += 1
            if tool not in helps:
                helps[tool] = subprocess.run(
                    [os.path.join(BIN, tool), "--help"], text=True, check=True,
                    stdout=subprocess.PIPE).stdout
            if not re.search(re.escape(option) + r"(?![\w-])", helps[tool]):
                problems.append(f"{page}: {tool} has no option {option}")
    if lines < 25 or (BIN and options < 25):
        problems.append(f"only {lines} lines and {options} options were found")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
