# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generation with kept keys and values beside the package transformers: the same
greedy texts of the same weights."""

import json
import unittest

try:
    import torch
    import transformers
except ImportError as error:
    raise unittest.SkipTest(f"needs transformers: {error}") from error

from galvatron import tools

from .support import FolderTest

LENGTH, TOKENS, PROMPTS = 48, 12, 20


def models():
    """Small models of random weights, large enough that logits are apart."""
    common = {"vocab_size": 128, "initializer_range": 0.4}
    llama = {**common, "hidden_size": 32, "intermediate_size": 48,
             "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "max_position_embeddings": LENGTH}
    return {
        "gpt2": transformers.GPT2LMHeadModel(transformers.GPT2Config(
            **common, n_embd=32, n_layer=2, n_head=4, n_positions=LENGTH,
            bos_token_id=1, eos_token_id=[5, 9])),
        "llama": transformers.LlamaForCausalLM(transformers.LlamaConfig(
            **llama, bos_token_id=1, eos_token_id=[5, 9])),
        "mistral": transformers.MistralForCausalLM(transformers.MistralConfig(
            **llama, sliding_window=7, bos_token_id=1, eos_token_id=5)),
        "opt": transformers.OPTForCausalLM(transformers.OPTConfig(
            vocab_size=128, hidden_size=32, word_embed_proj_dim=32, ffn_dim=48,
            num_hidden_layers=2, num_attention_heads=4, init_std=0.4,
            max_position_embeddings=LENGTH, pad_token_id=1, bos_token_id=1,
            eos_token_id=5)),
        "bloom": transformers.BloomForCausalLM(transformers.BloomConfig(
            **common, hidden_size=32, n_layer=2, n_head=4, seq_length=LENGTH,
            bos_token_id=1, eos_token_id=5))}


def models_with_encoders():
    """The same of models whose decoder writes what an encoder has read. Byte 1 ends
    what it reads, and no byte is padding."""
    common = {"vocab_size": 128, "pad_token_id": 0, "eos_token_id": 1,
              "decoder_start_token_id": 0}
    t5 = {**common, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2,
          "num_decoder_layers": 2, "num_heads": 4, "relative_attention_num_buckets": 8,
          "relative_attention_max_distance": 20, "n_positions": LENGTH}
    bart = {**common, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
            "encoder_attention_heads": 4, "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48, "decoder_ffn_dim": 40, "init_std": 0.6,
            "max_position_embeddings": LENGTH}
    return {
        "t5": transformers.T5ForConditionalGeneration(transformers.T5Config(
            **t5, initializer_factor=1.5)),
        "t5-gated": transformers.T5ForConditionalGeneration(transformers.T5Config(
            **t5, initializer_factor=1.5, feed_forward_proj="gated-gelu",
            tie_word_embeddings=False)),
        "bart": transformers.BartForConditionalGeneration(transformers.BartConfig(
            **bart, forced_bos_token_id=66, forced_eos_token_id=None)),
        "pegasus": transformers.PegasusForConditionalGeneration(
            transformers.PegasusConfig(**bart, forced_eos_token_id=None))}


def make_prompts():
    return ["".join(chr(32 + (7 * i * i + 11 * i * at + 5 * at) % 90)
                    for at in range(1 + (i * 3) % 30)) for i in range(PROMPTS)]


class GenerationPeersTest(FolderTest):
    def compare(self, made, greedy, lengths, most):
        """Compares texts of models with those of `greedy`, under a plan that writes one
        at a time and one that writes six; `most` are the tokens that each keeps behind
        a prompt."""
        prompts = make_prompts()
        asked = self.write("prompts.jsonl", "\n".join(map(json.dumps, prompts)))
        for name, model in made.items():
            folder = self.folder / name
            model.save_pretrained(folder)
            model.eval()
            expected = [greedy(model, prompt) for prompt in prompts]
            for plan in (["--cluster=1xcpu", f"--generate=1,32,{most[0]}"],
                         ["--cluster=4xcpu", f"--generate=6,32,{most[1]}",
                          "--pipeline-degree=2", "--strategy=tp2"]):
                with self.subTest(model=name, plan=plan):
                    program = self.folder / "program.gvx"
                    tools.call("galvatron-compile", [
                        str(folder / "config.json"), *lengths, *plan,
                        f"-o={program}"])
                    summary = self.folder / "summary.json"
                    tools.call("galvatron-run", [
                        str(program), f"--init={folder}", f"--prompts={asked}",
                        f"--tokens={TOKENS}", f"--summary={summary}"])
                    found = json.loads(summary.read_text(encoding="utf-8"))
                    self.assertEqual(found["generated"], expected)

    def test_greedy_texts_behind_encoders_are_equal(self):
        torch.manual_seed(6)
        self.compare(models_with_encoders(), self.greedy_behind,
                     ["--seq-len=40", "--decoder-seq-len=16"], (16, 12))

    @staticmethod
    def greedy_behind(model, prompt):
        """What the decoder writes of a text, a token a byte."""
        given = torch.tensor([[*prompt.encode("ascii"), 1]])
        with torch.no_grad():
            made = model.generate(given, do_sample=False, num_beams=1,
                                  max_new_tokens=TOKENS, output_logits=True,
                                  return_dict_in_generate=True)
        for logits in made.logits:
            best = torch.topk(logits[0], 2).values
            assert best[0] - best[1] > 1e-3, "choose another seed"
        tokens = made.sequences[0, 1:].tolist()
        if 1 in tokens:
            tokens = tokens[:tokens.index(1)]
        return bytes(tokens).decode("ascii")

    def test_greedy_texts_are_equal(self):
        torch.manual_seed(3)
        self.compare(models(), self.greedy, [f"--seq-len={LENGTH}"], (16, 16))

    @staticmethod
    def greedy(model, prompt):
        """The text behind a prompt, a token a byte, without the token that ends it.
        Its likeliest tokens are apart from all others."""
        given = torch.tensor([list(prompt.encode("ascii"))])
        with torch.no_grad():
            made = model.generate(given, do_sample=False, max_new_tokens=TOKENS,
                                  attention_mask=torch.ones_like(given), pad_token_id=0,
                                  output_logits=True, return_dict_in_generate=True)
        for logits in made.logits:
            best = torch.topk(logits[0], 2).values
            assert best[0] - best[1] > 1e-3, "choose another seed"
        ends = model.generation_config.eos_token_id
        tokens = made.sequences[0, given.shape[1]:].tolist()
        if tokens[-1] in (ends if isinstance(ends, list) else [ends]):
            tokens.pop()
        return bytes(tokens).decode("ascii")


if __name__ == "__main__":
    unittest.main()
