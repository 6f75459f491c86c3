"""The second collection of published runs, as benchmarks/prediction/published has
rows: flat objects become a row with its model's sizes, cards and step. Nothing is
fitted to them. What no execution expresses keeps the words by which it is left out."""

import json
import re

LLAMA = {"heads": 32, "kv_heads": 8, "vocab": 128256, "gated_mlp": True}
# Sizes by the collection's names, from the models' configurations.
MODELS = {
    "Llama3-8B": {**LLAMA, "layers": 32, "hidden": 4096, "ffn": 14336},
    "Llama3-70B cut to 12 layers": {**LLAMA, "layers": 12, "hidden": 8192,
                                    "heads": 64, "ffn": 28672},
    "Llama3 70B": {**LLAMA, "layers": 80, "hidden": 8192, "heads": 64,
                   "ffn": 28672},
    "Llama3-405B cut to 4 layers": {**LLAMA, "layers": 4, "hidden": 16384,
                                    "heads": 128, "ffn": 53248},
    "Qwen2.5-7B": {**LLAMA, "layers": 28, "hidden": 3584, "heads": 28,
                   "kv_heads": 4, "ffn": 18944, "vocab": 152064},
    "InternLM-7B": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32,
                    "ffn": 11008, "vocab": 103168, "gated_mlp": True},
    "qwen3-8b": {**LLAMA, "layers": 36, "hidden": 4096, "ffn": 12288,
                 "vocab": 151936},
    "Qwen3-32B": {**LLAMA, "layers": 64, "hidden": 5120, "heads": 64,
                  "head_width": 128, "ffn": 25600, "vocab": 151936},
}
MODELS["Qwen3-8B"] = MODELS["qwen3-8b"]
MODELS["Qwen2.5-7B-Instruct"] = MODELS["Qwen2.5-7B"]
# The name of weights in fp8, which one of two runs trained in bf16.
MODELS["Qwen3-14B-FP8"] = {**LLAMA, "layers": 40, "hidden": 5120, "heads": 40,
                           "head_width": 128, "ffn": 17408, "vocab": 151936}
# Cards, as `published` calls them; 184 GiB are a GB200's.
CARDS = {"H100": "H100-SXM5-80GB", "H100 (95 GiB)": "H100-SXM-96GB",
         "A100-80GB": "A100-SXM4-80GB", "B200": "B200-SXM-180GB",
         "B200 (power limited)": "B200-SXM-180GB", "H20": "H20-SXM-96GB",
         "GB200/B200 class (184 GiB)": "GB200-186GB"}
# Cards of rows that print memory alone: what they compute does not matter.
MEMORY_CARDS = {**CARDS,
                "80GB class (A800/H800, not printed)": "A100-SXM4-80GB"}
EXECUTIONS = {"internevo": "internevo", "simumax_b200": "megatron-core",
              "megatron_bridge_cards": "megatron-core", "ms_swift": "megatron-core",
              "torchao_torchtitan_fp8": "torchtitan", "threads_cp_moe": "torchtitan"}
# Sources whose rows have the allocator's peak in bytes of 10^9, which their
# software prints as what it reserved.
RESERVED = ("torchao_torchtitan_fp8",)
RECOMPUTATIONS = {"alternate layers": "selective_alternate_layers"}
# Gbit/s a node, where the source prints it.
NETWORKS = {"internevo": 400}
SHARDING = {None: "ddp", 0: "ddp", 1: "zero1", 3: "zero3"}


def memory_alone(row):
    """Whether memory is all that a row prints."""
    return str(row.get("metric")).startswith("peak_memory")


def step_seconds(row):
    """Of what the row prints; None where that is no step."""
    value = row.get("value")
    if row.get("metric") == "step_time_ms":
        return value / 1e3
    if row.get("metric") == "step_time_s":
        return value
    if row.get("metric") == "tokens_per_s_per_gpu" and row.get("global_batch"):
        return row["seq"] * row["global_batch"] / (value * row["n_gpus"])
    return None


def filled(source, row):
    """The row with what follows from the rest of it: degrees whose product is the
    number of cards, and torchtitan's recomputation where the command that is
    printed leaves it as llama3_8b() has it."""
    row = dict(row)
    if row.get("dp") == row.get("n_gpus") is not None:
        row = {**{"tp": 1, "pp": 1}, **row}
    if row.get("tp") and row.get("pp") and row.get("n_gpus"):
        parts = row["tp"] * row["pp"] * (row.get("cp") or 1)
        row.setdefault("dp", row["n_gpus"] // parts)
    if EXECUTIONS.get(source) == "torchtitan":
        row.setdefault("recompute", "selective_op")
    return row


def reason(row):
    """Why no execution expresses a row, before its sizes are looked at."""
    features = row.get("features") or ()
    if row.get("experts") or (row.get("ep") or 1) > 1 or "moe" in features:
        return "experts"
    if "component" in features or row.get("metric") in ("attention_ms", "gemm_ms_per_layer"):
        return "parts of a step"
    if (row.get("ulysses") or 1) > 1 and (row.get("cp") or 1) > 1:
        return "Ulysses and a ring"
    if not str(row.get("precision")).startswith("bf16"):
        return "precision " + str(row.get("precision"))
    if "offload" in features or row.get("offload"):
        return "offloading"
    if "LoRA" in (row.get("note") or ""):
        return "adapters"
    if "label muon" in (row.get("note") or ""):
        return "optimizer Muon"
    if row.get("gpu") not in (MEMORY_CARDS if memory_alone(row) else CARDS):
        return "device type " + str(row.get("gpu"))
    if row.get("model") not in MODELS:
        return "model " + str(row.get("model"))
    if "recompute in the example" in (row.get("note") or ""):
        return "recomputation not printed"
    if any(row.get(key) is None for key in ("tp", "pp", "dp", "seq", "global_batch",
                                            "micro_batch")):
        return "degrees or batch not printed"
    if step_seconds(row) is None and not memory_alone(row):
        return "no step printed"
    return None


def converted(source, row):
    """The row as the first collection has it."""
    data = row["dp"]
    measured = {"iter_time_s": step_seconds(row)}
    peak = re.search(r"peak allocated ([\d.]+) GiB", row.get("note") or "")
    if peak:
        measured["memory_gib"] = float(peak[1])
    elif (source in RESERVED or memory_alone(row)) and "memory_gb" in row:
        measured["memory_gb"] = row["memory_gb"]
    group = (row.get("also") or {}).get("zero1_group")
    stages = row["pp"]
    return {
        "id": row["id"], "model": row["model"], "model_shape": MODELS[row["model"]],
        "gpu": MEMORY_CARDS[row["gpu"]], "gpus": row["n_gpus"], "gpus_per_node": 8,
        "cluster": None, "source": source, "precision": row["precision"], "seq_len": row["seq"],
        "gbs": row["global_batch"], "mbs": row["micro_batch"], "tp": row["tp"],
        "pp": stages, "dp": data, "cp": (row.get("cp") or 1) * (row.get("ulysses") or 1),
        "ulysses": (row.get("ulysses") or 1) > 1,
        "vpp": row.get("vp") or 1,
        "dp_mode": SHARDING.get(row.get("zero"), "zero2"),
        "schedule": "none" if stages == 1 else "1f1b",
        "recompute": RECOMPUTATIONS.get(row.get("recompute"),
                                        row.get("recompute") or "none"),
        "states_group": group if isinstance(group, int) else None,
        "sequence_parallel": row.get("sp") or False,
        "options": [] if "eager" in str(row) else ["compile"],
        "memory_alone": memory_alone(row),
        "measured": measured, "derived": {"iter_time_s": measured["iter_time_s"]}}


def rows(folder):
    """(source, row, None) or (source, row as it stands, why it is left out)."""
    for path in sorted(folder.glob("*.json")):
        for row in json.loads(path.read_text()):
            row = filled(path.stem, row)
            why = reason(row)
            yield path.stem, row if why else converted(path.stem, row), why
