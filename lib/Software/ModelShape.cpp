//===- ModelShape.cpp - A transformer by its sizes ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/ModelShape.h"

#include "galvatron/Support/Units.h"

using namespace llvm;

namespace galvatron {

bool ModelShape::isShape(const json::Value &value) {
  const json::Object *object = value.getAsObject();
  return object && object->getObject("shape");
}

Error ModelShape::check() const {
  // Products of all of them stay exact in a double, and within 63 bits.
  constexpr int64_t most = int64_t(1) << 24;
  std::pair<StringRef, int64_t> sizes[] = {
      {"layers", layers},         {"hidden", hidden},        {"heads", heads},
      {"key-heads", keyHeads},    {"head-width", headWidth}, {"ffn", inner},
      {"vocabulary", vocabulary}, {"tokens", tokens}};
  for (auto [key, size] : sizes)
    if (size < 1 || size > most)
      return makeError("'shape." + key + "': expected 1 to " + Twine(most) +
                       ", found " + Twine(size));
  if (heads % keyHeads)
    return makeError("'shape.key-heads': expected a divisor of the heads, " +
                     Twine(heads) + ", found " + Twine(keyHeads));
  return Error::success();
}

} // namespace galvatron
