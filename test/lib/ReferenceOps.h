//===- ReferenceOps.h - nn operations with plain loops ----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TEST_LIB_REFERENCEOPS_H
#define GALVATRON_TEST_LIB_REFERENCEOPS_H

#include "ReferenceExecutor.h"
#include "llvm/ADT/StringMap.h"

namespace galvatron::reference {

/// Adds the evaluators of all nn operations.
void addNNEvaluators(llvm::StringMap<Evaluator> &table);

} // namespace galvatron::reference

#endif // GALVATRON_TEST_LIB_REFERENCEOPS_H
