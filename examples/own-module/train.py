#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a module of your own on four ranks, and brings its weights back.

    examples/own-module/train.py TEXT [STEPS]

The module below is nothing but PyTorch: a language model of bytes with rotary
embedding and gated feed-forward networks. Needs PyTorch; the programs of Galvatron
are looked up in PATH or in GALVATRON_BIN."""

import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

import galvatron

VOCAB, LENGTH, WIDTH, HEADS, BLOCKS = 256, 32, 64, 4, 3
BATCH = 16


def rotate(x):
    """Turns the halves of every head by an angle that grows with the position."""
    length, size = x.shape[-2:]
    frequencies = 10000.0 ** (-torch.arange(0, size, 2) / size)
    angles = torch.outer(torch.arange(length).float(), frequencies).repeat(1, 2)
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((-second, first), dim=-1) * angles.sin()


class Block(nn.Module):
    """Attention and a gated feed-forward network, each behind a norm."""

    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(WIDTH, 1e-5), nn.RMSNorm(WIDTH, 1e-5)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate_up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
                   for part in self.qkv(self.norm_1(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class LanguageModel(nn.Module):
    """Logits of the next byte."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(BLOCKS)])
        self.norm = nn.RMSNorm(WIDTH, 1e-5)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embed(tokens))))


def torch_loss(module, text):
    """The loss over a text as PyTorch computes it."""
    count = (len(text) - 1) // LENGTH
    words = torch.tensor(list(text[:count * LENGTH + 1]))
    with torch.no_grad():
        logits = module(words[:-1].view(count, LENGTH))
        return F.cross_entropy(logits.flatten(0, 1), words[1:]).item()


def main():
    text = pathlib.Path(sys.argv[1]).read_bytes()
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    torch.manual_seed(1)
    module = LanguageModel()

    model = galvatron.from_torch(module, (torch.zeros(1, LENGTH, dtype=torch.long),))
    for name, body in model.layers:
        print(f"layer {name}: {body}")
    plan = model.plan("4xcpu", memory="8MiB", batch=BATCH)
    print(repr(plan))

    model.compile(plan=plan)
    for step in model.train(text, steps, lr=3e-3, warmup_steps=20):
        if step.step % 50 == 0 or step.step == 1:
            print(f"step {step.step}: loss {step.loss:.3f}, {step.ms:.1f} ms")
    print(f"loss here {model.evaluate(text).loss:.4f}, in PyTorch "
          f"{torch_loss(model.copy_to(), text):.4f}")
    print(model.generate("The model ", 48))


if __name__ == "__main__":
    main()
