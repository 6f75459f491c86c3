//===- reference_backend.h - Kernels as plain loops, for tests ------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef GRT_TESTS_REFERENCE_BACKEND_H
#define GRT_TESTS_REFERENCE_BACKEND_H

#include "grt/backend.h"

namespace grt::test {

/// A backend of the kernels that the test programs use, written after abi.h as
/// plainly as can be; f32 and f64.
const grt_backend *referenceBackend();

} // namespace grt::test

#endif // GRT_TESTS_REFERENCE_BACKEND_H
