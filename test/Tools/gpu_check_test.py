#!/usr/bin/env python3
"""gpu_check_test.py SCRIPT --bin=DIR [--watched=FILE --fakes=DIR]: scripts/gpu-check
without a GPU; FILE is the CUDA backend on the libraries of tests in DIR.

The comparison of gradients, the result's tables, time limits, and predictions
from a profile that came back.
"""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import struct
import sys
import tempfile

os.environ["GALVATRON_BIN"] = sys.argv[2].split("=", 1)[1]
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("gpu_check", sys.argv[1])
gpu_check = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(gpu_check)


def tensors(path, values):
    """Writes one-dimensional tensors as safetensors."""
    head, data = {}, b""
    for name, numbers in values.items():
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
        head[name] = {"dtype": "F32", "shape": [len(numbers)],
                      "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def check_gradients(folder):
    right = {"wte": [3.0, 4.0], "h.attn.c_attn.bias": [1.0, 0.0, 0.0],
             "tiny": [1e-9, 0.0]}
    reference = tensors(folder / "right", right)
    assert gpu_check.gradient_difference(reference, reference)[0] == 0
    wrong = tensors(folder / "a", {**right, "wte": [3.0, 4.0005]})
    difference, name = gpu_check.gradient_difference(wrong, reference)
    assert name == "wte" and abs(difference - 1e-4) < 1e-6, difference
    # The parts of a fused projection are judged alone.
    wrong = tensors(folder / "b", {**right, "h.attn.c_attn.bias": [1.0, 1e-3, 0.0]})
    difference, name = gpu_check.gradient_difference(wrong, reference)
    assert name == "h.attn.c_attn.bias[1]" and difference > 1e-5, difference
    # What is nothing beside the whole may be off by 1e-7 of it.
    wrong = tensors(folder / "c", {**right, "tiny": [2e-9, 0.0]})
    assert gpu_check.gradient_difference(wrong, reference)[0] < 1e-5


def check_limits(folder):
    class Options:
        minutes, only, call, build = 1, None, None, None
        copy = str(folder / "copied")

    out = folder / "out"
    out.mkdir()
    check = gpu_check.Check(Options, out, folder)

    def slow(log, limit):
        gpu_check.run(["sh", "-c", "sleep 30 & echo $! > child; wait"], log, 0.3)

    assert not check.part("slow", slow, 5)
    assert not check.part("failing", lambda log, _: gpu_check.run(
        ["sh", "-c", "echo some error here; exit 3"], log, 5), 5)
    assert check.part("good", lambda *_: "a note", 5)
    Options.minutes = 0
    assert not check.part("late", lambda *_: None, 5)
    result = json.loads((out / "result.json").read_text())
    assert [(p["name"], p["state"]) for p in result["parts"]] == [
        ("slow", "FAILED"), ("failing", "FAILED"), ("good", "ok"),
        ("late", "left out")], result
    assert result["parts"][0]["note"] == "not done after 0 s"
    assert result["parts"][1]["note"] == "some error here"
    assert check.failed
    # Nothing that it started goes on.
    child = (out / "child").read_text().strip()
    state = pathlib.Path("/proc", child, "stat")
    assert not state.exists() or state.read_text().split()[2] == "Z", child
    # Every part's result is there at once, should the machine go.
    for name in ("result.json", "result.md", "logs.tar.gz"):
        assert (folder / "copied" / name).stat().st_size > 0, name
    assert (folder / "copied/result.json").read_text() == \
        (out / "result.json").read_text()
    # A later call adds to it; what is run again replaces.
    Options.minutes = 1
    again = gpu_check.Check(Options, out, folder)
    assert again.part("slow", lambda *_: "in time now", 5)
    assert again.part("more", lambda *_: "", 5)
    result = json.loads((out / "result.json").read_text())
    assert [(p["name"], p["state"]) for p in result["parts"]] == [
        ("failing", "FAILED"), ("good", "ok"), ("late", "left out"), ("slow", "ok"),
        ("more", "ok")], result
    assert again.build == out / "build"
    Options.build = str(folder / "elsewhere")
    assert gpu_check.Check(Options, out, folder).build == folder / "elsewhere"
    table = (out / "result.md").read_text()
    assert "| good | ok |" in table and "a note" in table, table


def check_calls():
    """No part can cost another its time, and all parts belong to a call."""
    for call, parts in gpu_check.CALLS.items():
        beside = [limit for name, limit in parts.items()
                  if name in gpu_check.BESIDE]
        alone = sum(parts.values()) - sum(beside)
        assert alone + max(beside, default=0) <= 9.5 * 60, call
    names = {name for parts in gpu_check.CALLS.values() for name in parts}
    for name in gpu_check.SPEED:
        assert {f"speed-{name}", f"torch-{name}"} <= names
    assert "speed-gpt2-124m" in gpu_check.CALLS[1]


def check_comparison(folder):
    """Ratios at equal or larger batches of PyTorch only, beside either attention."""
    def ours(batch, rate):
        return {"batch": batch, "tokens-per-second": rate}

    def torch(flash, cudnn):
        kinds = {"flash": {"results": flash}, "cudnn": {"results": cudnn}}
        for kind in kinds.values():
            kind["best"] = max(kind["results"], key=lambda r: r["tokens-per-second"],
                               default=None)
        return {"compile": "model", "attention": kinds}

    result = {"seconds": 1, "parts": [], "speed": {"gpt2-124m": {
        "ours": [ours(16, 100.0), ours(32, 110.0), ours(64, 130.0)],
        "best": ours(64, 130.0)}}}
    gpu_check.compare(result)
    found = result["speed"]["gpt2-124m"]
    assert "ratio" not in found
    # PyTorch fits 32 at most: our 64 is beside nothing.
    result["torch"] = {"gpt2-124m": torch([ours(32, 88.0), ours(16, 90.0)],
                                          [ours(32, 100.0)])}
    gpu_check.compare(result)
    assert found["beside"] == 32
    assert abs(found["ratio-flash"] - 110 / 90) < 1e-9
    assert abs(found["ratio-cudnn"] - 1.1) < 1e-9 and found["ratio"] == 1.1
    gpu_check.write_result(folder, result)
    table = (folder / "result.md").read_text()
    assert "| gpt2-124m | 130 (64) | 90 (16) | 100 (32) | model | 1.22 | 1.10 | - |" \
        in table, table
    # Only smaller batches there: no ratio.
    result["torch"] = {"gpt2-124m": torch([ours(8, 88.0)], [])}
    gpu_check.compare(result)
    assert "ratio" not in found and "beside" not in found


def check_median(folder):
    """A time that is not of graph steps is refused."""
    class Options:
        minutes, only, call, build, copy = 1, None, None, None, None

    check = gpu_check.Check(Options, folder, folder)
    summary = {"median-of": {"kind": "graphs", "steps": gpu_check.GRAPH_STEPS},
               "graphs-per-step": 1}
    options, problem = [], ""

    def train(program, log, limit, steps, *more, env):
        if problem and "--no-cuda-graph" not in more:
            raise gpu_check.Failed(problem)
        options.extend(more)
        assert env["GRT_CUDA_CHOICES"] == str(folder / "choices.txt")
        (folder / f"{program.stem}.json").write_text(json.dumps(summary))

    check.train = train
    case = ("gpt2-124m", 16, 1, "single")
    assert check.measure(case, 5) == summary
    assert "--trace-steps=0" in options
    for of in ({"kind": "graphs", "steps": 3}, {"kind": "calls", "steps": 50}):
        summary["median-of"] = of
        try:
            check.measure(case, 5)
            raise AssertionError(of)
        except gpu_check.Failed as why:
            assert "graph steps" in str(why)
    summary["graphs-per-step"] = 2
    try:
        check.measure(case, 5)
        raise AssertionError(summary)
    except gpu_check.Failed as why:
        assert "one graph, found 2" in str(why)
    # A graph that cannot be made: calls, and it is said.
    problem = "cudaStreamEndCapture: no; --no-cuda-graph runs without"
    summary["median-of"]["kind"] = "calls"
    assert check.measure(case, 5)["without-graphs"] == problem
    problem = "rank 0: cannot allocate 9 bytes"
    assert check.measure(case, 5) is None and problem in check.unfit.values()


def check_speed(folder):
    """The best batch is tried with cuDNN's attention too, where time is left."""
    class Options:
        minutes, only, call, build, copy = 1, None, None, None, None

    check = gpu_check.Check(Options, folder, folder)
    (folder / "gpt2-124m.json").write_text("{}")
    asked = []

    def measure(case, limit, attention=""):
        asked.append((case[1], attention))
        rate = case[1] + (5 if attention else 0)
        return None if case[1] == 64 else {"tokens-per-second": rate}

    check.measure = measure
    assert check.speed("gpt2-124m")(None, 30) == \
        "32 tokens/s at batch 32, 37 by cuDNN's attention"
    assert asked == [(16, ""), (32, ""), (64, ""), (64, ""), (32, "cudnn")], asked
    assert check.speed("gpt2-124m")(None, 10) == "32 tokens/s at batch 32"
    # Neither fits, and it is said why.
    check.measure = lambda *_: check.unfit.update({"gpt2-124m-b16": "9 bytes"})
    try:
        check.speed("gpt2-124m")(None, 30)
        raise AssertionError("no batch")
    except gpu_check.Failed as why:
        assert "no batch fits" in str(why) and "9 bytes" in str(why), why


def check_choices(folder):
    """Which bits a run must have under one file, and behind a checkpoint."""
    class Options:
        minutes, only, call, build, copy = 1, None, None, None, None

    def found(wrong=""):
        out = folder / f"choices-{wrong}"
        out.mkdir()
        check = gpu_check.Check(Options, out, folder)
        runs = []

        def train(program, log, limit, steps, *more, env=None):
            runs.append(steps)
            chosen = env is not None or "--resume" in more
            file = out / "narrow-choices"
            if env and wrong != "unwritten":
                assert env["GRT_CUDA_CHOICES"] == str(file)
                again = len(runs) if wrong == "again" else 0
                file.write_text(f"# products of a library\n1 2 3 = {again}\n")
            values = [step * (0.5 if chosen else 0.25)
                      for step in range(steps)]
            if "--resume" in more:
                values = values[steps // 2:]
            if wrong == f"run {len(runs)}":
                values[-1] += 1
            options = dict(option.lstrip("-").split("=") for option in more
                           if "=" in option)
            with open(options["log"], "w") as log:
                log.writelines(json.dumps({"loss": value}) + "\n"
                               for value in values)
            if "checkpoint" in options and "--resume" not in more:
                at = out / "choices" / "step-4"
                at.mkdir(parents=True)
                state = {} if wrong == "left" else {"kernel-choices": "some"}
                (at / "checkpoint.json").write_text(
                    json.dumps({"training": state}))

        check.train = train
        try:
            note = check.choices(out / "log", 5)
        except gpu_check.Failed as why:
            return str(why)
        assert check.result["choices"] == {
            "products": 1, "by-default": False, "same-bits": True,
            "resumed-same-bits": True}, check.result
        return note

    assert found() == "1 products, others than the library's first"
    for wrong, said in (("unwritten", "nothing was tried"),
                        ("again", "chosen again"), ("run 2", "different losses"),
                        ("left", "no choices"), ("run 4", "other losses")):
        assert said in found(wrong), wrong


def check_predictions(folder):
    """A GPU that is twice as fast halves what the planner expects."""
    for name, (model, _) in gpu_check.SPEED.items():
        (folder / f"{name}.json").write_text(json.dumps(model))
    found = []
    for scale in (1, 2):
        cluster = gpu_check.CLUSTER.format(devices=1)
        cluster = cluster.replace("500TFLOPS", f"{500 * scale}TFLOPS")
        cluster = cluster.replace("3TB/s", f"{3 * scale}TB/s")
        model, batch, micro_batches, strategy = gpu_check.PREDICTED[5]
        result = {"seconds": 1, "parts": [], "cluster": cluster, "steps": {"rows": [{
            "model": model, "batch": batch, "micro-batches": micro_batches,
            "strategy": strategy, "measured-ms": 100.0, "planned-peak-bytes": 2 << 30,
            "measured-peak-bytes": 2 << 30, "device-peak-bytes": None,
            "start-up-seconds": 1.0}]}}
        gpu_check.predict(folder, result, folder)
        row = json.loads((folder / "result.json").read_text())["steps"]["rows"][0]
        assert abs(row["error"] - (row["predicted-ms"] / 100 - 1)) < 1e-12
        assert "mean error" in (folder / "result.md").read_text()
        found.append(row["predicted-ms"])
    assert found[0] > 1 and abs(found[0] / found[1] - 2) < 0.01, found


def nccl_check(folder, out):
    """The parts of NCCL on one card, of a check whose tools are in folder/bin."""
    class Options:
        minutes, only, call, copy, nccl = 5, None, None, None, None
        build = str(folder)

    check = gpu_check.Check(Options, out, folder)
    return check, gpu_check.nccl_on_one_card.NcclOnOneCard(
        check, None, (gpu_check.Failed, gpu_check.Skipped),
        gpu_check.largest_difference)


def tool(folder, text):
    """A galvatron-run of tests."""
    path = folder / "bin/galvatron-run"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def check_nccl_programs():
    module = gpu_check.nccl_on_one_card
    assert module.programs(0) == [
        "2-tp", "2-sdp", "2-pp", "4-tp", "4-sdp", "4-pp", "4-tp-dp", "8-tp", "8-sdp",
        "8-pp", "8-tp-dp"]
    assert module.programs(1)[:4] == ["2-dp", "2-zdp", "2-sdp-ckpt", "4-dp"]
    assert module.strategies(8)[1][-1] == ("pp-tp", 2, "tp4")
    assert module.version_text(23007) == "2.30.7" and not module.version_of("/none")


def check_nccl_kills(folder):
    """A killed process, on CPU ranks, and a deadline, of a tool that says so."""
    folder.mkdir()
    binaries = pathlib.Path(os.environ["GALVATRON_BIN"])
    (folder / "bin").symlink_to(binaries)
    (folder / "nccl").mkdir()
    shutil.copy(pathlib.Path(gpu_check.ROOT / "README.md"), folder / "text.txt")
    (folder / "twin.json").write_text(json.dumps(gpu_check.TWIN))
    gpu_check.run([binaries / "galvatron-compile", folder / "twin.json",
                   "--seq-len=32", "--cluster=2xcpu", "--batch=16",
                   "--pipeline-degree=1", "--strategy=dp2", "-o",
                   folder / "nccl/2-dp.gvx"], folder / "log")
    gpu_check.nccl_on_one_card.KILLS = 2
    out = folder / "out"
    out.mkdir()
    check, parts = nccl_check(folder, out)
    note = parts.abort(None, 60)
    assert note.startswith("2 runs ended in at most "), note
    assert len(check.result["nccl-on-one-card"]["seconds-to-end-after-a-kill"]) == 2
    (out / "0.log").write_text("no GPU")
    assert failure(lambda: parts.kill_one([], out, 0)) == "did not train: no GPU"

    stubs = folder / "stubs"
    stubs.mkdir()
    join = 'test $RANK = 0 || { touch "${NCCL_DEBUG_FILE%%.*}.$$"; exec sleep 30; }\n'
    says = "echo NCCL has not connected 2 ranks in 3 s\nexit 1\n"
    for script, expected in ((join + "sleep 0.3\n" + says, None),
                             (join + "sleep 0.3\necho lost\nexit 4\n", "another end"),
                             ("exit 1\n", "NCCL was not joined")):
        tool(stubs, "#!/bin/sh\n" + script)
        _, parts = nccl_check(stubs, out)
        if expected:
            assert expected in failure(lambda: parts.deadline(None, 12)), expected
        else:
            assert parts.deadline(None, 12).startswith("ended in 0.")


def failure(body):
    try:
        body()
    except gpu_check.Failed as why:
        return str(why)
    raise AssertionError("it did not fail")


def check_nccl_ways(folder):
    """What hangs is tried another way, once for each number of ranks."""
    folder.mkdir()
    for name in ("1-single", "2-tp", "2-sdp"):
        (folder / "nccl").mkdir(exist_ok=True)
        (folder / f"nccl/{name}.gvx").touch()
    tool(folder, r"""#!/usr/bin/env python3
import json, os, sys
options = dict(a.split("=", 1) for a in sys.argv[2:] if "=" in a)
name = os.path.basename(sys.argv[1])
one = name.startswith("1-")
if not one and (os.environ.get("NCCL_P2P_DISABLE") != "1"
                or os.environ["GRT_CUDA_COLLECTIVES"] != "nccl"):
    sys.exit("galvatron-run: error: rank 0 makes no progress")
with open(options["--log"], "w") as log:
    for step in range(int(options["--steps"])):
        wrong = name == "2-sdp.gvx" and "--no-cuda-graph" in sys.argv
        log.write(json.dumps({"loss": 5.0 + (1e-3 if wrong else 0)}) + "\n")
""")
    check, parts = nccl_check(folder, folder)
    said = failure(lambda: parts.threads(folder / "log", 60, 0))
    assert said == "1 of 4: 2-sdp calls: losses differ by 0.0002", said
    rows = check.result["nccl-on-one-card"]["programs"]
    assert rows["2-tp graphs"] == 0 and rows["2-tp calls"] == 0, rows
    assert parts.way == {2: gpu_check.nccl_on_one_card.WAYS[2]}


def check_nccl_watched(folder, watched, fakes):
    """The whole of it on the libraries of tests: threads through NCCL."""
    folder.mkdir()
    binaries = pathlib.Path(os.environ["GALVATRON_BIN"])
    for name in ("bin", "lib"):
        (folder / name).mkdir()
    shutil.copy(binaries / "galvatron-run", folder / "bin")
    for path in (binaries.parent / "lib").glob("libgrt*.so"):
        (folder / "lib" / path.name).symlink_to(path)
    # The loader takes what stands beside the library that was linked.
    (folder / "lib/libgrt.so").unlink()
    shutil.copy(binaries.parent / "lib/libgrt.so", folder / "lib")
    (folder / "lib/libgrt_cuda.so").unlink(missing_ok=True)
    (folder / "lib/libgrt_cuda.so").symlink_to(watched)
    module = gpu_check.nccl_on_one_card
    prepare = gpu_check.Prepare(folder, True, None, fakes / "libnccl.so.2")
    module.carry_library(prepare.nccl, folder / "nccl")
    module.strategies = lambda ranks: (
        [("tp", 1, f"tp{ranks}")] if ranks == 2 else [], [])
    module.compile_programs(prepare, prepare.write("twin.json", gpu_check.TWIN))
    shutil.copy(gpu_check.ROOT / "README.md", folder / "text.txt")
    lines = module.sizes(folder)
    assert lines[0].startswith("NCCL: 0.") and lines[3].startswith("all: "), lines
    out = folder / "out"
    out.mkdir()
    os.environ["GRT_CUDA_LIBRARIES"] = str(fakes)
    check, parts = nccl_check(folder, out)
    # What was carried is unpacked; its own libraries stand elsewhere here.
    parts.first_line()
    assert parts.library(None, 40) == "2.30.7"
    assert "NCCL of this machine: " in (out / "summary.txt").read_text()
    assert parts.threads(out / "log", 60, 0) == "2 runs within 1e-5"
    said = (out / "log").read_text()
    assert "collectives: NCCL 2.30.7 of" in said, said
    check_graphs_or_calls(folder)


def check_graphs_or_calls(folder):
    """scripts/graphs-or-calls, on steps that are graphs with NCCL in them."""
    program = sorted((folder / "nccl").glob("**/*.gvx"))[0]
    command = [folder / "bin/galvatron-run", program,
               f"--data={folder / 'text.txt'}", "--steps=8", "--share-gpus"]
    done = subprocess.run(
        [gpu_check.ROOT / "scripts/graphs-or-calls", "--repeats=1",
         f"--folder={folder / 'graphs-or-calls'}", "--", *command],
        env={**os.environ, "GRT_CUDA_COLLECTIVES": "nccl"}, capture_output=True,
        text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 3, (done.stdout, done.stderr)
    assert lines[0].startswith("as graphs: "), lines
    assert lines[1].startswith("call by call: "), lines


with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    check_gradients(folder)
    check_limits(folder)
    check_calls()
    check_comparison(folder)
    check_median(folder)
    check_speed(folder)
    check_choices(folder)
    check_predictions(folder)
    check_nccl_programs()
    check_nccl_ways(folder / "ways")
    check_nccl_kills(folder / "kills")
    given = dict(option.split("=", 1) for option in sys.argv[2:])
    if "--watched" in given:
        check_nccl_watched(folder / "watched", pathlib.Path(given["--watched"]),
                           pathlib.Path(given["--fakes"]))
