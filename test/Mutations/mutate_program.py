#!/usr/bin/env python3
#===- mutate_program.py - Programs with one thing changed ----------------===//
#
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===----------------------------------------------------------------------===//
"""Changes one thing in a compiled program (docs/formats.md), writes it with the
right digest, loads and runs it, and compares it with the unchanged one.

  mutate_program.py --bin=build/bin [--changes=N] [--seed=S] [--long]

What is changed is found in the tables and the manifest: a number of a row, a
row that is gone, twice or behind the next one, a key. Fails if a change crashes
the runtime, or is accepted and computes something else, unless that is what the
file alone says (OTHER).
"""

import argparse
import collections
import copy
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

HEADER = struct.Struct("<8sIIQ32sQ")
SECTION = struct.Struct("<IIQQ")
PARTS = ("prologue", "steady", "step end", "drain", "evaluate")
BUFFER = ("region", "dtype", "offset", "bytes")
# The rows of sections by number: a struct and the names of its fields.
ROWS = {
    0: ("<II", ("first call", "calls")),
    1: ("<HHI", ("kind", "when", "index")),
    2: ("<8I", ("kernel", "name", "first buffer", "buffers", "first integer",
                "integers", "first real", "reals")),
    3: ("<6IIIQQIIQQ", ("collective", "axis", "acc", "stream", "name", "reserved",
                        *("in " + name for name in BUFFER),
                        *("out " + name for name in BUFFER))),
    4: ("<4I", ("event", "stream", "wait", "name")),
    5: ("<IIQQ", BUFFER),
    6: ("<q", ("integer",)),
    7: ("<d", ("real",)),
    8: ("<18I", (*(f"{part} {what}" for part in PARTS
                   for what in ("first task", "tasks")),
                 *(f"{what} of {name}" for name in
                   ("transfers", "procedures", "places", "messages")
                   for what in ("first", "count")))),
    9: ("<BBHHBBIIHBBB3B", ("kind", "flags", "chunk", "slot", "generation",
                            "classes", "micro-batch", "first part", "parts",
                            "stream", "tiers", "records", "wait 0", "wait 1",
                            "wait 2")),
    10: ("<BBHHHIB3B", ("direction", "value", "chunk", "peer chunk", "slot",
                        "micro-batch", "generation", "reserved 0", "reserved 1",
                        "reserved 2")),
    11: ("<HBBBBHII", ("chunk", "task", "classes", "tiers", "stream", "reserved",
                       "first command", "commands")),
    12: ("<4BiiII", ("kind", "when", "phase", "stream", "layer", "number", "to",
                     "from")),
    13: ("<QQqqq", ("offset", "bytes", "slot step", "place step", "part step")),
    14: ("<HHBBBBiiI", ("chunk", "peer", "direction", "value", "shared", "home",
                        "exchange", "buffer", "place")),
}
TABLES = {0: "function", 1: "call", 2: "kernel", 3: "collective", 4: "event",
          5: "buffer", 6: "integer", 7: "real", 8: "role", 9: "task",
          10: "transfer", 11: "procedure", 12: "command", 13: "place",
          14: "message"}
NAMES, MANIFEST = 15, 16
KERNEL, COLLECTIVE, EVENT, BEGIN, END = range(5)

# What a file alone says: what a function computes of what it is given is known
# to the compiler, which numbers it, and not to the loader; a program is what its
# bytes say (docs/formats.md). So these are other programs, and legal. By what
# `where` begins with.
OTHER = (
    ("real real", "a constant of a kernel"),
    ("integer integer", "a flag of a kernel, or which dimension is which"),
    ("buffer ", "another operand of a kernel, of the size that it needs"),
    ("call kernel", "a kernel more or less, all of whose bytes are written"),
    ("call collective", "a sum earlier, later or not at all"),
    ("call begin", "a life of the same bytes"),
    ("call end", "a life of the same bytes"),
    ("collective acc", "a sum over micro-batches that begins anew"),
    ("collective collective", "another collective of the same sizes"),
    ("collective in ", "another operand of the same size"),
    ("collective out ", "another result of the same size"),
    ("kernel kernel", "another kernel of the same sizes"),
    ("kernel name", "a label"),
    ("manifest parameters.[].init", "initial values"),
    ("manifest parameters.[].std", "initial values"),
    ("manifest parameters.[].name", "initial values are drawn by names"),
    ("manifest data.[].below", "other data"),
    ("manifest data.[].counted", "other data"),
    ("manifest roles.[].data.[].datum", "other data of the same size"),
    ("manifest training.clip", "another training"),
    ("manifest training.decay-all", "another training"),
    ("manifest roles.[].layers.[].dropout-key", "other masks"),
)


class Program:
    """The tables of a program as lists of rows."""

    def __init__(self, data):
        _, self.version, count, _, _, _ = HEADER.unpack_from(data)
        self.rows, self.sizes = {}, {}
        for number in range(count):
            kind, size, offset, rows = SECTION.unpack_from(
                data, HEADER.size + number * SECTION.size)
            content = data[offset:offset + size * rows]
            self.sizes[kind] = size
            self.rows[kind] = content if kind >= NAMES else [
                list(row) for row in struct.iter_unpack(ROWS[kind][0], content)]

    def write(self):
        """The bytes of the file; its digest is right."""
        contents = [self.rows[kind] if kind >= NAMES else b"".join(
            struct.pack(ROWS[kind][0], *row) for row in self.rows[kind])
                    for kind in sorted(self.rows)]
        end = HEADER.size + len(contents) * SECTION.size
        table, body = b"", b""
        for kind, content in enumerate(contents):
            offset = (end + 15) // 16 * 16
            table += SECTION.pack(kind, self.sizes[kind], offset,
                                  len(content) // self.sizes[kind])
            body += bytes(offset - end) + content
            end = offset + len(content)
        behind = table + body
        return HEADER.pack(b"\x89GVX\r\n\x1a\n", self.version, len(contents), end,
                           hashlib.sha256(behind).digest(), 0) + behind

    def manifest(self):
        """The manifest as values; write it back by `set_manifest`."""
        return json.loads(self.rows[MANIFEST])

    def set_manifest(self, values):
        """Makes the manifest the text of `values`."""
        self.rows[MANIFEST] = json.dumps(values, separators=(",", ":")).encode()


class Calls:
    """The functions of a program as lists of calls, each with the rows that it
    owns, so that calls can be left out and moved."""

    def __init__(self, program):
        rows = program.rows
        self.functions = []
        for first, count in rows[0]:
            calls = []
            for kind, when, index in rows[1][first:first + count]:
                if kind == KERNEL:
                    row = rows[2][index]
                    calls.append((kind, when, row[:2], [
                        rows[table][row[at]:row[at] + row[at + 1]]
                        for table, at in ((5, 2), (6, 4), (7, 6))]))
                else:
                    table = {COLLECTIVE: 3, EVENT: 4}.get(kind, 5)
                    calls.append((kind, when, rows[table][index], None))
            self.functions.append(calls)

    def store(self, program):
        """Makes the tables of calls those of `functions`."""
        rows = program.rows
        for table in range(8):
            rows[table] = []
        for calls in self.functions:
            rows[0].append([len(rows[1]), len(calls)])
            for kind, when, row, owned in calls:
                if kind == KERNEL:
                    row = list(row)
                    for table, more in zip((5, 6, 7), owned):
                        row += [len(rows[table]), len(more)]
                        rows[table] += more
                table = {KERNEL: 2, COLLECTIVE: 3, EVENT: 4}.get(kind, 5)
                rows[1].append([kind, when, len(rows[table])])
                rows[table].append(row)


def tasks_of(program):
    """Tasks by role and part."""
    return [[program.rows[9][role[2 * part]:role[2 * part] + role[2 * part + 1]]
             for part in range(5)] for role in program.rows[8]]


def store_tasks(program, roles):
    """Makes the tasks of a program those of `roles`."""
    program.rows[9] = []
    for row, parts in zip(program.rows[8], roles):
        for part, tasks in enumerate(parts):
            row[2 * part:2 * part + 2] = [len(program.rows[9]), len(tasks)]
            program.rows[9] += tasks


def change_command(procedure, at, kind):
    def apply(program):
        rows = program.rows
        lists = [rows[12][row[6]:row[6] + row[7]] for row in rows[11]]
        edit(lists[procedure], kind, at)
        rows[12] = []
        for row, commands in zip(rows[11], lists):
            row[6:8] = [len(rows[12]), len(commands)]
            rows[12] += commands
        number_places(program)
    return apply


def number_places(program):
    """Gives a role's places the order in which commands and messages name them,
    as the format wants it."""
    rows = program.rows
    places = []
    for role in rows[8]:
        new = {0: 0}
        first, _, begin = role[14], role[15], len(places)

        def renumber(row, at):
            if row[at] not in new:
                new[row[at]] = len(new)
                places.append(rows[13][first + row[at] - 1])
            row[at] = new[row[at]]

        for procedure in rows[11][role[12]:role[12] + role[13]]:
            for row in rows[12][procedure[6]:procedure[6] + procedure[7]]:
                renumber(row, 6)
                renumber(row, 7)
        for row in rows[14][role[16]:role[16] + role[17]]:
            renumber(row, 8)
        role[14:16] = [begin, len(places) - begin]
    rows[13] = places


class Change:
    """One change: what it is, for people, and how it is made."""

    def __init__(self, kind, where, apply):
        self.kind, self.where, self.apply = kind, where, apply

    def group(self):
        """Changes of one group are alike."""
        return self.where.split(" of ")[0], self.kind


def change_field(table, row, at, value):
    def apply(program):
        program.rows[table][row][at] = value
    return apply


def owners(program):
    """For rows of buffers, integers and reals: the kernel that owns them and
    their place among its own."""
    found = {5: {}, 6: {}, 7: {}}
    for row in program.rows[2]:
        for table, at in ((5, 2), (6, 4), (7, 6)):
            for place in range(row[at + 1]):
                found[table][row[at] + place] = f"kernel {row[0]} place {place}"
    return found


def find_fields(program):
    """Numbers of rows, one more and one less, and those of another row."""
    owned = owners(program)
    for table, name in TABLES.items():
        fields = ROWS[table][1]
        values = [sorted({row[at] for row in program.rows[table]})
                  for at in range(len(fields))]
        for number, row in enumerate(program.rows[table]):
            owner = owned.get(table, {}).get(number, "")
            for at, field in enumerate(fields):
                where = f"{name} {field} of row {number} {owner}".rstrip()
                if table == 7:
                    yield Change("real", where, change_field(
                        table, number, at, row[at] * 1.5 if row[at] else 0.5))
                    continue
                step = 64 if field.endswith(("offset", "bytes")) else 1
                for value in (row[at] + step, row[at] - step):
                    if value >= 0 or table == 6:
                        yield Change("integer", f"{where} {row[at]} to {value}",
                                     change_field(table, number, at, value))
                others = values[at]
                other = others[(others.index(row[at]) + 1) % len(others)]
                if other != row[at]:
                    yield Change("borrow", f"{where} {row[at]} to {other}",
                                 change_field(table, number, at, other))


def edit(items, kind, at):
    """Leaves an item out, doubles it, or puts it behind the next one."""
    if kind == "drop":
        del items[at]
    elif kind == "twice":
        items.insert(at, copy.deepcopy(items[at]))
    else:
        items[at:at + 2] = reversed(items[at:at + 2])


def change_call(function, at, kind):
    def apply(program):
        calls = Calls(program)
        edit(calls.functions[function], kind, at)
        calls.store(program)
    return apply


def change_task(role, part, at, kind):
    def apply(program):
        roles = tasks_of(program)
        edit(roles[role][part], kind, at)
        store_tasks(program, roles)
    return apply


def find_commands(program):
    """Calls, tasks and commands that are gone, twice or later."""
    names = program.manifest()["functions"]
    kinds = ("kernel", "collective", "event", "begin", "end")
    for function, calls in enumerate(Calls(program).functions):
        for at, call in enumerate(calls):
            for kind in ("drop", "twice", "behind"):
                if kind != "behind" or at + 1 < len(calls):
                    yield Change(kind, f"call {kinds[call[0]]} of "
                                 f"{names[function]} number {at}",
                                 change_call(function, at, kind))
    for role, parts in enumerate(tasks_of(program)):
        for part, tasks in enumerate(parts):
            for at, task in enumerate(tasks):
                for kind in ("drop", "twice", "behind"):
                    if kind != "behind" or at + 1 < len(tasks):
                        yield Change(kind, f"task {task[0]} of role {role} "
                                     f"{PARTS[part]} number {at}",
                                     change_task(role, part, at, kind))
    for procedure, row in enumerate(program.rows[11]):
        for at in range(row[7]):
            command = program.rows[12][row[6] + at][0]
            for kind in ("drop", "twice", "behind"):
                if kind != "behind" or at + 1 < row[7]:
                    yield Change(kind, f"command {command} of task {row[1]} "
                                 f"procedure {procedure} number {at}",
                                 change_command(procedure, at, kind))


def change_manifest(path, edit_value):
    def apply(program):
        values = program.manifest()
        at = values
        for key in path[:-1]:
            at = at[key]
        edit_value(at, path[-1])
        program.set_manifest(values)
    return apply


def put(value):
    def edit_value(at, key):
        at[key] = value
    return edit_value


def remove(at, key):
    del at[key]


def find_manifest(program):
    """Keys and elements that are gone, and other values of the same kind."""
    values = program.manifest()
    seen = collections.defaultdict(list)

    def name_of(path):
        return ".".join("[]" if isinstance(key, int) else key for key in path)

    def walk(value, path):
        if path:
            seen[name_of(path)].append(value)
        for key, inner in (value.items() if isinstance(value, dict) else
                           enumerate(value) if isinstance(value, list) else ()):
            yield from walk(inner, path + (key,))
        if path:
            yield path, value

    for path, value in list(walk(values, ())):
        if path[0] == "model-config" and len(path) > 1:
            continue
        where = f"manifest {name_of(path)} of {'.'.join(map(str, path))}"
        yield Change("drop", where, change_manifest(path, remove))
        if isinstance(value, bool):
            yield Change("bool", where, change_manifest(path, put(not value)))
        elif isinstance(value, int):
            for other in (value + 1, value - 1, value + 64):
                yield Change("integer", f"{where} {value} to {other}",
                             change_manifest(path, put(other)))
        elif isinstance(value, float):
            yield Change("real", where, change_manifest(path, put(
                value * 1.5 if value else 0.5)))
        others = [other for other in seen[name_of(path)] if other != value]
        if others:
            yield Change("borrow", where, change_manifest(path, put(others[0])))


def find_changes(program):
    """All changes of a program."""
    yield from find_fields(program)
    yield from find_commands(program)
    yield from find_manifest(program)


def draw(changes, count, generator):
    """Draws changes without repetition: tables take turns, and of one the groups
    of like changes."""
    tables = collections.defaultdict(lambda: collections.defaultdict(list))
    for change in changes:
        tables[change.where.split(" ")[0]][change.group()].append(change)
    for groups in tables.values():
        for group in groups.values():
            generator.shuffle(group)
    drawn = []
    while tables and len(drawn) < count:
        table = generator.choice(sorted(tables))
        key = generator.choice(sorted(tables[table]))
        drawn.append(tables[table][key].pop())
        if not tables[table][key]:
            del tables[table][key]
        if not tables[table]:
            del tables[table]
    return drawn


class Judge:
    """Processes that run changed programs of one reference."""

    def __init__(self, binaries, reference, folder, jobs):
        self.folder = folder
        self.processes = [
            subprocess.Popen([os.path.join(binaries, "galvatron-judge"), reference],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True, errors="replace")
            for _ in range(jobs)]

    def run(self, files):
        """(stage, message) of each file, given as bytes."""
        results = []
        size = len(self.processes)
        for begin in range(0, len(files), size):
            batch = files[begin:begin + size]
            for at, (process, content) in enumerate(zip(self.processes, batch)):
                path = os.path.join(self.folder, f"changed{at}.gvx")
                with open(path, "wb") as file:
                    file.write(content)
                process.stdin.write(path + "\n")
                process.stdin.flush()
            for process, _ in zip(self.processes, batch):
                line = process.stdout.readline()
                if not line:
                    raise SystemExit("galvatron-judge ended: "
                                     f"{process.wait()}")
                results.append(tuple(line.rstrip("\n").split("\t", 1)))
        return results

    def end(self):
        """Ends the processes."""
        for process in self.processes:
            process.stdin.close()
            process.wait()
            process.stdout.close()


OUTCOMES = ("refused at load", "refused for ranks", "same results",
            "other program", "stopped in a run", "wrong", "crashed")


def outcome_of(change, stage, message):
    """The outcome of a change by what the judge said of it."""
    other = any(change.where.startswith(begin) for begin, _ in OTHER)
    if stage == "end":
        return ("same results" if not message else
                "other program" if other else "wrong")
    if stage == "run":
        return "other program" if other else "stopped in a run"
    return {"load": "refused at load", "ranks": "refused for ranks",
            "crash": "crashed"}[stage]


def head_of(message):
    """A message without numbers and names, to count what refuses."""
    parts = message.replace("program 'program': ", "").split("'")
    text = "'..'".join(parts[::2])
    return "".join("N" if letter.isdigit() else letter for letter in text)[:70]


def encode(program, change):
    """The file of a changed program; None if a field cannot hold the number."""
    changed = Program(program)
    try:
        change.apply(changed)
        return changed.write()
    except struct.error:
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bin", required=True, help="folder of the tools")
    parser.add_argument("--changes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--long", action="store_true", help="all models")
    parser.add_argument("--models", help="names, by commas")
    parser.add_argument("--print-all", action="store_true")
    options = parser.parse_args()
    generator = random.Random(options.seed)
    counts = collections.Counter()
    by_table = collections.defaultdict(collections.Counter)
    heads = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="galvatron-") as folder:
        subprocess.run([os.path.join(options.bin, "galvatron-mutate"),
                        f"--programs={folder}",
                        *(["--long"] if options.long else []),
                        *([f"--models={options.models}"] if options.models
                          else [])], check=True)
        paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        for number, path in enumerate(paths):
            with open(path, "rb") as file:
                data = file.read()
            if Program(data).write() != data:
                raise SystemExit(f"{path}: written again it is another file")
            share = (options.changes * (number + 1) // len(paths) -
                     options.changes * number // len(paths))
            drawn = [(change, content) for change in
                     draw(find_changes(Program(data)), share, generator)
                     if (content := encode(data, change)) not in (None, data)]
            judge = Judge(options.bin, path, folder, options.jobs)
            results = judge.run([content for _, content in drawn])
            judge.end()
            model = os.path.basename(path)[:-len(".gvx")]
            for (change, _), (stage, message) in zip(drawn, results):
                outcome = outcome_of(change, stage, message)
                counts[outcome] += 1
                by_table[change.where.split(" ")[0]][outcome] += 1
                if outcome.startswith("refused"):
                    heads[head_of(message)] += 1
                if options.print_all or outcome in OUTCOMES[4:]:
                    print(f"{outcome}: {model}, {change.kind}, {change.where}: "
                          f"{message[:300]}")
    print(f"{'':12}" + "".join(f"{name:>18}" for name in OUTCOMES))
    for name, row in [*sorted(by_table.items()), ("all", counts)]:
        print(f"{name:12}" + "".join(f"{row[key]:>18}" for key in OUTCOMES))
    if options.print_all:
        for head, count in heads.most_common():
            print(f"{count} x {head}")
    bad = sum(counts[name] for name in OUTCOMES[4:])
    print(f"{sum(counts.values())} changes, {bad} accepted and wrong, stopped "
          "or crashed")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
