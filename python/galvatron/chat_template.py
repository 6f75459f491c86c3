# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chat templates: conversations as text, as the package transformers renders
them.

A template is a Jinja text that a model's files carry. It sees the messages, the
special tokens of the tokenizer, `add_generation_prompt`, `tools`, and whatever a
conversation says for it. Blocks, filters and functions are those that templates
use: `{% generation %}`, `{% break %}`, `{% continue %}`, `tojson`,
`raise_exception`, `strftime_now`. Templates are other people's programs: they run
in Jinja's sandbox.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import pathlib
import secrets
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import errors

# A span of a text, in characters: [begin, end).
Span = Tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Rendered:
    """A text, and the spans that `{% generation %}` marks in it."""

    text: str
    generations: Sequence[Span]


def _jinja() -> Any:
    try:
        import jinja2.ext  # pylint: disable=import-outside-toplevel
        import jinja2.sandbox  # pylint: disable=import-outside-toplevel
    except ImportError as missing:
        raise errors.ToolNotFound(
            "chat templates need the package jinja2 (on Debian python3-jinja2)"
        ) from missing
    return jinja2


def _environment(marks: Tuple[str, str], date: Optional[datetime.date]) -> Any:
    """A sandbox for templates. What `{% generation %}` holds stands between
    `marks`; `date` is the day that `strftime_now` tells, None: today."""
    jinja2 = _jinja()

    class Generation(jinja2.ext.Extension):  # type: ignore[misc, name-defined]
        """The block around what the model writes."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            """The block as a call with its content."""
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            call = self.call_method("mark")
            return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

        @staticmethod
        def mark(caller: Any) -> str:
            """The content between the marks."""
            return f"{marks[0]}{caller()}{marks[1]}"

    def to_json(value: Any, indent: Optional[int] = None,
                separators: Optional[Tuple[str, str]] = None,
                sort_keys: bool = False, ensure_ascii: bool = False) -> str:
        return json.dumps(value, indent=indent, separators=separators,
                          sort_keys=sort_keys, ensure_ascii=ensure_ascii)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def strftime_now(form: str) -> str:
        now = datetime.datetime.now()
        if date:
            now = datetime.datetime.combine(date, datetime.time())
        return now.strftime(form)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    return environment


def _told(wrong: BaseException) -> str:
    """What an exception says, as one line."""
    return " ".join(str(wrong).split()) or type(wrong).__name__


def _line_of(wrong: BaseException) -> Optional[int]:
    """The line of a template in which an exception was raised."""
    line = None
    trace = wrong.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


class Template:
    """A chat template with the special tokens of its tokenizer, as texts by
    name (`bos_token`, `eos_token`, ..)."""

    def __init__(self, source: str, special: Mapping[str, str], name: str = "template",
                 date: Optional[datetime.date] = None):
        self.name = name
        self.special = dict(special)
        self.has_generation = "generation %}" in source or "generation -%}" in source
        self.tells_date = "strftime_now" in source
        # Nothing that a conversation says can be one of these.
        nonce = secrets.token_hex(8)
        self._marks = (f"\x02{nonce}<", f"\x02{nonce}>")
        jinja2 = _jinja()
        try:
            self._template = _environment(self._marks, date).from_string(source)
        except jinja2.TemplateSyntaxError as wrong:
            raise errors.InvalidInput(
                f"chat template '{name}', line {wrong.lineno}: {wrong.message}"
            ) from wrong
        except Exception as wrong:  # pylint: disable=broad-exception-caught
            raise errors.InvalidInput(
                f"chat template '{name}': {_told(wrong)}") from wrong

    def render(self, messages: Sequence[Mapping[str, Any]],
               add_generation_prompt: bool = False, /,
               **variables: Any) -> Rendered:
        """The text of messages; with `add_generation_prompt` also what stands
        before an answer. What goes wrong in the template raises InvalidInput."""
        given: Dict[str, Any] = {**self.special, "tools": None, "documents": None,
                                 **variables, "messages": messages,
                                 "add_generation_prompt": add_generation_prompt}
        try:
            marked = self._template.render(given)
        except Exception as wrong:  # pylint: disable=broad-exception-caught
            # A template is a program: it can raise anything.
            line = _line_of(wrong)
            raise errors.InvalidInput(
                f"chat template '{self.name}'" + (f", line {line}" if line else "")
                + f": {_told(wrong)}") from wrong
        return self._without_marks(marked)

    def _without_marks(self, marked: str) -> Rendered:
        text: List[str] = []
        spans: List[Span] = []
        length = 0
        for number, part in enumerate(marked.split(self._marks[0])):
            inside, closes, behind = part.partition(self._marks[1])
            if number and not closes:
                raise errors.InvalidInput(
                    f"chat template '{self.name}': expected an end of every "
                    "generation block before the next one begins")
            if number and inside:
                spans.append((length, length + len(inside)))
            text += [inside, behind]
            length += len(inside) + len(behind)
        return Rendered("".join(text), spans)


@dataclasses.dataclass(frozen=True)
class TokenizerFiles:
    """A tokenizer's files: `tokenizer.json`, its chat template if it has one,
    and its special tokens by name."""

    tokenizer: pathlib.Path
    template: Optional[str]
    template_name: str
    special: Mapping[str, str]


def _json(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as wrong:
        raise errors.InvalidInput(f"'{path}': {wrong}") from wrong


def _object(path: pathlib.Path) -> Dict[str, Any]:
    values = _json(path)
    if not isinstance(values, dict):
        raise errors.InvalidInput(f"'{path}': expected a JSON object")
    return values


def _none_named(name: str, names: Sequence[Any], where: pathlib.Path) -> errors.InvalidInput:
    found = ", ".join(f"'{known}'" for known in names) or "none"
    return errors.InvalidInput(
        f"'{where}': expected a chat template of the name '{name}', found {found}")


def _named(templates: Any, name: str, path: pathlib.Path,
           others: Sequence[str]) -> Optional[str]:
    """A template of a file: the text, which is the default, or that of a name
    among several. `others`: names that other files have."""
    if templates is None:
        return None
    if isinstance(templates, str):
        templates = {"default": templates}
    if isinstance(templates, list):
        templates = {each.get("name"): each.get("template") for each in templates
                     if isinstance(each, dict)}
    if not isinstance(templates, dict) or not isinstance(templates.get(name), str):
        known = list(templates) if isinstance(templates, dict) else []
        known += [other for other in others if other not in known]
        raise _none_named(name, known, path)
    return str(templates[name])


def _special_tokens(folder: pathlib.Path, config: Mapping[str, Any]) -> Dict[str, str]:
    found: Dict[str, str] = {}
    maps: List[Mapping[str, Any]] = [config]
    if (folder / "special_tokens_map.json").exists():
        maps.insert(0, _object(folder / "special_tokens_map.json"))
    for values in maps:
        for name, value in values.items():
            if isinstance(value, dict):
                value = value.get("content")
            if name.endswith("_token") and isinstance(value, str):
                found[name] = value
    return found


def find_files(path: Union[str, "os.PathLike[str]"],
               template: Union[None, str, "os.PathLike[str]"] = None,
               template_name: str = "default") -> TokenizerFiles:
    """What stands in a tokenizer's folder, or beside a `tokenizer.json`. The
    template is the file `template`, else `chat_template.jinja` (of another name
    than "default": `additional_chat_templates/NAME.jinja`), else the one that
    `tokenizer_config.json` or `chat_template.json` has under `chat_template`."""
    given = pathlib.Path(path)
    tokenizer = given / "tokenizer.json" if given.is_dir() else given
    if not tokenizer.is_file():
        raise errors.InvalidInput(f"expected a tokenizer, '{tokenizer}', found none")
    folder = tokenizer.parent
    config = folder / "tokenizer_config.json"
    values = _object(config) if config.exists() else {}
    special = _special_tokens(folder, values)
    beside = folder / "chat_template.jinja" if template_name == "default" else \
        folder / "additional_chat_templates" / f"{template_name}.jinja"
    if template is not None or beside.exists():
        file = pathlib.Path(template) if template is not None else beside
        try:
            text: Optional[str] = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as wrong:
            raise errors.InvalidInput(f"chat template '{file}': {wrong}") from wrong
        return TokenizerFiles(tokenizer, text, str(file), special)
    others = ["default"] if (folder / "chat_template.jinja").exists() else []
    others += sorted(path.stem for path
                     in (folder / "additional_chat_templates").glob("*.jinja"))
    for file in (config, folder / "chat_template.json"):
        if file.exists():
            text = _named(_object(file).get("chat_template"), template_name, file,
                          others)
            if text is not None:
                return TokenizerFiles(tokenizer, text, str(file), special)
    if template_name != "default":
        raise _none_named(template_name, others, folder)
    return TokenizerFiles(tokenizer, None, "", special)
