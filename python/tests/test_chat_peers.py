# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversations beside the package transformers: the same tokens and labels, and
the same losses of a LLaMA that is trained on them."""

import array
import json
import unittest

try:
    import torch
    import transformers
except ImportError as error:
    raise unittest.SkipTest(f"needs transformers: {error}") from error

import galvatron
from galvatron import chat

from .support import SOURCE, FolderTest
from .test_chat import CHATML, MARKED, TOKENIZER

# Like those of published models: a system message of its own, roles that must
# alternate, BOS, loops with conditions, white space control.
STRICT = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = 'Answer in a word.' %}
{%- endif %}
{{- '<|im_start|>system\\n' ~ system ~ '<|im_end|>' }}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n\\n' + message['content'] | trim + '<|im_end|>' }}
{%- endfor %}
{%- if tools is not none %}{{ tools | tojson(indent=1) }}{% endif %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n\\n' }}{%- endif %}
"""

QUESTIONS = ["the sun", "a camelCase word", "what is right?", "2 + 2?", "caf\u00e9", "and so on"]


def talks(count):
    rows = []
    for number in range(count):
        messages = [{"role": "system", "content": "be kind"}] if number % 3 == 0 else []
        for turn in range(1 + number % 3):
            messages += [
                {"role": "user", "content": QUESTIONS[(number + turn) % 6]},
                {"role": "assistant",
                 "content": f"it is {number * 7 + turn} " + "so " * (number % 4)}]
        rows.append({"messages": messages})
    return rows


class PeersTest(FolderTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        self.model.mkdir()
        self.tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(TOKENIZER), eos_token="<|im_end|>",
            bos_token="<|endoftext|>", pad_token="<|endoftext|>")

    def shards(self, template, rows, **options):
        """The tokens, the labels and the documents' ends that are made of rows, and
        the folder."""
        self.tokenizer.chat_template = template
        self.tokenizer.save_pretrained(self.model)
        data = self.write("talks.jsonl", "\n".join(map(json.dumps, rows)))
        folder = self.folder / f"shards-{len(list(self.folder.iterdir()))}"
        chat.prepare(data, self.model, folder, **options)
        tokens = array.array("H", (folder / "00000.u16").read_bytes())
        labels = (folder / "00000.u16.labels").read_bytes()
        index = (folder / "00000.u16.index").read_bytes()
        documents = int.from_bytes(index[24:32], "little")
        ends = array.array("Q", index[168:168 + 8 * documents])
        return list(tokens), list(labels), list(ends), folder

    def test_tokens_and_labels(self):
        rows = talks(24)
        for template in (CHATML, MARKED, STRICT):
            tokens, labels, ends, _ = self.shards(template, rows)
            begin = 0
            for row, end in zip(rows, ends, strict=True):
                made = self.tokenizer.apply_chat_template(
                    row["messages"], tokenize=True, return_dict=True,
                    return_assistant_tokens_mask=template == MARKED)
                self.assertEqual(tokens[begin:end], made["input_ids"])
                if template == MARKED:
                    self.assertEqual(labels[begin:end], made["assistant_masks"])
                else:
                    self.assertEqual(labels[begin:end], self.by_prefixes(row["messages"],
                                                                         end - begin))
                begin = end

    def by_prefixes(self, messages, length):
        """What is behind each prompt up to the end of its answer."""
        labels = [0] * length
        for number, message in enumerate(messages):
            if message["role"] == "assistant":
                first, last = (len(self.tokenizer.apply_chat_template(
                    messages[:number + more], tokenize=True, return_dict=True,
                    add_generation_prompt=not more)["input_ids"]) for more in (0, 1))
                labels[first:last] = [1] * (last - first)
        return labels

    def test_losses_of_training(self):
        length, count, steps = 160, 12, 20
        config = transformers.LlamaConfig(
            vocab_size=1000, hidden_size=48, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=length,
            tie_word_embeddings=False, attention_dropout=0.0)
        torch.manual_seed(5)
        module = transformers.LlamaForCausalLM(config).float()
        module.save_pretrained(self.model)
        for template in (CHATML, MARKED):
            tokens, labels, _, folder = self.shards(template, talks(count), seq_len=length)
            losses = []
            for plan in ("tp2.dp2", "sdp4", "dp2.ckpt"):
                model = galvatron.from_config(self.model / "config.json", seq_len=length,
                                              weights=self.model)
                model.compile(cluster="4xcpu", batch=count, strategy=plan,
                              pipeline_degree=2 if plan == "dp2.ckpt" else 1,
                              micro_batches=3, dtype="f32", clip=False)
                run = model.train(data=str(folder / "00000.u16"), steps=steps, lr=3e-3,
                                  weight_decay=0.0, lr_schedule="constant")
                losses.append([step.loss for step in run])
            ids = torch.tensor(tokens[:-1]).reshape(-1, length)
            counts = torch.tensor(labels[:-1]).reshape(-1, length).bool()
            expected = self.peer(ids, counts, steps)
            for found in losses:
                self.assertEqual(len(found), steps)
                for ours, theirs in zip(found, expected):
                    self.assertAlmostEqual(ours, theirs, delta=2e-5 * theirs)
            self.assertLess(expected[-1], 0.8 * expected[0])

    def test_losses_of_packed_documents(self):
        """Documents that are kept apart, by the library from positions that begin
        anew: rotated queries and keys, and learnt positions."""
        length, steps = 320, 10
        llama = transformers.LlamaConfig(
            vocab_size=1000, hidden_size=48, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=length,
            tie_word_embeddings=False, attention_dropout=0.0)
        gpt2 = transformers.GPT2Config(
            vocab_size=1000, n_embd=48, n_layer=2, n_head=4, n_positions=length,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0,
            eos_token_id=0)
        for kind, config in ((transformers.LlamaForCausalLM, llama),
                             (transformers.GPT2LMHeadModel, gpt2)):
            torch.manual_seed(6)
            kind(config).float().save_pretrained(self.model)
            tokens, labels, ends, folder = self.shards(
                CHATML, talks(20), seq_len=length, pack={"documents_per_sample": "fit"})
            samples = len(tokens) // length
            self.assertLess(samples, 12)  # of 20 documents
            positions, begin = [], 0
            for end in ends:
                positions += range(end - begin)
                begin = end
            shape = (samples, length)
            ids, counts, positions = (torch.tensor(values[:-1]).reshape(shape)
                                      for values in (tokens, labels, positions))
            expected = self.peer(ids, counts.bool(), steps, kind, position_ids=positions)
            mixed = self.peer(ids, counts.bool(), 1, kind)
            self.assertGreater(abs(mixed[0] - expected[0]), 1e-4 * mixed[0])
            for plan in ("dp1", "tp2"):
                model = galvatron.from_config(self.model / "config.json", seq_len=length,
                                              weights=self.model)
                model.compile(cluster="2xcpu" if plan == "tp2" else "1xcpu", batch=samples,
                              strategy="single" if plan == "dp1" else plan,
                              pipeline_degree=1, micro_batches=1, dtype="f32", clip=False,
                              documents="attention", document_length=60)
                run = model.train(data=str(folder / "00000.u16"), steps=steps, lr=3e-3,
                                  weight_decay=0.0, lr_schedule="constant")
                found = [step.loss for step in run]
                self.assertEqual(len(found), steps)
                for ours, theirs in zip(found, expected):
                    self.assertAlmostEqual(ours, theirs, delta=2e-5 * theirs)

    def peer(self, ids, counts, steps, kind=transformers.LlamaForCausalLM, **inputs):
        """The losses of the library's own module, from the same weights."""
        module = kind.from_pretrained(self.model, dtype=torch.float32)
        labels = torch.where(counts, ids, torch.full_like(ids, -100))
        optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3, betas=(0.9, 0.999),
                                      eps=1e-8, weight_decay=0.0)
        losses = []
        for _ in range(steps):
            loss = module(input_ids=ids, labels=labels, use_cache=False, **inputs).loss
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return losses


if __name__ == "__main__":
    unittest.main()
