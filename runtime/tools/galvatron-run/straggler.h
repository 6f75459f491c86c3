//===- straggler.h - The rank that the others wait for ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_STRAGGLER_H
#define GALVATRON_RUN_STRAGGLER_H

#include "grt/session.h"

#include <string>
#include <vector>

/// Finds the rank that works much longer in each step than the others of its
/// stage, which have as much to do: it waits less than they do.
class StragglerWatch {
public:
  /// Words for a clock's slowdowns; empty if there are none.
  using WhyOf = std::string (*)(uint64_t slowdowns);

  /// Steps of a window; a rank is named after two windows in a row.
  static constexpr uint64_t window = 50;

  /// Looks at what the ranks did in a window of so many steps and seconds.
  /// Returns the line to print, with what `whyOf` says of the rank's clock;
  /// empty if there is nothing new to say.
  std::string look(const std::vector<grt::RankWork> &work, double seconds,
                   uint64_t steps, WhyOf whyOf = nullptr);
  /// The same by clocks alone: the rank whose device runs slower than the
  /// others' is named.
  std::string lookAtClocks(const std::vector<grt::RankWork> &work, WhyOf whyOf);

private:
  /// Whether a rank that is the worst of a window (-1: none) is to be named.
  bool isNews(int worst);

  int suspect = -1, named = -1;
};

#endif // GALVATRON_RUN_STRAGGLER_H
