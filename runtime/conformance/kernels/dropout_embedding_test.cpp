//===- dropout_embedding_test.cpp - Dropout and embeddings ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "harness.h"

#include "grt/philox.h"

#include <cmath>

namespace grt::conformance {
namespace {

class Dropout : public KernelTest {
protected:
  bool kept(uint64_t row, int64_t column, double p, int64_t opIndex) const {
    PhiloxKey key =
        dropoutKey(device.step.seed, device.step.step, device.at.layer);
    PhiloxBlock block =
        dropoutBlock(key, row, uint32_t(column / 4), uint32_t(opIndex));
    return block.lane[column % 4] >= dropoutThreshold(p);
  }
};

TEST(Philox, known_answers) {
  // The published test vectors of philox4x32-10.
  PhiloxBlock zeros = philox({0, 0}, 0, 0, 0, 0);
  EXPECT_EQ(zeros.lane[0], 0x6627e8d5u);
  EXPECT_EQ(zeros.lane[1], 0xe169c58du);
  EXPECT_EQ(zeros.lane[2], 0xbc57ac4cu);
  EXPECT_EQ(zeros.lane[3], 0x9b00dbd8u);
  PhiloxBlock ones = philox({0xffffffffu, 0xffffffffu}, 0xffffffffu,
                            0xffffffffu, 0xffffffffu, 0xffffffffu);
  EXPECT_EQ(ones.lane[0], 0x408f276du);
  EXPECT_EQ(ones.lane[1], 0x41c83b0eu);
  EXPECT_EQ(ones.lane[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.lane[3], 0x6d5451fdu);
}

TEST_P(Dropout, masks_come_from_global_indices) {
  Random random(1);
  double p = 0.2;
  for (auto [samples, rows, cols] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
        {3, 5, 7},
        {2, 9, 67},
        {2, 3, 1030}})
    for (bool sharded : {false, true}) {
      device.at.first_sample = 11;
      device.at.layer = 4;
      device.at.tp_size = 3;
      device.at.tp_index = 2;
      int64_t n = samples * rows * cols;
      Values x = random.values(n, 1, 2), expected;
      for (int64_t i = 0; i < n; ++i) {
        uint64_t row = uint64_t(11 * rows + i / cols);
        int64_t column = i % cols + (sharded ? 2 * cols : 0);
        expected.push_back(kept(row, column, p, 9) ? x[i] / (1 - p) : 0);
      }
      auto xBuffer = input(x), y = output(n);
      Integers ints = {samples, rows, cols, 9, sharded};
      device.run(GRT_KERNEL_DROPOUT, {*xBuffer, *y}, ints, {p});
      expectNear(y->read(), expected, "y", 2e-7, 1e-15);
      // Its own backward, and in place.
      device.run(GRT_KERNEL_DROPOUT, {*xBuffer, *xBuffer}, ints, {p});
      expectSame(xBuffer->read(), y->read(), "aliased");
      for (int64_t i = 0; i < n; ++i)
        EXPECT_EQ(y->at(i) == 0, expected[i] == 0) << i;
    }
}

/// Blocks of rows begin and end inside samples, and have the mask of the whole;
/// so have the blocks that two ranks cut each of them into.
TEST_P(Dropout, blocks_of_rows_recombine) {
  Random random(3);
  const int64_t samples = 2, length = 12, inner = 2, cols = 11, ranks = 3;
  const int64_t own = samples * length / ranks;
  Values x = random.values(samples * length * inner * cols, 1, 2);
  Values residual = random.values(int64_t(x.size()), 1, 2);
  device.at.first_sample = 5;
  device.at.block_count = ranks;
  auto whole = input(x), added = input(residual), y = output(x.size());
  device.run(GRT_KERNEL_DROPOUT, {*whole, *y},
             {samples, length * inner, cols, 7, 0}, {0.3});
  const Values expected = y->read();
  device.run(GRT_KERNEL_DROPOUT_ADD, {*whole, *added, *y},
             {samples, length * inner, cols, 7, 0}, {0.3});
  const Values expectedSum = y->read();
  for (int64_t number = 0; number < 2 * ranks; ++number) {
    const int64_t rank = number / 2, balanced = number % 2;
    device.at.block_index = rank;
    const int64_t count = own * inner * cols;
    auto part = [&](const Values &values) {
      return blockOfRows(values, rank, ranks, balanced != 0);
    };
    auto mine = input(part(x)), mineAdded = input(part(residual)),
         result = output(count);
    device.run(GRT_KERNEL_DROPOUT, {*mine, *result},
               {own, inner, cols, 7, 0, length, balanced}, {0.3});
    expectSame(result->read(), part(expected), "rows");
    device.run(GRT_KERNEL_DROPOUT_ADD, {*mine, *mineAdded, *result},
               {own, inner, cols, 7, 0, length, balanced}, {0.3});
    expectSame(result->read(), part(expectedSum), "sums of rows");
    auto gamma = input(Values(cols, 1)), beta = input(Values(cols, 0)),
         normed = output(count), stats = sums(own * inner * 2);
    device.run(GRT_KERNEL_ADD_LAYER_NORM,
               {*mine, *mineAdded, *gamma, *beta, *result, *normed, *stats},
               {own, inner, cols, 7, length, balanced}, {1e-5, 0.3});
    expectSame(result->read(), part(expectedSum), "sums in front of a norm");
  }
  device.at.tp_size = 2;
  for (int64_t number = 0; number < 4 * ranks; ++number) {
    const int64_t block = number / 2, balanced = number % 2;
    device.at.block_index = block / 2;
    device.at.tp_index = block % 2;
    auto part = [&](const Values &values) {
      return blockOfRows(values, block, 2 * ranks, balanced != 0);
    };
    auto mine = input(part(x)), mineAdded = input(part(residual)),
         result = output(own / 2 * inner * cols);
    device.run(GRT_KERNEL_DROPOUT, {*mine, *result},
               {own / 2, inner, cols, 7, 0, length, balanced, 1}, {0.3});
    expectSame(result->read(), part(expected), "rows of a block's block");
    auto gamma = input(Values(cols, 1)), beta = input(Values(cols, 0)),
         normed = output(own / 2 * inner * cols), stats = sums(own * inner);
    device.run(GRT_KERNEL_ADD_LAYER_NORM,
               {*mine, *mineAdded, *gamma, *beta, *result, *normed, *stats},
               {own / 2, inner, cols, 7, length, balanced, 1}, {1e-5, 0.3});
    expectSame(result->read(), part(expectedSum), "sums of a block's block");
  }
}

TEST_P(Dropout, column_slices_and_sample_slices_recombine) {
  Random random(2);
  int64_t samples = 4, rows = 3, cols = 4 * 21;
  Values x = random.values(samples * rows * cols, 1, 2);
  auto whole = input(x);
  device.at.first_sample = 2;
  device.run(GRT_KERNEL_DROPOUT, {*whole, *whole}, {samples, rows, cols, 1, 0},
             {0.4});
  Values all = whole->read();
  device.at.tp_size = 4; // 21 columns each: slices start inside a counter
  for (int64_t tp = 0; tp < 4; ++tp)
    for (int64_t s = 0; s < samples; ++s) {
      Values part, expected;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < 21; ++c) {
          int64_t at = (s * rows + r) * cols + tp * 21 + c;
          part.push_back(x[at]);
          expected.push_back(all[at]);
        }
      device.at.tp_index = tp;
      device.at.first_sample = 2 + s;
      auto buffer = input(part);
      device.run(GRT_KERNEL_DROPOUT, {*buffer, *buffer}, {1, rows, 21, 1, 1},
                 {0.4});
      expectSame(buffer->read(), expected, "slice");
    }
}

TEST_P(Dropout, keys_differ_by_step_seed_layer_and_op) {
  Values x(256, 1.0);
  auto mask = [&](int64_t opIndex) {
    auto buffer = input(x);
    device.run(GRT_KERNEL_DROPOUT, {*buffer, *buffer}, {1, 1, 256, opIndex, 0},
               {0.5});
    return buffer->read();
  };
  Values base = mask(0);
  EXPECT_NE(mask(1), base);
  device.step.step = 2;
  EXPECT_NE(mask(0), base);
  device.step.step = 1;
  device.step.seed = 43;
  EXPECT_NE(mask(0), base);
  device.step.seed = 42;
  device.at.layer = 1;
  EXPECT_NE(mask(0), base);
  device.at.layer = 0;
  EXPECT_EQ(mask(0), base);
}

TEST_P(Dropout, keeps_the_right_share) {
  int64_t n = 1 << 18;
  auto buffer = input(Values(n, 1.0));
  device.run(GRT_KERNEL_DROPOUT, {*buffer, *buffer},
             {4, n / 256 / 4, 256, 0, 0}, {0.1});
  double zeros = 0;
  for (double value : buffer->read())
    zeros += value == 0;
  // Five standard deviations.
  EXPECT_NEAR(zeros / double(n), 0.1, 5 * std::sqrt(0.09 / double(n)));
}

TEST_P(Dropout, adds_the_residual_in_place) {
  Random random(3);
  for (double p : {0.0, 0.3})
    for (uint32_t mode : {GRT_MODE_TRAIN, GRT_MODE_EVALUATE}) {
      device.step.mode = mode;
      Values x = random.values(2 * 5 * 33),
             residual = random.values(2 * 5 * 33);
      auto xBuffer = input(x), residualBuffer = input(residual);
      auto y = output(2 * 5 * 33), dropped = output(2 * 5 * 33);
      Integers ints = {2, 5, 33, 7, 0};
      device.run(GRT_KERNEL_DROPOUT, {*xBuffer, *dropped}, ints, {p});
      if (p == 0 || mode == GRT_MODE_EVALUATE)
        expectSame(dropped->read(), x, "dropout of nothing");
      Values expected = dropped->read();
      for (size_t i = 0; i < expected.size(); ++i)
        expected[i] += residual[i];
      std::vector<Argument> buffers = {*xBuffer, *residualBuffer, *y};
      device.run(GRT_KERNEL_DROPOUT_ADD, buffers, ints, {p});
      // The dropped value was rounded to the compute type, y is rounded once.
      expectNear(y->read(), expected, "y", dtype() == GRT_BF16 ? 0.004 : 2e-7,
                 1e-15);
      auto aliased = input(x);
      device.run(GRT_KERNEL_DROPOUT_ADD, {*aliased, *residualBuffer, *aliased},
                 ints, {p});
      expectSame(aliased->read(), y->read(), "y is x");
      device.run(GRT_KERNEL_DROPOUT_ADD,
                 {*xBuffer, *residualBuffer, *residualBuffer}, ints, {p});
      expectSame(residualBuffer->read(), y->read(), "y is the residual");
    }
}

GRT_KERNEL_SUITE(Dropout);

class Embedding : public KernelTest {};

TEST_P(Embedding, shards_add_up_to_the_whole_table) {
  Random random(1);
  int64_t vocabulary = 101, width = 37, rows = 50;
  for (int64_t tp : {1, 2, 4}) {
    int64_t local = (vocabulary + tp - 1) / tp;
    Values tokens, expected, total(rows * width, 0.0);
    Values table = random.values(tp * local * width);
    for (int64_t r = 0; r < rows; ++r)
      tokens.push_back(double(random.integer(0, vocabulary)));
    tokens[0] = 0;
    tokens[1] = double(vocabulary - 1);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < width; ++c)
        expected.push_back(table[int64_t(tokens[r]) * width + c]);
    auto tokenBuffer = integers(tokens);
    device.at.tp_size = tp;
    for (int64_t i = 0; i < tp; ++i) {
      device.at.tp_index = i;
      auto shard = input(Values(table.begin() + i * local * width,
                                table.begin() + (i + 1) * local * width));
      auto y = output(rows * width);
      device.run(GRT_KERNEL_EMBEDDING, {*tokenBuffer, *shard, *y},
                 {rows, width, local, tp > 1});
      Values part = y->read();
      for (int64_t j = 0; j < rows * width; ++j)
        total[j] += part[j];
    }
    expectSame(total, expected, "y");
  }
}

TEST_P(Embedding, gradient_of_repeated_tokens) {
  Random random(2);
  const int64_t vocabulary = 23;
  // Few rows of single elements; many of packs, a third of one token.
  for (auto [rows, width] : {std::pair<int64_t, int64_t>{300, 19}, {700, 800}})
    for (int64_t tp : {1, 3})
      for (int64_t acc : {0, 1, 2})
        for (bool accumulate : {false, true}) {
          if (rows > 300 && (tp > 1 || !accumulate || acc == 2))
            continue;
          int64_t local = (vocabulary + tp - 1) / tp;
          bool add = acc == 1 || (acc == 2 && accumulate);
          device.accumulate = accumulate;
          device.at.tp_size = tp;
          Values tokens, dy = random.values(rows * width);
          for (int64_t r = 0; r < rows; ++r)
            tokens.push_back(double(
                rows > 300 && r % 3 == 1 ? 5 : random.integer(0, vocabulary)));
          auto tokenBuffer = integers(tokens), dyBuffer = input(dy);
          for (int64_t i = 0; i < tp; ++i) {
            device.at.tp_index = i;
            Values before = random.values(local * width);
            Values expected = add ? before : Values(local * width, 0.0);
            for (int64_t r = 0; r < rows; ++r) {
              int64_t row = int64_t(tokens[r]) - (tp > 1 ? i * local : 0);
              if (row >= 0 && row < local)
                for (int64_t c = 0; c < width; ++c)
                  expected[row * width + c] += dy[r * width + c];
            }
            auto dtable = add ? sums(before) : sums(local * width);
            device.run(GRT_KERNEL_EMBEDDING_GRAD,
                       {*tokenBuffer, *dyBuffer, *dtable},
                       {rows, width, local, tp > 1, acc});
            expectNear(dtable->read(), expected, "dtable");
          }
        }
}

TEST_P(Embedding, the_padding_token_gets_no_gradient) {
  Random random(4);
  int64_t vocabulary = 10, width = 19, rows = 60;
  for (int64_t tp : {1, 2}) {
    int64_t local = (vocabulary + tp - 1) / tp;
    device.at.tp_size = tp;
    Values tokens, dy = random.values(rows * width);
    for (int64_t r = 0; r < rows; ++r)
      tokens.push_back(double(random.integer(0, vocabulary)));
    auto tokenBuffer = integers(tokens), dyBuffer = input(dy);
    // The first row of the table, and one of its last shard.
    for (int64_t padding : {0, 7})
      for (int64_t i = 0; i < tp; ++i) {
        device.at.tp_index = i;
        Values expected(local * width, 0.0);
        for (int64_t r = 0; r < rows; ++r) {
          int64_t row = int64_t(tokens[r]) - i * local;
          if (row >= 0 && row < local && int64_t(tokens[r]) != padding)
            for (int64_t c = 0; c < width; ++c)
              expected[row * width + c] += dy[r * width + c];
        }
        auto dtable = sums(local * width);
        device.run(GRT_KERNEL_EMBEDDING_GRAD,
                   {*tokenBuffer, *dyBuffer, *dtable},
                   {rows, width, local, tp > 1, 0, padding});
        expectNear(dtable->read(), expected, "dtable");
      }
  }
}

TEST_P(Embedding, tokens_outside_the_table_are_refused) {
  auto table = input(Values(4 * 2, 1.0)), y = output(2 * 2);
  for (double token : {-1.0, 4.0}) {
    auto tokens = integers({0.0, token});
    std::string message = device.refused(GRT_KERNEL_EMBEDDING,
                                         {*tokens, *table, *y}, {2, 2, 4, 0});
    EXPECT_NE(message.find("token " + std::to_string(int(token))),
              std::string::npos)
        << message;
  }
}

/// Rows of blocks that begin and end inside samples have the vectors of their
/// positions, and blocks' gradients add up to those of the whole.
TEST_P(Embedding, positions_of_blocks_of_rows) {
  Random random(11);
  const int64_t samples = 2, length = 9, width = 7, tableRows = 14, first = 2;
  const int64_t ranks = 3, own = samples * length / ranks;
  const Values x = random.values(samples * length * width);
  const Values table = random.values(tableRows * width);
  auto wholeX = input(x), tableBuffer = input(table), y = output(x.size());
  device.run(GRT_KERNEL_POSITION_ADD, {*wholeX, *tableBuffer, *y},
             {samples, length, width, first});
  const Values expected = y->read();
  auto dtable = sums(tableRows * width);
  device.run(GRT_KERNEL_POSITION_GRAD, {*wholeX, *dtable},
             {samples, length, width, tableRows, 0, first});
  Values sum(size_t(tableRows * width));
  device.at.block_count = ranks;
  for (int64_t number = 0; number < 2 * ranks; ++number) {
    const int64_t rank = number % ranks, balanced = number / ranks;
    device.at.block_index = rank;
    auto part = [&](const Values &values) {
      return blockOfRows(values, rank, ranks, balanced != 0);
    };
    auto mine = input(part(x)), result = output(own * width);
    const Integers ints = {1, own, width, first, 0, length, balanced};
    device.run(GRT_KERNEL_POSITION_ADD, {*mine, *tableBuffer, *result}, ints);
    expectSame(result->read(), part(expected), "y");
    auto term = sums(tableRows * width);
    device.run(GRT_KERNEL_POSITION_GRAD, {*mine, *term},
               {1, own, width, tableRows, 0, first, 0, length, balanced});
    const Values read = term->read();
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] += read[i];
    if (rank + 1 == ranks) {
      expectNear(sum, dtable->read(), "dtable");
      sum.assign(sum.size(), 0);
    }
  }
}

/// Blocks of rows have their own of all tokens, and their gradients add up to
/// those of the whole.
TEST_P(Embedding, gradients_of_blocks_of_rows) {
  Random random(12);
  const int64_t rows = 18, width = 7, vocabulary = 5, ranks = 3;
  const Values dy = random.values(rows * width);
  Values tokens;
  for (int64_t r = 0; r < rows; ++r)
    tokens.push_back(double(random.integer(0, vocabulary)));
  auto all = integers(tokens), whole = input(dy);
  auto expected = sums(vocabulary * width);
  device.run(GRT_KERNEL_EMBEDDING_GRAD, {*all, *whole, *expected},
             {rows, width, vocabulary, 0, 0});
  device.at.block_count = ranks;
  for (int64_t balanced : {0, 1}) {
    Values sum(size_t(vocabulary * width));
    for (int64_t rank = 0; rank < ranks; ++rank) {
      device.at.block_index = rank;
      auto mine = input(blockOfRows(dy, rank, ranks, balanced != 0));
      auto term = sums(vocabulary * width);
      const Integers ints = {rows / ranks, width, vocabulary, 0, 0,
                             -1,           rows,  balanced};
      device.run(GRT_KERNEL_EMBEDDING_GRAD, {*all, *mine, *term}, ints);
      const Values read = term->read();
      for (size_t i = 0; i < sum.size(); ++i)
        sum[i] += read[i];
    }
    expectNear(sum, expected->read(), "dtable");
  }
}

TEST_P(Embedding, positions_are_added_and_summed) {
  Random random(3);
  int64_t samples = 3, t = 9, width = 21, tableRows = 12;
  Values x = random.values(samples * t * width);
  Values table = random.values(tableRows * width), expected;
  for (int64_t i = 0; i < samples * t * width; ++i)
    expected.push_back(x[i] + table[i % (t * width)]);
  auto xBuffer = input(x), tableBuffer = input(table);
  auto y = output(samples * t * width);
  device.run(GRT_KERNEL_POSITION_ADD, {*xBuffer, *tableBuffer, *y},
             {samples, t, width});
  expectNear(y->read(), expected, "y", 1e-7, 1e-15);
  auto aliased = input(x);
  device.run(GRT_KERNEL_POSITION_ADD, {*aliased, *tableBuffer, *aliased},
             {samples, t, width});
  expectSame(aliased->read(), y->read(), "aliased");

  for (int64_t acc : {0, 1}) {
    Values before = random.values(tableRows * width);
    Values sum = acc ? before : Values(tableRows * width, 0.0);
    for (int64_t i = 0; i < samples * t * width; ++i)
      sum[i % (t * width)] += x[i];
    auto dtable = acc ? sums(before) : sums(tableRows * width);
    device.run(GRT_KERNEL_POSITION_GRAD, {*xBuffer, *dtable},
               {samples, t, width, tableRows, acc});
    expectNear(dtable->read(), sum, "dtable");
  }

  // The first position has row 3, the last of nine row 11.
  for (int64_t i = 0; i < samples * t * width; ++i)
    expected[size_t(i)] = x[i] + table[(i % (t * width)) + 3 * width];
  auto behind = output(samples * t * width);
  device.run(GRT_KERNEL_POSITION_ADD, {*xBuffer, *tableBuffer, *behind},
             {samples, t, width, 3});
  expectNear(behind->read(), expected, "y behind", 1e-7, 1e-15);
  for (int64_t acc : {0, 1}) {
    Values before = random.values(tableRows * width);
    Values sum = acc ? before : Values(tableRows * width, 0.0);
    for (int64_t i = 0; i < samples * t * width; ++i)
      sum[(i % (t * width)) + 3 * width] += x[i];
    auto dtable = sums(before);
    device.run(GRT_KERNEL_POSITION_GRAD, {*xBuffer, *dtable},
               {samples, t, width, tableRows, acc, 3});
    expectNear(dtable->read(), sum, "dtable behind");
  }
}

/// Positions count from the first one of a document: the rows from `first` on
/// are taken by several of a sample.
TEST_P(Embedding, positions_of_documents_begin_anew) {
  Random random(4);
  const int64_t samples = 3, t = 9, tableRows = 12;
  const Values starts = {0, 0, 0, 3, 3, 3, 3, 3, 8, 0, 1, 2, 3, 4,
                         4, 4, 4, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  auto startsBuffer = integers(starts);
  for (int64_t width : {21, 32})
    for (int64_t first : {0, 3}) {
      Values x = random.values(samples * t * width);
      Values table = random.values(tableRows * width), expected;
      auto rowOf = [&](int64_t i) {
        int64_t position = i / width;
        return first + position % t - int64_t(starts[size_t(position)]);
      };
      for (int64_t i = 0; i < samples * t * width; ++i)
        expected.push_back(x[i] + table[rowOf(i) * width + i % width]);
      auto xBuffer = input(x), tableBuffer = input(table), y = input(x);
      device.run(GRT_KERNEL_POSITION_ADD, {*y, *tableBuffer, *y, *startsBuffer},
                 {samples, t, width, first, 1});
      expectNear(y->read(), expected, "y", 1e-7, 1e-15);
      for (int64_t acc : {0, 1}) {
        Values before = random.values(tableRows * width);
        Values sum = acc ? before : Values(tableRows * width, 0.0);
        for (int64_t i = 0; i < samples * t * width; ++i)
          sum[rowOf(i) * width + i % width] += x[i];
        auto dtable = sums(before);
        device.run(GRT_KERNEL_POSITION_GRAD, {*xBuffer, *dtable, *startsBuffer},
                   {samples, t, width, tableRows, acc, first, 1});
        expectNear(dtable->read(), sum, "dtable");
      }
    }
}

GRT_KERNEL_SUITE(Embedding);

} // namespace
} // namespace grt::conformance
