//===- Dtype.h - Names of element types -------------------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Element types as options, profiles and cluster files name them. A plan can be
// made for all of them; what is compiled and run is a part of them.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_STRATEGY_DTYPE_H
#define GALVATRON_STRATEGY_DTYPE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>

namespace galvatron {

/// Whether a plan can be made for `dtype`: f32, tf32, f16, bf16 or f64.
bool isPlannedDtype(llvm::StringRef dtype);
/// Whether programs compute in `dtype`: f32, bf16 or f64.
bool isExecutedDtype(llvm::StringRef dtype);
/// "'f32', 'tf32', 'f16', 'bf16' or 'f64'", for messages.
llvm::StringRef plannedDtypeList();

/// Bytes of a stored value; an error that names `dtype` if no plan can be made
/// for it. tf32 is a way to multiply f32 values, so 4.
llvm::Expected<int64_t> elementBytes(llvm::StringRef dtype);
/// Whether values have two bytes, and so f32 master weights beside them.
bool isHalf(llvm::StringRef dtype);
/// The executed type with the same bytes, for which footprints are derived:
/// bf16 for f16, f32 for tf32, and the others themselves.
llvm::StringRef storedAs(llvm::StringRef dtype);

} // namespace galvatron

#endif // GALVATRON_STRATEGY_DTYPE_H
