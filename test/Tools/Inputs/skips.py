"""Writes a small decoder whose later blocks all read what the second one gave.

    skips.py FILE.mlir
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "python"))
from galvatron.graph import Graph, Parameter, Where, build, write  # noqa: E402

LENGTH, WIDTH, VOCAB, HEADS, BLOCKS = 8, 16, 32, 4, 6

graph = Graph("skips")
tokens = graph.datum("tokens", (LENGTH,), VOCAB)
labels = graph.datum("labels", (LENGTH,), VOCAB)
x = graph.embedding(tokens, Parameter("embed", (VOCAB, WIDTH)))
early = None
for number in range(BLOCKS):
    name = f"block.{number}"
    graph.where = Where(((name, "Block"),))

    def square(value, part):
        return graph.linear(value, Parameter(f"{name}.{part}", (WIDTH, WIDTH)),
                            (WIDTH,), True)

    normed = graph.rms_norm(x, Parameter(f"{name}.norm", (WIDTH,)), 1e-5)
    parts = [square(normed, part) for part in "qkv"]
    for part in parts:
        graph.split(part, (LENGTH, HEADS, WIDTH // HEADS))
    x = graph.add(x, square(graph.grouped_attention(*parts, 0.5, True, window=0), "o"))
    if early is not None:
        x = graph.add(x, square(early, "early"))
    if number == 1:
        early = x
graph.where = Where()
graph.cross_entropy(
    graph.linear(x, Parameter("head", (VOCAB, WIDTH)), (VOCAB,), True), labels)
pathlib.Path(sys.argv[1]).write_text(write(build(graph)), encoding="utf-8")
