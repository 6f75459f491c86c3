#!/usr/bin/env python3
# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is written in one place stands nowhere else.

    once.py ROOT

- Passes ask a paradigm's descriptor and not its name: `Paradigm::X` stands in
  the registry, and where published algorithms, spaces and the degrees of other
  software are defined by it.
- Passes that make a layer's functions are created by the table of layer steps
  alone (Conversion/NNToGRT/LayerSteps.cpp).
- The numbers of optimizers are those of the C ABI and of Strategy/Optimizer.h.
- Words for which the field has others stand in no identifier.
- How a program keeps its states, whether its chunks are packs, gradients are
  late, or ranks meet at the end of a step is asked when a rank is loaded: what
  runs tasks and commands does not ask.
"""

import pathlib
import re
import sys



class AllBut:
    """Every path that a pattern does not match, and some that it does."""

    def __init__(self, pattern, others):
        self.pattern = re.compile(pattern)
        self.others = others

    def __contains__(self, path):
        return not self.pattern.match(path) or path in self.others

    def __iter__(self):
        return iter(self.others)


EXECUTOR = (r"runtime/src/core/(?:batch_in_flight|bound_layer|call_runner|"
            r"executor|handoffs|home_swaps|inspector|interpreter|"
            r"memory_in_use|observer|rank_memories|rank_streams|step_end|"
            r"step_graphs|ties)")
RULES = (
    ("names a paradigm", re.compile(r"\bParadigm::[A-Z]\w*"), {
        "include/galvatron/Strategy/Paradigm.h", "lib/Baselines/AmpSearch.cpp",
        "lib/Baselines/HarmonyPlan.cpp", "lib/Planner/Spaces.cpp",
        "lib/Baselines/TwoBufferPlan.cpp", "lib/Software/Configuration.cpp"
    }),
    ("creates a pass of a layer step",
     re.compile(r"\bcreate(?:GalvatronDifferentiateLayers|"
                r"GalvatronInsertRecompute|GalvatronPartitionLayers|"
                r"GalvatronInsertCollectives|NNFusePass|"
                r"GalvatronSplitBackward|ConvertNNToGRT)\(\)"),
     {"lib/Conversion/NNToGRT/LayerSteps.cpp"}),
    ("enumerates optimizers", re.compile(r"enum[^;{]*\{[^}]*(?:AdamW|ADAMW)\b"),
     {"include/galvatron/Strategy/Optimizer.h", "runtime/include/grt/abi.h"}),
    # Rendezvous, operation, residency, console output, heartbeat, neighbours.
    ("uses a word that is not the field's",
     re.compile(r"\b\w*(?:Deed|Meeting|Spoken|Freedom)\w*\b|"
                r"\b(?:deeds?|meetings?|spoken|people)\b|"
                r"\b(?:struct|class)\s+(?:Room|Alike|Sides|Holding|Twin)\b"),
     set()),
    ("asks how a program keeps its states",
     re.compile(r"\b(?:hasPacks|isAway|updatesOnDevice|cutsStateOnly|"
                r"hasOneSlot|slotsAtHome)\b"), AllBut(EXECUTOR, set())),
    ("asks how steps follow each other",
     re.compile(r"\bmanifest\.(?:delay|clip\s*[?&|)])|\bahead\(\)|"
                r"\bupdatesJustInTime\b"), AllBut(EXECUTOR, set())),
)
FOLDERS = ("include", "lib", "runtime", "tools")
SUFFIXES = (".cpp", ".h", ".cu", ".td")


def complaints(path, text):
    """A line for everything that stands in a file and should not."""
    # Comments may name what they explain.
    code = re.sub(r"//[^\n]*", "", text)
    for what, pattern, places in RULES:
        if path in places:
            continue
        for match in pattern.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {what}: {match.group(0).split(chr(10))[0]}"


def main():
    root = pathlib.Path(sys.argv[1])
    found = []
    seen = set()
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            name = path.relative_to(root).as_posix()
            text = path.read_text(encoding="utf-8")
            found.extend(complaints(name, text))
            code = re.sub(r"//[^\n]*", "", text)
            seen.update((what, name) for what, pattern, places in RULES
                        if name in places and pattern.search(code))
    # A place that has none any more is one too many in the table.
    for what, _, places in RULES:
        for place in sorted(places):
            if (what, place) not in seen:
                found.append(f"{place}: expected that it {what}")
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
