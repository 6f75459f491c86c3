"""benchmarks/prediction/published on rows that are made up: what it says of times,
order, effects and memory, where the answer is known."""

import argparse
import copy
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "prediction"

MODELS = {"toy": {"layers": 8, "hidden": 1024, "heads": 16, "kv_heads": 16,
                  "ffn": 4096, "vocab": 32000, "gated_mlp": False}}
COMMON = {"model": "toy", "seq_len": 1024, "gpu": "A100-SXM4-80GB", "gpus": 8,
          "gpus_per_node": 8, "cluster": "lab", "precision": "bf16", "gbs": 64,
          "mbs": 2, "tp": 1, "pp": 1, "dp": 8, "dp_mode": "ddp",
          "schedule": "none", "recompute": "none"}
ROWS = {
    "plain": {},
    "larger": {"mbs": 8},
    "recomputed": {"recompute": "full"},
    "tensor": {"tp": 8, "dp": 1, "dp_mode": "none"},
    "staged": {"pp": 4, "dp": 2, "schedule": "1f1b"},
}
HUGE = {"mbs": 512, "gbs": 4096}


def write(folder, rows, all_reduce=()):
    published = pathlib.Path(folder) / "published"
    published.mkdir(exist_ok=True)
    (published / "hardware.json").write_text(json.dumps(
        {"clusters": {"lab": {"inter_gbits_per_node": 800}},
         "all_reduce": list(all_reduce)}))
    (published / "made_up.json").write_text(json.dumps(
        {"common": COMMON, "models": MODELS, "rows": rows}))


def run(options, folder, more=()):
    done = subprocess.run(
        [sys.executable, FOLDER / "published", "--rows", "--oracles=" + folder,
         "--bin=" + options.bin, *more], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def predicted(text):
    """Milliseconds of every row."""
    return {name: float(ms) for name, ms in re.findall(
        r"\| made_up (\w+) \| [^|]* \| [^|]* \| ([\d.]+) \|", text)}


def measured(times, memory=None):
    rows = []
    for name, ms in times.items():
        row = dict(ROWS[name], id=name, derived={"iter_time_s": ms / 1e3})
        if memory:
            row["measured"] = {"memory_gb": memory[name]}
        rows.append(row)
    return rows


def expect(text, line):
    if line not in text:
        sys.exit(f"expected {line!r} in\n{text}")


def effects_and_memory(options):
    with tempfile.TemporaryDirectory() as folder:
        write(folder, measured(dict.fromkeys(ROWS, 1000.0), dict.fromkeys(ROWS, 1)))
        first = run(options, folder)
        times = predicted(first)
        if set(times) != set(ROWS):
            sys.exit(f"expected all rows priced, found {times} in\n{first}")
        peaks = {name: float(ratio) for name, ratio in re.findall(
            r"\| made_up (\w+) \|(?:[^|]*\|){4} ([\d.]+) \|$", first, re.M)}

        # Published as predicted.
        rows = measured(times, peaks)
        rows.append(dict(HUGE, id="huge", measured={"oom": True}))
        rows.append({"id": "small", "measured": {"oom": True}})
        write(folder, rows)
        text = run(options, folder)
        expect(text, "| a larger micro-batch | made_up | 1 | 1 | 1 | 1 |")
        expect(text, "| full recomputation | made_up | 1 | 1 | 1 | 1 |")
        expect(text, "| more TP for DP in a node | made_up | 1 | 1 | 1 | 1 |")
        expect(text, "| stages for DP | made_up | 1 | 1 | 1 | 1 |")
        worst = re.search(r"outside vtrain \| 5 \| [\d.]+% \| ([\d.]+)% \|", text)
        if not worst or float(worst[1]) > 0.2:  # milliseconds have one digit
            sys.exit(f"expected times as predicted in\n{text}")
        mean = float(re.search(r"Memory: 5 rows, mean error ([\d.]+)%", text)[1])
        if mean > 1:  # ratios are printed with two digits
            sys.exit(f"expected the memory that was printed, found {mean}%")
        expect(text, "Out of memory: 1 of 2 rows that did not fit are predicted "
                     "not to; 0 of 5 that ran")

        expect(text, "| made_up | 1 | 1 | 1 | 0.0% |")

        # All-reduces that were measured replace the ring's.
        slow = {"gpu": "A100-SXM4 (NVSwitch node)", "gpus": 8,
                "rows_bytes_us_busbw": [[1 << 20, 1e5, 0], [1 << 24, 1e5, 0]]}
        write(folder, measured(times), [slow])
        slower = predicted(run(options, folder))
        if slower["tensor"] < 10 * times["tensor"]:
            sys.exit(f"expected slow all-reduces, found {slower} ms after {times}")

        # Recomputation that costs three times as much, and TP that gains.
        wrong = dict(times)
        plain = wrong["plain"]
        wrong["recomputed"] = plain * (times["recomputed"] / plain) ** 3
        wrong["tensor"] = plain * plain / times["tensor"]
        write(folder, measured(wrong))
        text = run(options, folder)
        expect(text, "| full recomputation | made_up | 1 | 1 | 1 | 0 |")
        expect(text, "| more TP for DP in a node | made_up | 1 | 1 | 0 | 0 |")
        # TP was the fastest then, and the larger micro-batch is chosen.
        expect(text, "| pp1 tp8, 2 a micro-batch | pp1 dp8, 8 a micro-batch |")


def second_collection(options):
    """Flat rows with parts of samples; those that nothing expresses are named."""
    plain = {"id": "plain", "model": "Llama3-70B cut to 12 layers", "gpu": "B200",
             "n_gpus": 8, "tp": 2, "pp": 1, "cp": 1, "dp": 4, "zero": 1, "sp": True,
             "precision": "bf16", "seq": 8192, "global_batch": 8, "micro_batch": 1,
             "metric": "step_time_ms", "value": 1000.0, "features": [],
             "note": "peak allocated 40.0 GiB"}
    rows = [plain, dict(plain, id="parts", cp=4, dp=1),
            dict(plain, id="experts", experts=8), dict(plain, id="low", precision="FP8"),
            dict(plain, id="other", model="unheard of"),
            # In bf16, on a page about fp8; states that two of four ranks share.
            dict(plain, id="named", source="docs/fp8/README.md"),
            dict(plain, id="groups", also={"zero1_group": 2})]
    # Degrees and recomputation that follow from the rest.
    del rows[-2]["tp"], rows[-2]["pp"]
    rows[-2].update(dp=8, zero=3)
    del rows[-1]["dp"]
    with tempfile.TemporaryDirectory() as folder:
        write(folder, [])
        (pathlib.Path(folder) / "published3").mkdir()
        (pathlib.Path(folder) / "published3" / "simumax_b200.json").write_text(
            json.dumps(rows))
        table = pathlib.Path(folder) / "runs.csv"
        text = run(options, folder, ["--second", f"--table={table}"])
        expect(text, "| simumax_b200 plain | pp1 zdp4.tp2 | 1000.0 |")
        expect(text, "| simumax_b200 parts | pp1 zdp4.tp2 | 1000.0 |")
        expect(text, "Left out: experts 1, precision FP8 1, model unheard of 1.")
        expect(text, "| simumax_b200 named | pp1 sdp8 | 1000.0 |")
        expect(text, "| simumax_b200 groups | pp1 zdp4.tp2 | 1000.0 |")
        expect(text, "Memory: 4 rows")
        states = re.findall(r"\| simumax_b200 (plain|groups) \|.*\| ([\d.]+) \|", text)
        if not float(states[1][1]) > 1.1 * float(states[0][1]):
            sys.exit(f"expected more states of a group than of all, found {states}")
        lines = [line.split(",") for line in table.read_text().splitlines()[2:]]
        if [line[11] for line in lines] != ["1", "4", "1", "1"]:
            sys.exit(f"expected parts of samples in the table, found {lines}")
        subprocess.run([sys.executable, FOLDER / "published",
                        f"--check-table={table}"], check=True)


def load(name):
    """A module of the benchmark, which finds those beside it."""
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def requests_of_sources():
    """What is asked of galvatron-plan for a source's row."""
    software = load("software")
    row = {"precision": "bf16 (fp32 gradient accumulation)"}
    for wanted, found in (
            ("execution:fused", software.request("another", {})),
            ("execution:fms-fsdp,fuses-norms=off",
             software.request("fms_fsdp", {"options": []})),
            ("execution:deepspeed-bloom,half-gradients=off,"
             "gradient-copies=stay,wait-us=50",
             software.request("bloom_176b", row, [("wait-us", "50")]))):
        if found != wanted:
            sys.exit(f"expected {wanted}, found {found}")
    if (software.constant("launch-us"), software.constant("products", "h200")) != (
            19, 0.83):
        sys.exit("expected the constants of Executions.yaml")
    second = load("second")
    leaves = second.filled("torchao_torchtitan_fp8", {"dp": 4, "n_gpus": 4})
    if leaves != {"dp": 4, "n_gpus": 4, "tp": 1, "pp": 1, "recompute": "selective_op"}:
        sys.exit(f"expected what llama3_8b() has, found {leaves}")
    constants = load("constants")
    if constants.changed({"gpu": "H100-SXM5-80GB"}):
        sys.exit("expected constants as they are")
    constants.FITTED["attention, A100"] = 0.5
    changed = [constants.changed({"gpu": gpu}) for gpu in (
        "A100-SXM4-80GB", "H100-SXM5-80GB")]
    constants.FITTED["attention, A100"] = constants.USUAL["attention, A100"]
    if changed != [[("attention", "0.5")], []]:
        sys.exit(f"expected a constant of one card, found {changed}")


def fitting():
    """A constant that made-up rows were made with is found in each half of
    them, and predicts the other."""
    constants = load("constants")
    true = {name: value * 1.15 for name, value in constants.FITTED.items()}
    cards = {"llm_foundry_mpt": ("A100-SXM4-80GB", "H100-SXM5-80GB")}
    tasks = [(source, {"gpu": card, "id": index})
             for source in ("llm_foundry_mpt", "bloom_176b", "vtrain",
                            "megatron_sc21")
             for card in cards.get(source, ("A100-SXM4-80GB",))
             for index in range(4)]

    def price(rows):
        for source, row in rows:
            ratio = 1
            for name, (of, card) in constants.ROWS_OF.items():
                if of == source and row["gpu"].startswith(card):
                    ratio *= constants.FITTED[name] / true[name]
            yield ratio

    one = ("vtrain", "megatron_sc21")  # sources with one constant
    for found, judged in constants.validate(tasks, price):
        off = [name for name, (source, _) in constants.ROWS_OF.items()
               if source in one and abs(found[name] / true[name] - 1) > 1e-9]
        wrong = [ratio for source, ratio in judged
                 if source in one and abs(ratio - 1) > 1e-9]
        if off or wrong or len(judged) != len(tasks) // 2:
            sys.exit(f"expected the constants of the rows, found {found} and "
                     f"{judged}")
    if constants.FITTED == true or constants.FITTED["launch"] * 1.15 != true[
            "launch"]:
        sys.exit("expected constants as they were before")


def judgement():
    effects = load("effects")
    # Too small to count; right; the other way; twice the size.
    found = effects.judge([(1.04, 0.9), (1.5, 1.55), (0.8, 1.1), (1.2, 1.45)])
    if found != (3, 2, 1):
        sys.exit(f"expected 3 pairs, 2 their way, 1 close, found {found}")
    row = copy.deepcopy(COMMON)
    if effects.alike(row, dict(row, tp=2, dp=4), ("tp",)):
        sys.exit("expected rows of another degree of DP to be told apart")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True)
    options = parser.parse_args()
    requests_of_sources()
    judgement()
    fitting()
    effects_and_memory(options)
    second_collection(options)


if __name__ == "__main__":
    main()
