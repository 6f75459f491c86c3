# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Low-rank adapters beside the packages transformers and peft: the same losses, and
files that each reads of the other."""

import array
import unittest

try:
    import peft
    import torch
    import transformers
except ImportError as error:
    raise unittest.SkipTest(f"needs peft and transformers: {error}") from error

import galvatron

from .support import FolderTest

LENGTH, BATCH, STEPS = 32, 8, 20
LLAMA = transformers.LlamaConfig(
    vocab_size=256, hidden_size=48, intermediate_size=96, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH,
    tie_word_embeddings=False, attention_dropout=0.0)
GPT2 = transformers.GPT2Config(
    vocab_size=256, n_embd=48, n_layer=2, n_head=4, n_positions=LENGTH, resid_pdrop=0.0,
    embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
FAMILIES = (
    (transformers.LlamaForCausalLM, LLAMA, ["q_proj", "v_proj", "down_proj"]),
    (transformers.GPT2LMHeadModel, GPT2, ["c_attn", "mlp.c_proj"]),
)


class AdapterPeersTest(FolderTest):
    def test_losses_and_files(self):
        print(f"peft {peft.__version__}, transformers {transformers.__version__}")
        generator = torch.Generator().manual_seed(3)
        tokens = torch.randint(0, 256, (BATCH * LENGTH + 1,), generator=generator)
        data = self.write("tokens.u16", array.array("H", tokens.tolist()).tobytes())
        for kind, config, modules in FAMILIES:
            torch.manual_seed(5)
            base, given = (self.folder / kind.__name__ / name for name in ("base", "given"))
            kind(config).float().save_pretrained(base)
            # B is not zero: with zeros the first steps say nothing about A.
            module = peft.get_peft_model(
                kind.from_pretrained(base), peft.LoraConfig(
                    r=4, lora_alpha=6, target_modules=modules, init_lora_weights=False))
            module.save_pretrained(given)
            expected = self.peer(module, tokens)
            for number, plan in enumerate(("tp2.dp2", "sdp4", "zdp2.ckpt")):
                model = self.compiled(base, modules, plan, number == 2)
                model.adapters = given
                found = [step.loss for step in model.train(
                    data=str(data), steps=STEPS, lr=3e-3, weight_decay=0.0,
                    lr_schedule="constant")]
                self.assertEqual(len(found), STEPS)
                for ours, theirs in zip(found, expected):
                    self.assertAlmostEqual(ours, theirs, delta=2e-5 * theirs)
            self.assertLess(expected[-1], 0.99 * expected[0])

            # What was trained here, read there, beside and inside the model.
            last = self.loss(module, tokens)
            saved = peft.PeftModel.from_pretrained(kind.from_pretrained(base),
                                                   model.adapters)
            self.assertAlmostEqual(self.loss(saved, tokens), last, delta=2e-5 * last)
            merged = self.folder / kind.__name__ / "merged"
            for _ in model.train(data=str(data), steps=0, save=merged, merge=True):
                pass
            self.assertAlmostEqual(self.loss(kind.from_pretrained(merged), tokens), last,
                                   delta=2e-5 * last)

    @staticmethod
    def compiled(base, modules, plan, pipelined):
        model = galvatron.from_config(base / "config.json", seq_len=LENGTH, weights=base)
        names = ";".join("*." + name for name in modules)
        model.compile(cluster="4xcpu", batch=BATCH, strategy=plan, dtype="f32", clip=False,
                      pipeline_degree=2 if pipelined else 1, micro_batches=2,
                      adapters=f"rank=4,alpha=6,layers={names}")
        return model

    @staticmethod
    def loss(module, tokens):
        ids = tokens[:-1].reshape(BATCH, LENGTH)
        labels = tokens[1:].reshape(BATCH, LENGTH)
        with torch.no_grad():
            logits = module(input_ids=ids, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.reshape(-1, 256).float(),
                                                 labels.reshape(-1)).item()

    @staticmethod
    def peer(module, tokens):
        """The losses of training the adapters of peft."""
        ids = tokens[:-1].reshape(BATCH, LENGTH)
        labels = tokens[1:].reshape(-1)
        optimizer = torch.optim.AdamW(
            [each for each in module.parameters() if each.requires_grad], lr=3e-3,
            betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
        losses = []
        for _ in range(STEPS):
            logits = module(input_ids=ids, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 256), labels)
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return losses


if __name__ == "__main__":
    unittest.main()
