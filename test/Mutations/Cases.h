//===- Cases.h - Models and plans whose IR is changed -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TEST_MUTATIONS_CASES_H
#define GALVATRON_TEST_MUTATIONS_CASES_H

#include "galvatron/Planner/Planner.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>
#include <vector>

namespace galvatron::test {

/// A small model and the plan that it is compiled for.
struct Case {
  std::string name, config;
  std::string strategy;
  int64_t pipelineDegree = 1, microBatches = 1;
  std::string schedule = "1f1b";
  std::string pins = ""; ///< strategies of some layers, as `h.0:dp4;h.1:tp4`
  int64_t chunks = 0;
  Offload offload = Offload::Off;
  int64_t batch = 8;
  std::string cluster = "4xcpu";
  bool isShort = true; ///< whether a short run has it
  /// Texts whose keys and values the program keeps, which generates then; 0: it
  /// is trained.
  int64_t keptTexts = 0;
};

/// The tokens that each of those texts may have.
constexpr int64_t kKeptLength = 6;

const std::vector<Case> &allCases();

/// The module of a case, which is trained in `dtype`, before it is planned.
mlir::OwningOpRef<mlir::ModuleOp> trainedModule(const Case &given,
                                                mlir::MLIRContext &context,
                                                const std::string &dtype);

/// Plans a module for the strategy, the schedule and the cluster of a case.
void planCase(mlir::ModuleOp module, const Case &given);

/// The planned module of a case, in f64.
mlir::OwningOpRef<mlir::ModuleOp> plannedModule(const Case &given,
                                                mlir::MLIRContext &context);

} // namespace galvatron::test

#endif // GALVATRON_TEST_MUTATIONS_CASES_H
