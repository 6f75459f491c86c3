"""The software that ran published rows, as an execution that galvatron-plan has.

The planner prices its own runtime. What others printed was reached, and
allocated, by theirs; lib/Software/Executions.yaml says in what theirs differs,
with the source of each fact. Here stands which of them a source of rows is, by
source and never by row, and what a row itself prints of it.
"""

import pathlib
import re

import second

GIB = 2**30
ROOT = pathlib.Path(__file__).resolve().parents[2]

# Others are "fused".
EXECUTIONS = {
    **second.EXECUTIONS,
    "megatron_2020": "megatron-2020",
    "megatron_sc21": "megatron-sc21",
    "korthikanti_2022": "megatron-2022",
    "mt_nlg_530b": "megatron-bf16-2022",
    "vtrain": "megatron-2020",
    "zero_bubble": "megatron-zero-bubble",
    "bigscience_1b3": "deepspeed-2021",
    "bloom_176b": "deepspeed-bloom",
    "alpa_gpt": "alpa",
    "nanotron": "nanotron",
    "fms_fsdp": "fms-fsdp",
    "torchtitan": "torchtitan",
    "megatron_core_h100": "megatron-core",
    "nvidia_dgxc": "megatron-core",
    "nvidia_nemo": "megatron-core",
}
# Sources that print memory in units of 2^30 bytes; others of 10^9.
BINARY_UNITS = ("bigscience_1b3", "bloom_176b", "alpa_gpt", "nanotron")
# Sources whose stages are cut by work, which the execution does.
CUT_BY_WORK = ("nanotron",)

# Sources that do not print the schedule of some rows: what is assumed where such
# a row is one of a pair. It counts nowhere else.
ASSUMED_SCHEDULE = {"megatron_sc21": "1f1b"}

# Recomputation of a part, as --for has it.
RECOMPUTATIONS = {"selective": "attention", "selective_op": "operations",
                  "selective_alternate_layers": "every-2"}


def printed_facts(source, row):
    """What the row prints of its software, and of its plan besides what a strategy
    says, as options of the execution."""
    facts = {}
    if "fp32 gradient accumulation" in (row.get("precision") or ""):
        # DeepSpeed's BF16_Optimizer: flat gradients in f32, which are all-reduced
        # (pipe/engine.py); the pipeline adds 16-bit ones behind a backward pass
        # and clears them before the next.
        facts.update({"half-gradients": "off", "gradient-copies": "stay"})
    if "usual all-reduce synchronisation" in (row.get("table") or ""):
        facts["stages-meet"] = "on"
    if (EXECUTIONS.get(source) in ("fms-fsdp", "torchtitan")
            and "compile" not in (row.get("options") or ())):
        facts["fuses-norms"] = "off"
    if (row.get("fsdp_mode") == "PURE"
            or row.get("gradient_reduce_precision") == "bf16"):
        facts["half-gradients"] = "on"
    # The hidden share was fitted to Transformer Engine's user buffers; nothing is
    # known of torchtitan's asynchronous tensor parallelism.
    if row.get("tp_overlap") and source != "torchtitan":
        facts["overlaps-tensor"] = "on"
    if (row.get("cp") or 1) > 1:
        facts["context-parallel"] = row["cp"]
    if row.get("states_group"):
        facts["states-group"] = row["states_group"]
    if row.get("ulysses"):
        facts["context-way"] = "exchange"
    # torchtitan's tensor parallelism cuts rows unless it is told otherwise.
    if (row.get("sequence_parallel")
            or EXECUTIONS.get(source) == "torchtitan" and row["tp"] > 1):
        facts["sequence-parallel"] = "on"
    if row.get("recompute") in RECOMPUTATIONS:
        facts["recompute"] = RECOMPUTATIONS[row["recompute"]]
    if (EXECUTIONS.get(source) == "torchtitan"
            and "compile" in (row.get("options") or ())):
        # The compiled loss (components/loss.py, 2025) keeps the 16-bit logits
        # and writes their gradient.
        facts["logit-bytes"] = 4
    return facts


def request(source, row, constants=()):
    """The value of --for; `constants` are pairs of further facts."""
    name = EXECUTIONS.get(source, "fused")
    facts = [*printed_facts(source, row).items(), *constants]
    return ",".join([f"execution:{name}",
                     *(f"{fact}={value}" for fact, value in facts)])


def printed(row, source):
    """Bytes of the memory figure that the row prints; None where it has none."""
    measured = row.get("measured") or {}
    if "memory_gib" in measured:
        return measured["memory_gib"] * GIB
    if "memory_gb" in measured:
        return measured["memory_gb"] * (GIB if source in BINARY_UNITS else 1e9)
    return None


def constant(fact, card=""):
    """A constant of Executions.yaml, of a table by the card's name."""
    text = (ROOT / "lib" / "Software" / "Executions.yaml").read_text()
    line = re.search(rf"(?ms)^  {fact}: (\{{.*?\}}|[\d.]+)$", text)[1]
    if line.startswith("{"):
        return float(re.search(rf"\b{card}: ([\d.]+)", line)[1])
    return float(line)
