# Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs of nn operations: their layers, their factors, their text."""

import unittest

import galvatron
from galvatron.graph import Graph, Parameter, ShapeConflict, Where, build, write

from .support import FolderTest

LENGTH, WIDTH, VOCAB, HEADS = 8, 16, 32, 4


def where(*modules):
    return Where(tuple(modules))


def language_model(blocks=3, windows=(), modules=True, key_heads=HEADS):
    """A small language model: [embedding, blocks, head]."""
    graph = Graph("words")
    tokens = graph.datum("tokens", (LENGTH,), VOCAB)
    labels = graph.datum("labels", (LENGTH,), VOCAB)
    table = Parameter("embed", (VOCAB, WIDTH))
    x = graph.embedding(tokens, table)
    for number in range(blocks):
        name = f"block.{number}"

        def weight(part, *shape, name=name):
            return Parameter(f"{name}.{part}", shape)

        if modules:
            graph.where = where((name, "Block"), (f"{name}.attention", "Attention"))
        normed = graph.rms_norm(x, weight("norm1", WIDTH), 1e-5)
        counts = (HEADS, key_heads, key_heads)
        parts = [graph.linear(normed, weight(part, count * WIDTH // HEADS, WIDTH),
                              (count * WIDTH // HEADS,), True)
                 for part, count in zip("qkv", counts)]
        for part, count in zip(parts, counts):
            graph.split(part, (LENGTH, count, WIDTH // HEADS))
        y = graph.grouped_attention(*parts, 0.5, True,
                                    window=3 if number in windows else 0)
        x = graph.add(x, graph.linear(y, weight("o", WIDTH, WIDTH), (WIDTH,), True))
        if modules:
            graph.where = where((name, "Block"), (f"{name}.mlp", "MLP"))
        normed = graph.layer_norm(x, weight("norm2", WIDTH), weight("bias2", WIDTH),
                                  1e-5)
        hidden = graph.bias_add(
            graph.linear(normed, weight("up", WIDTH, 24), (24,), False),
            weight("up_bias", 24))
        hidden = graph.dropout(graph.gelu(hidden, True), 0.1)
        x = graph.add(x, graph.linear(hidden, weight("down", 24, WIDTH), (WIDTH,),
                                      False))
    graph.where = Where()
    logits = graph.linear(x, table, (VOCAB,), True)
    graph.cross_entropy(logits, labels)
    return graph


class LayerTest(unittest.TestCase):
    def test_repeated_blocks_share_a_body(self):
        layered = build(language_model())
        self.assertEqual([layer.name for layer in layered.layers],
                         ["layer", "block.0", "block.1", "block.2", "layer.2"])
        self.assertEqual(len(set(layered.bodies)), 3)
        self.assertEqual(layered.bodies[1], "words.block")

    def test_without_modules_the_pattern_alone_tells(self):
        layered = build(language_model(modules=False))
        self.assertEqual(len(layered.layers), 5)
        self.assertEqual(len(set(layered.bodies)), 3)

    def test_blocks_of_two_kinds(self):
        # The second half of the first block begins a pattern, too; the modules
        # say where blocks begin.
        layered = build(language_model(windows=(1, 2)))
        self.assertEqual([layer.name for layer in layered.layers][1:4],
                         ["block.0", "block.1", "block.2"])
        self.assertEqual(layered.bodies[2], layered.bodies[3])
        self.assertNotEqual(layered.bodies[1], layered.bodies[2])

    def test_many_blocks_take_no_time_to_speak_of(self):
        self.assertEqual(len(build(language_model(40)).layers), 42)

    def test_what_nothing_needs_is_left_out(self):
        graph = language_model(1)
        count = len(graph.live())
        graph.gelu(graph.ops[0].results[0], False)
        self.assertEqual(len(graph.live()), count)

    def test_shapes_that_cannot_be(self):
        graph = language_model(1)
        with self.assertRaisesRegex(ShapeConflict, "cannot be seen as"):
            graph.split(graph.ops[0].results[0], (LENGTH, 4, 4))
        with self.assertRaisesRegex(ShapeConflict, "expected shape"):
            graph.split(graph.data[0], (2, 4))


class TextTest(FolderTest):
    def model(self, graph, element="f32"):
        return galvatron.from_graph(graph, element=element)

    def test_text_is_what_tools_print(self):
        path = self.write("model.mlir", write(build(language_model())))
        self.assertEqual(galvatron.Model(path).ir(), self.model(language_model()).ir())

    def test_wrong_graphs(self):
        for message, graph, element in [
                ("expected a loss", Graph("empty"), "f32"),
                ("f32 or f64, found 'f16'", language_model(), "f16"),
                ("'twice' twice", self.twice(), "f32")]:
            with self.assertRaisesRegex(galvatron.InvalidInput, message):
                galvatron.from_graph(graph, element=element)

    @staticmethod
    def twice():
        graph = Graph("words")
        x = graph.embedding(graph.datum("tokens", (LENGTH,), VOCAB),
                            Parameter("twice", (VOCAB, WIDTH)))
        logits = graph.linear(x, Parameter("twice", (WIDTH, VOCAB)), (VOCAB,), False)
        graph.cross_entropy(logits, graph.datum("labels", (LENGTH,), VOCAB))
        return graph

    def test_tools_take_it(self):
        text = self.model(language_model()).ir()
        self.assertIn('nn.factor_units = {ffn = 24 : i64, heads = 4 : i64}', text)
        self.assertIn('nn.uneven = ["vocab"]', text)
        self.assertEqual(text.count("func.func private"), 3)

    def test_ranks_share_key_heads(self):
        for key_heads in (1, 2):
            graph = language_model(blocks=2, key_heads=key_heads)
            self.assertIn(f"heads = 4 : i64, key_heads = {key_heads} : i64}}, "
                          'nn.shared = ["key_heads"]',
                          self.model(graph).ir())
            self.check_splits(graph)

    def test_factors_are_split(self):
        self.check_splits(language_model())

    def check_splits(self, graph):
        model = self.model(graph, "f64")
        words = [number * 7 % VOCAB for number in range(4 * LENGTH + 1)]
        losses = []
        for options in ({"cluster": "1xcpu"},
                        {"cluster": "4xcpu", "strategy": "tp4", "pipeline_degree": 1},
                        {"cluster": "4xcpu", "strategy": "tp2", "pipeline_degree": 2}):
            model.compile(batch=4, dropout=False, **options)
            losses.append(model.program.train(words, 2).wait().final_loss)
        self.assertAlmostEqual(losses[0], losses[1], places=9)
        self.assertAlmostEqual(losses[0], losses[2], places=9)


if __name__ == "__main__":
    unittest.main()
