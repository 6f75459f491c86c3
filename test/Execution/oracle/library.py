# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How far a model written out here is from a class of `transformers`."""

import math

import torch


def largest_difference(name, theirs, weights, our_loss, logits_and_labels, floor=0):
    """Prints and returns the largest relative difference of the loss and of the
    gradient of any parameter. `theirs` are the library's parameters by name,
    which take the values of `weights`; `our_loss()` is the loss written out,
    `logits_and_labels()` what the library says of the same batch, labels of -1
    not counting. A gradient's difference is divided by its norm, or by `floor`
    times the norm of all gradients where that is larger."""
    assert set(theirs) == set(weights), set(theirs) ^ set(weights)
    with torch.no_grad():
        for key, value in weights.items():
            theirs[key].copy_(value)
    ours = our_loss()
    ours.backward()
    logits, labels = logits_and_labels()
    loss = torch.nn.functional.cross_entropy(
        logits.reshape(labels.numel(), -1), labels.reshape(-1), ignore_index=-1)
    loss.backward()
    worst = abs(ours.item() / loss.item() - 1)
    trained = {key: value for key, value in weights.items() if value.requires_grad}
    total = math.sqrt(sum(float((theirs[key].grad**2).sum()) for key in trained))
    for key, value in trained.items():
        norm = max(theirs[key].grad.norm().item(), floor * total)
        worst = max(worst, (value.grad - theirs[key].grad).norm().item() / norm)
    print(f"{name}: loss {loss.item():.6f}, largest difference {worst:.1e}")
    return worst
