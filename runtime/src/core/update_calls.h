//===- update_calls.h - Calls of the optimizer under options ----*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CORE_UPDATE_CALLS_H
#define GRT_CORE_UPDATE_CALLS_H

#include "core/call_checks.h"
#include "core/parameter_rules.h"

#include <map>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace grt {

/// Decay flags are constants of a program; decaying everything is an option of
/// the run, and so are groups of parameters. Layers share functions, and so
/// descriptors of calls.
class UpdateCalls {
public:
  /// `rules` by parameter, empty without groups.
  UpdateCalls(const std::vector<ParameterRule> &rules, bool decayAll)
      : rules(rules), decayAll(decayAll) {}

  /// The calls that a call of a layer becomes under the groups; null: itself.
  /// Those are made the first time.
  const std::vector<PartialCall> *of(const grt_kernel_op &op,
                                     const Layer &layer) {
    const bool updates = op.kernel == GRT_KERNEL_OPTIMIZER;
    if (rules.empty() || (!updates && op.kernel != GRT_KERNEL_NORM))
      return nullptr;
    auto [at, isNew] = partial.try_emplace({&op, &layer});
    if (isNew)
      at->second = partialCalls(op, layer, rules, decayAll);
    return &at->second;
  }
  /// Integers of a call, if all parameters are to decay; else none.
  std::span<const int64_t> decayingInts(const grt_kernel_op &op) {
    if (!decayAll || op.kernel != GRT_KERNEL_OPTIMIZER)
      return {};
    std::vector<int64_t> &ints = decaying[&op];
    if (ints.empty())
      ints = decayingAll(op);
    return ints;
  }

private:
  const std::vector<ParameterRule> &rules;
  const bool decayAll;
  std::unordered_map<const grt_kernel_op *, std::vector<int64_t>> decaying;
  std::map<std::pair<const grt_kernel_op *, const Layer *>,
           std::vector<PartialCall>>
      partial;
};

} // namespace grt

#endif // GRT_CORE_UPDATE_CALLS_H
