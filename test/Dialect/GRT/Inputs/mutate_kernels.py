"""Changes every integer of kernel calls by one: mutate_kernels.py BIN EXAMPLES FILE..

The calls are those of models as they are compiled for a device of two, and of the
files. `galvatron-test-opt --test-mutate-kernels` fails if a change is accepted
though the list of kernels does not name the integer as free. Prints the sums of
what it counts, one kernel a line, and whether any kernel of the list is missing.
"""
import collections
import re
import subprocess
import sys

COMPILED = [
    ("gpt2-tiny", "2xcpu", "tp2", "f32"), ("llama-tiny", "2xcpu", "tp2", "bf16"),
    ("bert-tiny", "2xcpu", "tp2.ckpt", "f32"), ("t5-tiny", "2xcpu", "tp2", "f32"),
    ("vit-digits", "2xcpu", "tp2", "f64"), ("swin-digits", "2xcpu", "zdp2", "f32"),
    ("gpt2-tiny", "2xa100-40gb", "sdp2", "bf16"), ("bert-tiny", "2xa100-40gb", "tp2", "bf16"),
]


def main():
    binaries, examples, kernels, *files = sys.argv[1:]
    modules = [open(name).read() for name in files]
    for model, cluster, strategy, dtype in COMPILED:
        modules.append(subprocess.run(
            [f"{binaries}/galvatron-compile", f"{examples}/{model}", f"--cluster={cluster}",
             "--batch=4", f"--strategy={strategy}", f"--dtype={dtype}", "--compile-to=allocate",
             "-o", "-"], check=True, capture_output=True, text=True).stdout)
    found = subprocess.run(
        [f"{binaries}/galvatron-test-opt", "--split-input-file", "--test-mutate-kernels",
         "-o", "/dev/null"], input="\n// -----\n".join(modules), stdout=subprocess.PIPE,
        text=True)
    sums = {}
    for line in found.stdout.splitlines():
        kernel, calls, refused, accepted = re.fullmatch(
            r"(\w+): (\d+) calls, (\d+) changes refused(?:, accepted: (.*))?", line).groups()
        counts = sums.setdefault(kernel, [0, 0, collections.Counter()])
        counts[0] += int(calls)
        counts[1] += int(refused)
        for number, name in re.findall(r"(\d+) of (\w+)", accepted or ""):
            counts[2][name] += int(number)
    for kernel, (calls, refused, accepted) in sorted(sums.items()):
        print(f"{kernel}: {calls} calls, {refused} changes refused" + "".join(
            f", {number} of {name} accepted" for name, number in sorted(accepted.items())))
    listed = {name.lower() for name in re.findall(r"^GRT_KERNEL\((\w+),", open(kernels).read(), re.M)}
    print("all kernels of the list" if listed == set(sums) else
          f"differs from the list: {sorted(listed ^ set(sums))}")
    return found.returncode


if __name__ == "__main__":
    sys.exit(main())
