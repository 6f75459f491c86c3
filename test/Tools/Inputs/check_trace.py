"""Checks a Chrome trace: check_trace.py TRACE RANKS.

Every rank is a process with a name, slices of a thread nest or follow each
other, every process has a memory counter.
"""
import collections
import json
import sys

trace = json.load(open(sys.argv[1]))
end = trace["otherData"]["simulated-iteration-ms"] * 1e3
rows = collections.defaultdict(list)
named, counted = set(), set()
for event in trace["traceEvents"]:
    if event["ph"] == "M" and event["name"] == "process_name":
        named.add(event["pid"])
    elif event["ph"] == "C":
        counted.add(event["pid"])
    elif event["ph"] == "X":
        rows[event["pid"], event["tid"]].append(
            (event["ts"], event["ts"] + event["dur"], event["name"]))
assert named == counted == set(range(int(sys.argv[2]))), (named, counted)
assert named == {pid for pid, _ in rows}
for row, slices in rows.items():
    slices.sort()
    for before, after in zip(slices, slices[1:]):
        assert before[1] <= after[0] + 1e-5, (row, before, after)
    assert slices[0][0] >= 0 and slices[-1][1] <= end + 1e-3, (row, slices[-1])
print(len(named), "processes, every row in order, all within the iteration")
