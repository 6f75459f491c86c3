//===- fakes.h - What stands behind the libraries of tests ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Libraries of the names that the backend loads, with the functions it uses:
// they check how they are called, keep count of what is alive, and answer with
// the status that a test asks for. Tests find these calls by name.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_TESTS_FAKES_H
#define GRT_BACKENDS_CUDA_TESTS_FAKES_H

#include <stdint.h>

#define GRT_FAKE extern "C" __attribute__((visibility("default")))

/// What the next calls of a kind answer; 0 is success. `kind` is "matmul",
/// "heuristic", "finalize" or "execute".
using GrtFakeAnswer = void(const char *kind, int status);
/// Handles and descriptors that were made and not destroyed.
using GrtFakeLive = int64_t();
/// Calls of "matmul" or "execute" that were carried out.
using GrtFakeRuns = int64_t();
/// What was wrong with calls so far, a line each; forgets it.
using GrtFakeComplaints = const char *();

#endif // GRT_BACKENDS_CUDA_TESTS_FAKES_H
