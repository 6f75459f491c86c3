//===- HarmonyProfile.cpp - Layers by micro-batch size --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/HarmonyProfile.h"

#include "galvatron/Support/Json.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/ScopedPrinter.h"

#include <algorithm>
#include <cmath>

using namespace llvm;

namespace galvatron {

namespace {

constexpr StringRef directionKeys[] = {"FWD", "BWD"};

// Bounds that keep sums over layers and micro-batches within 63 bits: an hour
// for a layer, a petabyte for a tensor, a million layers of samples.
constexpr double kMostSeconds = 3600;
constexpr double kMostBytes = 1e15;
constexpr int64_t kMostSamples = 1'000'000;
constexpr int64_t kMostLayers = 100'000;

class ProfileReader {
public:
  explicit ProfileReader(ObjectReader &reader) : reader(reader) {}

  std::vector<double> numbers(const json::Value *value, const Twine &path,
                              int64_t count, double most) {
    std::string at = path.str();
    std::vector<double> result(count, 0);
    const json::Array *array = value ? value->getAsArray() : nullptr;
    if (!array || static_cast<int64_t>(array->size()) != count) {
      reader.fail(
          "'" + at + "': expected an array of " + Twine(count) +
          " numbers, found " +
          (array ? Twine(array->size()) + " entries" : Twine("no array")));
      return result;
    }
    for (int64_t i = 0; i < count; ++i) {
      std::optional<double> number = (*array)[i].getAsNumber();
      if (!number || !(*number >= 0) || *number > most) {
        reader.fail("'" + at + "[" + Twine(i) +
                    "]': expected a number between 0 and " +
                    llvm::to_string(format("%g", most)) + ", found " +
                    formatv("{0}", (*array)[i]).str());
        break;
      }
      result[i] = *number;
    }
    return result;
  }

  std::vector<int64_t> bytes(StringRef key, int64_t layers) {
    std::vector<int64_t> result;
    for (double number : numbers(reader.value(key), key, layers, kMostBytes))
      result.push_back(std::llround(number));
    return result;
  }

  HarmonyMeasurements measurements(ObjectReader &sizes, ObjectReader &times,
                                   ObjectReader &memory, StringRef direction,
                                   int64_t layers) {
    HarmonyMeasurements result;
    const json::Array *list = sizes.array(direction);
    for (size_t i = 0; list && i < list->size(); ++i) {
      std::optional<int64_t> size = (*list)[i].getAsInteger();
      if (!size || *size < 1 || *size > kMostSamples ||
          (i && *size <= result.sizes.back())) {
        reader.fail("'" + sizes.pathOf(direction) + "[" + Twine(i) +
                    "]': expected ascending sizes from 1 to " +
                    Twine(kMostSamples) + ", found " +
                    formatv("{0}", (*list)[i]).str());
        return result;
      }
      result.sizes.push_back(*size);
    }
    if (result.sizes.empty() && list)
      reader.fail("'" + sizes.pathOf(direction) +
                  "': expected at least one micro-batch size, found none");
    if (!list || reader.failed())
      return result;
    result.seconds =
        rows(times, direction, result.sizes.size(), layers, kMostSeconds);
    result.bytes =
        rows(memory, direction, result.sizes.size(), layers, kMostBytes);
    return result;
  }

private:
  std::vector<std::vector<double>> rows(ObjectReader &object,
                                        StringRef direction, size_t count,
                                        int64_t layers, double most) {
    std::vector<std::vector<double>> result;
    const json::Array *list = object.array(direction);
    if (!list)
      return result;
    if (list->size() != count)
      reader.fail("'" + object.pathOf(direction) + "': expected " +
                  Twine(count) + " rows, one per micro-batch size, found " +
                  Twine(list->size()));
    for (size_t i = 0; i < list->size() && !reader.failed(); ++i)
      result.push_back(numbers(&(*list)[i],
                               object.pathOf(direction) + "[" + Twine(i) + "]",
                               layers, most));
    return result;
  }

  ObjectReader &reader;
};

/// The straight line through the two measured sizes around `size`.
double interpolate(ArrayRef<int64_t> sizes,
                   const std::vector<std::vector<double>> &rows, int64_t size,
                   int64_t layer) {
  assert(size >= sizes.front() && size <= sizes.back());
  auto upper = llvm::lower_bound(sizes, size) - sizes.begin();
  if (sizes[upper] == size)
    return rows[upper][layer];
  double below = rows[upper - 1][layer], above = rows[upper][layer];
  double slope =
      (above - below) / static_cast<double>(sizes[upper] - sizes[upper - 1]);
  return below + slope * static_cast<double>(size - sizes[upper - 1]);
}

template <typename T> std::vector<int64_t> prefixSums(const T &values) {
  std::vector<int64_t> sums = {0};
  for (auto value : values)
    sums.push_back(sums.back() + value);
  return sums;
}

} // namespace

Expected<HarmonyProfile> HarmonyProfile::fromJson(const json::Value &value,
                                                  StringRef name) {
  ObjectReader reader(value, "");
  ProfileReader parts(reader);
  std::string model = reader.string("model");
  int64_t layers = reader.integer("num_layers");
  if (!reader.failed() && (layers < 1 || layers > kMostLayers))
    reader.fail("'num_layers': expected 1 to " + Twine(kMostLayers) +
                ", found " + Twine(layers));
  reader.stringOr("suffix", "");
  reader.stringOr("note", "");
  const json::Value *sizes = reader.value("ubatchsizes");
  const json::Value *times = reader.value("time_gpu_sec");
  const json::Value *memory = reader.value("memory_bytes");
  const json::Value *input = reader.value("input_activation_bytes");
  if (reader.failed())
    return makeError(name + ": " + toString(reader.finish(false)));

  ObjectReader sizeReader(*sizes, "ubatchsizes");
  ObjectReader timeReader(*times, "time_gpu_sec");
  ObjectReader memoryReader(*memory, "memory_bytes");
  ObjectReader inputReader(*input, "input_activation_bytes");
  // They are known, even where the first error ends the reading.
  for (ObjectReader *part : {&sizeReader, &timeReader, &memoryReader})
    for (StringRef key : directionKeys)
      part->has(key);
  std::array<HarmonyMeasurements, 2> measurements;
  for (size_t i = 0; i < 2 && !reader.failed() && !sizeReader.failed(); ++i)
    measurements[i] = parts.measurements(sizeReader, timeReader, memoryReader,
                                         directionKeys[i], layers);
  inputReader.stringOr("formula", "");
  inputReader.numberOr("max_abs_dev", 0);
  std::vector<double> slope =
      parts.numbers(inputReader.value("slope"), "input_activation_bytes.slope",
                    layers, kMostBytes);
  std::vector<double> intercept =
      parts.numbers(inputReader.value("intercept"),
                    "input_activation_bytes.intercept", layers, kMostBytes);
  for (ObjectReader *part :
       {&sizeReader, &timeReader, &memoryReader, &inputReader})
    if (Error error = part->finish())
      reader.fail(toString(std::move(error)));
  std::vector<int64_t> weights = parts.bytes("weight_bytes", layers);
  std::vector<int64_t> buffers = parts.bytes("buffer_bytes", layers);
  std::vector<int64_t> optimizer = parts.bytes("optimizer_state_bytes", layers);
  std::vector<double> update = parts.numbers(
      reader.value("update_cpu_sec"), "update_cpu_sec", layers, kMostSeconds);
  if (Error error = reader.finish())
    return makeError(name + ": " + toString(std::move(error)));
  return get(std::move(model), std::move(measurements), std::move(slope),
             std::move(intercept), std::move(weights), std::move(buffers),
             std::move(optimizer), std::move(update));
}

Expected<HarmonyProfile> HarmonyProfile::get(
    std::string name, std::array<HarmonyMeasurements, 2> measurements,
    std::vector<double> inputSlope, std::vector<double> inputIntercept,
    std::vector<int64_t> weightBytes, std::vector<int64_t> bufferBytes,
    std::vector<int64_t> optimizerBytes, std::vector<double> updateSeconds) {
  size_t layers = weightBytes.size();
  auto wrong = [&](const Twine &what) {
    return makeError("profile '" + name + "': " + what);
  };
  if (layers == 0)
    return wrong("expected at least one layer, found none");
  if (bufferBytes.size() != layers || optimizerBytes.size() != layers ||
      updateSeconds.size() != layers || inputSlope.size() != layers ||
      inputIntercept.size() != layers)
    return wrong("expected " + Twine(layers) + " entries in every list");
  for (const HarmonyMeasurements &direction : measurements) {
    if (direction.sizes.empty())
      return wrong("expected at least one micro-batch size, found none");
    for (const auto *rows : {&direction.seconds, &direction.bytes})
      if (rows->size() != direction.sizes.size() ||
          llvm::any_of(*rows, [&](const std::vector<double> &row) {
            return row.size() != layers;
          }))
        return wrong("expected a row of " + Twine(layers) +
                     " numbers for every micro-batch size");
  }
  HarmonyProfile profile;
  profile.modelName = std::move(name);
  profile.measurements = std::move(measurements);
  profile.inputSlope = std::move(inputSlope);
  profile.inputIntercept = std::move(inputIntercept);
  std::vector<int64_t> stored(layers);
  std::vector<Picoseconds> updates(layers);
  for (size_t l = 0; l < layers; ++l) {
    stored[l] = weightBytes[l] + bufferBytes[l];
    updates[l] = toPicoseconds(updateSeconds[l]);
  }
  profile.weights = prefixSums(stored);
  profile.optimizer = prefixSums(optimizerBytes);
  profile.update = prefixSums(updates);
  profile.weightBytes = std::move(weightBytes);
  return profile;
}

HarmonyCosts HarmonyProfile::costs(Direction direction, int64_t size) const {
  const HarmonyMeasurements &measured =
      measurements[static_cast<size_t>(direction)];
  HarmonyCosts costs;
  for (int64_t l = 0; l < layerCount(); ++l) {
    costs.time.push_back(
        toPicoseconds(interpolate(measured.sizes, measured.seconds, size, l)));
    costs.memory.push_back(static_cast<int64_t>(
        interpolate(measured.sizes, measured.bytes, size, l)));
  }
  return costs;
}

std::vector<int64_t> HarmonyProfile::inputBytes(int64_t size) const {
  std::vector<int64_t> bytes;
  for (int64_t l = 0; l < layerCount(); ++l)
    bytes.push_back(static_cast<int64_t>(
        inputIntercept[l] + inputSlope[l] * static_cast<double>(size)));
  bytes.push_back(0);
  return bytes;
}

} // namespace galvatron
