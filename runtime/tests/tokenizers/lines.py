"""Lines of many scripts, with what makes tokenizers differ."""
import os
import random
import unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))
SPACES = [" ", " ", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n ", "\u00a0", "\u3000", "\u200b",
          "\u180e", "\u0085", "\u2028", "\u2009", "\v", "\f", "\u200d", "\u200c", "\ufeff"]
ODD = ["'s", "'S", "'ll", "n't", "'\u017f", "...", "!!!", "--", "<|endoftext|>", "<s>", "</s>", "[SEP]", "[MASK]",
       "<unk>", "\u2581", "\u2581\u2581", "e\u0301", "\u00e9", "\u0130", "\ufb01n", "\u2460", "\u00bd", "\u2168",
       "\U0001f600", "\U0001f469\u200d\U0001f4bb", "\U0001f1e9\U0001f1ea", "\u0e33", "\u1100\u1161\u11a8", "\uac01",
       "\x00", "\x01", "\x7f", "\u00ad", "\ufffd", "\ue000", "1234567890", "3.14", "\u0661\u0662\u0663", "\uff11\uff12",
       "\uff21\uff42", "A\u030a", "\u212b", "\u1e69", "\u0323\u0307s", "##ing", "$", "\u20ac", "\u00ab", "\u00bb",
       "\u3002", "\uff0c", "_", "__init__", "camelCase", "\u03a3\u03c2", "STRASSE", "stra\u00dfe", "\u24b6", "\u4e00\u4e01",
       "\U00020000", "\U0002b740", "\uf900"]
BLOCKS = [(0x20, 0x7e), (0xa0, 0x24f), (0x370, 0x3ff), (0x400, 0x4ff), (0x5d0, 0x5ea), (0x621, 0x64a), (0x900, 0x97f),
          (0xe00, 0xe5b), (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x2000, 0x2bff), (0x3040, 0x30ff), (0x4e00, 0x9fff),
          (0xac00, 0xd7a3), (0xfb00, 0xfdff), (0xfe30, 0xffef), (0x300, 0x36f), (0x1f300, 0x1f64f), (0x0, 0x1f)]


def seed_lines():
    with open(os.path.join(HERE, "seed.txt"), encoding="utf-8") as file:
        return file.read().splitlines()


def random_character(rng):
    first, last = rng.choice(BLOCKS)
    while True:
        code = rng.randint(first, last)
        # Whether a code point that is not assigned yet is a letter depends on
        # the age of a library.
        if unicodedata.category(chr(code)) != "Cn":
            return chr(code)


def line(rng, seeds, most):
    parts = []
    for _ in range(rng.randint(1, most)):
        kind = rng.random()
        if kind < 0.55:
            words = rng.choice(seeds).split(" ")
            at = rng.randrange(len(words))
            parts.append(" ".join(words[at:at + rng.randint(1, 6)]))
        elif kind < 0.75:
            parts.append(rng.choice(ODD))
        elif kind < 0.85:
            parts.append("".join(random_character(rng) for _ in range(rng.randint(1, 8))))
        elif kind < 0.9:
            parts.append(str(rng.randint(0, 10**rng.randint(1, 12))))
        else:
            word = rng.choice(rng.choice(seeds).split(" "))
            parts.append(rng.choice([word.upper(), word.lower(), word.title(), word[::-1]]))
        if rng.random() < 0.8:
            parts.append(rng.choice(SPACES))
    text = "".join(parts)
    return unicodedata.normalize(rng.choice(["NFC", "NFD"]), text) if rng.random() < 0.2 else text


def lines(count, seed, most=24):
    """`count` lines of at most `most` parts, the seeds themselves first."""
    rng = random.Random(seed)
    seeds = seed_lines()
    return (seeds + ["", " ", "  ", "\n"] + [line(rng, seeds, most) for _ in range(count)])[:count]
