#!/usr/bin/env python3
"""Trains a small tokenizer of every kind on seed.txt with the package `tokenizers`, and writes what
that package makes of some lines: NAME.json and golden.json.

    pip install tokenizers==0.23.3 && runtime/tests/tokenizers/generate.py [--train]

The files are kept, so that tests need no package; compare.py compares many more lines. Training
breaks ties at random: without --train the tokenizers stay as they are and golden.json is made anew."""
import argparse
import json
import os

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

from lines import HERE, lines, seed_lines

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def few_scripts():
    """Latin and Cyrillic, so that other scripts are unknown."""
    return seed_lines()[:11]


def train(tokenizer, trainer, texts=None):
    tokenizer.train_from_iterator((texts or seed_lines()) * 2, trainer)
    return tokenizer


def bpe_trainer(**options):
    return trainers.BpeTrainer(vocab_size=640, show_progress=False, min_frequency=2, **options)


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(tokenizer, bpe_trainer(special_tokens=["<|endoftext|>"],
                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))


def llama3():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, bpe_trainer(special_tokens=["<|begin_of_text|>", "<|end_of_text|>"],
                                 initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", 0)])])
    return tokenizer


def qwen():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, bpe_trainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>"])
    tokenizer.add_tokens([AddedToken("camelCase", normalized=True), AddedToken("right", single_word=True, lstrip=True),
                          AddedToken("...", rstrip=True, normalized=False)])
    return tokenizer


def llama2():
    """As converted from SentencePiece: several merges to one token, bytes for what is unknown."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    train(tokenizer, trainers.BpeTrainer(vocab_size=1000, show_progress=False, special_tokens=special,
                                         limit_alphabet=180))
    state = json.loads(tokenizer.to_str())
    vocab = state["model"]["vocab"]
    merges = []
    for token, number in vocab.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocab and right in vocab and number >= len(special):
                merges.append((number, vocab[left], vocab[right], left, right))
    state["model"]["merges"] = [[left, right] for _, _, _, left, right in sorted(merges)]
    state["model"].update(unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    state["pre_tokenizer"] = None
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < 3]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return tokenizer


def bert():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    train(tokenizer, trainers.WordPieceTrainer(vocab_size=700, show_progress=False, limit_alphabet=300,
                                               special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return train(tokenizer, trainers.UnigramTrainer(vocab_size=500, show_progress=False, unk_token="<unk>",
                                                    special_tokens=["<pad>", "</s>", "<unk>"]), few_scripts())


KINDS = {make.__name__: make for make in (gpt2, llama3, qwen, llama2, bert, unigram)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true")
    train_anew = parser.parse_args().train
    texts = lines(64, seed=1, most=12)
    golden = {"lines": texts, "tokenizers": {}}
    for name, make in KINDS.items():
        path = os.path.join(HERE, name + ".json")
        if train_anew:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(json.loads(make().to_str()), file, ensure_ascii=False, separators=(",", ":"))
                file.write("\n")
        tokenizer = Tokenizer.from_file(path)
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        golden["tokenizers"][name] = {
            "ids": ids,
            "special-ids": tokenizer.encode(texts[0]).ids,
            "texts": [tokenizer.decode(each) for each in ids]}
    with open(os.path.join(HERE, "golden.json"), "w", encoding="utf-8") as file:
        json.dump(golden, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
