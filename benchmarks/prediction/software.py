"""The software that ran published rows, as far as times and memory depend on it.

The planner prices its own runtime. What others printed was reached, and
allocated, by theirs; the facts below say in what theirs differs, by source and
never by row, each with where it is from. Three kinds:

* facts of the software (what it stores in which type, what it keeps);
* facts of what was printed (the allocator's peak, or what the card shows);
* whether one of the constants fitted to these rows (constants.py) is of it.
"""

import typing

from constants import ALLOCATOR_RESERVE, CONTEXT, GIB

# What the built-in types keep back for contexts (lib/Cluster/DeviceTypes.yaml).
RESERVED = 1.3 * GIB


class Software(typing.NamedTuple):
    """What a program keeps, and what its memory figures are."""
    # Attention's scores are stored, before fused attention was usual.
    keeps_scores: bool = False
    # Fused attention is FlashAttention 2 (2023), not its predecessor.
    flash_2: bool = False
    # Norms and rotary embeddings are kernels of their own; False: every
    # operation of them is one, in f32.
    fuses_norms: bool = True
    # The host launches kernels one by one and runs ahead of the card.
    launches: bool = False
    # The host waits for every kernel.
    waits: bool = False
    # Gradients are summed, and parameters gathered, beside computation; False:
    # one after the other.
    overlaps: bool = True
    # Stages meet behind a step, for the norm of all gradients.
    stages_meet: bool = True
    # Gradients of a micro-batch are written, and added by another kernel.
    adds_gradients: bool = True
    # Gradients of parameters are stored and summed in 16 bits.
    half_gradients: bool = False
    # Beside gradients in f32 backward writes 16-bit ones: "pass", added at its
    # end, or "stay", there until the next one begins.
    gradient_copies: str = ""
    # Bytes kept of a logit at the loss.
    logit_bytes: int = 4
    # What leaves a stage stays until the backward pass of its micro-batch.
    keeps_outputs: bool = False
    # Ranks of TP send a part each of what leaves a stage, and gather it behind.
    sends_parts: bool = False
    # ZeRO-1 sums gradients on all ranks, not only where they are needed.
    sums_everywhere: bool = False
    # ZeRO-3 gathers a layer's parameters while the layer before computes.
    gathers_ahead: bool = False
    # ZeRO-3 gathers every matrix of a layer by itself, and hands lists of
    # tensors, one a rank, to its collectives.
    gathers_matrices: bool = False
    # Gathered parameters of all layers live together (ZeRO-3).
    gathers_all: bool = False
    # Bytes a parameter and a card that updates it, while it is updated.
    update_bytes: int = 0
    # Layers are cut where the products' work reaches a stage's share.
    cuts_by_work: bool = False
    # What is printed: "allocated", or "card": what the card shows.
    figure: str = "allocated"
    # Bytes of the unit that is printed.
    unit: float = 1e9


# Megatron-LM with --fp16: gradients stay in f16 unless
# --accumulate-allreduce-grads-in-fp32 is given, and are copied to f32 for the
# update alone (optimizer.py, Float16OptimizerWithFloat16Params). Logits are
# written in f16 and cast; the loss exponentiates in place (cross_entropy.py).
# Its data parallelism (model/distributed.py) sums gradients when all are there;
# from 2021 on ranks of TP send parts (scatter_gather_tensors_in_pipeline).
MEGATRON = Software(keeps_scores=True, launches=True, overlaps=False,
                    sends_parts=True, half_gradients=True, logit_bytes=6,
                    update_bytes=4)
# Megatron-DeepSpeed: the same model. DeepSpeed's ZeRO-1 copies a rank's part of
# the f16 gradients, flat and then in f32, for the update (stage_1_and_2.py); its
# pipeline keeps the outputs of micro-batches in flight, and ranks of TP send
# parts, too (pipe/engine.py: is_pipe_partitioned, is_grad_partitioned). Sums go
# to one rank after the other (dist.reduce, slice by slice), which fits the rows
# better as an all-reduce than as a reduce-scatter; parameters are gathered
# behind the update.
DEEPSPEED = MEGATRON._replace(sums_everywhere=True, update_bytes=6,
                              keeps_outputs=True, figure="card", unit=GIB)
# llm-foundry, fms-fsdp, torchtitan, llama 3: fused attention, kernels fused or
# compiled, gradients summed in f32 unless a row or a line below says otherwise.
# FSDP gathers ahead, in both directions (torch/distributed/fsdp).
FUSED = Software(gathers_ahead=True)

SOURCES = {
    "megatron_2020": MEGATRON,
    # Its rows of ZeRO-3 are DeepSpeed's of 2021 (partition_parameters.py): each
    # parameter is gathered by itself, behind a torch.cuda.synchronize().
    "megatron_sc21": MEGATRON._replace(gathers_matrices=True),
    # From 2022 on Megatron-LM's products add to the gradients of the step.
    "korthikanti_2022": MEGATRON._replace(adds_gradients=False),
    # bf16: Megatron-LM then accumulates in f32.
    "mt_nlg_530b": MEGATRON._replace(half_gradients=False),
    "vtrain": MEGATRON,
    # Its fork's script says --fp16; printed are gigabytes allocated at the peak.
    # Its stages update and go on; the norm is looked at behind that.
    "zero_bubble": MEGATRON._replace(adds_gradients=False, stages_meet=False),
    "bigscience_1b3": DEEPSPEED,
    # Its launch script sets CUDA_LAUNCH_BLOCKING (tr11-176B-ml.slurm: without it
    # the training hung): the host waits for every kernel.
    "bloom_176b": DEEPSPEED._replace(launches=False, waits=True),
    # benchmark/alpa: parameters and gradients in f16, f32 master and moments
    # (use_master_copy); XLA's allocator, printed in units of 2^30. Gathers of
    # forward and backward are one expression to XLA, so their results stay.
    "alpa_gpt": MEGATRON._replace(logit_bytes=4, update_bytes=0,
                                  gathers_all=True, unit=GIB),
    # nanotron (models/base.py, optim/gradient_accumulator.py, logging): stages by
    # work, f32 gradients beside the 16-bit ones of a pass, the allocator's peak
    # in units of 2^30. The loss casts logits and subtracts their maximum out of
    # place (tensor_parallel/functional.py). With ZeRO-1 and f32 gradients
    # trainer.py sums them behind the last pass, by an all-reduce (a
    # reduce-scatter was "too memory hungry"), and gathers the parameters.
    "nanotron": FUSED._replace(flash_2=True, overlaps=False,
                               sums_everywhere=True, gradient_copies="pass",
                               logit_bytes=8, cuts_by_work=True, unit=GIB),
    # fms-fsdp's policy reduces in bf16 (policies/mixed_precision.py); attention
    # is PyTorch's of 2024.
    "fms_fsdp": FUSED._replace(flash_2=True, half_gradients=True),
    "torchtitan": FUSED._replace(flash_2=True),
}

# Sources that do not print the schedule of some rows: what is assumed where such
# a row is one of a pair. It counts nowhere else.
ASSUMED_SCHEDULE = {"megatron_sc21": "1f1b"}


def of(source, row):
    """The software of a row: its source's, and what the row itself prints."""
    software = SOURCES.get(source, FUSED)
    precision = row.get("precision") or ""
    if "fp32 gradient accumulation" in precision:
        # DeepSpeed's BF16_Optimizer: flat gradients in f32, which are all-reduced
        # (pipe/engine.py); the pipeline adds 16-bit ones behind a backward pass
        # and clears them before the next.
        software = software._replace(half_gradients=False,
                                     gradient_copies="stay")
    if "usual all-reduce synchronisation" in (row.get("table") or ""):
        software = software._replace(stages_meet=True)
    if source == "fms_fsdp" and "compile" not in (row.get("options") or ()):
        # foundation-model-stack without torch.compile (modules/layernorm.py
        # with use_high_precision_pow, modules/positions.py).
        software = software._replace(fuses_norms=False)
    if row.get("fsdp_mode") == "PURE":
        software = software._replace(half_gradients=True)
    return software


def work_partition(row):
    """Layers of each stage where a stage ends with the layer that reaches its
    share of the products' work; the head is work, the embedding none."""
    shape, stages = row["model_shape"], row["pp"]
    layer = 4 * shape["hidden"] ** 2 + 3 * shape["ffn"] * shape["hidden"]
    total = shape["layers"] * layer + shape["vocab"] * shape["hidden"]
    counts, stage = [0] * stages, 0
    for index in range(shape["layers"]):
        counts[stage] += 1
        if (index + 1) * layer > total * (stage + 1) / stages:
            stage += 1
    return counts


def step_ms(plan, row, software):
    """Milliseconds of a step among others. Where stages do not meet behind it
    and have slots enough to go on (ZB-H2), it is the work of the busiest one."""
    enough = 2 * row["pp"] - 1
    if (software.stages_meet or row["schedule"] != "zb-2p"
            or plan["micro-batches"] < enough):
        return plan["iteration-ms"]
    return max((plan["micro-batches"] - 1) * stage["time-nosync-ms"]
               + stage["time-ms"] + stage["optimizer-ms"]
               for stage in plan["stages"])


def interleaved_passes(stages, chunks, index, micro_batches):
    """Of a stage of the interleaved schedule: passes whose activations are there
    at once, and places for them where every chunk has its own, as the planner
    has them (lib/Schedule/Interleaved.cpp) and an allocator does not."""
    warmup = 2 * (stages - 1 - index) + (chunks - 1) * stages
    places = 0
    for chunk in range(chunks):
        ticks = warmup + (chunks - 1 - 2 * chunk) * stages + 1
        rounds, rest = divmod(ticks, stages * chunks)
        places += min(micro_batches, rounds * stages + min(rest, stages))
    return min(micro_batches * chunks, warmup + 1), places


def gathered_beyond_a_matrix(row):
    """Bytes of a layer's parameters and 16-bit gradients besides those of its
    largest matrix."""
    shape = row["model_shape"]
    h, ffn = shape["hidden"], shape["ffn"]
    return 2 * 2 * (4 * h * h + 2 * h * ffn - h * max(3 * h, ffn))


def allocated(plan, row, software):
    """Bytes that the software has allocated at its peak: the planner's ledger of
    every stage, with what the software keeps otherwise. Micro-batches in flight
    are those of 1F1B."""
    most = 0
    stages = plan["stages"]
    micro_batches = plan["micro-batches"]
    boundary = 2 * row["mbs"] * row["seq_len"] * row["model_shape"]["hidden"]
    sharded = row["dp"] if row["dp_mode"] == "zero3" else 1
    parts = row["dp"] if row["dp_mode"] in ("zero1", "zero3") else 1
    for index, stage in enumerate(stages):
        ledger = stage["ledger"]
        parameters = ledger["parameters"] // 2 * sharded
        states = (ledger["parameters"] + ledger["gradients"]
                  + ledger["optimizer"])
        flight = min(len(stages) - index, micro_batches)
        kept = ledger["activations"]
        if row.get("schedule") == "1f1b_interleaved":
            at_once, places = interleaved_passes(len(stages), row["vpp"], index,
                                                 micro_batches)
            kept = kept * at_once // places
        if 0 < index == len(stages) - 1:
            # A slot has room for the logits; they are there but once.
            logits = row["mbs"] * row["seq_len"] * row["model_shape"]["vocab"]
            kept = min(kept, stages[index - 1]["ledger"]["activations"]
                       + software.logit_bytes * logits // row["tp"])
        passes = kept + ledger["backward"]
        if software.gathers_matrices and sharded > 1:
            passes -= gathered_beyond_a_matrix(row)
        if software.gradient_copies == "stay":
            passes = max(passes, kept + 2 * parameters)
        elif software.gradient_copies == "pass":
            # They are whole when a micro-batch's activations are gone.
            others = kept * (flight - 1) // flight
            passes = max(passes, others + 2 * parameters)
        passes += ledger["communication"]
        if software.keeps_outputs and len(stages) > 1:
            passes += flight * boundary
        if software.gathers_all and sharded > 1:
            passes += 2 * parameters * (sharded - 1) // sharded
        update = software.update_bytes * parameters // parts
        most = max(most, states + max(passes, update) + ledger["workspace"])
    return most


def shown(bytes_allocated, row, software, memory):
    """What the source prints of a peak; `memory`: the card's bytes."""
    if software.figure == "allocated":
        return bytes_allocated
    return min(memory, CONTEXT[row["gpu"]] + ALLOCATOR_RESERVE * bytes_allocated)


def printed(row, software):
    """Bytes of the memory figure that the row prints; None where it has none."""
    measured = row.get("measured") or {}
    if "memory_gib" in measured:
        return measured["memory_gib"] * GIB
    if "memory_gb" in measured:
        return measured["memory_gb"] * software.unit
    return None


def largest_block(row, software):
    """Bytes of the largest tensor of a pass: logits in f32, or scores."""
    tokens = row["mbs"] * row["seq_len"]
    shape = row["model_shape"]
    scores = 2 * shape["heads"] * row["seq_len"] if software.keeps_scores else 0
    return tokens * max(4 * shape["vocab"], scores) // row["tp"]


def fits(bytes_allocated, row, software, memory):
    """Whether a peak fits the card. The allocator gives back what it only
    holds before it fails, but only blocks that are free as a whole: of the
    allocator of ALLOCATOR_RESERVE one of the largest tensors is taken to find no
    place among what is left. Of other software than that of CONTEXT, whose
    buckets it has, only the reserve of the built-in types is known."""
    beside = CONTEXT[row["gpu"]] if software.figure == "card" else RESERVED
    block = largest_block(row, software) if software.figure == "card" else 0
    return bytes_allocated + beside + block <= memory
