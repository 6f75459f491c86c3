//===- Families.h - Models of every family ----------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TEST_MUTATIONS_FAMILIES_H
#define GALVATRON_TEST_MUTATIONS_FAMILIES_H

#include "Cases.h"

namespace galvatron::test {

/// Cases of every imported family, each under `plansEach` of the plans that
/// every family takes. Families take turns with the plan that comes first, so
/// that one plan each covers all of them.
std::vector<Case> familyCases(size_t plansEach);

/// The number of those plans.
size_t familyPlanCount();

} // namespace galvatron::test

#endif // GALVATRON_TEST_MUTATIONS_FAMILIES_H
