# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules as people write them, for the tests of from_torch."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class PackedAttention(nn.Module):
    """One projection for queries, keys and values, as GPT-2 has it."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.dropout = dropout

    def forward(self, x):
        samples, length, width = x.shape
        q, k, v = self.c_attn(x).split(width, dim=2)
        q, k, v = [part.view(samples, length, self.heads, width // self.heads)
                   .transpose(1, 2) for part in (q, k, v)]
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        return self.c_proj(y.transpose(1, 2).contiguous().view(samples, length, width))


class GPTBlock(nn.Module):
    """Norms in front, GELU."""

    def __init__(self, width, heads, dropout=0.0):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = PackedAttention(width, heads, dropout)
        self.ln_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.down(F.gelu(self.up(self.ln_2(x)))))


class GPT(nn.Module):
    """A GPT with a tied head, which returns logits, or also its loss."""

    def __init__(self, vocab=61, length=16, width=24, heads=4, layers=3, dropout=0.0):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(length + 3, width)
        self.h = nn.ModuleList([GPTBlock(width, heads, dropout)
                                for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens, targets=None):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.h:
            x = block(x)
        logits = self.head(self.ln_f(x))
        if targets is None:
            return logits
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1),
                               ignore_index=-1)
        return logits, loss


class RMSNorm(nn.Module):
    """Written out."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(width))

    def forward(self, x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotate(x, base=100.0):
    """Rotary embedding, written out."""
    length, size = x.shape[-2:]
    frequencies = base ** (-torch.arange(0, size, 2, dtype=x.dtype) / size)
    angles = torch.outer(torch.arange(length, dtype=x.dtype), frequencies)
    angles = torch.cat([angles, angles], -1)
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat((-second, first), -1) * angles.sin()


class GroupedAttention(nn.Module):
    """Softmax, mask and grouped heads written out."""

    def __init__(self, width, heads, key_heads, window=None):
        super().__init__()
        self.heads, self.key_heads, self.size = heads, key_heads, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, key_heads * self.size, bias=False)
        self.v = nn.Linear(width, key_heads * self.size)
        self.o = nn.Linear(width, width)
        mask = torch.tril(torch.ones(32, 32))
        if window:
            mask = mask - torch.tril(torch.ones(32, 32), -window)
        self.register_buffer("mask", mask.view(1, 1, 32, 32), persistent=False)

    def forward(self, x):
        samples, length, width = x.shape

        def heads(projection, count):
            return projection(x).view(samples, length, count, self.size) \
                .transpose(1, 2)

        q, k = rotate(heads(self.q, self.heads)), rotate(heads(self.k, self.key_heads))
        v = heads(self.v, self.key_heads)
        repeats = self.heads // self.key_heads
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(self.size)
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0,
                                    float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return self.o(y.transpose(1, 2).reshape(samples, length, width))


class LlamaBlock(nn.Module):
    """RMS norms and SwiGLU."""

    def __init__(self, width, heads, key_heads, window):
        super().__init__()
        self.norm_1, self.norm_2 = RMSNorm(width), RMSNorm(width)
        self.attention = GroupedAttention(width, heads, key_heads, window)
        self.w1 = nn.Linear(width, 40, bias=False)
        self.w2 = nn.Linear(40, width, bias=False)
        self.w3 = nn.Linear(width, 40, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        hidden = self.norm_2(x)
        return x + self.w2(F.silu(self.w1(hidden)) * self.w3(hidden))


class HandLlama(nn.Module):
    """A LLaMA by hand, with windows in all blocks but the first `full`."""

    def __init__(self, vocab=61, width=24, heads=6, key_heads=2, layers=3, full=1):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.blocks = nn.Sequential(*[
            LlamaBlock(width, heads, key_heads, None if i < full else 5)
            for i in range(layers)])
        self.norm = RMSNorm(width)
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens):
        return self.out(self.norm(self.blocks(self.tokens(tokens))))


class MLP(nn.Module):
    """A residual feed-forward network over every position alone."""

    def __init__(self, vocab=61, width=24, layers=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList([
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width),
                          nn.GELU(approximate="tanh"), nn.Linear(2 * width, width))
            for _ in range(layers)])
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.out(x + F.gelu(x))


class Encoder(nn.Module):
    """PyTorch's own encoder layers, which exchange samples and positions inside."""

    def __init__(self, vocab=61, width=24, norm_first=True):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.Sequential(*[
            nn.TransformerEncoderLayer(width, 4, 40, 0.0, F.gelu, batch_first=True,
                                       norm_first=norm_first) for _ in range(3)])
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens):
        return self.out(self.layers(self.embed(tokens)))


class FusedBlock(nn.Module):
    """Queries, keys of fewer heads and values in one projection, rotated; the gate
    and what it gates in another; norms without weights or biases."""

    def __init__(self, width, heads, key_heads, interleaved):
        super().__init__()
        self.heads, self.key_heads, self.size = heads, key_heads, width // heads
        self.interleaved = interleaved
        self.norm_1 = nn.LayerNorm(width, bias=False)
        self.norm_2 = nn.RMSNorm(width, eps=1e-5, elementwise_affine=False)
        self.qkv = nn.Linear(width, (heads + 2 * key_heads) * self.size)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * 20, bias=False)
        self.down = nn.Linear(20, width, bias=False)

    def projections(self, x):
        if self.interleaved:
            # Of every head its query, key and value, as in GPT-NeoX.
            qkv = self.qkv(x).view(*x.shape[:2], self.heads, 3, self.size)
            return [part.transpose(1, 2) for part in qkv.unbind(3)]
        sizes = [count * self.size
                 for count in (self.heads, self.key_heads, self.key_heads)]
        return [part.view(*x.shape[:2], -1, self.size).transpose(1, 2)
                for part in self.qkv(x).split(sizes, dim=-1)]

    def forward(self, x):
        q, k, v = self.projections(self.norm_1(x))
        y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True,
                                           enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class FusedGPT(nn.Module):
    """Fused blocks, a table of positions that is no parameter, and weights that are
    not trained."""

    def __init__(self, vocab=61, length=16, width=24, interleaved=False):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        table = torch.arange(length)[:, None] / 10 ** torch.linspace(0, 2, width)
        self.register_buffer("table", table.sin()[None], persistent=False)
        self.blocks = nn.ModuleList([
            FusedBlock(width, 6, 6 if interleaved else 2, interleaved)
            for _ in range(3)])
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens):
        x = self.embed(tokens) + self.table[:, :tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.out(x)


class PictureNet(nn.Module):
    """A classifier of pictures as rows of pixels."""

    def __init__(self, size=12, width=24, classes=5):
        super().__init__()
        self.first = nn.Linear(size * size, width)
        self.hidden = nn.ModuleList([
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(),
                          nn.Linear(2 * width, width)) for _ in range(3)])
        self.out = nn.Linear(width, classes)

    def forward(self, pictures):
        x = F.gelu(self.first(pictures.flatten(1)))
        for layer in self.hidden:
            x = x + layer(x)
        return self.out(x)


class MixerBlock(nn.Module):
    """Mixes positions, then channels."""

    def __init__(self, positions, width, dropout=0.0):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.positions = nn.Sequential(nn.Linear(positions, 2 * positions), nn.GELU(),
                                       nn.Dropout(dropout),
                                       nn.Linear(2 * positions, positions))
        self.channels = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(),
                                      nn.Linear(3 * width, width), nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.positions(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    """An MLP mixer (Tolstikhin et al., arXiv 2105.01601)."""

    def __init__(self, size=12, patch=4, channels=3, width=20, classes=5, layers=3,
                 dropout=0.0):
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.blocks = nn.ModuleList([MixerBlock((size // patch) ** 2, width, dropout)
                                     for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, pictures):
        x = self.embed(pictures).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


class ConvolvedMixer(nn.Module):
    """The same ideas in other words: convolutions over one position, channels in
    front, sums the other way round, an average pool."""

    def __init__(self, size=12, patch=4, width=20, classes=5):
        super().__init__()
        positions = (size // patch) ** 2
        self.embed = nn.Conv2d(3, width, patch, stride=patch)
        self.mix = nn.Linear(positions, positions)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Conv1d(positions, 2 * positions, 1)
        self.down = nn.Conv1d(2 * positions, positions, 1, bias=False)
        self.head = nn.Linear(width, classes)

    def forward(self, pictures):
        x = self.embed(pictures).flatten(2)
        x = self.mix(x) + x
        y = self.norm(x.permute(0, 2, 1))
        y = self.down(F.gelu(self.up(y))) + y
        return self.head(F.adaptive_avg_pool1d(y.mT, 1).flatten(1))


class PaddedAttention(nn.Module):
    """Scores with what padding adds to them."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, mask):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        scores = scores + (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e9
        y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).flatten(2))


class PaddedEncoder(nn.Module):
    """An encoder with a mask among its inputs, and a stream that all blocks read
    besides."""

    def __init__(self, vocab=61, width=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList([PaddedAttention(width, 4) for _ in range(3)])
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens, mask):
        x = begin = self.embed(tokens)
        for block, norm in zip(self.blocks, self.norms):
            x = norm(x + block(x, mask)) + begin
        return self.out(x)


class InPlaceMLP(MLP):
    """Writes into what others read."""

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            change = layer(x)
            alias = change.view(change.shape)
            change += x
            x = alias
        return self.out(x)


class Around(nn.Module):
    """An embedding, something in the middle, a head."""

    def __init__(self, middle, *modules, vocab=32, width=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.head = nn.Linear(width, vocab)
        self.inner = nn.ModuleList(modules)
        self.weight = nn.Parameter(torch.randn(width))
        self.middle = middle

    def forward(self, tokens):
        return self.head(self.middle(self, self.embed(tokens)))
