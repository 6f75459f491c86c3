//===- parameter_rules.h - What groups say of a parameter -------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_PARAMETER_RULES_H
#define GRT_CORE_PARAMETER_RULES_H

#include "core/manifest.h"
#include "grt/parameter_groups.h"

#include <optional>
#include <vector>

namespace grt {

struct ParameterRule {
  bool frozen = false;
  double rate = 1;             ///< factor of the learning rate
  std::optional<double> decay; ///< instead of the program's flag and the run's

  /// Whether it takes scalars of its own, which the step block does not have.
  bool hasScalars() const { return !frozen && (rate != 1 || decay); }
};

/// By parameter of the manifest; empty if there are no groups. A group without
/// a parameter is an error with exit code 2.
std::vector<ParameterRule>
parameterRules(const Manifest &manifest,
               const std::vector<ParameterGroup> &groups);

/// A kernel call that stands for a part of another one's segments.
struct PartialCall {
  std::vector<int64_t> ints;
  ParameterRule rule;
};

/// The calls that an OPTIMIZER or NORM call over the tensors of a layer becomes
/// under rules: one for every set of scalars, none for frozen parameters.
std::vector<PartialCall> partialCalls(const grt_kernel_op &op,
                                      const Layer &layer,
                                      const std::vector<ParameterRule> &rules,
                                      bool decayAll);

} // namespace grt

#endif // GRT_CORE_PARAMETER_RULES_H
