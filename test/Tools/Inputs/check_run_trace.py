"""Checks the trace and the summary of a run:
check_run_trace.py TRACE SUMMARY PLAN.json RANKS STEPS.

Every rank has measured and predicted rows in which slices nest or follow each
other; the predicted rows are the simulator's step; measured and predicted tasks
come in one order; shares add up.
"""
import collections
import json
import sys

trace, summary, plan = (json.load(open(path)) for path in sys.argv[1:4])
ranks, steps = int(sys.argv[4]), int(sys.argv[5])

rows = collections.defaultdict(list)
names, counters = {}, collections.Counter()
for event in trace["traceEvents"]:
    if event["ph"] == "M" and event["name"] == "thread_name":
        names[event["pid"], event["tid"]] = event["args"]["name"]
    elif event["ph"] == "C":
        counters[event["pid"]] += 1
    elif event["ph"] == "X":
        rows[names[event["pid"], event["tid"]], event["pid"]].append(
            (event["ts"], -event["dur"], event["name"], event["cat"]))
assert set(counters) == set(range(ranks)), counters
for rank in range(ranks):
    for name in ("measured: tasks, functions, kernels",
                 "measured: communication", "predicted: tasks",
                 "predicted: compute"):
        assert rows[name, rank], (name, rank)
for (name, rank), slices in rows.items():
    slices.sort()
    inside = []
    for begin, length, text, _ in slices:
        end = begin - length
        while inside and inside[-1] <= begin + 2e-3:
            inside.pop()
        assert not inside or end <= inside[-1] + 2e-3, (name, rank, text)
        assert not inside or "tasks" in name, (name, rank, text)
        inside.append(end)

other = trace["otherData"]
assert other["steps"] == steps and other["lost-events"] == 0, other
simulated = plan["simulated-iteration-ms"]
assert abs(other["predicted-step-ms"] / simulated - 1) < 1e-3, (other, simulated)
for rank in range(ranks):
    predicted = [slice[2] for slice in rows["predicted: tasks", rank]]
    # What the cost model has no time for (norm, update) has no slice.
    measured = [
        slice[2] for slice in rows["measured: tasks, functions, kernels", rank]
        if slice[3] == "task" and slice[2] in predicted]
    assert measured == predicted, (rank, measured, predicted)

shares = summary["time-shares"]
assert shares["steps"] == steps, shares
for kind in ("measured", "predicted"):
    parts = [shares[kind][key]
             for key in ("compute", "exposed-communication", "bubble", "idle")]
    assert abs(sum(parts) - 1) < 1e-6 and min(parts) >= 0, shares
    assert shares[kind]["compute"] > 0, shares
print(ranks, "ranks,", steps, "steps, measured beside predicted")
