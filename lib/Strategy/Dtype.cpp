//===- Dtype.cpp - Names of element types ---------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/Dtype.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace galvatron {

bool isExecutedDtype(StringRef dtype) {
  return is_contained({"f32", "bf16", "f64"}, dtype);
}

bool isPlannedDtype(StringRef dtype) {
  return isExecutedDtype(dtype) || dtype == "f16" || dtype == "tf32";
}

StringRef plannedDtypeList() { return "'f32', 'tf32', 'f16', 'bf16' or 'f64'"; }

bool isHalf(StringRef dtype) { return dtype == "bf16" || dtype == "f16"; }

int64_t elementBytes(StringRef dtype) {
  return dtype == "f64" ? 8 : isHalf(dtype) ? 2 : 4;
}

StringRef storedAs(StringRef dtype) {
  return dtype == "f16" ? "bf16" : dtype == "tf32" ? "f32" : dtype;
}

} // namespace galvatron
