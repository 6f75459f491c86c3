#!/usr/bin/env python3
#===- rooms.py - Arrows between rooms ------------------------------------===//
#
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===----------------------------------------------------------------------===//
"""Compares the arrows between rooms, from #include lines and from the libraries
that CMake links, with the table in docs/architecture.md.

  rooms.py SOURCE           checks; exit code 1 if an arrow is not in the table
  rooms.py SOURCE --print   prints the arrows there are, as rows of the table

A room is a folder of lib/ (with its headers in include/galvatron/), of
lib/Dialect or of lib/Conversion; the runtime has a table of its own, of the
folders of runtime/src. Checked are:
- every arrow is in the table, and every arrow of the table is there;
- the arrows of a table make no circle;
- rooms that the table says are plain include nothing of MLIR, nor do rooms that
  they use; runtime/ includes nothing of MLIR, LLVM or the compiler.
"""

import pathlib
import re
import sys

NESTED = ("Dialect", "Conversion")
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)
LIBRARY = re.compile(r"galvatron_add_(?:mlir_)?library\(\s*(\w+)(.*?)\)", re.S)


def strip_comments(text):
    return re.sub(r"#.*", "", text)


def room_of(parts):
    """The room of a path below lib/ or include/galvatron/; None for the files
    at the top, which put rooms together."""
    if len(parts) < 2:
        return None
    if parts[0] in NESTED:
        return "/".join(parts[:2]) if len(parts) > 2 else None
    return parts[0]


def sources(folder):
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".cpp", ".h", ".td", ".c", ".cu", ".cuh"):
            yield path


def rooms_with_files(source):
    """(room, path) of every file of a room."""
    for base in (source / "lib", source / "include" / "galvatron"):
        for path in sources(base):
            room = room_of(path.relative_to(base).parts)
            if room:
                yield room, path


def find_arrows(source):
    """{(from, to): where it was seen} and the includes of every room."""
    arrows, outside = {}, {}
    for room, path in rooms_with_files(source):
        for name in INCLUDE.findall(path.read_text()):
            if not name.startswith("galvatron/"):
                outside.setdefault(room, {}).setdefault(name, path)
                continue
            target = room_of(tuple(name.split("/")[1:]))
            if target and target != room:
                arrows.setdefault((room, target), path)

    libraries, links = {}, []
    for path in sorted((source / "lib").rglob("CMakeLists.txt")):
        room = room_of(path.relative_to(source / "lib").parts)
        for name, body in LIBRARY.findall(strip_comments(path.read_text())):
            if room:
                libraries[name] = room
                linked = body.split("LINK_LIBS")[1].split() if "LINK_LIBS" in body else []
                links += [(room, library, path) for library in linked]
    for room, library, path in links:
        target = libraries.get(library)
        if target and target != room:
            arrows.setdefault((room, target), path)
    return arrows, outside


def rows_of(page, head):
    """The cells of the rows of the table whose first line begins so."""
    inside = False
    for line in page.read_text().splitlines():
        if line.startswith(head):
            inside = True
        elif inside and not line.startswith("|"):
            break
        elif inside and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def read_table(page):
    """{room: (plain, rooms it may use)} from the rows `| room | yes or no | ...`."""
    return {room.strip("`"): (mlir == "no", re.findall(r"`([^`]+)`", uses))
            for room, mlir, uses in rows_of(page, "| room | MLIR | uses |")}


def check_runtime(source):
    """What is wrong with the arrows between the folders of runtime/src."""
    base, arrows, rooms = source / "runtime" / "src", {}, set()
    for path in sources(base):
        parts = path.relative_to(base).parts
        if len(parts) < 2:
            continue
        rooms.add(parts[0])
        for name in INCLUDE.findall(path.read_text()):
            target = name.split("/")[0]
            if target != parts[0] and (base / target).is_dir() and "/" in name:
                arrows.setdefault((parts[0], target), path)
    table = {room.strip("`"): (True, re.findall(r"`([^`]+)`", uses))
             for room, uses in rows_of(source / "docs" / "architecture.md",
                                       "| room of `runtime/src` | uses |")}
    for room in sorted(rooms ^ set(table)):
        yield (f"expected '{room}' in the table of the runtime's rooms" if room in rooms
               else f"the table has the runtime's room '{room}', which does not exist")
    for (room, target), path in sorted(arrows.items()):
        if target not in table.get(room, (True, []))[1]:
            yield (f"{path.relative_to(source)}: '{room}' uses '{target}', which the "
                   "table of docs/architecture.md does not say")
    for room, (_, uses) in sorted(table.items()):
        for target in uses:
            if (room, target) not in arrows:
                yield (f"the table says that '{room}' uses '{target}', which no "
                       "include line does")
    if circle := find_circle(table):
        yield "rooms of the runtime use each other in a circle: " + " -> ".join(circle)


def find_circle(table):
    done, on_path = set(), []

    def visit(room):
        if room in on_path:
            return on_path[on_path.index(room):] + [room]
        if room in done:
            return None
        on_path.append(room)
        for target in table.get(room, (True, []))[1]:
            if circle := visit(target):
                return circle
        on_path.pop()
        done.add(room)
        return None

    for room in sorted(table):
        if circle := visit(room):
            return circle
    return None


def check(source):
    arrows, outside = find_arrows(source)
    table = read_table(source / "docs" / "architecture.md")
    faults = []
    if not table:
        return ["docs/architecture.md: expected a table '| room | MLIR | uses |'"]
    rooms = {room for room, _ in rooms_with_files(source)}
    for room in sorted(rooms - set(table)):
        faults.append(f"expected '{room}' in the table of docs/architecture.md")
    for room in sorted(set(table) - rooms):
        faults.append(f"the table has the room '{room}', which does not exist")
    for (room, target), path in sorted(arrows.items()):
        if target not in table.get(room, (True, []))[1]:
            faults.append(f"{path.relative_to(source)}: '{room}' uses '{target}', "
                          "which the table of docs/architecture.md does not say")
    for room, (plain, uses) in sorted(table.items()):
        for target in uses:
            if (room, target) not in arrows:
                faults.append(f"the table says that '{room}' uses '{target}', "
                              "which no include or link line does")
            if plain and not table.get(target, (True, []))[0]:
                faults.append(f"'{room}' holds no MLIR, but uses '{target}', which does")
        for name, path in sorted(outside.get(room, {}).items()):
            if plain and name.startswith("mlir/"):
                faults.append(f"{path.relative_to(source)}: '{room}' holds no MLIR, "
                              f"but includes '{name}'")
    if circle := find_circle(table):
        faults.append("rooms use each other in a circle: " + " -> ".join(circle))
    faults += check_runtime(source)
    for path in sources(source / "runtime"):
        for name in INCLUDE.findall(path.read_text()):
            if name.startswith(("mlir/", "llvm/", "galvatron/")):
                faults.append(f"{path.relative_to(source)}: the runtime includes "
                              f"'{name}'")
    return faults


def main():
    source = pathlib.Path(sys.argv[1])
    if "--print" in sys.argv:
        arrows, outside = find_arrows(source)
        for room in sorted({room for room, _ in rooms_with_files(source)}):
            mlir = any(name.startswith("mlir/") for name in outside.get(room, {}))
            uses = ", ".join(f"`{b}`" for a, b in sorted(arrows) if a == room)
            print(f"| `{room}` | {'yes' if mlir else 'no'} | {uses} |")
        return 0
    faults = check(source)
    print("\n".join(faults) or "all arrows are those of the table")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
