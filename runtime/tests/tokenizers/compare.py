#!/usr/bin/env python3
"""Compares the tokens of galvatron-data with those of the package `tokenizers`.

    compare.py GALVATRON_DATA [--lines=10000] [TOKENIZER.json..]

Without tokenizers: those beside this file, and variants of them with other pre-tokenizers and
normalizers. Ends with 77 where the package is missing, which ctest takes as skipped."""
import argparse
import array
import base64
import json
import os
import struct
import subprocess
import sys
import tempfile

from lines import HERE, lines

try:
    from tokenizers import Tokenizer
except ImportError:
    print("skipped: the package `tokenizers` is not installed (pip install tokenizers==0.23.3)")
    sys.exit(77)

SPLITS = [("Removed", False), ("Isolated", True), ("MergedWithPrevious", False), ("MergedWithNext", False),
          ("Contiguous", False), ("MergedWithPrevious", True), ("Removed", True)]


def sentencepiece_tables():
    """The normalizers that SentencePiece writes into its models, where it is installed."""
    try:
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        print("without the packages `sentencepiece` and `protobuf` no tables of SentencePiece are compared")
        return
    with tempfile.TemporaryDirectory() as folder:
        for rule in ("nmt_nfkc", "nmt_nfkc_cf", "nfkc"):
            prefix = os.path.join(folder, rule)
            sentencepiece.SentencePieceTrainer.train(
                input=os.path.join(HERE, "seed.txt"), model_prefix=prefix, vocab_size=1200, model_type="char",
                normalization_rule_name=rule, hard_vocab_limit=False, minloglevel=2)
            model = sentencepiece_model_pb2.ModelProto()
            with open(prefix + ".model", "rb") as file:
                model.ParseFromString(file.read())
            yield rule, base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()


def variants():
    """Tokenizers that nobody ships, for what the kept ones do not use."""
    def load(name):
        with open(os.path.join(HERE, name + ".json"), encoding="utf-8") as file:
            return json.load(file)
    for pattern in ({"String": " "}, {"Regex": r"\w+"}, {"Regex": r"[\s\d]"}, {"Regex": r"\p{Han}|\p{Latin}+"}):
        for behavior, invert in SPLITS:
            state = load("gpt2")
            state["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert},
                {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}]}
            yield f"gpt2 split {list(pattern.values())[0]} {behavior} {invert}", state
    for kind in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer", "Punctuation", "Digits"):
        state = load("bert")
        state["pre_tokenizer"] = {"type": kind}
        state["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
            {"type": "Strip", "strip_left": True, "strip_right": True}]}
        if kind == "Punctuation":
            state["pre_tokenizer"]["behavior"] = "MergedWithNext"
        if kind == "Digits":
            state["pre_tokenizer"]["individual_digits"] = True
        yield f"bert {kind}", state
    for scheme, split in (("first", True), ("never", False), ("always", False)):
        state = load("unigram")
        state["pre_tokenizer"].update(prepend_scheme=scheme, split=split)
        state["normalizer"] = {"type": "NFKD"}
        yield f"unigram {scheme} {split}", state
    state = load("unigram")
    state["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "NFKC"}]}
    yield "unigram Nmt", state
    state = load("unigram")
    state["normalizer"] = {"type": "ByteLevel"}
    yield "unigram of bytes", state
    for rule, table in sentencepiece_tables():
        state = load("unigram")
        state["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": table}
        yield f"unigram with SentencePiece's table {rule}", state
    state = load("bert")
    state["normalizer"].update(lowercase=False, strip_accents=True, handle_chinese_chars=False)
    yield "bert cased", state
    state = load("llama2")
    state["model"].update(byte_fallback=False)
    yield "llama2 unknown", state
    state["model"].update(fuse_unk=False)
    yield "llama2 unknown apart", state
    state["model"].update(unk_token=None)
    yield "llama2 unknown left out", state


def shard_tokens(folder):
    """The tokens of every document of a folder of shards."""
    result = []
    with open(os.path.join(folder, "shards.json"), encoding="utf-8") as file:
        shards = json.load(file)
    for shard in shards["shards"]:
        path = os.path.join(folder, shard["file"])
        tokens = array.array("H" if shards["format"] == "u16" else "I")
        with open(path, "rb") as file:
            tokens.frombytes(file.read())
        with open(path + ".index", "rb") as file:
            index = file.read()
        count, = struct.unpack_from("<Q", index, 24)
        begin = 0
        for end in struct.unpack_from(f"<{count}Q", index, 136):
            result.append(tokens[begin:end].tolist())
            begin = end
    return result


def compare(tool, name, path, texts, folder):
    tokenizer = Tokenizer.from_file(path)
    source = os.path.join(folder, "lines.jsonl")
    with open(source, "w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
    out = os.path.join(folder, "shards-" + os.path.basename(path))
    done = subprocess.run([tool, "tokenize", source, "--tokenizer=" + path, "--special", "-o", out],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name}: {done.stderr.strip()}")
        return False
    found = shard_tokens(out)
    expected = [each.ids for each in tokenizer.encode_batch(texts)]
    different = [i for i in range(len(texts)) if i >= len(found) or expected[i] != found[i]]
    print(f"{name}: {sum(map(len, expected))} tokens of {len(texts)} lines, {len(different)} lines differ")
    for i in different[:3]:
        ours = found[i] if i < len(found) else []
        at = next((k for k, pair in enumerate(zip(expected[i], ours)) if pair[0] != pair[1]),
                  min(len(expected[i]), len(ours)))
        print(f"  line {i} {ascii(texts[i])[:200]}\n  from token {at}: expected "
              f"{ascii([tokenizer.id_to_token(t) for t in expected[i][at:at + 8]])}, found "
              f"{ascii([tokenizer.id_to_token(t) for t in ours[at:at + 8]])}")
    return not different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("tokenizers", nargs="*")
    parser.add_argument("--lines", type=int, default=10000)
    options = parser.parse_args()
    texts = lines(options.lines, seed=2)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        if options.tokenizers:
            for path in options.tokenizers:
                good &= compare(options.tool, path, path, texts, folder)
        else:
            for name in ("gpt2", "llama3", "qwen", "llama2", "bert", "unigram"):
                good &= compare(options.tool, name, os.path.join(HERE, name + ".json"), texts, folder)
            for i, (name, state) in enumerate(variants()):
                path = os.path.join(folder, f"variant-{i}.json")
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(state, file)
                good &= compare(options.tool, name, path, texts[:options.lines // 10], folder)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
