# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules from PyTorch: the same losses and gradients as PyTorch itself."""

import copy
import os
import random
import unittest

try:
    import torch
    from torch.export import export as _export  # noqa: F401
except ImportError as error:
    raise unittest.SkipTest(f"needs PyTorch with torch.export: {error}") from error
try:
    import transformers
except ImportError:
    transformers = None

from torch.nn import functional as F

import galvatron
from galvatron import tools

from .support import FolderTest
from .torch_modules import (GPT, MLP, Around, ConvolvedMixer, Encoder, FusedGPT,
                            HandLlama, InPlaceMLP, Mixer, PaddedEncoder, PictureNet)

LENGTH, VOCAB, BATCH = 16, 61, 8
TOKENS = torch.zeros(1, LENGTH, dtype=torch.long)
# One rank, and four of them in several ways.
PLANS = (
    {"cluster": "1xcpu"},
    {"cluster": "4xcpu", "strategy": "tp2.sdp2", "pipeline_degree": 1},
    {"cluster": "4xcpu", "strategy": "tp2.ckpt", "pipeline_degree": 2,
     "micro_batches": 2},
    {"cluster": "4xcpu", "strategy": "dp4", "pipeline_degree": 1, "micro_batches": 1},
)


def perturbed(module):
    """No bias is zero, no weight of a norm one: nothing hides."""
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return module


def batch_of(seed=3, vocab=VOCAB):
    """A row of tokens that is one batch, and it as inputs and labels."""
    draw = random.Random(seed)
    words = [draw.randrange(vocab) for _ in range(BATCH * LENGTH + 1)]
    return (words, torch.tensor(words[:-1]).view(BATCH, LENGTH),
            torch.tensor(words[1:]).view(BATCH, LENGTH))


def logits_loss(module, x, y):
    logits = module(x)
    logits = getattr(logits, "logits", logits)
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def pictures_of(channels):
    """Pictures and their classes."""
    draw = torch.Generator().manual_seed(5)
    return (torch.randn(BATCH, channels, 12, 12, generator=draw, dtype=torch.double),
            torch.randint(0, 5, (BATCH,), generator=draw))


def random_plan(model, draw, most):
    """A plan whose layers have strategies drawn each on its own, with tensor
    parallelism of at most this degree."""
    ranks, degree = draw.choice([(4, 1), (4, 2), (8, 1), (8, 2), (8, 4)])
    names = [line.split()[1] for line in tools.call(
        "galvatron-plan", [f"--list-strategies={ranks}"]).splitlines()
        if line.startswith(f"pp{degree} ")]
    names = [name for name in names if "tp8" not in name
             and (most == 4 or "tp4" not in name)]
    plan = model.plan(f"{ranks}xcpu", batch=BATCH, pipeline_degree=degree,
                      strategy=names[0], micro_batches=1)
    for layer in plan.data["layers"]:
        layer["strategy"] = draw.choice(names)
    return galvatron.Plan(plan.data)


def masked_batch():
    """Tokens with padding, which segment they are of, and labels of some of them."""
    draw = torch.Generator().manual_seed(5)
    shape = (BATCH, LENGTH)
    tokens = torch.randint(1, VOCAB, shape, generator=draw)
    mask = torch.ones(shape, dtype=torch.long)
    mask[1:, 11:] = 0
    segments = torch.randint(0, 2, shape, generator=draw)
    chosen = torch.rand(shape, generator=draw) < 0.3
    return tokens, mask, segments, torch.where(chosen, tokens, -100)


class Comparison(FolderTest):
    """Losses and gradients against eager PyTorch."""

    def check(self, module, tolerance, inputs=(TOKENS,), loss="cross_entropy",
              eager=logits_loss, plans=PLANS, data=None):
        model = galvatron.from_torch(module, inputs, loss)
        words, x, y = batch_of()
        words = words if data is None else data
        module.zero_grad()
        expected = eager(module, x, y)
        expected.backward()
        trained = {name: parameter for name, parameter in module.named_parameters()
                   if parameter.requires_grad}
        for plan in plans:
            program = model.compile(batch=BATCH, clip=False, **plan)
            path = self.folder / "gradients.safetensors"
            found = program.gradients(words, path, init=model.weights)
            self.assertLess(abs(found - expected.item()), tolerance * expected.item())
            gradients = model.named(galvatron.Weights(path), gradients=True)
            self.assertEqual(set(gradients) - set(model.frozen), set(trained))
            # Biases of keys have none, but for rounding.
            least = 1e-3 * max(float(parameter.grad.norm())
                               for parameter in trained.values())
            for name, parameter in trained.items():
                difference = gradients[name] - parameter.grad
                self.assertLess(float(difference.norm()),
                                tolerance * max(float(parameter.grad.norm()), least),
                                f"{name} under {plan}")
        return model


class EagerTest(Comparison):
    """Modules that people write."""

    def test_gpt(self):
        module = perturbed(GPT()).eval()
        model = self.check(module, 1e-4)
        self.assertEqual([name for name, _ in model.layers],
                         ["wte", "h.0", "h.1", "h.2", "head"])
        self.assertEqual(len({body for _, body in model.layers}), 3)
        # The tied weight is there once, under its first name.
        self.assertEqual(set(model.state_dict()),
                         {name for name, _ in module.named_parameters()})

    def test_gpt_in_f64(self):
        self.check(perturbed(GPT().double()).eval(), 1e-10)

    def test_gpt_that_returns_its_loss(self):
        self.check(perturbed(GPT().double()), 1e-10, (TOKENS, TOKENS), None,
                   lambda module, x, y: module(x, y)[1], PLANS[:2])

    def test_loss_as_a_function(self):
        model = self.check(perturbed(GPT().double()), 1e-10, loss=lambda logits, labels:
                           F.cross_entropy(logits.transpose(1, 2), labels),
                           plans=PLANS[:2])
        self.assertEqual(model.layers[1][0], "h.0")

    def test_llama_by_hand_with_windows(self):
        model = self.check(perturbed(HandLlama().double()), 1e-10)
        bodies = [body for _, body in model.layers]
        self.assertEqual([name for name, _ in model.layers],
                         ["tokens", "blocks.0", "blocks.1", "blocks.2", "out"])
        self.assertEqual(bodies[2], bodies[3])
        self.assertNotEqual(bodies[1], bodies[2])
        self.assertIn("window = 5", model.ir())

    def test_mlp(self):
        model = self.check(perturbed(MLP().double()), 1e-10)
        self.assertEqual(len({body for _, body in model.layers}), 3)

    def test_operations_in_place(self):
        self.check(perturbed(InPlaceMLP().double()), 1e-10, plans=PLANS[:2])

    def test_dropout_is_the_same_under_every_plan(self):
        model = galvatron.from_torch(perturbed(GPT(dropout=0.2).double()).train(),
                                     (TOKENS,))
        words, _, _ = batch_of()
        losses = []
        for plan in PLANS:
            model.compile(batch=BATCH, clip=False, **plan)
            losses.append(model.program.train(words, 3, init=model.weights, lr=1e-2)
                          .wait().final_loss)
        for loss in losses[1:]:
            self.assertAlmostEqual(loss, losses[0], places=9)

    def test_encoder_layers_of_torch(self):
        for norm_first in (True, False):
            self.check(perturbed(Encoder(norm_first=norm_first).double()), 1e-10,
                       plans=PLANS[:3])

    def test_packed_projections(self):
        for interleaved in (False, True):
            module = perturbed(FusedGPT(interleaved=interleaved).double())
            model = self.check(module, 1e-7, plans=PLANS[:3])
            self.assertEqual([name for name, _ in model.layers],
                             ["embed", "blocks.0", "blocks.1", "blocks.2", "out"])

    def test_pictures(self):
        pictures, classes = pictures_of(1)
        model = self.check(
            perturbed(PictureNet().double()), 1e-10, (pictures[:2],),
            eager=lambda module, x, y: F.cross_entropy(module(pictures), classes),
            plans=PLANS[:3], data={"images": pictures, "classes": classes})
        self.assertEqual([name for name, _ in model.layers],
                         ["first", "hidden.0", "hidden.1", "hidden.2", "out"])

    def test_mixers(self):
        pictures, classes = pictures_of(3)
        data = {"images": pictures, "classes": classes}
        for module, plans in (Mixer(), PLANS), (ConvolvedMixer(), PLANS[:3]):
            model = self.check(
                perturbed(module.double()), 1e-10, (pictures[:2],),
                eager=lambda module, x, y: F.cross_entropy(module(pictures), classes),
                plans=plans, data=data)
            if isinstance(module, Mixer):
                self.assertEqual([name for name, _ in model.layers],
                                 ["embed", "blocks.0", "blocks.1", "blocks.2", "head"])
                self.assertEqual(len({body for _, body in model.layers}), 3)
                # There and back, in every block.
                self.assertEqual(model.ir().count("= nn.transpose"), 2)
                self.assertIn('["ffn", ""]', model.ir())

    def test_padding_and_a_value_that_all_blocks_read(self):
        tokens, mask, _, labels = masked_batch()
        model = self.check(
            perturbed(PaddedEncoder().double()), 1e-9, (tokens, mask),
            eager=lambda module, x, y: F.cross_entropy(
                module(tokens, mask).flatten(0, 1), labels.flatten()),
            plans=PLANS[:3],
            data={"tokens": tokens, "mask": mask, "labels": labels})
        self.assertGreaterEqual(len(model.layers), 4)

    def test_ways_of_writing(self):
        """Each is another way to write what nn has."""
        def split_heads(x):
            return x.view(*x.shape[:2], 4, 4).transpose(1, 2)

        def attend(q, k, v, **options):
            y = F.scaled_dot_product_attention(
                split_heads(q), split_heads(k), split_heads(v), **options)
            return y.transpose(1, 2).flatten(2)

        ways = {
            "a matrix of the module": lambda s, x: x @ s.inner[0].weight.t(),
            "rows flattened": lambda s, x: s.inner[0](x.flatten(0, 1)).view(x.shape),
            "positions first": lambda s, x: x + s.inner[0](
                x.transpose(0, 1)).transpose(0, 1),
            "halves added": lambda s, x: sum(s.inner[1](x).chunk(2, -1)),
            "functions of parts": lambda s, x: F.gelu(s.inner[1](x)[..., :16])
            + F.gelu(s.inner[1](x)[..., 16:], approximate="tanh"),
            "a value and its function": lambda s, x: x + F.gelu(x),
            "a gate behind": lambda s, x: (lambda a, b: F.silu(b) * a)(
                *s.inner[1](x).chunk(2, -1)),
            "a gate between": lambda s, x: (lambda p: F.silu(p[..., 0]) * p[..., 1])(
                s.inner[1](x).view(*x.shape, 2)),
            "a sigmoid as gate": lambda s, x: (lambda p: p[..., 0] * torch.sigmoid(
                p[..., 0]) * p[..., 1])(s.inner[1](x).view(*x.shape, 2)),
            "GELU as gate": lambda s, x: (lambda p: F.gelu(
                p[..., 0], approximate="tanh") * p[..., 1])(
                    s.inner[1](x).view(*x.shape, 2)),
            "exact GELU as gate": lambda s, x: (lambda p: F.gelu(p[..., 0]) * p[..., 1])(
                s.inner[1](x).view(*x.shape, 2)),
            "rows times a vector": lambda s, x: x + s.weight * s.inner[0](x),
            "limits": lambda s, x: x + s.inner[0](x).clamp(-0.2, 0.2),
            "a layer norm by roots": lambda s, x: s.weight * (
                (x - x.mean(-1, keepdim=True)) / (
                    (x - x.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True)
                    + 1e-3).sqrt()),
            "ReLU": lambda s, x: x + F.relu(s.inner[0](x)),
            "the larger of it and zero": lambda s, x: s.inner[0](x).clamp(min=0),
            "a product with a number": lambda s, x: x + 0.5 * s.inner[0](2 * x),
            "one value thrice": lambda s, x: attend(*[s.inner[0](x)] * 3, scale=0.3),
            "keys as values": lambda s, x: attend(
                s.inner[1](x)[..., :16], *[s.inner[1](x)[..., 16:]] * 2,
                is_causal=True),
            "a norm by roots": lambda s, x: s.weight * (x * torch.rsqrt(
                x.pow(2).mean(-1, keepdim=True) + 1e-3)),
            "a norm without weight": lambda s, x: F.layer_norm(x, (16,)),
            "a weight used twice": lambda s, x: s.inner[0](s.inner[0](x)),
            "a constant": lambda s, x: x + torch.arange(16.0).to(x.dtype),
            "a tied product": lambda s, x: F.linear(
                F.linear(x, s.embed.weight), s.embed.weight.t()),
        }
        words, x, y = batch_of(vocab=32)
        for name, way in ways.items():
            with self.subTest(name):
                module = Around(way, torch.nn.Linear(16, 16), torch.nn.Linear(16, 32))
                model = galvatron.from_torch(perturbed(module.double()), (TOKENS,))
                program = model.compile(cluster="2xcpu", batch=BATCH, clip=False,
                                        strategy="tp2", pipeline_degree=1)
                path = self.folder / "gradients.safetensors"
                found = program.gradients(words, path, init=model.weights)
                expected = logits_loss(module, x, y)
                expected.backward()
                self.assertAlmostEqual(found, expected.item(), places=10)
                gradients = model.named(galvatron.Weights(path), gradients=True)
                for key, parameter in module.named_parameters():
                    if parameter.grad is None:
                        self.assertNotIn(key, gradients)
                        continue
                    self.assertTrue(torch.allclose(gradients[key], parameter.grad,
                                                   atol=1e-10), key)

    def test_random_plans(self):
        """Every layer with a strategy of its own, on four and eight ranks."""
        draw = random.Random(11)
        count = 40 if os.environ.get("GALVATRON_LONG") else 1
        words, _, _ = batch_of()
        tokens, mask, _, labels = masked_batch()
        pictures, classes = pictures_of(1)
        for module, most, inputs, data in [
                (FusedGPT(), 2, (TOKENS,), words), (HandLlama(), 2, (TOKENS,), words),
                (GPT(dropout=0.1), 4, (TOKENS,), words),
                (PaddedEncoder(), 4, (tokens, mask),
                 {"tokens": tokens, "mask": mask, "labels": labels}),
                (PictureNet(), 2, (pictures[:2],),
                 {"images": pictures, "classes": classes}),
                (Mixer(channels=1, dropout=0.1), 2, (pictures[:2],),
                 {"images": pictures, "classes": classes})]:
            model = galvatron.from_torch(perturbed(module.double()), inputs)
            program = model.compile(cluster="1xcpu", batch=BATCH)
            expected = [step.loss for step in
                        program.train(data, 3, init=model.weights, lr=1e-2)]
            for _ in range(count):
                plan = random_plan(model, draw, most)
                found = [step.loss for step in model.compile(plan=plan).train(
                    data, 3, init=model.weights, lr=1e-2)]
                for mine, theirs in zip(found, expected):
                    self.assertAlmostEqual(mine, theirs, places=9, msg=repr(plan))

    def test_training_is_that_of_torch(self):
        self.train_both(perturbed(GPT().double()).eval())

    def test_training_of_pieces_and_of_what_is_fixed(self):
        module = perturbed(FusedGPT().double())
        module.embed.weight.requires_grad_(False)
        module.blocks[1].qkv.weight.requires_grad_(False)
        before = module.blocks[1].qkv.weight.clone()
        self.train_both(module, 1e-6)
        self.assertTrue(torch.equal(module.blocks[1].qkv.weight, before))

    def train_both(self, module, tolerance=1e-9):
        """Three steps here and in PyTorch."""
        model = galvatron.from_torch(module, (TOKENS,))
        words, x, y = batch_of()
        model.compile(cluster="4xcpu", batch=BATCH, strategy="sdp2.tp2",
                      pipeline_degree=1, clip=False)
        losses = [step.loss for step in model.train(words, 3, lr=1e-2)]
        other = copy.deepcopy(module)
        matrices = [p for p in other.parameters() if p.dim() > 1]
        vectors = [p for p in other.parameters() if p.dim() < 2]
        optimizer = torch.optim.AdamW(
            [{"params": matrices}, {"params": vectors, "weight_decay": 0}], lr=1e-2)
        for loss in losses:
            optimizer.zero_grad()
            expected = logits_loss(other, x, y)
            expected.backward()
            optimizer.step()
            self.assertAlmostEqual(loss, expected.item(), delta=tolerance)
        model.copy_to()
        for mine, theirs in zip(module.parameters(), other.parameters()):
            self.assertTrue(torch.allclose(mine, theirs, atol=10 * tolerance))
        with torch.no_grad():
            self.assertAlmostEqual(model.evaluate(words).loss,
                                   logits_loss(module, x, y).item(), delta=tolerance)

    def test_dropout_follows_the_mode(self):
        def count(module):
            return galvatron.from_torch(module, (TOKENS,)).ir().count("dropout")

        self.assertEqual(count(GPT(dropout=0.1).eval()), 0)
        self.assertEqual(count(GPT(dropout=0.1).train()), 3)


@unittest.skipUnless(transformers, "needs transformers")
class TransformersTest(Comparison):
    """Modules of transformers, without their configurations."""

    def library(self, kind, **fields):
        config = getattr(transformers, kind + "Config")(
            vocab_size=VOCAB, bos_token_id=0, eos_token_id=0, pad_token_id=None,
            **fields)
        suffix = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
        name = kind.removesuffix("Text") + suffix
        module = perturbed(getattr(transformers, name)(config)).eval()
        model = self.check(module, 1e-4,
                           {"input_ids": TOKENS, "use_cache": False},
                           plans=PLANS[:2])
        self.assertEqual(len(model.layers), 5)
        return model

    def decoder(self, kind, **fields):
        return self.library(kind, **({
            "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
            "num_attention_heads": 6, "num_key_value_heads": 2,
            "max_position_embeddings": LENGTH} | fields))

    def test_gpt2(self):
        self.library("GPT2", n_positions=LENGTH, n_embd=24, n_layer=3, n_head=4)

    def test_gpt_neox_with_heads_turned_in_part(self):
        self.library("GPTNeoX", hidden_size=32, intermediate_size=40,
                     num_hidden_layers=3, num_attention_heads=4,
                     max_position_embeddings=LENGTH, hidden_act="gelu")

    @unittest.skipUnless(os.environ.get("GALVATRON_LONG"), "long")
    def test_more_of_the_library(self):
        """Other families."""
        sizes = {"hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 3,
                 "num_attention_heads": 6, "max_position_embeddings": LENGTH}
        for kind in ("Olmo", "Phi", "Phi3", "SmolLM3", "StableLm", "Starcoder2"):
            with self.subTest(kind):
                self.library(kind, **sizes, num_key_value_heads=6)

    @unittest.skipUnless(os.environ.get("GALVATRON_LONG"), "long")
    def test_opt_olmo3_and_falcon(self):
        with self.subTest("OPT"):
            self.library("OPT", hidden_size=24, word_embed_proj_dim=24, ffn_dim=40,
                         num_hidden_layers=3, num_attention_heads=4,
                         max_position_embeddings=LENGTH)
        with self.subTest("Olmo3"):
            self.decoder("Olmo3", sliding_window=7)
        with self.subTest("Falcon"):
            self.library("Falcon", hidden_size=32, num_hidden_layers=3,
                         num_attention_heads=4)

    def test_gemma2_with_caps(self):
        text = self.decoder("Gemma2", head_dim=8, sliding_window=7,
                            attn_logit_softcapping=1.5, final_logit_softcapping=2.0,
                            attn_implementation="eager").ir()
        self.assertIn("{cap = 1.500000e+00 : f64, causal", text)
        self.assertEqual(text.count("nn.soft_cap"), 1)

    def test_neighbours_that_are_rotated(self):
        """Heads in front of positions, and behind them."""
        text = self.decoder("Glm", head_dim=8).ir()
        self.assertEqual(text.count("interleaved"), 2)
        text = self.library("GPTJ", n_embd=24, n_layer=3, n_head=4, rotary_dim=4,
                            n_positions=LENGTH).ir()
        self.assertEqual(text.count("interleaved"), 2)

    def test_llama(self):
        self.decoder("Llama", attention_bias=True, mlp_bias=True)

    def test_llama_with_scaled_rotary(self):
        self.decoder("Llama", rope_scaling={
            "rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0,
            "original_max_position_embeddings": 4})

    def test_mistral(self):
        self.decoder("Mistral", sliding_window=7)

    def test_qwen2(self):
        self.decoder("Qwen2", use_sliding_window=True, sliding_window=7,
                     max_window_layers=1, tie_word_embeddings=True)

    def test_gemma(self):
        for kind in ("Gemma", "Gemma3Text"):
            with self.subTest(kind):
                text = self.decoder(kind, head_dim=8).ir()
                self.assertIn("unit_offset", text)

    def test_cohere(self):
        """Layer norms written out, without a bias, and with a weight for each head."""
        text = self.decoder("Cohere", logit_scale=0.5, use_qk_norm=True).ir()
        self.assertEqual(text.count("nn.layer_norm"), 2)
        self.assertEqual(text.count("nn.standardize"), 2)
        self.assertNotIn("bias", text)

    def test_falcon_with_few_key_heads(self):
        """Key heads among their queries in one tensor, copied before they are turned."""
        self.library("Falcon", hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
                     num_kv_heads=2, new_decoder_architecture=True)

    def test_distances_times_slopes(self):
        """ALiBi, with heads that are no power of two where the families agree on them."""
        text = self.library("Bloom", hidden_size=24, n_layer=3, n_head=6).ir()
        self.assertEqual(text.count("distance = 1."), 1)
        text = self.library("Mpt", d_model=24, n_layers=3, n_heads=4, max_seq_len=LENGTH,
                            expansion_ratio=4).ir()
        self.assertEqual(text.count("distance = 1."), 1)

    def test_olmo_with_a_limit(self):
        text = self.decoder("Olmo", clip_qkv=0.1, attention_bias=True).ir()
        self.assertEqual(text.count("nn.clip"), 3)

    def test_granite_with_factors(self):
        text = self.decoder("Granite", embedding_multiplier=1.5, logits_scaling=4.0,
                            attention_multiplier=0.4, residual_multiplier=0.75).ir()
        self.assertEqual(text.count("nn.scale"), 4)

    def test_olmo2(self):
        self.decoder("Olmo2")

    def small(self, kind, suffix, **fields):
        config = getattr(transformers, kind + "Config")(
            hidden_size=24, num_hidden_layers=3, num_attention_heads=4,
            intermediate_size=40, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0, **fields)
        return perturbed(getattr(transformers, kind + suffix)(config).double()).eval()

    def test_vit(self):
        pictures, classes = pictures_of(3)
        module = self.small("ViT", "ForImageClassification", image_size=12,
                            patch_size=4, num_labels=5)
        self.check(module, 1e-7, {"pixel_values": pictures[:2]},
                   eager=lambda module, x, y:
                   F.cross_entropy(module(pictures).logits, classes),
                   plans=PLANS[:3], data={"images": pictures, "classes": classes})

    def test_deit(self):
        pictures, _ = pictures_of(3)
        module = self.small("DeiT", "ForImageClassification", image_size=12,
                            patch_size=4, num_labels=5)
        text = galvatron.from_torch(module, {"pixel_values": pictures[:2]}).ir()
        self.assertEqual(text.count("nn.prepend"), 2)

    def test_dinov2(self):
        """Classes from the first position and the mean of the others; layer scale."""
        pictures, classes = pictures_of(3)
        config = transformers.Dinov2Config(
            hidden_size=24, num_hidden_layers=3, num_attention_heads=4, mlp_ratio=2,
            image_size=12, patch_size=4, num_labels=5, use_mask_token=False)
        module = transformers.Dinov2ForImageClassification(config)
        model = self.check(perturbed(module.double()).eval(), 1e-7,
                           {"pixel_values": pictures[:2]},
                           eager=lambda module, x, y:
                           F.cross_entropy(module(pictures).logits, classes),
                           plans=PLANS[:2], data={"images": pictures, "classes": classes})
        self.assertEqual(len({body for _, body in model.layers}), 3)

    def test_bert(self):
        tokens, mask, segments, labels = masked_batch()
        module = self.small("Bert", "ForMaskedLM", vocab_size=VOCAB,
                            max_position_embeddings=LENGTH + 4)
        inputs = {"input_ids": tokens, "attention_mask": mask,
                  "token_type_ids": segments}
        self.check(module, 1e-7, inputs,
                   eager=lambda module, x, y: F.cross_entropy(
                       module(**inputs).logits.flatten(0, 1), labels.flatten()),
                   plans=PLANS[:3],
                   data={"tokens": tokens, "mask": mask, "token_types": segments,
                         "labels": labels})
        # Without them all tokens are of the first segment, and count.
        self.check(module, 1e-7, {"input_ids": tokens},
                   eager=lambda module, x, y: F.cross_entropy(
                       module(tokens).logits.flatten(0, 1), labels.flatten()),
                   plans=PLANS[:2], data={"tokens": tokens, "labels": labels})

    def masked(self, module, inputs, tokens, mask, labels):
        """An encoder with padding, called with `inputs`."""
        return self.check(
            module, 1e-6, inputs,
            eager=lambda module, x, y: F.cross_entropy(
                module(**inputs).logits.flatten(0, 1), labels.flatten()),
            plans=PLANS[:3], data={"tokens": tokens, "mask": mask, "labels": labels})

    def test_roberta_with_its_positions(self):
        """It counts them over what is no padding, unless they are given."""
        tokens, mask, _, labels = masked_batch()
        module = self.small("Roberta", "ForMaskedLM", vocab_size=VOCAB, type_vocab_size=1,
                            max_position_embeddings=LENGTH + 2, pad_token_id=1)
        inputs = {"input_ids": tokens, "attention_mask": mask}
        with self.assertRaisesRegex(galvatron.Unsupported, "call it with position_ids"):
            galvatron.from_torch(module, inputs)

        class Given(torch.nn.Module):
            def __init__(self, inner):
                super().__init__()
                self.inner = inner

            def forward(self, input_ids, attention_mask):
                place = torch.arange(2, LENGTH + 2)[None].expand(input_ids.shape)
                return self.inner(input_ids, attention_mask=attention_mask,
                                  position_ids=place,
                                  token_type_ids=torch.zeros_like(place))

        self.masked(Given(module), inputs, tokens, mask, labels)

    def test_modernbert(self):
        """Windows to both sides, and gates with the exact GELU."""
        tokens, mask, _, labels = masked_batch()
        config = transformers.ModernBertConfig(
            vocab_size=VOCAB, hidden_size=24, intermediate_size=40, num_hidden_layers=4,
            num_attention_heads=4, max_position_embeddings=LENGTH, pad_token_id=0,
            bos_token_id=0, eos_token_id=0, cls_token_id=0, sep_token_id=0,
            local_attention=LENGTH, attn_implementation="sdpa")
        module = perturbed(transformers.ModernBertForMaskedLM(config).double()).eval()
        model = self.masked(module, {"input_ids": tokens, "attention_mask": mask},
                            tokens, mask, labels)
        self.assertEqual(model.ir().count("{exact}"), 3)
        self.assertIn(f"window = {LENGTH // 2 + 1}", model.ir())

    def test_qwen3(self):
        self.decoder("Qwen3", head_dim=8)

    def test_t5(self):
        """Both versions; the decoder is shorter than the encoder."""
        tokens, mask, _, _ = masked_batch()
        draw = torch.Generator().manual_seed(6)
        words = torch.randint(1, VOCAB, (BATCH, 7), generator=draw)
        labels = torch.where(torch.rand(words.shape, generator=draw) < 0.8, words, -100)
        inputs = {"input_ids": tokens, "attention_mask": mask,
                  "decoder_input_ids": words, "use_cache": False}
        for projection, tied, attention, distance in (
                ("relu", True, "sdpa", 128), ("gated-gelu", False, "eager", 20)):
            config = transformers.T5Config(
                vocab_size=VOCAB, d_model=24, d_kv=6, num_heads=4, d_ff=40, num_layers=2,
                num_decoder_layers=3, dropout_rate=0.0, feed_forward_proj=projection,
                tie_word_embeddings=tied, relative_attention_num_buckets=12,
                relative_attention_max_distance=distance,
                attn_implementation=attention)
            module = transformers.T5ForConditionalGeneration(config)
            module = perturbed(module.double())
            # The library has RMS norms in f32.
            model = self.check(
                module, 1e-5, inputs,
                eager=lambda module, x, y: F.cross_entropy(
                    module(**inputs).logits.flatten(0, 1), labels.flatten()),
                plans=PLANS, data={"tokens": tokens, "mask": mask,
                                   "decoder_tokens": words, "labels": labels})
            names = [name for name, _ in model.layers]
            self.assertEqual(len([name for name in names if "block" in name]), 5, names)
            self.assertEqual(len({body for name, body in model.layers
                                  if "block" in name}), 2)
            self.assertEqual(model.ir().count("= nn.relative_bias"), 2)

    def encoder_with_decoder(self, kind, **fields):
        tokens, mask, _, _ = masked_batch()
        draw = torch.Generator().manual_seed(6)
        words = torch.randint(3, VOCAB, (BATCH, 7), generator=draw)
        inputs = {"input_ids": tokens, "attention_mask": mask,
                  "decoder_input_ids": words, "use_cache": False}
        config = getattr(transformers, kind + "Config")(
            vocab_size=VOCAB, d_model=24, encoder_layers=2, decoder_layers=2,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=40,
            decoder_ffn_dim=40, max_position_embeddings=LENGTH, pad_token_id=0,
            bos_token_id=1, eos_token_id=2, decoder_start_token_id=2,
            forced_eos_token_id=2, dropout=0.0, **fields)
        module = getattr(transformers, kind + "ForConditionalGeneration")(config)
        model = self.check(
            perturbed(module.double()).eval(), 1e-6, inputs,
            eager=lambda module, x, y: F.cross_entropy(
                module(**inputs).logits.flatten(0, 1), words.flatten()),
            plans=PLANS[:2], data={"tokens": tokens, "mask": mask,
                                   "decoder_tokens": words, "labels": words})
        self.assertEqual(len(model.layers), 7)
        self.assertEqual(len({body for _, body in model.layers}), 5)

    def test_bart(self):
        self.encoder_with_decoder("Bart")

    @unittest.skipUnless(os.environ.get("GALVATRON_LONG"), "long")
    def test_mbart_and_pegasus(self):
        """Norms in front of halves; positions that are not trained."""
        with self.subTest("MBart"):
            self.encoder_with_decoder("MBart", scale_embedding=True)
        with self.subTest("Pegasus"):
            self.encoder_with_decoder("Pegasus")

    def check_paths(self, config, pictures, classes):
        """Whole samples lose a block's attention, more often the deeper it is, and the
        same ones under every plan."""
        config.drop_path_rate = 0.4
        module = perturbed(transformers.SwinForImageClassification(config).double())
        model = galvatron.from_torch(module.train(), {"pixel_values": pictures[:2]})
        paths = [[op.attributes["rate"] * (number - op.attributes["first_layer"])
                  for op in layer.ops if op.name == "nn.drop_path"]
                 for number, layer in enumerate(model.layered.layers)
                 if "blocks" in layer.name]
        self.assertEqual(len(paths), 6)
        self.assertEqual(paths[0], [])
        for number, found in enumerate(paths[1:], 1):
            self.assertEqual(len(found), 1)
            self.assertAlmostEqual(found[0], 0.4 * number / 5)
        losses = []
        for plan in PLANS[:3]:
            model.compile(batch=BATCH, clip=False, **plan)
            losses.append(model.program.train(
                {"images": pictures, "classes": classes}, 3, init=model.weights,
                lr=1e-2).wait().final_loss)
        for loss in losses[1:]:
            self.assertAlmostEqual(loss, losses[0], places=9)
        model.compile(batch=BATCH, clip=False, dropout=False, **PLANS[0])
        self.assertNotAlmostEqual(losses[0], model.program.train(
            {"images": pictures, "classes": classes}, 3, init=model.weights,
            lr=1e-2).wait().final_loss, places=4)

    def test_swin(self):
        """Windows that are turned and padded, the whole grid as a window, merging."""
        for size, window, kind in ((18, 4, "sdpa"), (16, 4, "eager")):
            draw = torch.Generator().manual_seed(5)
            pictures = torch.randn(BATCH, 3, size, size, generator=draw,
                                   dtype=torch.double)
            classes = torch.randint(0, 5, (BATCH,), generator=draw)
            config = transformers.SwinConfig(
                image_size=size, patch_size=2, num_channels=3, embed_dim=12,
                depths=[4, 2], num_heads=[2, 4], window_size=window, num_labels=5,
                drop_path_rate=0.0, attn_implementation=kind)
            module = perturbed(transformers.SwinForImageClassification(config).double())
            model = self.check(module, 1e-7, {"pixel_values": pictures[:2]},
                               eager=lambda module, x, y: F.cross_entropy(
                                   module(pictures).logits, classes),
                               plans=PLANS, data={"images": pictures,
                                                  "classes": classes})
            blocks = [body for name, body in model.layers if "blocks" in name]
            self.check_paths(config, pictures, classes)
            # The first stage turns every other block; a grid of one window does not.
            self.assertEqual(len(blocks), 6, model.layers)
            self.assertEqual(len(set(blocks)), 4 if size == 18 else 3)


if __name__ == "__main__":
    unittest.main()
