//===- TimeForm.h - A step's time in closed form ----------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The time of a step as plain data: sums and maxima over the roles of linear
// forms in the times of their tasks. Who evaluates a form brings the times; a
// search can turn it into the dimensions of its labels.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SCHEDULE_TIMEFORM_H
#define GALVATRON_SCHEDULE_TIMEFORM_H

#include "llvm/ADT/ArrayRef.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace galvatron {

/// The times of a role's tasks and its messages. A message occupies both ends
/// and is counted at both. Of a role with several chunks these are sums over
/// them, and the longest or the first of them where that is said.
enum class RoleTime : uint8_t {
  Forward,       ///< of a micro-batch
  Backward,      ///< of a micro-batch, recomputation included
  InputPart,     ///< of Backward, where it is split; else all of it
  WeightPart,    ///< what is left of Backward
  Behind,        ///< what sums of gradients add to the last backward pass
  Tail,          ///< from the last backward pass on, until the norm
  Norm,          ///< squares of the gradients
  Update,        ///< of the parameters
  ActivationOut, ///< to the next chunk, of a micro-batch
  GradientIn,    ///< from the next chunk
  ActivationIn,  ///< from the chunk before
  GradientOut,   ///< to the chunk before
  RoundNext,     ///< the longer one of ActivationOut and GradientIn
  RoundPrevious, ///< the longer one of ActivationIn and GradientOut
  LongestForward,
  LongestBackward,
  LongestInputPart,
  LongestWeightPart,
  LongestActivationOut,
  LongestGradientIn,
  FirstForward,
  FirstBackward,
  FirstInputPart,
  FirstWeightPart,
  FirstActivationOut,
  FirstGradientIn,
  FirstActivationIn
};
inline constexpr size_t kRoleTimeCount = 27;

/// A duration between two bounds.
struct TimeRange {
  double lower = 0, upper = 0;

  TimeRange &operator+=(const TimeRange &other) {
    lower += other.lower;
    upper += other.upper;
    return *this;
  }
  /// The longer one of both, at either bound.
  void atLeast(const TimeRange &other) {
    lower = std::max(lower, other.lower);
    upper = std::max(upper, other.upper);
  }
  friend TimeRange operator+(TimeRange a, const TimeRange &b) { return a += b; }
};

class RoleTimes {
public:
  TimeRange &operator[](RoleTime what) {
    return values[static_cast<size_t>(what)];
  }
  const TimeRange &operator[](RoleTime what) const {
    return values[static_cast<size_t>(what)];
  }

private:
  std::array<TimeRange, kRoleTimeCount> values{};
};

/// A linear form in the times of one role.
class RoleForm {
public:
  RoleForm() = default;
  RoleForm(std::initializer_list<std::pair<RoleTime, double>> theCoefficients) {
    for (const auto &[what, coefficient] : theCoefficients)
      coefficients[static_cast<size_t>(what)] += coefficient;
  }
  double operator[](RoleTime what) const {
    return coefficients[static_cast<size_t>(what)];
  }
  void add(RoleTime what, double coefficient) {
    coefficients[static_cast<size_t>(what)] += coefficient;
  }
  /// A term that is subtracted takes the other bound of its time, so that the
  /// value stays a bound.
  double value(const RoleTimes &times, bool upper) const;

private:
  std::array<double, kRoleTimeCount> coefficients{};
};

/// The largest over roles s, and r up to s if `chained`, of
///   <first, t_r> + sum_{r <= j < s} <between, t_j> + <at_s, t_s>
///   + sum_{j < s} <before, t_j> + sum_{j >= s} <after, t_j>.
struct TimeMaximum {
  /// The forms by role; one: the same for all.
  std::vector<RoleForm> at;
  RoleForm before, after;
  bool chained = false;
  RoleForm first, between;
};

/// The sum over all roles of `sum`, and of the weighted maxima.
struct TimeBound {
  RoleForm sum;
  std::vector<std::pair<double, TimeMaximum>> maxima;
};

/// The largest of its bounds.
using TimeForm = std::vector<TimeBound>;

/// Evaluates with the upper or with the lower ends of the roles' times.
double evaluate(const TimeForm &form, llvm::ArrayRef<RoleTimes> roles,
                bool upper);

} // namespace galvatron

#endif // GALVATRON_SCHEDULE_TIMEFORM_H
