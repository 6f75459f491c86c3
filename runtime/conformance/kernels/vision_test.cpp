//===- vision_test.cpp - Images as rows of patches ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
#include "harness.h"

namespace grt::conformance {
namespace {

class Vision : public KernelTest {
protected:
  struct Cut {
    int64_t samples, channels, rows, cols, patchRows, patchCols;
    bool padded = false;
    Integers ints() const {
      Integers result = {samples, channels, rows, cols, patchRows, patchCols};
      if (padded)
        result.push_back(1);
      return result;
    }
    int64_t pixels() const { return samples * channels * rows * cols; }
    int64_t down() const {
      return (rows + (padded ? patchRows - 1 : 0)) / patchRows;
    }
    int64_t across() const {
      return (cols + (padded ? patchCols - 1 : 0)) / patchCols;
    }
    int64_t patches() const { return samples * down() * across(); }
    int64_t width() const { return channels * patchRows * patchCols; }
  };

  void check(const Cut &p, uint64_t seed) {
    Random random(seed);
    Values images = random.values(p.pixels()), expected;
    for (int64_t s = 0; s < p.samples; ++s)
      for (int64_t a = 0; a < p.down(); ++a)
        for (int64_t b = 0; b < p.across(); ++b)
          for (int64_t c = 0; c < p.channels; ++c)
            for (int64_t i = 0; i < p.patchRows; ++i)
              for (int64_t j = 0; j < p.patchCols; ++j) {
                int64_t row = a * p.patchRows + i, col = b * p.patchCols + j;
                int64_t first = (s * p.channels + c) * p.rows * p.cols;
                expected.push_back(row < p.rows && col < p.cols
                                       ? images[first + row * p.cols + col]
                                       : 0);
              }
    auto pixels = input(images);
    auto y = output(p.patches() * p.width());
    device.run(GRT_KERNEL_PATCHES, {*pixels, *y}, p.ints());
    expectSame(y->read(), expected, "y");
  }
};

TEST_P(Vision, patches_stand_row_by_row_and_channel_first) {
  check({1, 1, 1, 1, 1, 1}, 1);
  check({2, 3, 8, 12, 4, 4}, 2);
  check({3, 1, 6, 10, 2, 5}, 3);
  check({1, 4, 5, 7, 5, 1}, 4);
  // The sizes are of whole packs.
  check({2, 3, 32, 48, 16, 16}, 9);
}

TEST_P(Vision, what_stands_behind_the_last_whole_patch_is_left_out) {
  check({2, 3, 9, 11, 4, 3}, 5);
}

TEST_P(Vision, padded_patches_have_zeros_where_the_image_ends) {
  check({2, 3, 9, 11, 4, 3, true}, 6);
  check({1, 2, 8, 12, 4, 4, true}, 7);
  check({1, 2, 10, 24, 8, 16, true}, 10);
  check({2, 1, 3, 2, 5, 7, true}, 8);
}

TEST_P(Vision, patches_without_elements_are_refused) {
  auto pixels = input(Values(4, 1.0)), y = output(4);
  EXPECT_NE(
      device.refused(GRT_KERNEL_PATCHES, {*pixels, *y}, {1, 1, 2, 2, 0, 2})
          .find("patches have at least one row and column, found 0 and 2"),
      std::string::npos);
}

GRT_KERNEL_SUITE(Vision);

} // namespace
} // namespace grt::conformance
