# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tests of a build in units that are run alone, and what each reaches."""

import json
import os
import re
import signal
import subprocess
import time

# Look at sources, need a GPU, packages or the build itself, or take long by chance.
LEFT_OUT = re.compile(
    r"rooms|banners|links|once|faults-|runtime-configures|install|gpu-check|torch-gpu"
    r"|python-torch|tokenizers-package|transformers-roundtrip|packs-learn|grt-cuda"
    r"|grt-device|fuzz-|.*lint")
LIT = "/usr/lib/llvm-22/bin/lit"
MOST_CASES = 150  # of a program that is run case by case, not suite by suite
ROWS = 15  # of a table that are run together


def run(unit, environment, limit):
    """Exit code and seconds; -1 if it took longer than `limit` seconds."""
    begin = time.monotonic()
    process = subprocess.Popen(
        unit["command"], cwd=unit["folder"], stdin=subprocess.DEVNULL,
        env={**os.environ, **unit["environment"], **environment},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        code = process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        code = -1
    try:
        os.killpg(process.pid, signal.SIGKILL)  # what it has left running
    except ProcessLookupError:
        pass
    process.wait()
    return code, time.monotonic() - begin


def _cases(command, folder, environment):
    """Suites and cases of a GoogleTest program; nothing of another one."""
    try:
        listed = subprocess.run(
            command + ["--gtest_list_tests"], cwd=folder, env={**os.environ, **environment},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
            check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    cases, suite = [], None
    for line in listed.stdout.splitlines():
        if re.fullmatch(r"\S+\.\s*(#.*)?", line):
            suite = line.split()[0]
        elif suite and line.startswith("  "):
            cases.append((suite, suite + line.split()[0]))
    return cases if listed.returncode == 0 else []


def _rows(command):
    """Names of the rows of the table beside a script, in runs."""
    script = next(word for word in command if word.endswith("run.py"))
    table = os.path.join(os.path.dirname(script), "table.txt")
    with open(table, encoding="utf-8") as file:
        names = [line.split(" | ")[0].strip() for line in file
                 if " | " in line and not line.startswith(("#", "setup "))]
    if "bad-inputs" in script:
        return [[table] + names[i:i + ROWS] for i in range(0, len(names), ROWS)]
    return [[name] for name in names]


def units_of(build, pattern):
    """The tests of a build whose names `pattern` finds: name, command, folder and
    environment of each unit."""
    shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, check=True,
                           capture_output=True, text=True)
    units = []
    for test in json.loads(shown.stdout)["tests"]:
        name, command = test["name"], test.get("command")
        if not command or LEFT_OUT.match(name) or not re.search(pattern, name):
            continue
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        environment = dict(v.split("=", 1) for v in properties.get("ENVIRONMENT", []))
        folder = properties.get("WORKING_DIRECTORY", build)

        def add(part, words):
            units.append(dict(name=f"{name}:{part}" if part else name, command=words,
                              folder=folder, environment=environment))

        if name == "lit":
            listed = subprocess.run([LIT, "--show-tests", os.path.join(build, "test")],
                                    capture_output=True, text=True, check=True)
            for file in re.findall(r"Galvatron :: (\S+)", listed.stdout):
                add(file, [LIT, "-q", os.path.join(build, "test", file)])
        elif name in ("bad-inputs", "expected-outputs"):
            for names in _rows(command):
                add(names[-1], command + names)
        elif name == "documentation":
            pages = [word for word in command if word.endswith(".md")]
            for page in pages:
                add(os.path.basename(page),
                    [word for word in command if word not in pages] + [page])
        elif cases := _cases(command, folder, environment):
            suites = sorted({suite for suite, _ in cases})
            for part in ([suite + "*" for suite in suites] if len(cases) > MOST_CASES
                         else [case for _, case in cases]):
                add(part, command + ["--gtest_filter=" + part, "--gtest_fail_fast"])
        else:
            add(None, command)
    return units


def record(unit, count, file):
    """Runs a unit without a fault. The numbers of the `count` faults that it
    reaches and its seconds; nothing if it fails."""
    with open(file, "wb") as reached:
        reached.truncate(count)
    code, seconds = run(unit, {"GALVATRON_FAULTS_REACHED": file}, limit=240)
    with open(file, "rb") as reached:
        numbers = [i for i, byte in enumerate(reached.read()) if byte]
    return (numbers, seconds) if code == 0 else None


def _words(text):
    return set(re.findall(r"[A-Z][a-z]+|[a-z]+", text))


def near_first(units, path):
    """Short units first, and those that are named as the file is."""
    near = _words(os.path.splitext(os.path.basename(path))[0]) \
        | _words(os.path.basename(os.path.dirname(path)))
    return sorted(units, key=lambda unit: unit["seconds"] * (1 + len(unit["reached"]) / 300)
                  / (1 + 3 * len(near & _words(unit["name"]))))
