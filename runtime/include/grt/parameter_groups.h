//===- parameter_groups.h - Parameters that learn differently ---*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `*.bias:decay=0;transformer.wte.*:lr=0.1;transformer.h.0.*:frozen`: groups of
// parameters by patterns on their Hugging Face names. They are options of a run
// and no part of a program.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_PARAMETER_GROUPS_H
#define GRT_PARAMETER_GROUPS_H

#include "grt/session.h"

#include <string>
#include <vector>

namespace grt {

/// Reads entries separated by semicolons; errors have exit code 2.
Status parseParameterGroups(const std::string &text,
                            std::vector<ParameterGroup> &groups);
/// Prints groups in the normal form of their text.
std::string printParameterGroups(const std::vector<ParameterGroup> &groups);

/// Numbers of parameters that the groups give for a program.
struct GroupFacts {
  uint64_t frozen = 0;  ///< elements that are not trained
  uint64_t trained = 0; ///< all others
};
/// Refuses a group that has no parameter of the program, or that leaves none
/// to be trained.
Status checkParameterGroups(const std::vector<ParameterGroup> &groups,
                            const Program &program, GroupFacts &facts);

} // namespace grt

#endif // GRT_PARAMETER_GROUPS_H
