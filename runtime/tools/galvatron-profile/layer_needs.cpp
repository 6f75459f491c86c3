//===- layer_needs.cpp - What layers need, and the file of them -----------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "layers.h"

#include "core/manifest.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace grt::profile {
namespace {

using Json = nlohmann::ordered_json;

/// Returns the bytes of a copy of samples in the device's memory.
int64_t dataBytes(const Role &role, const Layer &layer) {
  uint64_t bytes = 0;
  for (int copy : layer.data)
    bytes += role.copies[size_t(copy)].extent.bytes;
  return int64_t(bytes);
}

/// Rows of numbers, a line each, as they are easy to read.
std::string rowsText(const Json &rows, const std::string &indent) {
  std::string text = "[";
  for (size_t r = 0; r < rows.size(); ++r)
    text += (r ? ",\n" : "\n") + indent + "  " + rows[r].dump();
  return text + "\n" + indent + "]";
}

std::string directionsText(const std::array<Json, 2> &rows) {
  return "{\n    \"FWD\": " + rowsText(rows[0], "    ") +
         ",\n    \"BWD\": " + rowsText(rows[1], "    ") + "\n  }";
}

/// Times to the nanosecond: more is not known.
double wholeNanoseconds(double seconds) {
  return std::round(seconds * 1e9) / 1e9;
}

} // namespace

std::vector<LayerNeed> needsOf(const Program &program) {
  const Manifest &manifest = program.manifest();
  const Role &role = manifest.roles[0];
  std::vector<LayerNeed> needs;
  for (size_t l = 0; l < role.layers.size(); ++l) {
    const Layer &layer = role.layers[l];
    int64_t gradients =
        layer.trainedElements() * int64_t(manifest.accumulatorBytes());
    int64_t front = int64_t(layer.frontBytes);
    int64_t behind =
        int64_t(l + 1 < role.layers.size() ? role.layers[l + 1].frontBytes
                                           : layer.behindBytes);
    int64_t data = dataBytes(role, layer);
    LayerNeed &need = needs.emplace_back();
    need.name = layer.name;
    need.weights = layer.heldElements() * int64_t(manifest.elementBytes());
    need.optimizer = int64_t(manifest.optimizerBytes(layer));
    need.input = l == 0 ? data : front;
    int64_t both =
        need.weights + front + behind + data + int64_t(layer.stashBytes);
    need.forward = both + int64_t(layer.forwardTransientBytes);
    need.backward =
        both + gradients + front + behind + int64_t(layer.transientBytes);
  }
  return needs;
}

std::vector<int64_t> sizesThatFit(int64_t largest,
                                  const std::function<bool(int64_t)> &fits) {
  std::vector<int64_t> sizes;
  auto tries = [&](int64_t size) {
    if (size > largest || !fits(size))
      return false;
    sizes.push_back(size);
    return true;
  };
  if (!tries(1))
    return sizes;
  while (tries(2 * sizes.back())) {
  }
  for (int64_t step = sizes.back() / 2; step > 0; step /= 2)
    tries(sizes.back() + step);
  return sizes;
}

std::string toHarmonyJson(const LayerProfile &profile) {
  const auto &[firstSize, first] = *profile.measured.begin();
  const auto &[lastSize, last] = *profile.measured.rbegin();
  size_t layers = first.needs.size();
  std::array<Json, 2> times = {Json::array(), Json::array()};
  std::array<Json, 2> memory = times;
  for (size_t direction = 0; direction < 2; ++direction)
    for (int64_t size : profile.sizes[direction]) {
      const SizeMeasurement &at = profile.measured.at(size);
      Json seconds = Json::array(), bytes = Json::array();
      for (size_t l = 0; l < layers; ++l) {
        const LayerSeconds &layer = at.seconds[l];
        bool isBackward = direction == 1;
        // A pack that runs backward runs its layers forward before: the same
        // functions, which keep what backward needs.
        seconds.push_back(wholeNanoseconds(layer.forward +
                                           (isBackward ? layer.backward : 0)));
        bytes.push_back(at.needs[l].peak(isBackward));
      }
      times[direction].push_back(seconds);
      memory[direction].push_back(bytes);
    }
  Json slope = Json::array(), intercept = Json::array(),
       weights = Json::array(), buffers = Json::array(),
       optimizer = Json::array(), update = Json::array();
  for (size_t l = 0; l < layers; ++l) {
    // Bytes are aligned, so that few of small tensors are as large as some
    // more; of the first size and the last one both are exact.
    double input = double(first.needs[l].input);
    double perSample = lastSize == firstSize
                           ? input / double(firstSize)
                           : (double(last.needs[l].input) - input) /
                                 double(lastSize - firstSize);
    slope.push_back(perSample);
    intercept.push_back(std::max(0.0, input - perSample * double(firstSize)));
    weights.push_back(first.needs[l].weights);
    buffers.push_back(0);
    optimizer.push_back(first.needs[l].optimizer);
    update.push_back(wholeNanoseconds(first.seconds[l].update));
  }
  std::string text =
      "{\n  \"model\": " + Json(profile.model).dump() +
      ",\n  \"num_layers\": " + std::to_string(layers) +
      ",\n  \"note\": " + Json(profile.note).dump() +
      ",\n  \"ubatchsizes\": {\n    \"FWD\": " + Json(profile.sizes[0]).dump() +
      ",\n    \"BWD\": " + Json(profile.sizes[1]).dump() +
      "\n  },\n  \"time_gpu_sec\": " + directionsText(times) +
      ",\n  \"memory_bytes\": " + directionsText(memory) +
      ",\n  \"input_activation_bytes\": {\n    \"formula\": "
      "\"intercept[l]+slope[l]*u\",\n    \"slope\": " +
      slope.dump() + ",\n    \"intercept\": " + intercept.dump() + "\n  }";
  auto addRow = [&](const char *key, const Json &row) {
    text += std::string(",\n  \"") + key + "\": " + row.dump();
  };
  addRow("weight_bytes", weights);
  addRow("buffer_bytes", buffers);
  addRow("optimizer_state_bytes", optimizer);
  addRow("update_cpu_sec", update);
  return text + "\n}\n";
}

} // namespace grt::profile
