//===- TestNN.h - Operations that only the tests know -----------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_TEST_LIB_TESTNN_TESTNN_H
#define GALVATRON_TEST_LIB_TESTNN_TESTNN_H

#include "galvatron/Dialect/NN/IR/NN.h"

#include "TestNNDialect.h.inc"

#define GET_OP_CLASSES
#include "TestNNOps.h.inc"

namespace mlir::test_nn {

/// Teaches the reference executor the operations of this dialect.
void registerReferenceEvaluators();
/// `--test-nn-interfaces` prints what operations of `nn` say of themselves.
void registerPrintInterfaces();
/// `--test-grt-kernels` prints what calls of kernels touch.
void registerPrintKernels();
/// `--test-mutate-kernels` changes their integers, one at a time.
void registerMutateKernels();

} // namespace mlir::test_nn

#endif // GALVATRON_TEST_LIB_TESTNN_TESTNN_H
