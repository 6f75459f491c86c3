# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Looks at the --help and --version of every tool in a folder.

    tool_help.py BIN
"""

import json
import os
import re
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "../../../runtime/cmake"))
import tool_pages

# Those that galvatron-compile has of galvatron-plan are looked at there.
TOOLS = ["plan", "compile", "data", "import", "lsp-server", "opt", "profile",
         "reduce", "run", "solve"]
PROFILE = {"version": 1, "layers": [
    {"name": "a", "count": 4, "forward-ms": 1, "backward-ms": 2,
     "parameter-bytes": 64, "boundary-bytes": 64, "intermediate-bytes": 64}]}
# Arguments with which a tool looks at an option's value.
ARGUMENTS = {
    "compile": ["nowhere.json", "-o", "nowhere.gvx", "--cluster=2xcpu"],
    "plan": ["-", "--cluster=2xrtx-titan", "--batch=8"],
    "run": ["nowhere.gvx", "--steps=1", "--data=nowhere.txt"]}
BESIDE = {"--placement": ["--space=amp"], "--ring-link": ["--space=amp"],
          ("run", "--documents"): ["--tokenizer=nowhere.json"],
          "--backend": ["--compile-to=import"]}


def run(*command, **streams):
    return subprocess.run(command, stderr=subprocess.PIPE, text=True,
                          input=json.dumps(PROFILE), check=False, **streams)


def refuses(tool, name, option, value):
    """Whether it is not one of the option's values, by the message."""
    beside = BESIDE.get((name, option), BESIDE.get(option, []))
    done = run(tool, *ARGUMENTS[name], *beside,
               f"{option}={value}", stdout=subprocess.DEVNULL)
    return re.search(rf"(found|unknown \w+) '{re.escape(value)}'",
                     done.stderr) is not None, done.stderr


def main():
    problems, looked_at = [], set()
    for name in TOOLS:
        tool = os.path.join(sys.argv[1], "galvatron-" + name)
        if not os.path.exists(tool):
            continue  # built without tokenizers
        for option in ("--help", "--version"):
            done = run(tool, option, stdout=subprocess.PIPE)
            if done.returncode or done.stderr:
                problems.append(f"{name} {option}: {done}")
            problems += [f"{name} {option}: {len(line)} columns: {line}"
                         for line in done.stdout.splitlines() if len(line) > 79]
            with open("/dev/full", "w") as full:
                done = run(tool, option, stdout=full)
            if done.returncode not in (1, 5) or done.stderr != (
                    f"galvatron-{name}: error: cannot write standard output: "
                    "No space left on device\n"):
                problems.append(f"{name} {option} > /dev/full: {done}")
        if name not in ARGUMENTS:
            continue
        lists = [(option, match[1].split("|"))
                 for option, value, _ in tool_pages.read_help(tool)[2]
                 if (match := tool_pages.VALUES.match(value))
                 and (name, option) not in looked_at]
        looked_at |= {("compile", option) for option, _ in lists}
        if len(lists) < 3:
            problems.append(f"{name}: {len(lists)} options list values")
        for option, values in lists:
            for value in values + ["no-such-value"]:
                refused, message = refuses(tool, name, option, value)
                if refused != (value == "no-such-value"):
                    problems.append(f"{name} {option}={value}: {message}")
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


main()
