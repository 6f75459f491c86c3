# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conversations as files of tokens in which the answers are the labels.

    python3 -m galvatron.chat talks.jsonl --tokenizer=model/ --seq-len=512 -o shards
    galvatron-run llama.gvx --data='shards/*.u16' --steps=100

A line of a file is a JSON object with `messages` (objects with `role` and
`content`), or with `prompt` and `completion` (texts, or messages). `tools` and
`chat_template_kwargs` go to the template. What counts in the loss, `loss_on`:

  answers   what the assistant says: the template's `{% generation %}` blocks if
            it has some; else from the text with the generation prompt up to the
            text with the answer, for each answer. Of `prompt` and `completion`:
            the completion.
  last      the last of these
  all       everything

With `--prompts` the texts of `messages`, up to where the next answer begins, go to
a file that `galvatron-run --prompts=FILE.jsonl` continues:

    python3 -m galvatron.chat questions.jsonl --tokenizer=model/ --prompts \
        -o prompts.jsonl
"""

from __future__ import annotations

import argparse
import datetime
import errno
import io
import json
import os
import pathlib
import sys
import tempfile
from typing import (Any, Callable, Dict, Iterator, List, Mapping, Optional,
                    Sequence, TextIO, Tuple, Union)

from . import chat_template, errors, tools
from .chat_template import Span, Template

Path = Union[str, "os.PathLike[str]"]
LOSS_ON = ("answers", "last", "all")
# Options of samples, which `galvatron-data pack` makes.
_OF_SAMPLES = ("documents_per_sample", "long_documents", "pad_token")


class Document:
    """A text of which spans count in the loss, in characters. `exact`: tokens
    must end where spans begin and end."""

    def __init__(self, text: str, labels: Sequence[Span], exact: bool):
        self.text = text
        self.labels = list(labels)
        self.exact = exact

    def json(self, source: str) -> str:
        """The line of it that `galvatron-data tokenize --labels-key=labels`
        reads: spans in bytes."""
        def at(character: int) -> int:
            return len(self.text[:character].encode("utf-8"))
        return json.dumps({"text": self.text, "exact": self.exact, "source": source,
                           "labels": [[at(begin), at(end)]
                                      for begin, end in self.labels]},
                          ensure_ascii=False)


class Renderer:
    """Makes documents of conversations. `warnings` has what it noticed once."""

    def __init__(self, template: Optional[Template], special: Mapping[str, str],
                 loss_on: str = "answers"):
        if loss_on not in LOSS_ON:
            raise errors.InvalidInput(
                f"loss_on: expected {', '.join(LOSS_ON)}, found '{loss_on}'")
        self._template = template
        self._special = dict(special)
        self._loss_on = loss_on
        self.warnings: List[str] = []

    def document(self, row: Any) -> Document:
        """The document of a line's object; what is none raises InvalidInput."""
        if not isinstance(row, dict):
            raise errors.InvalidInput("expected a JSON object")
        if "messages" in row:
            document = self._conversation(row)
        elif "prompt" in row and "completion" in row:
            document = self._completion(row)
        else:
            raise errors.InvalidInput(
                "expected 'messages', or 'prompt' and 'completion', found "
                + (", ".join(f"'{key}'" for key in row) or "an empty object"))
        if self._loss_on == "all":
            document.labels, document.exact = [(0, len(document.text))], False
        elif self._loss_on == "last":
            document.labels = document.labels[-1:]
        _check_text(document.text)
        return document

    def prompt(self, row: Any) -> str:
        """The text of a line's messages, up to where an answer begins."""
        if not isinstance(row, dict) or "messages" not in row:
            raise errors.InvalidInput("expected a JSON object with 'messages'")
        text = self._needed().render(_messages(row["messages"], "messages"), True,
                                     **_variables(row)).text
        _check_text(text)
        return text

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def _conversation(self, row: Mapping[str, Any]) -> Document:
        messages = _messages(row["messages"], "messages")
        template = self._needed()
        variables = _variables(row)
        whole = template.render(messages, **variables)
        if template.has_generation:
            self._look_behind(whole.text, whole.generations)
            return Document(whole.text, whole.generations, exact=False)
        labels = []
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            begin = self._prefix(messages[:number], whole.text, variables,
                                 f"up to message {number}", prompt=True)
            end = self._prefix(messages[:number + 1], whole.text, variables,
                               f"up to message {number} and with it", prompt=False)
            labels.append((begin, end))
        return Document(whole.text, labels, exact=True)

    def _completion(self, row: Mapping[str, Any]) -> Document:
        prompt, completion = row["prompt"], row["completion"]
        if isinstance(prompt, str) and isinstance(completion, str):
            end = self._special.get("eos_token", "")
            if end and not completion.endswith(end):
                completion += end
            if not end:
                self._warn("the tokenizer names no eos_token: completions end "
                           "without one")
            return Document(prompt + completion,
                            [(len(prompt), len(prompt + completion))], exact=True)
        if isinstance(prompt, str) or isinstance(completion, str):
            raise errors.InvalidInput(
                "expected 'prompt' and 'completion' to be both texts or both messages")
        first = _messages(prompt, "prompt")
        variables = _variables(row)
        whole = self._needed().render(
            [*first, *_messages(completion, "completion")], **variables)
        begin = self._prefix(first, whole.text, variables, "of the prompt", prompt=True)
        return Document(whole.text, [(begin, len(whole.text))], exact=True)

    def _needed(self) -> Template:
        if self._template is None:
            raise errors.InvalidInput(
                "messages need a chat template: the tokenizer's files have none, "
                "expected --template=FILE")
        return self._template

    def _prefix(self, messages: Sequence[Mapping[str, Any]], whole: str,
                variables: Mapping[str, Any], what: str, prompt: bool) -> int:
        """Characters of the text of the first messages, which the text of all
        begins with."""
        if not messages and not prompt:
            return 0
        text = self._needed().render(messages, prompt, **variables).text
        if not whole.startswith(text):
            at = len(os.path.commonprefix([whole, text]))
            raise errors.InvalidInput(
                f"the template renders the conversation {what} otherwise than as "
                f"the beginning of the whole: expected {whole[at:at + 20]!r} at "
                f"character {at}, found {text[at:at + 20]!r}; a template with "
                "{% generation %} blocks says what counts by itself")
        return len(text)

    def _look_behind(self, text: str, spans: Sequence[Span]) -> None:
        """Warns if an answer's end is not among what counts."""
        for name in ("eos_token", "eot_token"):
            token = self._special.get(name)
            if token and any(text.startswith(token, end) for _, end in spans):
                self._warn(f"the template's generation blocks end before {token!r}: "
                           "the model does not learn to end an answer")


def _messages(value: Any, name: str) -> List[Dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise errors.InvalidInput(f"'{name}': expected a list of messages")
    for number, message in enumerate(value):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise errors.InvalidInput(
                f"'{name}', message {number}: expected an object with a 'role'")
    return value


def _check_text(text: str) -> None:
    """Refuses halves of characters, which JSON can name and UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as wrong:
        raise errors.InvalidInput(
            "expected a text of whole characters, found "
            f"\\u{ord(text[wrong.start]):04x} alone") from wrong


def _variables(row: Mapping[str, Any]) -> Dict[str, Any]:
    given = row.get("chat_template_kwargs") or {}
    if not isinstance(given, dict):
        raise errors.InvalidInput("'chat_template_kwargs': expected an object")
    for name in ("messages", "add_generation_prompt"):
        if name in given:
            raise errors.InvalidInput(
                "'chat_template_kwargs': expected variables that the conversation "
                f"does not have by itself, found '{name}'")
    return {"tools": row.get("tools"), **given}


def _rows(path: Path) -> Iterator[Tuple[int, Any]]:
    """The objects of the lines of a file, and the lines' numbers from 1."""
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    yield number, json.loads(line)
                except (ValueError, RecursionError) as wrong:
                    raise errors.InvalidInput(
                        f"'{path}', line {number}: expected JSON: {wrong}") from wrong
    except OSError as wrong:
        raise errors.InvalidInput(f"'{path}': {wrong.strerror}") from wrong
    except UnicodeDecodeError as wrong:
        raise errors.InvalidInput(f"'{path}': expected UTF-8: {wrong}") from wrong


def render(files: Sequence[Path], renderer: Renderer, to: TextIO) -> int:
    """Writes a line of JSON for every conversation of the files, and returns how
    many there are."""
    return _write_lines(files, to, lambda row, source:
                        renderer.document(row).json(source))


def _write_lines(files: Sequence[Path], to: TextIO,
                 line: Callable[[Any, str], str]) -> int:
    """Writes what `line` makes of every object and where it stands."""
    count = 0
    for path in files:
        for number, row in _rows(path):
            source = f"'{os.fsencode(path).decode('utf-8', 'replace')}', line {number}"
            try:
                to.write(line(row, source) + "\n")
            except errors.InvalidInput as wrong:
                raise errors.InvalidInput(f"{source}: {wrong}") from wrong
            count += 1
    return count


def prompts(files: Union[Path, Sequence[Path]], tokenizer: Path, output: Path, *,
            template: Optional[Path] = None, template_name: str = "default",
            date: Optional[datetime.date] = None) -> int:
    """Writes the texts that answers to the conversations of JSONL files begin
    behind, a JSON object with `prompt` a line, and returns how many there are.
    Options are those of `prepare`."""
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    found = chat_template.find_files(tokenizer, template, template_name)
    chat = None
    if found.template is not None:
        chat = Template(found.template, found.special, found.template_name, date)
    renderer = Renderer(chat, found.special)
    lines = io.StringIO()
    count = _write_lines(files, lines, lambda row, _: json.dumps(
        {"prompt": renderer.prompt(row)}, ensure_ascii=False))
    if not count:
        raise errors.InvalidInput("expected at least one conversation")
    try:
        pathlib.Path(output).write_text(lines.getvalue(), encoding="utf-8")
    except OSError as wrong:
        raise errors.InvalidInput(f"'{output}': {wrong.strerror}") from wrong
    return count


def prepare(files: Union[Path, Sequence[Path]], tokenizer: Path, output: Path, *,
            template: Optional[Path] = None, template_name: str = "default",
            loss_on: str = "answers", seq_len: Optional[int] = None,
            date: Optional[datetime.date] = None, pack: Mapping[str, Any] = {},
            **tokenize: Any) -> Dict[str, Any]:
    """Writes shards of the conversations of JSONL files to the folder `output`,
    each with a file of labels, and returns what `shards.json` says of them.

    `tokenizer`: a folder or a `tokenizer.json`. With `seq_len` every sample of so
    many tokens has a conversation of its own and what fills it does not count;
    `pack` has further options of `galvatron-data pack`, which need `seq_len`,
    `tokenize` of `galvatron-data tokenize`. `date`: what templates take for today. Warnings are
    under "warnings" of the result."""
    if isinstance(files, (str, os.PathLike)):
        files = [files]
    _check_packing(seq_len, pack, tokenize)
    found = chat_template.find_files(tokenizer, template, template_name)
    chat = None
    if found.template is not None:
        chat = Template(found.template, found.special, found.template_name, date)
    renderer = Renderer(chat, found.special, loss_on)
    try:
        told = _write_shards(files, renderer, found.tokenizer, pathlib.Path(output),
                             seq_len, pack, tokenize)
        result: Dict[str, Any] = json.loads(
            (pathlib.Path(output) / "shards.json").read_text(encoding="utf-8"))
    except OSError as wrong:
        raise errors.InvalidInput(f"'{output}': {wrong.strerror}") from wrong
    if chat and chat.tells_date and date is None:
        renderer.warnings.append("the template tells the date, which is today's: "
                                 "--date=YYYY-MM-DD makes the same files any day")
    result["warnings"] = renderer.warnings
    # Only what the last tool says names files that are still there.
    result["told"] = [line.partition(": ")[2] for line in told[:-1]] + [told[-1]]
    return result


def _check_packing(seq_len: Optional[int], pack: Mapping[str, Any],
                   tokenize: Mapping[str, Any]) -> None:
    if seq_len is not None and seq_len < 1:
        raise errors.InvalidInput(
            f"seq_len: expected a number of tokens of at least 1, found {seq_len}")
    for name in _OF_SAMPLES:
        if tokenize.get(name) is not None:
            raise errors.InvalidInput(f"{name}: expected it among 'pack'")
    if seq_len is None:
        for name, value in pack.items():
            if value is not None:
                raise errors.InvalidInput(f"{name}: expected seq_len with it")


def _write_shards(files: Sequence[Path], renderer: Renderer, tokenizer: pathlib.Path,
                  output: pathlib.Path, seq_len: Optional[int],
                  pack: Mapping[str, Any], tokenize: Mapping[str, Any]) -> List[str]:
    """Writes the shards of `prepare`, and returns what the tools said."""
    parent = output.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as wrong:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from wrong
    with tempfile.TemporaryDirectory(prefix=".galvatron-chat-", dir=parent) as folder:
        rendered = pathlib.Path(folder) / "rendered.jsonl"
        with open(rendered, "w", encoding="utf-8") as to:
            if not render(files, renderer, to):
                raise errors.InvalidInput("expected at least one conversation")
        shards = str(pathlib.Path(folder) / "shards") if seq_len else str(output)
        told = [tools.call("galvatron-data", [
            "tokenize", str(rendered), "--labels-key=labels",
            f"--tokenizer={tokenizer}", f"--output={shards}",
            *tools.arguments(tokenize)])]
        if seq_len:
            made = sorted(str(path) for path in pathlib.Path(shards).glob("*.u[13][62]"))
            told.append(tools.call("galvatron-data", [
                "pack", *made, f"--seq-len={seq_len}", f"--output={output}",
                *tools.arguments(pack)]))
    return told


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python3 -m galvatron.chat", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("files", nargs="+", metavar="FILE.jsonl")
    parser.add_argument("--tokenizer", required=True,
                        help="a folder with tokenizer.json, or that file")
    parser.add_argument("-o", "--output", required=True,
                        help="a new folder for the shards; with --prompts a file")
    parser.add_argument("--prompts", action="store_true",
                        help="write the texts that answers begin behind")
    parser.add_argument("--template", help="default: that of the tokenizer's files")
    parser.add_argument("--template-name", default="default", help="among several")
    parser.add_argument("--loss-on", choices=LOSS_ON, default="answers")
    parser.add_argument("--date", type=datetime.date.fromisoformat,
                        help="the day that templates take for today, YYYY-MM-DD")
    parser.add_argument("--seq-len", type=int,
                        help="samples of so many tokens, a conversation in each; "
                        "default: one row of all conversations")
    parser.add_argument("--documents-per-sample", help="with --seq-len: N, or fit")
    parser.add_argument("--long-documents", choices=("refuse", "drop", "cut"),
                        help="with --seq-len: what becomes of longer conversations")
    parser.add_argument("--pad-token", type=int, help="with --seq-len: what fills samples")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args(arguments)
    pack = {name: getattr(options, name) for name in _OF_SAMPLES}
    if options.seq_len is not None and options.seq_len < 1:
        parser.error("--seq-len: expected a number of tokens of at least 1, found "
                     f"{options.seq_len}")
    if options.seq_len is None and any(value is not None for value in pack.values()):
        parser.error("--documents-per-sample, --long-documents and --pad-token need "
                     "--seq-len")
    if options.prompts and (options.seq_len is not None or options.threads is not None):
        parser.error("--prompts writes texts: leave --seq-len and --threads out")
    try:
        if options.prompts:
            prompts(options.files, options.tokenizer, options.output,
                    template=options.template, template_name=options.template_name,
                    date=options.date)
            return 0
        result = prepare(options.files, options.tokenizer, options.output,
                         template=options.template, template_name=options.template_name,
                         loss_on=options.loss_on, seq_len=options.seq_len,
                         date=options.date, pack=pack, threads=options.threads)
    except errors.Error as wrong:
        print(f"galvatron.chat: error: {wrong}", file=sys.stderr)
        return getattr(wrong, "code", errors.EXIT_INVALID)
    for warning in result["warnings"]:
        print(f"galvatron.chat: warning: {warning}", file=sys.stderr)
    for line in result["told"]:
        print(line, end="" if line.endswith("\n") else "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
