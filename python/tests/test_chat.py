# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversations through chat templates, to shards with labels."""

import datetime
import json
import pathlib
import unittest

from galvatron import chat, chat_template, errors, tools

from .support import SOURCE, FolderTest

try:
    import jinja2  # noqa: F401 pylint: disable=unused-import
    HAS_JINJA = True
except ImportError:
    HAS_JINJA = False

TOKENIZER = SOURCE / "runtime" / "tests" / "tokenizers" / "qwen.json"

CHATML = """{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

MARKED = """{% for m in messages %}
{% if m.role == 'assistant' %}
<|im_start|>assistant
{% generation %}
{{ m.content }}<|im_end|>
{% endgeneration %}
{% else %}
<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif %}
{% endfor %}"""

TALK = [{"role": "user", "content": "What is 2 + 2? \u00e9"},
        {"role": "assistant", "content": "It is four. \u2713"},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "Yes."}]


def labelled(document):
    """The parts of a document's text that count."""
    return [document.text[begin:end] for begin, end in document.labels]


@unittest.skipUnless(HAS_JINJA, "the package jinja2 is not installed")
class TemplateTest(unittest.TestCase):
    def renderer(self, source, loss_on="answers", **special):
        return chat.Renderer(chat_template.Template(source, special), special, loss_on)

    def test_answers_are_found_with_blocks_and_without(self):
        for source in (CHATML, MARKED):
            document = self.renderer(source).document({"messages": TALK})
            self.assertEqual(labelled(document),
                             ["It is four. \u2713<|im_end|>\n", "Yes.<|im_end|>\n"])
            self.assertEqual(document.exact, source == CHATML)
            last = self.renderer(source, "last").document({"messages": TALK})
            self.assertEqual(labelled(last), ["Yes.<|im_end|>\n"])
            everything = self.renderer(source, "all").document({"messages": TALK})
            self.assertEqual(labelled(everything), [document.text])

    def test_spans_are_in_bytes_of_utf_8(self):
        line = json.loads(self.renderer(CHATML).document({"messages": TALK})
                          .json("here"))
        text = line["text"].encode()
        self.assertEqual([text[begin:end].decode() for begin, end in line["labels"]],
                         ["It is four. \u2713<|im_end|>\n", "Yes.<|im_end|>\n"])

    def test_prompt_and_completion(self):
        renderer = self.renderer(CHATML, eos_token="<|endoftext|>")
        document = renderer.document({"prompt": "Q: 2?\nA:", "completion": " 4"})
        self.assertEqual(document.text, "Q: 2?\nA: 4<|endoftext|>")
        self.assertEqual(labelled(document), [" 4<|endoftext|>"])
        talk = renderer.document({"prompt": TALK[:3], "completion": TALK[3:]})
        self.assertEqual(labelled(talk), ["Yes.<|im_end|>\n"])
        self.assertEqual(renderer.warnings, [])
        bare = self.renderer(CHATML)
        self.assertEqual(bare.document({"prompt": "a", "completion": "b"}).text, "ab")
        self.assertIn("names no eos_token", bare.warnings[0])

    def test_what_templates_use(self):
        source = ("{{ bos_token }}{{ tools | tojson }}{% for m in messages %}"
                  "{% if m.role == 'stop' %}{% break %}{% endif %}{{ m.content }}"
                  "{% endfor %}{{ strftime_now('%Y') }}{{ depth }}")
        template = chat_template.Template(source, {"bos_token": "<s>"},
                                          date=datetime.date(2020, 1, 2))
        rendered = template.render([{"role": "a", "content": "x"},
                                    {"role": "stop", "content": "y"}],
                                   tools=[{"name": "<\u00e9>"}], depth=3)
        self.assertEqual(rendered.text, '<s>[{"name": "<\u00e9>"}]x20203')
        self.assertTrue(template.tells_date)

    def test_errors_name_the_template_and_the_place(self):
        cases = [
            ("{{ raise_exception('roles must alternate') }}", {"messages": TALK},
             "roles must alternate"),
            ("{{ messages[0].content.__class__.mro() }}", {"messages": TALK}, "unsafe"),
            (CHATML, {"messages": []}, "'messages': expected a list of messages"),
            (CHATML, {"messages": [{"content": "x"}]}, "expected an object with a 'role'"),
            (CHATML, {"text": "x"}, "found 'text'"),
            (CHATML, [], "expected a JSON object"),
            (CHATML, {"prompt": "x", "completion": TALK}, "both texts or both messages"),
            (CHATML, {"messages": TALK, "chat_template_kwargs": 1},
             "'chat_template_kwargs': expected an object"),
            (CHATML, {"messages": TALK, "chat_template_kwargs": {"messages": []}},
             "conversation does not have by itself, found 'messages'"),
            (CHATML, {"messages": TALK,
                      "chat_template_kwargs": {"add_generation_prompt": True}},
             "found 'add_generation_prompt'"),
            (CHATML, {"messages": [{"role": "user", "content": "x\ud800"}]},
             r"expected a text of whole characters, found \\ud800 alone"),
            # A template is a program: it can raise anything.
            ("x\n{{ 1/0 }}", {"messages": TALK},
             "chat template 'template', line 2: division by zero$"),
            ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", {"messages": TALK},
             "recursion"),
            # What was thought goes when another turn follows.
            ("{% for m in messages %}{{ m.role }}:{% if loop.last %}(thought)"
             "{% endif %}{{ m.content }}\n{% endfor %}", {"messages": TALK},
             "otherwise than as the beginning of the whole"),
        ]
        for source, row, expected in cases:
            with self.assertRaisesRegex(errors.InvalidInput, expected.replace("(", "\\(")):
                self.renderer(source).document(row)
        with self.assertRaisesRegex(errors.InvalidInput, "line 2"):
            chat_template.Template("\n{% nonsense %}", {})
        # A variable may have any other name.
        self.renderer("{{ self_ }}").document(
            {"messages": TALK, "chat_template_kwargs": {"self": 1, "self_": 2}})
        with self.assertRaisesRegex(errors.InvalidInput, "whole characters"):
            self.renderer(CHATML).prompt(
                {"messages": [{"role": "user", "content": "\udfff"}]})
        with self.assertRaisesRegex(errors.InvalidInput, "messages need a chat template"):
            chat.Renderer(None, {}).document({"messages": TALK})

    def test_a_block_that_ends_too_early_is_told(self):
        source = ("{% for m in messages %}{% generation %}{{ m.content }}"
                  "{% endgeneration %}<|im_end|>{% endfor %}")
        renderer = self.renderer(source, eos_token="<|im_end|>")
        renderer.document({"messages": TALK})
        self.assertIn("does not learn to end an answer", renderer.warnings[0])
        self.assertEqual(len(renderer.warnings), 1)


@unittest.skipUnless(HAS_JINJA, "the package jinja2 is not installed")
class ShardsTest(FolderTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        self.model.mkdir()
        (self.model / "tokenizer.json").write_text(
            TOKENIZER.read_text(encoding="utf-8"), encoding="utf-8")

    def config(self, **values):
        (self.model / "tokenizer_config.json").write_text(json.dumps(values),
                                                          encoding="utf-8")

    def talks(self, *rows):
        path = self.folder / "talks.jsonl"
        path.write_text("".join(json.dumps(row) + "\n\n" for row in rows),
                        encoding="utf-8")
        return path

    def shown(self, folder, document=0):
        return tools.call("galvatron-data", [
            "print", str(folder / "00000.u16"), f"--document={document}",
            f"--tokenizer={self.model / 'tokenizer.json'}", "--show-labels"])

    def test_conversations_become_samples(self):
        self.config(chat_template=CHATML, eos_token={"content": "<|im_end|>"})
        talks = self.talks({"messages": TALK}, {"messages": TALK[:1]},
                           {"prompt": TALK[:1], "completion": TALK[1:2]})
        facts = chat.prepare(talks, self.model, self.folder / "row")
        self.assertEqual(facts["documents"], 2)
        self.assertIn("1 document without a label dropped", facts["told"][0])
        self.assertIn("assistant\n[[It is four. \u2713<|im_end|>\n]]<|im_start|>user\nSure?",
                      self.shown(self.folder / "row"))
        packed = chat.prepare(talks, self.model, self.folder / "packed", seq_len=160)
        self.assertEqual((packed["samples"], packed["sample-tokens"]), (2, 160))
        self.assertEqual(packed["labels"], facts["labels"])
        self.assertEqual(packed["filled-tokens"], facts["tokens"])
        self.assertEqual(packed["vocabulary-size"], facts["vocabulary-size"])
        # Nothing is left beside what was asked for.
        self.assertEqual({path.name for path in self.folder.iterdir()},
                         {"model", "talks.jsonl", "row", "packed"})

    def test_files_of_a_template(self):
        self.config(chat_template=[{"name": "default", "template": CHATML},
                                   {"name": "tool_use", "template": MARKED}])
        find = chat_template.find_files
        self.assertEqual(find(self.model).template, CHATML)
        self.assertEqual(find(self.model, template_name="tool_use").template, MARKED)
        with self.assertRaisesRegex(errors.InvalidInput,
                                    "of the name 'x', found 'default', 'tool_use'"):
            find(self.model, template_name="x")
        (self.model / "chat_template.jinja").write_text("file", encoding="utf-8")
        self.config()
        more = self.model / "additional_chat_templates"
        more.mkdir()
        (more / "tool_use.jinja").write_text("tools", encoding="utf-8")
        self.assertEqual(find(self.model, template_name="tool_use").template, "tools")
        with self.assertRaisesRegex(errors.InvalidInput,
                                    "of the name 'x', found 'default', 'tool_use'"):
            find(self.model, template_name="x")
        self.config(chat_template=CHATML)
        with self.assertRaisesRegex(errors.InvalidInput,
                                    "of the name 'x', found 'default', 'tool_use'"):
            find(self.model, template_name="x")
        self.assertEqual(find(self.model / "tokenizer.json").template, "file")
        given = self.folder / "given.jinja"
        given.write_text("given", encoding="utf-8")
        self.assertEqual(find(self.model, given).template, "given")
        with self.assertRaisesRegex(errors.InvalidInput, "expected a tokenizer"):
            find(self.folder)

    def test_prompts_end_where_answers_begin(self):
        self.config(chat_template=CHATML)
        asked, made = self.folder / "asked.jsonl", self.folder / "prompts.jsonl"
        asked.write_text(json.dumps({"messages": TALK[:1]}) + "\n\n"
                         + json.dumps({"messages": TALK[:3]}) + "\n", encoding="utf-8")
        self.assertEqual(chat.main([str(asked), f"--tokenizer={self.model}",
                                    "--prompts", f"--output={made}"]), 0)
        lines = [json.loads(line)["prompt"]
                 for line in made.read_text(encoding="utf-8").splitlines()]
        first = "<|im_start|>user\nWhat is 2 + 2? \u00e9<|im_end|>\n"
        begin = "<|im_start|>assistant\n"
        self.assertEqual(lines, [
            first + begin,
            first + begin + "It is four. \u2713<|im_end|>\n"
            "<|im_start|>user\nSure?<|im_end|>\n" + begin])
        asked.write_text('{"messages": [1]}\n', encoding="utf-8")
        with self.assertRaisesRegex(errors.InvalidInput, "asked.jsonl', line 1: "):
            chat.prompts(asked, self.model, made)

    def test_options_that_do_not_fit_are_refused(self):
        self.config(chat_template=CHATML)
        talks, made = self.talks({"messages": TALK}), self.folder / "made"
        for options, expected in (
                ({"documents_per_sample": "fit"}, "expected it among 'pack'"),
                ({"pack": {"documents_per_sample": "fit"}}, "expected seq_len with it"),
                ({"seq_len": 0}, "seq_len: expected a number of tokens of at least 1"),
                ({"seq_len": 160, "pack": {"pad_token": 400000}},
                 "expected a token of the vocabulary, below [0-9]+, found 400000")):
            with self.assertRaisesRegex(errors.InvalidInput, expected):
                chat.prepare(talks, self.model, made, **options)
        line = [str(talks), f"--tokenizer={self.model}", "-o"]
        for option in ("--seq-len=0", "--seq-len=-1"):
            with self.assertRaises(SystemExit):
                chat.main([*line, str(made), option])
        for place in ("/proc/x", "/dev/null/x"):
            self.assertEqual(chat.main([*line, place]), 2)
            with self.assertRaisesRegex(errors.InvalidInput, f"'{place}': No"):
                chat.prepare(talks, self.model, place)
        (self.model / "special_tokens_map.json").write_text("[]", encoding="utf-8")
        with self.assertRaisesRegex(errors.InvalidInput, "expected a JSON object"):
            chat.prepare(talks, self.model, made)
        self.assertEqual({path.name for path in self.folder.iterdir()},
                         {"model", "talks.jsonl"})

    def test_errors_name_the_line(self):
        self.config(chat_template=CHATML)
        talks = self.talks({"messages": TALK}, {"message": TALK})
        self.assertEqual(chat.main([str(talks), f"--tokenizer={self.model}",
                                    "-o", str(self.folder / "out")]), 2)
        with self.assertRaisesRegex(errors.InvalidInput, "talks.jsonl', line 3: expected"):
            chat.prepare(talks, self.model, self.folder / "out")
        self.assertFalse((self.folder / "out").exists())
        # A token that the answer's beginning cuts.
        talks = self.talks({"prompt": "Say:\u00a0", "completion": "x"},
                           {"prompt": "the su", "completion": "n"})
        with self.assertRaisesRegex(errors.InvalidInput,
                                    "line 3: expected a token to end at byte 6"):
            chat.prepare(talks, self.model, self.folder / "out")
        talks.write_text('{"messages": \n', encoding="utf-8")
        with self.assertRaisesRegex(errors.InvalidInput, "line 1: expected JSON"):
            chat.prepare(talks, self.model, self.folder / "out")
        with self.assertRaisesRegex(errors.InvalidInput, "none.jsonl"):
            chat.prepare(self.folder / "none.jsonl", self.model, self.folder / "out")
        talks.write_text("", encoding="utf-8")
        with self.assertRaisesRegex(errors.InvalidInput, "at least one conversation"):
            chat.prepare(talks, self.model, self.folder / "out")
        with self.assertRaisesRegex(errors.InvalidInput,
                                    "loss_on: expected answers, last, all"):
            chat.prepare(talks, self.model, self.folder / "out", loss_on="none")


if __name__ == "__main__":
    unittest.main()
