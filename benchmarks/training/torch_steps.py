"""The peer of bench-steps: a GPT-2 in PyTorch eager, obeying the same lines.

    torch_steps.py CONFIG.json BATCH SEQUENCE THREADS

Answers `steps N` with one line a step: wall and processor milliseconds and the
loss. The same work as the compiled program: AdamW, clipping by the global
norm, no dropout, a head tied to the embedding. Attention is written with
matrix products, as eager PyTorch 1.13 has no fused one on the CPU.
"""

import json
import math
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4 * width)
        self.out = nn.Linear(4 * width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        size = width // self.heads
        q, k, v = (
            part.view(batch, length, self.heads, size).transpose(1, 2)
            for part in self.attn(self.ln_1(x)).split(width, dim=2)
        )
        scores = (q @ k.transpose(2, 3)) * (1 / math.sqrt(size))
        scores = scores.masked_fill(mask, float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["n_embd"]
        self.wte = nn.Embedding(config["vocab_size"], width)
        self.wpe = nn.Embedding(config["n_positions"], width)
        self.blocks = nn.ModuleList(
            Block(width, config["n_head"]) for _ in range(config["n_layer"])
        )
        self.ln_f = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, labels, mask):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, mask)
        logits = self.ln_f(x) @ self.wte.weight.t()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


def main():
    config = json.load(open(sys.argv[1]))
    batch, length, threads = map(int, sys.argv[2:5])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = GPT2(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    tokens = torch.randint(config["vocab_size"], (batch, length))
    labels = torch.randint(config["vocab_size"], (batch, length))
    mask = torch.ones(length, length, dtype=torch.bool).triu(1)
    for line in sys.stdin:
        command, count = line.split()
        assert command == "steps", f"expected 'steps N', found {line!r}"
        for _ in range(int(count)):
            wall, processor = time.perf_counter(), time.process_time()
            optimizer.zero_grad(set_to_none=True)
            loss = model(tokens, labels, mask)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(
                f"{1e3 * (time.perf_counter() - wall):.4f}",
                f"{1e3 * (time.process_time() - processor):.4f}",
                f"{loss.item():.6f}",
                flush=True,
            )


main()
