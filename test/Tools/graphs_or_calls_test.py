#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""graphs_or_calls_test.py SCRIPT: scripts/graphs-or-calls with a stand-in for
galvatron-run, which writes summaries as that does. The real one, on the CUDA
libraries of tests, is run by gpu_check_test.py."""

import pathlib
import subprocess
import sys
import tempfile

SCRIPT = sys.argv[1]

# Step times by kind, one after the other; with a file "refuse" steps are no
# graphs.
STAND_IN = r"""
here=$(dirname "$0")
kind=graphs
for argument; do
  case "$argument" in
    --no-cuda-graph) kind=calls ;;
    --summary=*) summary=${argument#--summary=} ;;
  esac
done
echo "$kind $1 $2" >> "$here/started"
read -r first rest < "$here/$kind"
echo "$rest" > "$here/$kind"
echo "step 1 loss 5"
[ "$first" = fail ] && exit 4
[ "$first" = nothing ] && exit 0
graphs=0
[ -e "$here/refuse" ] && kind=calls
[ $kind = graphs ] && graphs=1
echo "{\"median-step-ms\": $first, \"graphs-per-step\": $graphs," \
  "\"median-of\": {\"kind\": \"$kind\", \"steps\": 18}}" > "$summary"
"""


def run(folder, graphs, calls, *options):
    """The script's exit code and what it says."""
    program = folder / "galvatron-run"
    program.write_text(STAND_IN)
    (folder / "graphs").write_text(graphs)
    (folder / "calls").write_text(calls)
    (folder / "started").unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, SCRIPT, f"--folder={folder / 'out'}", *options, "--",
         "sh", str(program), "p.gvx", "--steps=20"],
        capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def expect(found, code, *texts):
    assert found[0] == code, found
    for text in texts:
        assert text in found[1], (text, found[1])


with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    expect(run(folder, "812 810 815", "790 792 788"), 0,
           "as graphs: 812 ms a step (810 to 815 in 3 runs)",
           "call by call: 790 ms a step (788 to 792 in 3 runs)",
           "call by call is faster by 2.7%: run with --no-cuda-graph")
    # In turns, so that a machine that becomes slow is so for both; options of
    # the command are its own.
    started = (folder / "started").read_text().splitlines()
    assert started == ["graphs p.gvx --steps=20", "calls p.gvx --steps=20"] * 3, started
    expect(run(folder, "700", "790", "--repeats=1"), 0,
           "graphs are faster by 11.4%: leave them on")
    expect(run(folder, "800 780 790", "785 799 788"), 0,
           "no difference: 0.3%, and runs of both meet")
    expect(run(folder, "800 fail", "785"), 1, "--summary=", "ended with 4: see '")
    expect(run(folder, "nothing", "785"), 1, "was not written: does process 0 see")
    expect(run(folder, "1", "1", "--repeats=0"), 2,
           "expected --repeats of 1 or more, found 0")
    (folder / "refuse").touch()
    expect(run(folder, "800", "785"), 1,
           "expected steps that are graphs, found 'calls' (0 graphs a step): see '")
