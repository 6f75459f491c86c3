//===- TimeForm.cpp - A step's time in closed form ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Schedule/TimeForm.h"

#include <algorithm>
#include <cassert>

using namespace llvm;

namespace galvatron {

double RoleForm::value(const RoleTimes &times, bool upper) const {
  double sum = 0;
  for (size_t i = 0; i < kRoleTimeCount; ++i) {
    double coefficient = coefficients[i];
    if (coefficient == 0)
      continue;
    const TimeRange &time = times[static_cast<RoleTime>(i)];
    sum += coefficient * (upper == (coefficient > 0) ? time.upper : time.lower);
  }
  return sum;
}

static double largest(const TimeMaximum &term, ArrayRef<RoleTimes> roles,
                      bool upper) {
  assert((term.at.size() == 1 || term.at.size() == roles.size()) &&
         "a form for every role, or one for all");
  double after = 0, before = 0, chain = 0, most = 0;
  for (const RoleTimes &times : roles)
    after += term.after.value(times, upper);
  for (size_t s = 0; s < roles.size(); ++s) {
    const RoleTimes &times = roles[s];
    const RoleForm &at = term.at.size() == 1 ? term.at.front() : term.at[s];
    // The best beginning of a chain that ends here.
    double first = term.first.value(times, upper);
    chain =
        s > 0 && term.chained
            ? std::max(first, chain + term.between.value(roles[s - 1], upper))
            : first;
    double value = chain + at.value(times, upper) + before + after;
    most = s == 0 ? value : std::max(most, value);
    before += term.before.value(times, upper);
    after -= term.after.value(times, upper);
  }
  return most;
}

double evaluate(const TimeForm &form, ArrayRef<RoleTimes> roles, bool upper) {
  double most = 0;
  for (const TimeBound &bound : form) {
    double time = 0;
    for (const RoleTimes &times : roles)
      time += bound.sum.value(times, upper);
    for (const auto &[weight, term] : bound.maxima)
      time += weight * largest(term, roles, upper);
    most = std::max(most, time);
  }
  return most;
}

} // namespace galvatron
