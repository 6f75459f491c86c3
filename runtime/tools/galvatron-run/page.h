//===- page.h - A run as one page of HTML -----------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_PAGE_H
#define GALVATRON_RUN_PAGE_H

#include "grt/session.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

/// Values over steps, of which a picture needs no more than some hundred: once
/// it is full, neighbours become their mean and later steps are taken together.
class Series {
public:
  void add(uint64_t step, double value);
  /// Ascending by step.
  std::vector<std::pair<double, double>> points() const;

private:
  static constexpr size_t most = 1024;
  struct Sum {
    double steps = 0, values = 0;
    uint64_t count = 0;
  };
  std::vector<Sum> sums;
  uint64_t each = 1; ///< values of a point
};

/// The content of the page of a run.
struct PageContent {
  std::string title;
  /// Lines of text: model, plan, how the run ended.
  std::vector<std::string> facts;
  Series losses, milliseconds, norms, rates;
  std::vector<std::pair<double, double>> validations; ///< step and loss
  double predictedMs = 0;                             ///< 0: unknown
  bool nominal = false;
  grt::TimeShares measured, predicted; ///< `steps` 0: there are none
  grt::StepPicture step;               ///< the last one that was recorded
  std::vector<grt::RankMemory> memory;
};

/// The page: it needs nothing else, and is for light and dark screens.
std::string pageText(const PageContent &content);

#endif // GALVATRON_RUN_PAGE_H
