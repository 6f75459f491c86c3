# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes faults into the text of a file.

A fault is a dictionary: `begin` and `end`, the span of the file's bytes that it
changes; `form`, the text in its place, where FAULT stands for "this fault is
chosen" and SPAN for what was there; `number`. A fault that exchanges two
arguments has `exchange` in the place of `form`: their spans.

Faults may lie inside each other: what SPAN stands for holds those inside. A fault
stays on the lines that it is on, so that messages of the compiler name them.
"""

import re


def on_one_line(text):
    """Code without // comments, with spaces for ends of lines."""
    if "\n" not in text:
        return text
    lines = []
    for line in text.split("\n"):
        comment = re.match(r'((?:[^"/]|"(?:\\.|[^"\\])*"|/(?!/))*)//.*$', line)
        lines.append(comment.group(1) if comment else line)
    return " ".join(lines)


class _Node:
    def __init__(self, begin, end, fault):
        self.begin, self.end, self.fault = begin, end, fault
        self.inside = []

    def holds(self, fault):
        if not (self.begin <= fault["begin"] and fault["end"] <= self.end):
            return False
        if self.fault is None or "exchange" not in self.fault:
            return True
        return any(begin <= fault["begin"] and fault["end"] <= end
                   for begin, end in self.fault["exchange"])


def _tree(length, faults):
    """All faults that can be written at once, and those that cannot: they begin
    inside another one and end behind it."""
    root = _Node(0, length, None)
    stack, refused = [root], []
    for fault in sorted(faults, key=lambda f: (f["begin"], -f["end"], f["number"])):
        while stack[-1].end <= fault["begin"] and len(stack) > 1:
            stack.pop()
        if not stack[-1].holds(fault):
            refused.append(fault)
            continue
        node = _Node(fault["begin"], fault["end"], fault)
        stack[-1].inside.append(node)
        stack.append(node)
    return root, refused


def rewritten(text, faults):
    """The text with all faults, the range of each in it by number, and the
    faults that were left out."""
    root, refused = _tree(len(text), faults)
    ranges = {}

    def span(node, begin, end, at):
        out, position = "", begin
        for inner in node.inside:
            if begin <= inner.begin and inner.end <= end:
                out += text[position:inner.begin]
                out += written(inner, at + len(out))
                position = inner.end
        return out + text[position:end]

    def written(node, at):
        fault = node.fault
        if fault is None:
            return span(node, node.begin, node.end, at)
        chosen = f"GALVATRON_FAULT({fault['number']})"
        if "exchange" in fault:
            (first, first_end), (second, second_end) = fault["exchange"]
            out = f"({chosen} ? ({on_one_line(text[second:second_end])}) : ("
            out += span(node, first, first_end, at + len(out)) + "))"
            out += text[first_end:second]
            out += f"({chosen} ? ({on_one_line(text[first:first_end])}) : ("
            out += span(node, second, second_end, at + len(out)) + "))"
        else:
            before, after = fault["form"].replace("FAULT", chosen).split("SPAN", 1)
            out = on_one_line(before)
            out += span(node, node.begin, node.end, at + len(out))
            out += on_one_line(after)
        ranges[fault["number"]] = (at, at + len(out))
        return out

    return written(root, 0), ranges, refused
