#!/usr/bin/env python3
"""Reading beside PyTorch's DataLoader, on the same file of tokens.

    reading.py --tool=build/bin/bench-reading [--tokens=200000000] [--sequence=1024] [--batch=16] [--rounds=3]

Both read every sample of the file once, in an order of their own: inputs and labels of a 16 bit token file as
32 bit (the peer: 64 bit, which its embeddings and losses want). The peer is what a training script has: a
memory-mapped array behind a Dataset, a DataLoader with a permutation of all samples, and 0 or 2 workers. Both
look at every value that they read. Prints million tokens a second, the best of the rounds."""
import argparse
import os
import subprocess
import tempfile
import time

import numpy
import torch


class Tokens(torch.utils.data.Dataset):
    def __init__(self, path, length):
        self.tokens = numpy.memmap(path, dtype="<u2", mode="r")
        self.length = length

    def __len__(self):
        return (len(self.tokens) - 1) // self.length

    def __getitem__(self, index):
        begin = index * self.length
        row = torch.from_numpy(self.tokens[begin:begin + self.length + 1].astype(numpy.int64))
        return row[:-1], row[1:]


def peer(path, length, batch, workers):
    begin = time.perf_counter()
    loader = torch.utils.data.DataLoader(Tokens(path, length), batch_size=batch, shuffle=True, num_workers=workers,
                                         drop_last=True)
    count = 0
    total = 0
    for inputs, labels in loader:
        count += inputs.numel()
        total += int(inputs.sum()) + int(labels.sum())
    return count / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--tokens", type=int, default=200000000)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tokens.u16")
        numpy.random.default_rng(1).integers(0, 50000, options.tokens, dtype="u2").tofile(path)
        batches = (options.tokens - 1) // options.sequence // options.batch
        rates = {"galvatron": [], "DataLoader, no workers": [], "DataLoader, 2 workers": []}
        for _ in range(options.rounds):
            opened, read, _ = map(float, subprocess.run(
                [options.tool, str(options.sequence), str(options.batch), str(batches), path], check=True,
                capture_output=True, text=True).stdout.split())
            rates["galvatron"].append(batches * options.batch * options.sequence / (opened + read))
            for workers, name in ((0, "DataLoader, no workers"), (2, "DataLoader, 2 workers")):
                rates[name].append(peer(path, options.sequence, options.batch, workers))
        for name, each in rates.items():
            print(f"{name:24} {max(each) / 1e6:8.1f} million tokens/s  {max(rates['galvatron']) / max(each):6.1f}")


if __name__ == "__main__":
    main()
