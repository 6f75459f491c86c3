# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lists the faults that may be put into the project's sources, one place each.

What a fault is: another operator; one side of it; a condition that always or
never holds; a literal, one more or less; a member or parameter in the place of a
neighbour of its type; two arguments exchanged; smallest for largest, first for
last; a statement or a jump left out. Where nothing is computed (reserve, an
assertion, a constant expression) there is none.

Needs clang's Python package (Debian: python3-clang-22).
"""

import json
import multiprocessing
import os
import re
import shlex

from clang import cindex
from clang.cindex import CursorKind, TypeKind

INTEGERS = {
    TypeKind.BOOL, TypeKind.CHAR_U, TypeKind.UCHAR, TypeKind.USHORT, TypeKind.UINT,
    TypeKind.ULONG, TypeKind.ULONGLONG, TypeKind.CHAR_S, TypeKind.SCHAR,
    TypeKind.SHORT, TypeKind.INT, TypeKind.LONG, TypeKind.LONGLONG,
    TypeKind.INT128, TypeKind.UINT128}
NUMBERS = INTEGERS | {TypeKind.FLOAT, TypeKind.DOUBLE}
FUNCTIONS = {
    CursorKind.FUNCTION_DECL, CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR,
    CursorKind.DESTRUCTOR, CursorKind.FUNCTION_TEMPLATE,
    CursorKind.CONVERSION_FUNCTION}
SCOPES = {
    CursorKind.NAMESPACE, CursorKind.CLASS_DECL, CursorKind.STRUCT_DECL,
    CursorKind.CLASS_TEMPLATE, CursorKind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION,
    CursorKind.LINKAGE_SPEC, CursorKind.UNEXPOSED_DECL, CursorKind.UNION_DECL,
    CursorKind.FRIEND_DECL}
LOOPS = {CursorKind.FOR_STMT, CursorKind.CXX_FOR_RANGE_STMT, CursorKind.WHILE_STMT}
COMPARED = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"),
            "==": ("!=",), "!=": ("==",)}
COMPUTED = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "<<": ">>",
            ">>": "<<", "&": "|", "|": "&"}
ASSIGNED = {"+=": ("-=", "="), "-=": ("+=", "="), "*=": ("/=",), "/=": ("*=",),
            "|=": ("&=", "="), "&=": ("|=", "=")}
EITHER = "(FAULT ? (%s) : (SPAN))"

LONGEST = 600  # bytes of a span
NOTHING = re.compile(r"assert|ASSERT|llvm_unreachable|delete\b")
EFFORT = re.compile(r"(\.|->)(reserve|shrink_to_fit)\(")


def _kind(cursor):
    return cursor.type.get_canonical().kind


def _plain_type(cursor):
    return cursor.type.get_canonical().spelling.replace("const ", "")


class Listing:
    """The faults of the files of one translation unit that `is_wanted` accepts."""

    def __init__(self, root, is_wanted):
        self.root, self.is_wanted = root, is_wanted
        self.faults = {}  # by path below root
        self.texts = {}
        self.parameters = []

    def read(self, path, arguments):
        unit = cindex.Index.create().parse(path, args=arguments)
        errors = [str(d) for d in unit.diagnostics if d.severity >= 3]
        for cursor in unit.cursor.get_children():
            if cursor.location.file is not None:
                self._scope(cursor)
        return errors[:3]

    # Places and texts.

    def _span(self, cursor):
        extent = cursor.extent
        if extent.start.file is None or extent.end.file is None:
            return None
        path = os.path.normpath(extent.start.file.name)
        if path != os.path.normpath(extent.end.file.name) or path != self.path:
            return None
        return extent.start.offset, extent.end.offset

    def _text(self, span):
        return self.texts[self.path][span[0]:span[1]].decode("latin1")

    def _add(self, kind, span, **how):
        text = self._text(span)
        if len(text) > LONGEST or "\n#" in text:
            return
        begin = span[0]
        # What the compiler adds itself, such as the comparison of a defaulted
        # operator, points into a word.
        if re.match(rb"\w\w", self.texts[self.path][max(begin - 1, 0):begin + 1]):
            return
        line = self.texts[self.path].count(b"\n", 0, begin) + 1
        name = os.path.relpath(self.path, self.root)
        self.faults.setdefault(name, []).append(
            dict(kind=kind, begin=begin, end=span[1], line=line, **how))

    # Declarations.

    def _scope(self, cursor):
        if cursor.location.file is None:
            return
        path = os.path.normpath(cursor.location.file.name)
        if not path.startswith(self.root + os.sep):
            return
        if cursor.kind in SCOPES:
            for inner in cursor.get_children():
                self._scope(inner)
            return
        if not self.is_wanted(path):
            return
        if path not in self.texts:
            with open(path, "rb") as file:
                self.texts[path] = file.read()
        self.path = path
        if cursor.kind in FUNCTIONS:
            self._function(cursor)
        elif cursor.kind == CursorKind.FIELD_DECL:
            span = self._span(cursor)
            if span and "=" in self._text(span) and "constexpr" not in self._text(span):
                self.parameters = []
                for inner in cursor.get_children():
                    if inner.kind.is_expression():
                        self._expression(inner)

    def _function(self, cursor):
        children = list(cursor.get_children())
        body = next((c for c in children if c.kind == CursorKind.COMPOUND_STMT), None)
        whole, inside = self._span(cursor), body and self._span(body)
        if not whole or not inside:
            return
        if re.search("constexpr|consteval", self._text((whole[0], inside[0]))):
            return
        self.parameters = [c for c in children if c.kind == CursorKind.PARM_DECL]
        if cursor.kind == CursorKind.CONSTRUCTOR:
            for child in children:
                if child.kind.is_expression():
                    self._expression(child)
        self._expression(body)

    # Statements and expressions.

    def _expression(self, cursor):
        kind, children = cursor.kind, list(cursor.get_children())
        if kind == CursorKind.STATIC_ASSERT:
            return
        span = self._span(cursor)
        if kind == CursorKind.VAR_DECL and span:
            if re.search("constexpr|constinit", self._text(span).split("=")[0]):
                return
        if kind == CursorKind.CASE_STMT:
            children = children[1:]
        self._statements(kind, children)
        if span:
            self._condition(cursor, span, children)
            self._operator(cursor, span, children)
            self._literal(cursor, span)
            self._call(cursor, span)
            self._name(cursor, span)
        for child in children:
            self._expression(child)

    def _statements(self, kind, children):
        held = children if kind in (CursorKind.COMPOUND_STMT, CursorKind.CASE_STMT) \
            else children[1:] if kind in LOOPS | {CursorKind.IF_STMT} else []
        for child in held:
            span = self._span(child)
            if not span:
                continue
            text = self._text(span)
            behind = self._text((span[1], span[1] + 20))
            if child.kind in (CursorKind.BREAK_STMT, CursorKind.CONTINUE_STMT):
                if kind == CursorKind.COMPOUND_STMT:
                    self._add("jump left out", span, form="if (!FAULT) SPAN")
            elif child.kind.is_expression() and re.match(r"\s*;", behind) \
                    and not NOTHING.match(text) and not EFFORT.search(text):
                self._add("statement left out", span,
                          form="(FAULT ? (void)0 : (void)(SPAN))")

    def _condition(self, cursor, span, children):
        if cursor.kind in (CursorKind.IF_STMT, CursorKind.WHILE_STMT) and children \
                and children[0].kind.is_expression():
            condition = self._span(children[0])
            if condition and "constexpr" not in self._text(span)[:16]:
                self._add("never holds", condition, form="!FAULT && (SPAN)")
                if cursor.kind == CursorKind.IF_STMT:
                    self._add("always holds", condition, form="FAULT || (SPAN)")
        elif cursor.kind == CursorKind.RETURN_STMT and children:
            value = self._span(children[0])
            if value and _kind(children[0]) == TypeKind.BOOL \
                    and children[0].kind != CursorKind.CXX_BOOL_LITERAL_EXPR:
                self._add("answer negated", value,
                          form=f"FAULT ? !({self._text(value)}) : bool(SPAN)")
        elif cursor.kind == CursorKind.CONDITIONAL_OPERATOR and len(children) == 3:
            condition = self._span(children[0])
            if condition and _kind(children[1]) == _kind(children[2]):
                self._add("the other choice", condition, form="(FAULT != bool(SPAN))")

    def _operator(self, cursor, span, children):
        if cursor.kind == CursorKind.UNARY_OPERATOR and children:
            operand = self._span(children[0])
            if operand and self._text(span).startswith("!"):
                self._add("! left out", span,
                          form=f"(FAULT ? bool({self._text(operand)}) : bool(SPAN))")
            return
        if cursor.kind not in (CursorKind.BINARY_OPERATOR,
                               CursorKind.COMPOUND_ASSIGNMENT_OPERATOR) \
                or len(children) != 2:
            return
        left, right = self._span(children[0]), self._span(children[1])
        if not left or not right or left[1] > right[0]:
            return
        sign = self._text((left[1], right[0])).strip()
        a, b = self._text(left), self._text(right)
        if cursor.kind == CursorKind.COMPOUND_ASSIGNMENT_OPERATOR:
            for other in ASSIGNED.get(sign, ()):
                self._add(f"{sign} to {other}", span, form=EITHER % f"{a} {other} {b}")
            return
        if left[0] != span[0] or right[1] != span[1]:
            return
        kinds = {_kind(children[0]), _kind(children[1])}
        if sign in COMPARED and (kinds <= NUMBERS or sign in ("==", "!=") and
                                 _kind(children[0]) in (TypeKind.ENUM, TypeKind.POINTER)):
            for other in COMPARED[sign]:
                self._add(f"{sign} to {other}", span, form=EITHER % f"{a} {other} {b}")
        elif sign in ("&&", "||"):
            other = "||" if sign == "&&" else "&&"
            self._add(f"{sign} to {other}", span, form=EITHER % f"({a}) {other} ({b})")
            self._add(f"left of {sign}", span, form=EITHER % f"bool({a})")
            self._add(f"right of {sign}", span, form=EITHER % f"bool({b})")
        elif sign in COMPUTED and kinds <= NUMBERS and _kind(cursor) in NUMBERS:
            other = COMPUTED[sign]
            self._add(f"{sign} to {other}", span, form=EITHER % f"({a}) {other} ({b})")
            self._add(f"left of {sign}", span, form=EITHER % a)
            self._add(f"right of {sign}", span, form=EITHER % b)

    def _literal(self, cursor, span):
        text = self._text(span)
        if cursor.kind == CursorKind.INTEGER_LITERAL and text[:1].isdigit() \
                and _kind(cursor) in INTEGERS:
            self._add(f"{text} plus 1", span, form=f"(FAULT ? {text} + 1 : SPAN)")
            if text != "0":
                self._add(f"{text} minus 1", span, form=f"(FAULT ? {text} - 1 : SPAN)")
        elif cursor.kind == CursorKind.FLOATING_LITERAL and text[:1].isdigit():
            factor = "1.5f" if text.endswith("f") else "1.5"
            changed = f"{text} + 1" if re.fullmatch(r"0*\.?0*f?", text) \
                else f"{text} * {factor}"
            self._add(f"{text} to {changed}", span, form=f"(FAULT ? {changed} : SPAN)")
        elif cursor.kind == CursorKind.CXX_BOOL_LITERAL_EXPR and text in ("true", "false"):
            other = "false" if text == "true" else "true"
            self._add(f"{text} to {other}", span, form=f"(FAULT ? {other} : SPAN)")

    def _call(self, cursor, span):
        if cursor.kind != CursorKind.CALL_EXPR or cursor.spelling.startswith("operator"):
            return
        text = self._text(span)
        if extreme := re.match(r"std::(min|max)\b", text):
            other = "max" if extreme.group(1) == "min" else "min"
            self._add(f"{extreme.group(1)} to {other}", span,
                      form=EITHER % f"std::{other}{text[8:]}")
        if end := re.search(r"(?:\.|->)(front|back)\(\)$", text):
            other = "back" if end.group(1) == "front" else "front"
            self._add(f"{end.group(1)} to {other}", span,
                      form=EITHER % f"{text[:end.start(1)]}{other}()")
        arguments = [a for a in cursor.get_arguments() if a]
        for one, other in zip(arguments, arguments[1:]):
            self._exchange(one, other)

    def _exchange(self, one, other):
        a, b = self._span(one), self._span(other)
        if not a or not b or a[1] > b[0]:
            return
        first, second = self._text(a), self._text(b)
        lists = first.startswith("{") or "{" in second or "[" in first and "{" in first
        constant = re.compile(r'[\d."].*')
        if one.type.get_canonical().spelling == other.type.get_canonical().spelling \
                and first != second and not lists \
                and self._text((a[1], b[0])).strip() == "," \
                and not (constant.match(first) and constant.match(second)):
            self._add("arguments exchanged", (a[0], b[1]), exchange=[a, b])

    def _name(self, cursor, span):
        found = cursor.referenced
        if found is None:
            return
        name, text = found.spelling, self._text(span)
        if cursor.kind == CursorKind.MEMBER_REF_EXPR \
                and _kind(cursor) in NUMBERS | {TypeKind.ENUM} \
                and found.kind == CursorKind.FIELD_DECL and found.semantic_parent:
            fields = [f for f in found.semantic_parent.get_children()
                      if f.kind == CursorKind.FIELD_DECL]
            names = [f.spelling for f in fields]
            others = [f.spelling for f in fields if f.spelling != name
                      and _plain_type(f) == _plain_type(cursor)]
            if others and name in names and text.endswith(name):
                nearest = min(others, key=lambda o: abs(names.index(o) - names.index(name)))
                self._add(f"{name} to {nearest}", span,
                          form=f"(FAULT ? {text[:-len(name)]}{nearest} : SPAN)")
        elif cursor.kind == CursorKind.DECL_REF_EXPR and _kind(cursor) in NUMBERS \
                and any(p.spelling == name for p in self.parameters):
            others = [p.spelling for p in self.parameters
                      if p.spelling not in ("", name)
                      and _plain_type(p) == _plain_type(found)]
            if others and found.kind == CursorKind.PARM_DECL:
                self._add(f"{name} to {others[0]}", span,
                          form=f"(FAULT ? {others[0]} : SPAN)")


def _compiled(build):
    """Paths of translation units, their arguments."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    for command in commands:
        # Precompiled headers are read as texts.
        words = iter(w for w in shlex.split(command["command"])
                     if w not in ("-Xclang", "-fno-pch-timestamp"))
        # Behind a launcher; CUDA's compiler has a name of its own.
        if not any(os.path.basename(word).startswith(("clang", "g++", "c++"))
                   for word in words):
            continue
        arguments = []
        for word in words:
            if word in ("-o", "-include-pch"):
                next(words)
            elif word not in ("-c", command["file"]):
                arguments.append(word)
        yield (os.path.join(command["directory"], command["file"]),
               arguments + ["-w", "-working-directory=" + command["directory"]])


def _work(job):
    path, arguments, root, pattern = job
    wanted = re.compile(pattern)
    listing = Listing(root, lambda p: wanted.search(os.path.relpath(p, root)))
    return path, listing.read(path, arguments), listing.faults


def list_faults(root, build, pattern, jobs, compiled="."):
    """By path below `root`, all faults of files whose path `pattern` finds, of what
    is compiled where `compiled` finds the path below `build`."""
    work = [(path, arguments, root, pattern) for path, arguments in _compiled(build)
            if re.search(compiled, os.path.relpath(path, build))
            and not re.search(r"cuda|fuzz|/tests?/|unittests|cmake_pch",
                              os.path.relpath(path, build))]
    faults = {}
    with multiprocessing.Pool(jobs) as pool:
        for path, errors, found in pool.imap_unordered(_work, work):
            if errors:
                print(f"{path}: {errors[0]}")
            for name, own in found.items():
                known = faults.setdefault(name, {})
                for fault in own:
                    known.setdefault((fault["begin"], fault["end"], fault["kind"]), fault)
    return {name: list(known.values()) for name, known in faults.items()}
