"""The constants of benchmarks/prediction/published that are fitted to its rows,
and how well they predict rows that they were not fitted to.
lib/Software/Executions.yaml has their values."""

import math
import random
import statistics

import software

# Constants of times, by name: the fact of an execution that says it, and the card
# of which a table's entry is meant. Executions.yaml says what each is of.
FACTS = {
    "attention, A100": ("attention", "a100-80gb"),
    "attention, H100": ("attention", "h100"),
    "products, H100": ("products", "h100"),
    "unaligned products": ("unaligned-products", ""),
    "unaligned attention": ("unaligned-attention", ""),
    "launch": ("launch-us", ""),
    "wait": ("wait-us", ""),
    "rank of a gather": ("gathered-rank-us", ""),
}
# As they are, and changed while they are fitted again.
FITTED = {name: software.constant(*fact) for name, fact in FACTS.items()}
USUAL = dict(FITTED)


def changed(row):
    """Facts of the constants that are not what they usually are, for a row's
    card."""
    return [(FACTS[name][0], f"{value:.17g}") for name, value in FITTED.items()
            if value != USUAL[name] and row["gpu"].startswith(ROWS_OF[name][1])]


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
