#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Classes of what runs programs stay small, and so do their functions.

    classes.py ROOT [--list]

No class of runtime/src/core and runtime/src/session has more than 20 data
members, and no function of what loads and runs a rank, or of a session, more
than 60 lines. Members of a nested class are that class's; constants of a class
(`static`) are none. What is larger for a reason is named below. `--list` writes
all that was found, largest first.
"""

import pathlib
import re
import sys

MOST_MEMBERS = 20
MOST_LINES = 60
FOLDERS = ("runtime/src/core", "runtime/src/session")
# Files whose functions are short.
SHORT = re.compile(
    r"runtime/src/(?:session/|core/(?:batch_in_flight|bound_layer|call_runner|"
    r"executor|handoffs|home_swaps|inspector|interpreter|loader|memory_in_use|"
    r"observer|rank_memories|rank_streams|run_state|step_end|step_graphs|"
    r"ties))")
# Records of the manifest have a member for each of its keys; the proof of
# commands one for each thing that a command may do.
LARGER = {"Layer", "Manifest", "Role", "ChunkProof"}

TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|::|->|\S")
BLANKED = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE)
OPEN = {"(": ")", "[": "]", "{": "}"}


def tokens_of(text):
    """Pairs of a token and its line, without comments, strings, directives."""

    def blank(match):
        value = "0" if match.group(0)[0] in "\"'R" else ""
        return value + "\n" * match.group(0).count("\n")

    code = BLANKED.sub(blank, text)
    line, last, result = 1, 0, []
    for match in TOKEN.finditer(code):
        line += code.count("\n", last, match.start())
        last = match.start()
        result.append((match.group(0), line))
    return result


class Reader:
    """Finds classes and functions in the tokens of a file."""

    def __init__(self, path, text):
        self.path = path
        self.tokens = tokens_of(text)
        self.at = 0
        self.classes = []  # (name, members, line)
        self.functions = []  # (name, lines, line)

    def read(self):
        while self.at < len(self.tokens):
            self.declaration("", None)
        return self

    def word(self, ahead=0):
        place = self.at + ahead
        return self.tokens[place][0] if place < len(self.tokens) else ""

    def skip_group(self):
        """Behind the bracket that closes the one at hand."""
        closing = [OPEN[self.word()]]
        self.at += 1
        while closing and self.at < len(self.tokens):
            word = self.word()
            if word in OPEN:
                closing.append(OPEN[word])
            elif word == closing[-1]:
                closing.pop()
            self.at += 1

    def skip_angles(self):
        """Behind the arguments of a template, which begin here."""
        depth = 0
        while self.at < len(self.tokens):
            word = self.word()
            if word in OPEN:
                self.skip_group()
                continue
            depth += (word == "<") - (word == ">")
            self.at += 1
            if depth == 0:
                return

    def declaration(self, scope, members):
        """One of a namespace, or of a class whose members are counted."""
        while True:
            if self.word() in ("public", "private", "protected") and \
                    self.word(1) == ":":
                self.at += 2
            elif self.word() == "template":
                self.at += 1
                self.skip_angles()
            elif self.word() == "[" and self.word(1) == "[":
                self.skip_group()
            else:
                break
        if self.word() in ("}", ";", ""):
            self.at += 1
            return
        if self.word() == "namespace" or \
                (self.word() == "extern" and self.word(1) == "0"):
            while self.word() not in ("{", ";", ""):
                self.at += 1
            self.at += 1  # What is inside is of the file.
            return
        self.entity(scope, members)

    def entity(self, scope, members):
        first = self.at
        kind, opened, name, previous = None, False, "", ""
        declarators = 1
        initialises = bases = points = False
        while self.at < len(self.tokens):
            word = self.word()
            if word in ("class", "struct", "union", "enum") and \
                    kind is None and previous not in ("<", ",", "friend"):
                kind = word
            if word == ";":
                self.at += 1
                break
            if word == "<" and re.match(r"[A-Za-z_]", previous) and \
                    previous != "operator" and not initialises:
                self.skip_angles()
                previous = ">"
                continue
            if word == "operator":
                name = word
                while self.word(1) not in ("(", ""):
                    self.at += 1
                if self.word(1) == "(" and self.word(2) == ")":
                    self.at += 2
                self.at += 1
                previous = word
                continue
            if word == "(" and not initialises:
                # A pointer to a function is data.
                points = points or (self.word(1) in ("*", "&") and not opened)
                if not points and not opened and \
                        previous not in ("decltype", "alignas", "noexcept"):
                    opened, name = True, name or previous
                self.skip_group()
                previous = ")"
                continue
            if word == ":" and opened:
                bases = True
            if word == "=":
                initialises = True
            if word == "," and not opened:
                declarators += 1
                initialises = False
            if word == "{":
                if kind and not opened and not initialises:
                    if self.type_body(scope, kind, first, members):
                        return
                    kind, previous, declarators = None, "}", 1
                    first = self.at
                    if self.word() == ";":
                        self.at += 1
                        return
                    continue
                if opened and not initialises and \
                        not (bases and re.match(r"[A-Za-z_>]", previous)):
                    line = self.tokens[first][1]
                    self.skip_group()
                    end = self.tokens[self.at - 1][1]
                    self.functions.append(
                        (scope + name, end - line + 1, line))
                    return
                self.skip_group()
                previous = "}"
                continue
            if word in OPEN:
                self.skip_group()
                previous = "]"
                continue
            previous = word
            self.at += 1
        words = {word for word, _ in self.tokens[first:self.at]}
        head = self.tokens[first][0]
        if members is None or opened or kind or \
                head in ("using", "typedef", "friend", "static_assert") or \
                "static" in words:
            return
        members[0] += declarators

    def type_body(self, scope, kind, first, members):
        """Reads the body of a type. True if nothing can follow it."""
        head = [word for word, _ in self.tokens[first:self.at]]
        place = head.index(kind) + 1
        if kind == "enum":
            self.skip_group()
            return False
        name = ""
        while place < len(head) and head[place] != ":":
            if re.match(r"[A-Za-z_]", head[place]) and head[place] != "final":
                name = name + head[place] if name.endswith("::") or not name \
                    else name
            elif head[place] == "::":
                name += "::"
            place += 1
        line = self.tokens[first][1]
        self.at += 1
        own = [0]
        while self.word() not in ("}", ""):
            self.declaration(f"{scope}{name}::", own)
        self.at += 1
        # Without a name its members are the outer class's.
        if not name and members is not None and self.word() == ";":
            members[0] += own[0]
        else:
            self.classes.append((scope + name, own[0], line))
        return False


def found_in(root):
    """All classes and functions: (path, name, number, line)."""
    classes, functions = [], []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp"):
                continue
            name = path.relative_to(root).as_posix()
            read = Reader(name, path.read_text(encoding="utf-8")).read()
            classes += [(name, *each) for each in read.classes]
            functions += [(name, *each) for each in read.functions]
    return classes, functions


def complaints(classes, functions, larger):
    """A line for everything that is too large."""
    for path, name, members, line in classes:
        if members > MOST_MEMBERS and name not in larger:
            yield (f"{path}:{line}: class {name} has {members} data members, "
                   f"expected at most {MOST_MEMBERS}")
    for path, name, lines, line in functions:
        if lines > MOST_LINES and SHORT.match(path):
            yield (f"{path}:{line}: function {name} has {lines} lines, "
                   f"expected at most {MOST_LINES}")
    # An exception that none needs any more is one too many.
    large = {name for _, name, members, _ in classes if members > MOST_MEMBERS}
    for name in sorted(larger - large):
        yield f"class {name}: expected more than {MOST_MEMBERS} data members"


def main():
    root = pathlib.Path(sys.argv[1])
    classes, functions = found_in(root)
    if "--list" in sys.argv:
        for path, name, number, line in sorted(classes + functions,
                                               key=lambda each: -each[2]):
            print(f"{number:5} {name} {path}:{line}")
        return 0
    found = list(complaints(classes, functions, LARGER))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
