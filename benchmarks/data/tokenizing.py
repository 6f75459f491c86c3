#!/usr/bin/env python3
"""Tokenizing beside the package `tokenizers`, on the same text with the same tokenizers.

    tokenizing.py --tool=build/bin/galvatron-data [--text=FILE] [--vocabulary=32000] [--rounds=3]

Trains a tokenizer of each kind on the text (default: the King James Bible of Debian's bible-kjv, 16
times), then takes turns: galvatron-data makes shards of the file's lines; the package reads the lines,
encodes them at once (encode_batch_fast, which uses all threads that RAYON_NUM_THREADS allows) and writes
the numbers. Both start with the tokenizer loaded: what an empty text takes is taken off. Prints MiB/s,
the best of the rounds, and the ratio."""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

PEER = """
import array, sys, time
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
begin = time.perf_counter()
with open(sys.argv[2], encoding="utf-8") as file:
    lines = file.read().splitlines()
count = 0
with open(sys.argv[3], "wb") as out:
    for first in range(0, len(lines), 20000):
        for each in tokenizer.encode_batch_fast(lines[first:first + 20000], add_special_tokens=False):
            ids = each.ids
            count += len(ids)
            array.array("H", ids).tofile(out)
print(time.perf_counter() - begin, count)
"""


def bible():
    text = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=True).stdout
    return "".join(line.split(" ", 1)[-1] + "\n" for line in text.splitlines()) * 16


def train(folder, text, vocabulary):
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "runtime", "tests", "tokenizers"))
    import generate
    from tokenizers import trainers
    generate.seed_lines = generate.few_scripts = text[:4 << 20].splitlines
    for name in ("BpeTrainer", "WordPieceTrainer", "UnigramTrainer"):
        def larger(make=getattr(trainers, name), **options):
            options.update(vocab_size=vocabulary)
            options.pop("limit_alphabet", None)
            return make(**options)
        setattr(trainers, name, larger)
    paths = {}
    for name, make in generate.KINDS.items():
        paths[name] = os.path.join(folder, name + ".json")
        make().save(paths[name])
    return paths


def run_tool(tool, tokenizer, text, threads, folder):
    shutil.rmtree(folder, ignore_errors=True)
    begin = time.perf_counter()
    subprocess.run([tool, "tokenize", text, "--documents=line", "--tokenizer=" + tokenizer, "-o", folder,
                    f"--threads={threads}"], check=True, capture_output=True)
    seconds = time.perf_counter() - begin
    count = 0
    for name in os.listdir(folder):
        if name.endswith((".u16", ".u32")):
            count += os.path.getsize(os.path.join(folder, name)) // (2 if name.endswith("16") else 4)
    return seconds, count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--text")
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.text:
            with open(options.text, encoding="utf-8") as file:
                text = file.read()
        else:
            text = bible()
        path, empty = os.path.join(folder, "text.txt"), os.path.join(folder, "empty.txt")
        for name, content in ((path, text), (empty, "a\n")):
            with open(name, "w", encoding="utf-8") as file:
                file.write(content)
        size = os.path.getsize(path) / 2**20
        tokenizers = train(folder, text, options.vocabulary)
        print(f"{size:.1f} MiB\n{'tokenizer':10} threads  galvatron-data  tokenizers  ratio")
        for name, tokenizer in tokenizers.items():
            for threads in (1, os.cpu_count()):
                ours, theirs, counts = [], [], set()
                for _ in range(options.rounds):
                    out = os.path.join(folder, "out")
                    startup, _ = run_tool(options.tool, tokenizer, empty, threads, out)
                    seconds, count = run_tool(options.tool, tokenizer, path, threads, out)
                    ours.append(size / (seconds - startup))
                    counts.add(count)
                    done = subprocess.run([sys.executable, "-c", PEER, tokenizer, path, os.path.join(folder, "peer")],
                                          env={**os.environ, "RAYON_NUM_THREADS": str(threads)}, check=True,
                                          capture_output=True, text=True).stdout.split()
                    theirs.append(size / float(done[0]))
                    counts.add(int(done[1]))
                if len(counts) != 1:
                    sys.exit(f"{name}: numbers of tokens differ: {counts}")
                print(f"{name:10} {threads:7}  {max(ours):14.1f}  {max(theirs):10.1f}  {max(ours) / max(theirs):5.1f}",
                      flush=True)


if __name__ == "__main__":
    main()
