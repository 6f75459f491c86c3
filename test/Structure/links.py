#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Links of the documentation lead somewhere, and to every page.

    links.py ROOT

A link to a file or folder needs one, a link to `page.md#heading` that heading, as
GitHub makes anchors of them; docs/README.md links every page beside it.
"""

import pathlib
import re
import sys

PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "python/*.md")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(page):
    """The page without its fenced blocks, where brackets mean other things."""
    return re.sub(r"^(`{3,}).*?^\1", "", page.read_text(encoding="utf-8"),
                  flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE):
        plain = re.sub(r"\]\([^)]*\)", "", heading).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    contents = root / "docs/README.md"
    pages = sorted({page for pattern in PAGES for page in root.glob(pattern)})
    listed, complaints, links = {contents}, [], 0
    for page in pages:
        for link in LINK.findall(text_of(page)):
            if re.match(r"[a-z]+:", link):
                continue  # another site's
            links += 1
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if page == contents:
                listed.add(target)
            if not target.exists():
                complaints.append(f"{page.relative_to(root)}: '{link}': "
                                  "expected a file, found none")
            elif anchor and anchor not in anchors(target):
                complaints.append(f"{page.relative_to(root)}: '{link}': "
                                  "expected a heading, found none")
    complaints += [f"docs/README.md: expected a link to {page.name}, found none"
                   for page in sorted((root / "docs").glob("*.md"))
                   if page not in listed]
    if not links:
        complaints.append("expected links, found none")
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
