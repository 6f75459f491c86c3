//===- Dtype.cpp - Names of element types ---------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/Dtype.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace galvatron {

namespace {

/// The properties of an element type.
struct KnownDtype {
  StringRef name;
  int64_t bytes;
  StringRef storedAs;
};

constexpr KnownDtype knownDtypes[] = {{"f32", 4, "f32"},
                                      {"tf32", 4, "f32"},
                                      {"f16", 2, "bf16"},
                                      {"bf16", 2, "bf16"},
                                      {"f64", 8, "f64"}};

/// Null for an unknown name.
const KnownDtype *findDtype(StringRef dtype) {
  const KnownDtype *found = find_if(
      knownDtypes, [&](const KnownDtype &each) { return each.name == dtype; });
  return found == std::end(knownDtypes) ? nullptr : found;
}

} // namespace

bool isPlannedDtype(StringRef dtype) { return findDtype(dtype); }

bool isExecutedDtype(StringRef dtype) {
  const KnownDtype *known = findDtype(dtype);
  return known && known->storedAs == dtype;
}

StringRef plannedDtypeList() { return "'f32', 'tf32', 'f16', 'bf16' or 'f64'"; }

bool isHalf(StringRef dtype) {
  const KnownDtype *known = findDtype(dtype);
  return known && known->bytes == 2;
}

Expected<int64_t> elementBytes(StringRef dtype) {
  if (const KnownDtype *known = findDtype(dtype))
    return known->bytes;
  return makeError("expected an element type " + plannedDtypeList() +
                   ", found '" + dtype + "'");
}

StringRef storedAs(StringRef dtype) {
  const KnownDtype *known = findDtype(dtype);
  return known ? known->storedAs : dtype;
}

} // namespace galvatron
