//===- describe.h - A measurement as a cluster file -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_PROFILE_DESCRIBE_H
#define GALVATRON_PROFILE_DESCRIBE_H

#include "measure.h"

#include <nlohmann/json.hpp>

#include <string>

namespace grt::profile {

/// The cluster, with every value as the file shows it. `memory`: bytes of a
/// rank.
nlohmann::ordered_json describe(const Measurement &measurement,
                                uint64_t memory);
/// Returns the cluster as YAML, with what has no key of its own as comments.
std::string toYaml(const nlohmann::ordered_json &cluster,
                   const Measurement &measurement);

} // namespace grt::profile

#endif // GALVATRON_PROFILE_DESCRIBE_H
