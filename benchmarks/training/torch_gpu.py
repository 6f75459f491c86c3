#!/usr/bin/env python3
"""The peer of a compiled program on a GPU: a GPT-2 in PyTorch as its users run it.

    torch_gpu.py CONFIG.json --batches=32,16,8 [--attention=flash,cudnn]
                 [--seq-len=N] [--steps=N] [--out=FILE]

torch.compile, AdamW in one fused kernel, attention through
scaled_dot_product_attention held to its flash kernel, then to cuDNN's, bf16 by
autocast over f32 weights, TF32 for what stays in f32, rows of the head padded to
a multiple of 128, clipping by the global norm, no dropout: the work of the
compiled program. The batch stays where it is on the device and the loss is read
once a step, as the compiled program reads it.

For each kind of attention a model of its own is compiled, and every batch that
fits is warmed, the largest first, before any is timed. Prints one JSON object: for
each attention and batch the median milliseconds of a step, tokens a second and
the peak of the device's memory, the best of them, and how long compiling took.
`--compile` is model (whole), blocks (each block, the code shared: far quicker to
compile) or off. `--device=cpu --dtype=f32 --compile=off --attention=default` runs
anywhere, for tests of this script.
"""

import argparse
import contextlib
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


def attend(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    # PyTorch before 2.0 has none; good enough for tests of this script.
    assert not q.is_cuda, "a comparison needs PyTorch 2.0 or newer"
    length = q.shape[2]
    mask = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(2, 3)) / q.shape[3] ** 0.5
    return F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ v


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

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.attn(self.ln_1(x)).split(width, dim=2)
        )
        y = attend(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["n_embd"]
        self.words = config["vocab_size"]
        self.wte = nn.Embedding((self.words + 127) // 128 * 128, width)
        self.wpe = nn.Embedding(config["n_positions"], width)
        self.blocks = nn.ModuleList(
            Block(width, config["n_head"]) for _ in range(config["n_layer"])
        )
        self.ln_f = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(
            logits.view(-1, logits.shape[-1]).float(), labels.view(-1))


def held_to(attention):
    """Holds attention to one kernel, which then takes every call or fails."""
    if attention == "default":
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kinds = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    return sdpa_kernel([kinds[attention]])


def synchronise(device):
    if device == "cuda":
        torch.cuda.synchronize()


class Trainer:
    def __init__(self, config, options):
        self.options = options
        torch.manual_seed(1)
        with torch.device(options.device) if hasattr(torch.device, "__enter__") \
                else contextlib.nullcontext():
            self.model = GPT2(config)
        self.model.to(options.device)
        decayed = [p for p in self.model.parameters() if p.dim() >= 2]
        others = [p for p in self.model.parameters() if p.dim() < 2]
        groups = [{"params": decayed, "weight_decay": 0.01},
                  {"params": others, "weight_decay": 0.0}]
        how = {"fused": True} if options.device == "cuda" else {"foreach": True}
        self.optimizer = torch.optim.AdamW(groups, lr=1e-4, **how)
        self.run = self.model
        if options.compile == "model":
            self.run = torch.compile(self.model, dynamic=False)
        elif options.compile == "blocks":
            for i, block in enumerate(self.model.blocks):
                self.model.blocks[i] = torch.compile(block, dynamic=False)

    def step(self, tokens, labels):
        autocast = (
            torch.autocast(self.options.device, dtype=torch.bfloat16)
            if self.options.dtype == "bf16" else contextlib.nullcontext())
        self.optimizer.zero_grad(set_to_none=True)
        with autocast:
            loss = self.run(tokens, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


class Case:
    """A batch of a trainer: warmed first, timed later."""

    def __init__(self, trainer, config, batch, options):
        self.trainer, self.batch, self.options = trainer, batch, options
        shape = (batch, options.seq_len)
        generator = torch.Generator().manual_seed(7)
        self.tokens, self.labels = (
            torch.randint(config["vocab_size"], shape, generator=generator)
            .to(options.device) for _ in range(2))
        begin = time.perf_counter()
        first = self.first_step()
        synchronise(options.device)
        self.result = {"batch": batch,
                       "first-step-seconds": time.perf_counter() - begin,
                       "first-loss": first}
        for _ in range(0 if options.compile_only else options.warm):
            self.step()

    def first_step(self):
        while True:
            try:
                return self.step()
            except out_of_memory():
                # What only compiles may stand beside others that do.
                if not self.options.compile_only:
                    raise
            self.trainer.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            time.sleep(2)

    def step(self):
        return self.trainer.step(self.tokens, self.labels)

    def measure(self):
        options, result = self.options, self.result
        if options.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self.step()
        times, loss = [], result["first-loss"]
        for _ in range(options.steps):
            synchronise(options.device)
            begin = time.perf_counter()
            loss = self.step()
            synchronise(options.device)
            times.append(1e3 * (time.perf_counter() - begin))
        result["final-loss"] = loss
        if times:
            median = statistics.median(times)
            result["median-step-ms"] = median
            result["tokens-per-second"] = 1e3 * self.batch * options.seq_len / median
        if options.device == "cuda":
            result["peak-bytes"] = torch.cuda.max_memory_allocated()
            result["reserved-bytes"] = torch.cuda.max_memory_reserved()
        return result


def out_of_memory():
    return getattr(torch.cuda, "OutOfMemoryError", MemoryError)


def try_attention(attention, config, options, late):
    """What one kind of attention reaches; `late` says that the time is over."""
    found = {"results": [], "left-out": []}
    if options.compile != "off":
        torch._dynamo.reset()
    with held_to(attention):
        trainer = Trainer(config, options)
        found["parameters"] = sum(p.numel() for p in trainer.model.parameters())
        cases = []
        for batch in sorted(map(int, options.batches.split(",")),
                            reverse=not options.compile_only):
            if late():
                found["left-out"].append(f"no time for batch {batch}")
                continue
            try:
                cases.append(Case(trainer, config, batch, options))
            except out_of_memory():
                found["left-out"].append(f"batch {batch} does not fit")
                trainer.optimizer.zero_grad(set_to_none=True)
                torch.cuda.empty_cache()
        for case in cases:
            if options.compile_only:
                found["results"].append(case.result)
            elif late():
                found["left-out"].append(f"no time for batch {case.batch}")
            else:
                found["results"].append(case.measure())
    return found


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--batches", default="8")
    parser.add_argument("--seq-len", type=int)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm", type=int, default=2, help="steps before those timed")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "f32"])
    parser.add_argument("--compile", default="model", choices=["model", "blocks", "off"])
    parser.add_argument("--compile-only", action="store_true",
                        help="time nothing: fill the cache of compiled models")
    parser.add_argument("--attention", default="flash,cudnn",
                        help="of flash, cudnn, default")
    parser.add_argument("--deadline", type=float, default=1e9,
                        help="seconds after which no further batch is begun")
    parser.add_argument("--out", default="-")
    return parser.parse_args()


def main():
    options = parse()
    with open(options.config) as file:
        config = json.load(file)
    options.seq_len = options.seq_len or config["n_positions"]
    torch.set_float32_matmul_precision("high")
    begin = time.perf_counter()
    kinds, found = options.attention.split(","), {}
    for number, attention in enumerate(kinds, 1):
        # Each has its part of the time.
        end = options.deadline * number / len(kinds)
        try:
            found[attention] = try_attention(
                attention, config, options,
                lambda: time.perf_counter() - begin > end)
        except (RuntimeError, ImportError, AttributeError) as problem:
            found[attention] = {"results": [], "problem": str(problem)[:500]}
        if options.device == "cuda":
            torch.cuda.empty_cache()
    timed = [{**r, "attention": attention} for attention, kind in found.items()
             for r in kind["results"] if "tokens-per-second" in r]
    for attention, kind in found.items():
        kind["best"] = max((r for r in timed if r["attention"] == attention),
                           key=lambda r: r["tokens-per-second"], default=None)
    report = {
        "torch": torch.__version__,
        "device": (torch.cuda.get_device_name() if options.device == "cuda" else "cpu"),
        "compile": options.compile,
        "dtype": options.dtype,
        "seq-len": options.seq_len,
        "attention": found,
        "best": max(timed, key=lambda r: r["tokens-per-second"], default=None),
    }
    text = json.dumps(report, indent=1) + "\n"
    if options.out == "-":
        sys.stdout.write(text)
    else:
        with open(options.out, "w") as file:
            file.write(text)
    return 0 if any(kind["results"] for kind in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
