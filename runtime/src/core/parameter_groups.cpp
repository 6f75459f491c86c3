//===- parameter_groups.cpp - Parameters that learn differently -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "core/parameter_rules.h"
#include "grt/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace grt {
namespace {

/// Whether a name fits a pattern of '*' and '?'; as far back as the last '*'.
bool fits(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*')
    ++p;
  return p == pattern.size();
}

double notNegative(const std::string &entry, const std::string &text) {
  char *end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end || !std::isfinite(value) || value < 0)
    invalid("parameter group '" + entry +
            "': expected a number of at least 0, found '" + text + "'");
  return value;
}

ParameterGroup parseEntry(const std::string &entry) {
  size_t colon = entry.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == entry.size())
    invalid("parameter group '" + entry +
            "': expected PATTERN:SETTINGS, as in '*.bias:decay=0'");
  ParameterGroup group;
  group.pattern = entry.substr(0, colon);
  bool hasRate = false;
  for (size_t at = colon + 1; at <= entry.size();) {
    size_t end = std::min(entry.find(',', at), entry.size());
    std::string setting = entry.substr(at, end - at);
    at = end + 1;
    if (setting == "frozen") {
      group.frozen = true;
    } else if (setting.starts_with("lr=")) {
      group.rate = notNegative(entry, setting.substr(3));
      hasRate = true;
    } else if (setting.starts_with("decay=")) {
      group.decay = notNegative(entry, setting.substr(6));
    } else {
      invalid("parameter group '" + entry +
              "': expected 'lr=FACTOR', 'decay=X' or 'frozen', found '" +
              setting + "'");
    }
  }
  if (group.frozen && (hasRate || group.decay))
    invalid("parameter group '" + entry +
            "': what is frozen has neither a rate nor a decay");
  return group;
}

std::string shortest(double value) {
  char text[32];
  for (int digits = 1; digits <= 17; ++digits) {
    std::snprintf(text, sizeof(text), "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value)
      break;
  }
  return text;
}

} // namespace

Status parseParameterGroups(const std::string &text,
                            std::vector<ParameterGroup> &groups) {
  return guarded([&] {
    std::vector<ParameterGroup> found;
    for (size_t at = 0; at <= text.size();) {
      size_t end = std::min(text.find(';', at), text.size());
      if (end > at)
        found.push_back(parseEntry(text.substr(at, end - at)));
      at = end + 1;
    }
    if (found.empty())
      invalid("expected parameter groups as in '*.bias:decay=0', found '" +
              text + "'");
    groups = std::move(found);
  });
}

std::string printParameterGroups(const std::vector<ParameterGroup> &groups) {
  std::string text;
  for (const ParameterGroup &group : groups) {
    text += (text.empty() ? "" : ";") + group.pattern + ":";
    std::string settings = group.frozen ? "frozen" : "";
    if (!group.frozen && (group.rate != 1 || !group.decay))
      settings = "lr=" + shortest(group.rate);
    if (group.decay)
      settings +=
          (settings.empty() ? "decay=" : ",decay=") + shortest(*group.decay);
    text += settings;
  }
  return text;
}

std::vector<ParameterRule>
parameterRules(const Manifest &manifest,
               const std::vector<ParameterGroup> &groups) {
  if (groups.empty())
    return {};
  std::vector<ParameterRule> rules(manifest.parameters.size());
  for (const ParameterGroup &group : groups) {
    bool any = false;
    for (size_t i = 0; i < rules.size(); ++i)
      if (fits(group.pattern, manifest.parameters[i].name)) {
        rules[i] = {group.frozen, group.rate, group.decay};
        any = true;
      }
    if (!any)
      invalid("parameter group '" + group.pattern +
              "': the program has no such parameter; it has '" +
              manifest.parameters.front().name + "' and " +
              std::to_string(manifest.parameters.size() - 1) + " others");
  }
  return rules;
}

std::vector<PartialCall> partialCalls(const grt_kernel_op &op,
                                      const Layer &layer,
                                      const std::vector<ParameterRule> &rules,
                                      bool decayAll) {
  bool updates = op.kernel == GRT_KERNEL_OPTIMIZER;
  size_t head =
      updates ? firstSegment<kernels::Optimizer> : firstSegment<kernels::Norm>;
  if (op.int_count < head || (op.int_count - head) % segmentInts != 0)
    fail("layer '" + layer.name + "': malformed segments of parameters");
  std::vector<PartialCall> calls;
  for (size_t at = head; at < op.int_count; at += segmentInts) {
    // A segment is a tensor of the layer's own.
    auto tensor =
        std::find_if(layer.tensors.begin(), layer.tensors.end(),
                     [&](const LayerTensor &one) {
                       return one.isTrained() && one.offset == op.ints[at];
                     });
    if (tensor == layer.tensors.end())
      fail("layer '" + layer.name + "' has no parameter at element " +
           std::to_string(op.ints[at]));
    const ParameterRule &rule = rules[size_t(tensor->parameter)];
    if (rule.frozen)
      continue;
    auto call =
        std::find_if(calls.begin(), calls.end(), [&](const PartialCall &known) {
          return !updates || (known.rule.rate == rule.rate &&
                              known.rule.decay == rule.decay);
        });
    if (call == calls.end())
      call = calls.insert(
          call, {std::vector<int64_t>(op.ints, op.ints + head), rule});
    call->ints.insert(call->ints.end(), op.ints + at,
                      op.ints + at + segmentInts);
    if (updates && (decayAll || rule.decay))
      call->ints.back() = 1;
  }
  for (PartialCall &call : calls)
    call.ints[head - 1] = int64_t((call.ints.size() - head) / segmentInts);
  return calls;
}

Status checkParameterGroups(const std::vector<ParameterGroup> &groups,
                            const Program &program, GroupFacts &facts) {
  return guarded([&] {
    const Manifest &manifest = program.manifest();
    std::vector<ParameterRule> rules = parameterRules(manifest, groups);
    facts = {};
    for (const StoredParameter &stored : storedParameters(manifest)) {
      const auto index = size_t(stored.index);
      bool frozen = stored.isFrozen || (!rules.empty() && rules[index].frozen);
      (frozen ? facts.frozen : facts.trained) +=
          uint64_t(manifest.parameters[index].elements());
    }
    if (!facts.trained && !program.cacheRows())
      invalid("the parameter groups freeze all parameters");
  });
}

} // namespace grt
