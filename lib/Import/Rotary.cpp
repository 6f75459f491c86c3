//===- Rotary.cpp - Frequencies of rotary embeddings ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Rotary.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

using namespace galvatron;

namespace {

constexpr double kTwoPi = 6.283185307179586476925;

/// Slows down what turns less than `low` times in the original positions,
/// leaves what turns more than `high` times, and goes from one to the other
/// between.
void scaleLlama3(ConfigReader &reader, double original, Rotary::Table &rotary) {
  double factor = reader.positiveNumber("factor");
  double low = reader.positiveNumber("low_freq_factor");
  double high = reader.positiveNumber("high_freq_factor");
  if (!(high > low))
    reader.fail("high_freq_factor",
                "expected more than 'low_freq_factor', found no more");
  for (double &w : rotary.frequencies) {
    double turns = original * w / kTwoPi;
    double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    w *= (1 - kept) / factor + kept;
  }
}

/// Scales frequencies between two pair numbers, found from turns `beta_fast`
/// and `beta_slow`, and cosines and sines a little larger.
void scaleYarn(ConfigReader &reader, double original, double theta,
               Rotary::Table &rotary) {
  double factor = reader.positiveNumber("factor");
  double fast = reader.positiveNumberOr("beta_fast", 32);
  double slow = reader.positiveNumberOr("beta_slow", 1);
  bool truncate = reader.booleanOr("truncate", true);
  for (llvm::StringRef field : {"mscale", "mscale_all_dim"})
    reader.expectPlain(field, nullptr, "unsupported scale of attention");
  double rotated = 2.0 * double(rotary.frequencies.size());
  auto pairOf = [&](double turns) {
    return rotated * std::log(original / (kTwoPi * turns)) /
           (2 * std::log(theta));
  };
  double low = pairOf(fast), high = pairOf(slow);
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotated - 1);
  // Equal ends would divide by zero; the library moves one by this.
  if (low == high)
    high += 0.001;
  for (auto [i, w] : llvm::enumerate(rotary.frequencies)) {
    double kept = 1 - std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    w *= (1 - kept) / factor + kept;
  }
  double scale = factor <= 1 ? 1 : 0.1 * std::log(factor) + 1;
  rotary.factor = scale;
  if (reader.has("attention_factor"))
    rotary.factor =
        reader.positiveNumberOrNull("attention_factor").value_or(scale);
}

/// Divides every frequency by a factor of its own, one for sequences of the
/// original positions and one for longer ones.
void scaleLong(ConfigReader &reader, double original, double positions,
               Rotary &rotary) {
  double factor =
      reader.positiveNumberOrNull("factor").value_or(positions / original);
  double scale =
      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  scale = reader.positiveNumberOrNull("attention_factor").value_or(scale);
  // Values that old files repeat beside the field of their meaning.
  for (llvm::StringRef field : {"short_mscale", "long_mscale"})
    reader.expectPlain(field, nullptr, "unsupported scale of attention");
  const std::vector<double> plain = rotary.usual.frequencies;
  auto table = [&](llvm::StringRef field) {
    Rotary::Table result{plain, scale};
    std::vector<double> factors = reader.positiveNumbers(field);
    if (factors.size() != plain.size()) {
      reader.fail(field,
                  "expected a factor for each of " + llvm::Twine(plain.size()) +
                      " pairs of a head, found " + llvm::Twine(factors.size()));
      return result;
    }
    for (auto [w, divisor] : llvm::zip_equal(result.frequencies, factors))
      w /= divisor;
    return result;
  };
  rotary.usual = table("short_factor");
  rotary.longer = table("long_factor");
  rotary.usualPositions = int64_t(original);
}

} // namespace

/// How many elements of a head are rotated.
static int64_t readRotated(ConfigReader &reader, ConfigReader &inner,
                           int64_t headSize, std::optional<double> usualPart) {
  llvm::StringRef field = "partial_rotary_factor";
  if (!usualPart) {
    reader.expectPlain(field, 1.0);
    inner.expectPlain(field, 1.0);
    return headSize;
  }
  double part = reader.positiveNumberOr(field, *usualPart);
  part = inner.positiveNumberOr(field, part);
  auto rotated = int64_t(double(headSize) * part);
  if (part > 1 || rotated < 2 || rotated % 2)
    (inner.has(field) ? inner : reader)
        .fail(field, "expected a part of at most 1 that makes an even number "
                     "of at least 2 elements of a head of " +
                         llvm::Twine(headSize) + ", found " +
                         llvm::formatv("{0}", part).str());
  return std::clamp<int64_t>(rotated, 2, headSize);
}

/// Reads the fields that say how one kind of layers is rotated.
static Rotary readKind(ConfigReader &inner, int64_t rotated, int64_t positions,
                       double theta, std::optional<double> original,
                       llvm::ArrayRef<llvm::StringRef> alsoLong = {}) {
  theta = inner.positiveNumberOr("rope_theta", theta);
  std::string type = inner.stringOr("type", "default");
  type = inner.stringOr("rope_type", type);
  std::optional<double> innerOriginal =
      inner.positiveNumberOrNull("original_max_position_embeddings");
  if (!original)
    original = innerOriginal;

  Rotary rotary;
  for (int64_t i = 0; i < rotated / 2; ++i)
    rotary.usual.frequencies.push_back(
        std::pow(theta, -2.0 * double(i) / double(rotated)));
  double reach = original.value_or(double(positions));
  if (type == "longrope" || llvm::is_contained(alsoLong, type)) {
    scaleLong(inner, reach, double(positions), rotary);
  } else if (type == "linear") {
    double factor = inner.positiveNumber("factor");
    for (double &w : rotary.usual.frequencies)
      w /= factor;
  } else if (type == "dynamic") {
    inner.positiveNumber("factor");
  } else if (type == "llama3") {
    scaleLlama3(inner, reach, rotary.usual);
  } else if (type == "yarn") {
    scaleYarn(inner, reach, theta, rotary.usual);
  } else if (type != "default") {
    inner.fail(inner.has("rope_type") ? "rope_type" : "type",
               "unsupported scaling '" + type +
                   "', expected 'default', 'linear', 'dynamic', 'llama3', "
                   "'yarn' or 'longrope'");
  }
  return rotary;
}

static const llvm::json::Object kNothing;

Rotary galvatron::readRotary(ConfigReader &reader, int64_t headSize,
                             int64_t positions, double theta,
                             std::optional<double> usualPart,
                             llvm::ArrayRef<llvm::StringRef> alsoLong) {
  theta = reader.positiveNumberOr("rope_theta", theta);
  std::optional<double> original =
      reader.positiveNumberOrNull("original_max_position_embeddings");
  // Non-null scaling replaces the newer field whole.
  llvm::StringRef field = "rope_scaling";
  const llvm::json::Object *object = reader.nested(field);
  const llvm::json::Object *parameters = reader.nested("rope_parameters");
  if (!object) {
    field = "rope_parameters";
    object = parameters;
  }
  ConfigReader inner = reader.nestedReader(field, object ? *object : kNothing);
  int64_t rotated =
      readRotated(reader, inner, std::max<int64_t>(headSize, 2), usualPart);
  Rotary rotary =
      readKind(inner, rotated, positions, theta, original, alsoLong);
  reader.finishNested(inner);
  return rotary;
}

RotaryByKind galvatron::readRotaryByKind(ConfigReader &reader, int64_t headSize,
                                         int64_t positions, double theta,
                                         double slidingTheta) {
  const llvm::json::Object *scaling = reader.nested("rope_scaling");
  const llvm::json::Object *parameters = reader.nested("rope_parameters");
  if (scaling && parameters)
    reader.fail("rope_scaling", "expected null where 'rope_parameters' says "
                                "how layers are rotated");
  ConfigReader kinds = reader.nestedReader("rope_parameters",
                                           parameters ? *parameters : kNothing);
  auto readOne = [&](llvm::StringRef kind, const llvm::json::Object *older,
                     double base) {
    const llvm::json::Object *object = kinds.nested(kind);
    ConfigReader inner =
        older ? reader.nestedReader("rope_scaling", *older)
              : kinds.nestedReader(kind, object ? *object : kNothing);
    inner.expectPlain("partial_rotary_factor", 1.0);
    Rotary rotary = readKind(inner, std::max<int64_t>(headSize, 2), positions,
                             base, std::nullopt);
    (older ? reader : kinds).finishNested(inner);
    return rotary;
  };
  RotaryByKind result;
  result.full = readOne("full_attention", scaling, theta);
  result.sliding = readOne("sliding_attention", nullptr, slidingTheta);
  reader.finishNested(kinds);
  return result;
}
