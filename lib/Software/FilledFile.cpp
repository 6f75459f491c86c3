//===- FilledFile.cpp - Whether a filled file starts what was priced ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A present file has more in it than a plan. The target's own reader reads it
// once it is filled, and what that finds is compared with what was priced.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Target.h"
#include "galvatron/Support/Units.h"

using namespace llvm;

namespace galvatron {
namespace {

/// A size of a model, in the words of shapes (docs/formats.md).
struct Size {
  StringLiteral name;
  int64_t ModelShape::*member;
};
constexpr Size kSizes[] = {{"layers", &ModelShape::layers},
                           {"hidden", &ModelShape::hidden},
                           {"heads", &ModelShape::heads},
                           {"key-heads", &ModelShape::keyHeads},
                           {"head-width", &ModelShape::headWidth},
                           {"ffn", &ModelShape::inner},
                           {"vocabulary", &ModelShape::vocabulary},
                           {"tokens", &ModelShape::tokens}};

/// A property of a model, with the words for either case.
struct Property {
  bool ModelShape::*member;
  StringLiteral with, without;
};
constexpr Property kProperties[] = {
    {&ModelShape::gated, "a gate", "no gate"},
    {&ModelShape::tied, "tied embeddings", "a head of its own"},
    {&ModelShape::rotary, "rotary positions", "learned positions"},
    {&ModelShape::rmsNorm, "RMS norms", "layer norms"},
    {&ModelShape::biases, "biases", "no biases"}};

/// The first difference between two models; empty: there is none.
std::string difference(const ModelShape &found, const ModelShape &priced) {
  for (const Size &size : kSizes)
    if (found.*size.member != priced.*size.member)
      return (Twine(priced.*size.member) + " " + size.name + ", found " +
              Twine(found.*size.member))
          .str();
  for (const Property &property : kProperties)
    if (found.*property.member != priced.*property.member)
      return ((priced.*property.member ? property.with : property.without) +
              ", found " +
              (found.*property.member ? property.with : property.without))
          .str();
  return "";
}

} // namespace

Expected<std::vector<std::string>> checkFilled(Target &target, StringRef text,
                                               StringRef fileName,
                                               PricedPlan priced) {
  target.setPriced(priced);
  Expected<SoftwareReading> reading = target.read(text, fileName);
  if (!reading)
    return reading.takeError();
  if (std::string other = difference(reading->shape, priced.shape);
      !other.empty())
    return makeError(fileName + ": expected the model that was priced, with " +
                     other);
  if (reading->configuration != priced.configuration)
    return makeError(fileName + ": expected the plan that was priced, " +
                     priced.configuration.str() + ", found " +
                     reading->configuration.str());
  if (reading->devices != priced.configuration.devices())
    return makeError(fileName + ": expected " +
                     Twine(priced.configuration.devices()) +
                     " devices, found " + Twine(reading->devices));
  return std::move(reading->unread);
}

} // namespace galvatron
