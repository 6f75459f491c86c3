"""The constants of benchmarks/prediction/published that are fitted to its rows,
and how well they predict rows that they were not fitted to."""

import math
import random
import statistics

GIB = 2**30

FITTED = {
    # What fused attention reaches of the rate of large products, with half the
    # work of a causal mask left out: the kernels of 2023, before
    # FlashAttention 2. Fitted to llm_foundry_mpt.
    "attention, A100": 0.36,
    "attention, H100": 0.245,
    # What large products reach of the built-in type's rate, where that is not
    # all of it: a H100 at its power limit. Fitted to llm_foundry_mpt.
    "products, H100": 0.83,
    # Kernels of a layer's forward pass, with fused attention and without: such
    # frameworks launch one for nearly every operation.
    "kernels, fused": 20,
    "kernels, unfused": 45,
    # Products with a width on a card that is no multiple of 64 elements (128
    # bytes), as NVIDIA's guide for A100 wants them, and attention whose heads
    # have no multiple of 8: the time they take as a multiple of the others',
    # fitted to the rows of bloom_176b with 14,400 / 8 and with heads of 108 and
    # 150.
    "unaligned products": 1.2,
    "unaligned attention": 16,
    # Microseconds in which the host launches a kernel where scores are kept, in
    # software that launches them one by one: fitted to vtrain.
    "launch": 19,
    # Microseconds between two kernels where the host waits for each: fitted to
    # bloom_176b.
    "wait": 55,
    # Microseconds that a gather of DeepSpeed's ZeRO-3 of 2021 takes for each of
    # its ranks, besides the wire: lists of tensors, one a rank, that the host
    # builds and copies. Fitted to the three rows of megatron_sc21.
    "rank of a gather": 30,
}
# What a card shows besides what the allocator holds: CUDA's context, the
# communicators' buffers and, in DeepSpeed, the buckets in which gradients are
# summed. Bytes by card, fitted to bloom_176b (8 to 384 cards) and to
# bigscience_1b3 (8 cards; of it 1.1 GB are the context, as the source says).
CONTEXT = {"A100-SXM4-80GB": 7.0e9, "V100-SXM2-16GB": 3.75e9,
           "V100-SXM2-32GB": 3.75e9}
# What PyTorch's caching allocator of 2021 and 2022 holds, of what is allocated
# at the peak: blocks that are split and not whole again. Fitted to bloom_176b.
ALLOCATOR_RESERVE = 1.17

# By constant of a time: its rows, by source and the beginning of the card's
# name. Counts of kernels are not fitted again: only their product with the time
# of a launch is seen in these rows.
ROWS_OF = {
    "attention, A100": ("llm_foundry_mpt", "A100"),
    "attention, H100": ("llm_foundry_mpt", "H100"),
    "products, H100": ("llm_foundry_mpt", "H100"),
    "unaligned products": ("bloom_176b", ""),
    "unaligned attention": ("bloom_176b", ""),
    "launch": ("vtrain", ""),
    "wait": ("bloom_176b", ""),
    "rank of a gather": ("megatron_sc21", ""),
}
# A constant is looked for among these multiples of what it is here, twice: a
# second time among values half as far apart round the best.
STEPS = (0.5, 0.7, 0.85, 1, 1.15, 1.3, 1.5)


def halves(tasks, seed):
    """Rows of every source, cut in two at random; `tasks`: (source, row)."""
    rng = random.Random(seed)
    sources = {}
    for task in tasks:
        sources.setdefault(task[0], []).append(task)
    cut = ([], [])
    for _, rows in sorted(sources.items()):
        rng.shuffle(rows)
        for index, task in enumerate(rows):
            cut[index % 2].append(task)
    return cut


def error(ratios):
    """Mean distance of predicted over published from 1, in logarithms."""
    return statistics.fmean(abs(math.log(ratio)) for ratio in ratios)


def fit(tasks, price):
    """The constants that fit `tasks` best, one after the other with the others
    as they are in FITTED; `price`: predicted over published by task, None for
    what is not priced."""
    found = {}
    for name, (source, card) in ROWS_OF.items():
        rows = [task for task in tasks
                if task[0] == source and task[1]["gpu"].startswith(card)]
        usual = FITTED[name]

        def off(step):
            FITTED[name] = usual * step
            return error(ratio for ratio in price(rows) if ratio)

        errors = {step: off(step) for step in STEPS}
        best = min(errors, key=errors.get)
        index = STEPS.index(best)
        for other in STEPS[max(0, index - 1):index + 2]:
            middle = (best + other) / 2
            if middle not in errors:
                errors[middle] = off(middle)
        found[name] = usual * min(errors, key=errors.get)
        FITTED[name] = usual
    return found


def validate(tasks, price, seed=1):
    """Of both halves of the rows: the constants fitted to one, and predicted
    over published of the other with them. `price` as fit() has it."""
    usual = dict(FITTED)
    results = []
    cut = halves(tasks, seed)
    for fitted, judged in (cut, cut[::-1]):
        found = fit(fitted, price)
        FITTED.update(found)
        results.append((found, [
            (source, ratio) for (source, _), ratio in zip(judged, price(judged))
            if ratio]))
        FITTED.update(usual)
    return results
