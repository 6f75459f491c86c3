# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules that cannot be imported, and what is said of them."""

import unittest

try:
    import torch
    from torch.export import export as _export  # noqa: F401
except ImportError as error:
    raise unittest.SkipTest(f"needs PyTorch with torch.export: {error}") from error

from torch import nn
from torch.nn import functional as F

import galvatron
from galvatron.torch_frontend import attention

from .torch_modules import GPT, Around, rotate

TOKENS = torch.zeros(2, 8, dtype=torch.long)
WIDTH, VOCAB = 16, 32


def heads(x, count=4):
    return x.view(*x.shape[:2], count, WIDTH // count).transpose(1, 2)


def interleaved(x):
    """Cosines that differ between the halves of a head."""
    size = x.shape[-1]
    angles = torch.outer(torch.arange(8.0), 10.0 ** -torch.arange(size / 2))
    angles = angles.repeat_interleave(2, -1)
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat((-second, first), -1) * angles.sin()


def crooked(x):
    """Angles that do not grow evenly."""
    angles = torch.outer(torch.arange(8.0) ** 2, 1 / torch.arange(1, 3.0))
    angles = torch.cat([angles, angles], -1)
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat((-second, first), -1) * angles.sin()


def written(x):
    """Writes into a part."""
    x[:, 0].add_(1.0)
    return x


class RotaryTest(unittest.TestCase):
    """Frequencies are read off tables, of any length."""

    def test_frequencies(self):
        for length in (2, 3, 64, 8192, 20000):
            for base in (1e2, 5e5):
                expected = base ** (-torch.arange(0, 32, 2) / 32)
                angles = torch.outer(torch.arange(length).float(), expected)
                angles = torch.cat([angles, angles], -1)
                found, factor = attention._frequencies(
                    1.5 * angles.cos(), 1.5 * angles.sin(), (2, 4, length, 32))
                self.assertAlmostEqual(factor, 1.5, places=5)
                self.assertTrue(torch.allclose(torch.tensor(found).float(), expected,
                                               rtol=1e-6))

    def test_frequencies_of_neighbours(self):
        expected = 1e3 ** (-torch.arange(0, 8, 2) / 8)
        angles = torch.outer(torch.arange(64).float(), expected).repeat_interleave(2, -1)
        found, _ = attention._frequencies(angles.cos(), angles.sin(), (2, 4, 64, 8),
                                          interleaved=True)
        self.assertTrue(torch.allclose(torch.tensor(found).float(), expected))
        angles[:, 1] += 0.1
        with self.assertRaisesRegex(galvatron.torch_frontend.reasons.NoCounterpart,
                                    "pairs that are not neighbours"):
            attention._frequencies(angles.cos(), angles.sin(), (2, 4, 64, 8),
                                   interleaved=True)


class UnsupportedTest(unittest.TestCase):
    """One operation without a counterpart each."""

    def refused(self, message, middle, *modules):
        with self.assertRaises(galvatron.Unsupported) as caught:
            galvatron.from_torch(Around(middle, *modules), (TOKENS,))
        self.assertRegex(str(caught.exception), message)
        return caught.exception

    def test_functions_of_elements(self):
        for name, call in [("elu", F.elu), ("silu", F.silu), ("sin", torch.sin),
                           ("exp", torch.exp), ("add", lambda x: x + 1),
                           ("sigmoid", lambda x: x * torch.sigmoid(1.702 * x))]:
            with self.subTest(name):
                self.refused(f"'aten.{'mul' if name == 'sigmoid' else name}'.*a function "
                             "of every element that nn lacks",
                             lambda s, x, call=call: call(x))
        self.refused("'aten.detach'.*gradient is cut off", lambda s, x: x.detach())
        self.refused("a conversion to torch.float16", lambda s, x: x.half().float())

    def test_products(self):
        for name, message, call in [
                ("two values", "'aten.mul'.*on two values",
                 lambda s, x: x * s.inner[0](x)),
                ("sum", "'aten.sum': nn has no|'aten.sum'",
                 lambda s, x: x + x.sum(-1, keepdim=True)),
                ("scores", "no part of attention", lambda s, x: x @ (
                    x.transpose(1, 2) @ x)),
                ("einsum", "'aten.einsum'", lambda s, x: torch.einsum(
                    "btc,c->btc", x, s.weight)),
                ("weight alone", "parameter 'weight' alone|'aten.mul'",
                 lambda s, x: x * s.weight.exp()),
                ("constant", "neither a bias nor a row for each position",
                 lambda s, x: x + torch.arange(8.0)[:, None])]:
            with self.subTest(name):
                self.refused(message, call, nn.Linear(WIDTH, WIDTH))

    def test_layouts(self):
        self.refused("neither its tensor's nor that of the transpose",
                     lambda s, x: s.inner[0](x.unflatten(1, (2, 4)).permute(
                         0, 3, 2, 1).flatten(2)).unflatten(2, (4, 2)).permute(
                             0, 3, 2, 1).flatten(1, 2), nn.Linear(8, 8))
        self.refused("a mean over something else than all positions",
                     lambda s, x: x + x.mean(0, keepdim=True))
        self.refused("takes a part of a tensor: nn has no slice",
                     lambda s, x: s.inner[0](x[..., :8]), nn.Linear(8, WIDTH))
        self.refused("no such operation", lambda s, x: torch.cat([x, x], -1)
                     [..., ::2])
        self.refused("'inner.0.weight' is used whole and in parts",
                     lambda s, x: s.inner[1](s.inner[0](x))
                     + s.inner[0](x)[..., WIDTH:], nn.Linear(WIDTH, 2 * WIDTH),
                     nn.Linear(2 * WIDTH, WIDTH))
        self.refused("parts that overlap", lambda s, x: s.inner[0](x)[..., WIDTH:]
                     + s.inner[0](x)[..., 2:WIDTH + 2], nn.Linear(WIDTH, 2 * WIDTH))
        self.refused("'aten.select_scatter'", lambda s, x: written(x))
        self.refused("'aten.roll'", lambda s, x: x.roll(1, 1))

    def test_norms(self):
        self.refused("'aten.batch_norm' in module 'inner.0'",
                     lambda s, x: s.inner[0](x), nn.BatchNorm1d(8))
        self.refused("a mean of squares that is no part of an RMS norm",
                     lambda s, x: x + (x * x).mean(-1, keepdim=True))
        self.refused("a root of a mean of squares",
                     lambda s, x: s.inner[0](x) * torch.rsqrt(
                         (x * x).mean(-1, keepdim=True)), nn.Linear(WIDTH, WIDTH))
        self.refused("a norm over more than the last dimension",
                     lambda s, x: s.inner[0](x), nn.LayerNorm((8, WIDTH)))

    def test_attention(self):
        q = heads
        self.refused("neither causal nor a window", lambda s, x:
                     F.scaled_dot_product_attention(
                         q(s.inner[0](x)), q(s.inner[1](x)), q(s.inner[2](x)),
                         attn_mask=torch.eye(8).bool().flip(0)).transpose(1, 2).reshape(x.shape),
                     *[nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.refused("scores with a bias", lambda s, x:
                     F.scaled_dot_product_attention(
                         q(s.inner[0](x)), q(s.inner[1](x)), q(s.inner[2](x)),
                         attn_mask=torch.ones(8, 8)).transpose(1, 2).reshape(x.shape),
                     *[nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.refused("rotary embedding of pairs that are not i and",
                     lambda s, x: F.scaled_dot_product_attention(
                         interleaved(q(s.inner[0](x))), q(s.inner[1](x)),
                         q(s.inner[2](x))).transpose(1, 2).reshape(x.shape),
                     *[nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.refused("no cosines and sines of a position times a frequency",
                     lambda s, x: F.scaled_dot_product_attention(
                         rotate(q(s.inner[0](x))), crooked(q(s.inner[1](x))),
                         q(s.inner[2](x))).transpose(1, 2).reshape(x.shape),
                     *[nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.refused("cannot be seen as", lambda s, x: F.scaled_dot_product_attention(
            q(x), q(x), q(x)).transpose(1, 2).reshape(x.shape))

    def biased(self, message, make, length=8):
        """Attention whose scores have something added."""
        def middle(s, x):
            return F.scaled_dot_product_attention(
                heads(s.inner[0](x)), heads(s.inner[1](x)), heads(s.inner[2](x)),
                attn_mask=make(s.inner[3].weight)).transpose(1, 2).reshape(x.shape)
        self.refused(message, middle, *[nn.Linear(WIDTH, WIDTH) for _ in range(3)],
                     nn.Embedding(length, 4))

    def test_biases_of_relative_positions(self):
        place = torch.arange(8)
        distance = place - place[:, None]
        crossed = (place * place[:, None]) % 8
        self.biased("do not depend on the distance alone", lambda table: F.embedding(
            crossed, table).permute(2, 0, 1)[None])
        self.biased("in other buckets than T5's", lambda table: F.embedding(
            (distance % 3) * 2, table).permute(2, 0, 1)[None])
        self.biased(r"not \[heads, 8, 8\]", lambda table: F.embedding(
            distance.abs(), table).permute(2, 1, 0)[None])
        self.biased("'aten.permute'.*a value made of|a bias that is a constant",
                    lambda table: F.embedding(distance.abs(), table).permute(2, 0, 1)[
                        None] + 0.5 * distance.abs())
        self.refused("that are no biases of attention", lambda s, x: x + F.embedding(
            distance.abs(), s.inner[0].weight)[0], nn.Embedding(8, WIDTH))

    def test_windows_that_are_left_out(self):
        def middle(s, x):
            x = s.inner[0](x.view(-1, 2, 2, 1, 2, WIDTH).transpose(2, 3).reshape(
                -1, 4, WIDTH))
            x = x.view(-1, 2, 1, 2, 2, WIDTH).transpose(2, 3).reshape(-1, 4, 2, WIDTH)
            return x[:, :2].flatten(1, 2)
        self.refused("some of the windows of a grid, put back", middle,
                     nn.Linear(WIDTH, WIDTH))

    def windows(self, message, change, table=9):
        """Attention inside of windows of two by two, in a grid of four by two."""
        place = torch.arange(4)
        index = (place[:, None] // 2 - place // 2 + 1) * 3 \
            + place[:, None] % 2 - place % 2 + 1

        def middle(s, x):
            x = change["grid"](x.view(-1, 4, 2, WIDTH))
            x = x.view(-1, 2, 2, 1, 2, WIDTH).transpose(2, 3).reshape(-1, 4, WIDTH)
            bias = s.inner[1].weight[change.get("index", index)].permute(2, 0, 1)[None]
            q = heads(s.inner[0](x))
            y = F.scaled_dot_product_attention(q, q, q, attn_mask=bias + change.get(
                "add", torch.zeros(())))
            return y.transpose(1, 2).reshape(-1, 8, WIDTH)
        self.refused(message, middle, nn.Linear(WIDTH, WIDTH), nn.Embedding(table, 4))

    def test_windows(self):
        def same(x):
            return x
        self.windows("other than Swin's", {"grid": same, "add": torch.full(
            (4, 1, 4, 4), -1.0)})
        self.windows("in another order than Swin's", {
            "grid": same, "index": torch.arange(16).view(4, 4) % 9})
        self.windows("rolled; nn has that where", {
            "grid": lambda x: x.roll((1, 2), (1, 2))})
        self.windows("padding; nn has it below", {
            "grid": lambda x: F.pad(x, (0, 0, 1, 0))[:, :, :2]})
        self.refused("padding", lambda s, x: F.pad(x, (0, 0, 1, 0))[:, :8])
        self.refused("padded or rolled positions that are not cut", lambda s, x: F.pad(
            x.view(-1, 4, 2, WIDTH), (0, 0, 0, 0, 0, 2)).flatten(1, 2)[:, :8])

    def test_random_numbers(self):
        self.refused("'aten.rand_like'.*random numbers; nn has dropout", lambda s, x:
                     x + torch.rand_like(x))
        self.refused("'aten.mul'.*that is no dropped path", lambda s, x: x * (
            0.9 + torch.rand(x.shape[0], 1, 1)).floor() / 0.9)
        self.refused("random numbers that no paths are dropped by", lambda s, x: x
                     + torch.rand(x.shape[0], 1, 1))

    def test_all_at_once_with_their_places(self):
        found = self.refused(
            "3 operations", lambda s, x: torch.relu(s.inner[1](s.inner[0](x))).cumprod(
                1) + s.inner[2](x), nn.BatchNorm1d(8), nn.Linear(WIDTH, WIDTH),
            nn.Conv1d(8, 8, 3, padding=1))
        names = [operation.operation for operation in found.operations]
        self.assertEqual(names[0], "aten.batch_norm")
        self.assertEqual(names[1:], ["aten.cumprod", "aten.conv1d"])
        self.assertEqual(found.operations[0].module, "inner.0")
        for operation in found.operations:
            self.assertRegex(operation.source, r"torch_modules\.py:\d+$")


class WrongInputTest(unittest.TestCase):
    """What is no module, or no example of its inputs."""

    def refused(self, message, module, inputs=(TOKENS,), loss="cross_entropy",
                kind=galvatron.InvalidInput):
        with self.assertRaisesRegex(kind, message):
            galvatron.from_torch(module, inputs, loss)

    def test_arguments(self):
        module = GPT()
        self.refused("expected a torch.nn.Module, found 'function'", heads)
        self.refused("a tuple or a dictionary, found 'Tensor'", module, TOKENS)
        self.refused("a tensor among the example inputs", module, ())
        self.refused("as many samples each", module, (TOKENS, TOKENS[:1]))
        self.refused("as many samples each", module, (torch.zeros(()),))
        self.refused("expected the loss 'cross_entropy'.*found 'mse'", module,
                     loss="mse")
        self.refused("expected the loss.*found 'int'", module, loss=3)
        self.refused("expected a module with parameters", nn.Identity())
        self.refused("torch.bfloat16", GPT().bfloat16())
        self.refused("found torch.float32, torch.float64",
                     nn.Sequential(nn.Embedding(4, 4), nn.Linear(4, 4).double()))
        self.refused("torch.export of 'GPT' failed", module, (TOKENS.float(),))
        self.refused("torch.export of 'GPT' failed", module, {"words": TOKENS})

    def test_losses(self):
        self.refused("returns a cross entropy", GPT(), loss=None)
        self.refused("weights, smoothing", GPT(), loss=lambda logits, labels:
                     F.cross_entropy(logits.flatten(0, 1), labels.flatten(),
                                     label_smoothing=0.1), kind=galvatron.Unsupported)
        self.refused("'aten.l1_loss'|'aten.mean'", GPT(), loss=lambda logits, labels:
                     logits.mean(), kind=galvatron.Unsupported)
        self.refused("labels that are computed|a part of a tensor", GPT(),
                     loss=lambda logits, labels: F.cross_entropy(
                         logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()),
                     kind=galvatron.Unsupported)
        self.refused("returns logits", _Nothing())


class _Nothing(nn.Module):
    """Returns no tensor."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, tokens):
        return {"words": tokens}


if __name__ == "__main__":
    unittest.main()
