//===- HarmonyProfile.h - Layers by micro-batch size ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The profile that Harmony (arXiv 2202.01306, Sec. 4) takes of a model: for
// every layer and micro-batch size the time and the memory of its forward and
// of its backward pass, and the sizes of its tensors; and the rates of the
// server that the model is trained on. Between two measured sizes everything is
// linear.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_COST_HARMONYPROFILE_H
#define GALVATRON_COST_HARMONYPROFILE_H

#include "galvatron/Support/Units.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/JSON.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace galvatron {

/// The two kinds of measurement. Backward includes the forward pass that
/// recomputes what backward needs, in time and in memory.
enum class Direction : uint8_t { Forward, Backward };

/// Measurements of one direction: rows by micro-batch size, columns by layer.
struct HarmonyMeasurements {
  std::vector<int64_t> sizes; ///< measured micro-batch sizes, ascending
  std::vector<std::vector<double>> seconds;
  std::vector<std::vector<double>> bytes; ///< peak of the layer running alone
};

/// The costs of one direction of all layers at one micro-batch size.
struct HarmonyCosts {
  std::vector<Picoseconds> time;
  std::vector<int64_t> memory; ///< bytes
};

class HarmonyProfile {
public:
  /// Reads a profile: `model`, `num_layers`, `ubatchsizes` and `time_gpu_sec`
  /// and `memory_bytes` by direction (`FWD`, `BWD`),
  /// `input_activation_bytes` as a slope and an intercept per layer, and per
  /// layer `weight_bytes`, `buffer_bytes`, `optimizer_state_bytes`,
  /// `update_cpu_sec`. Errors name the key, what was expected and what was
  /// found.
  static llvm::Expected<HarmonyProfile> fromJson(const llvm::json::Value &value,
                                                 llvm::StringRef name);
  /// Checks what fromJson() checks: rows of `layers` numbers, sizes ascending
  /// from at least 1, nothing negative or larger than what sums can hold.
  static llvm::Expected<HarmonyProfile>
  get(std::string name, std::array<HarmonyMeasurements, 2> measurements,
      std::vector<double> inputSlope, std::vector<double> inputIntercept,
      std::vector<int64_t> weightBytes, std::vector<int64_t> bufferBytes,
      std::vector<int64_t> optimizerBytes, std::vector<double> updateSeconds);

  const std::string &name() const { return modelName; }
  int64_t layerCount() const {
    return static_cast<int64_t>(weightBytes.size());
  }
  /// Measured sizes, ascending; sizes between the first and the last can be
  /// asked for.
  llvm::ArrayRef<int64_t> sizes(Direction direction) const {
    return measurements[static_cast<size_t>(direction)].sizes;
  }
  HarmonyCosts costs(Direction direction, int64_t size) const;
  /// Bytes of every layer's input for one micro-batch, and a last entry of 0:
  /// nothing leaves the last layer.
  std::vector<int64_t> inputBytes(int64_t size) const;
  /// Bytes of the first `layers` layers' weights and buffers, gradients or
  /// optimizer state: differences of these sums are those of a pack.
  llvm::ArrayRef<int64_t> weightSums() const { return weights; }
  llvm::ArrayRef<int64_t> optimizerSums() const { return optimizer; }
  /// Time of the host to update the first `layers` layers.
  llvm::ArrayRef<Picoseconds> updateSums() const { return update; }

private:
  std::string modelName;
  std::array<HarmonyMeasurements, 2> measurements;
  std::vector<double> inputSlope, inputIntercept;
  std::vector<int64_t> weightBytes;
  std::vector<int64_t> weights, optimizer;
  std::vector<Picoseconds> update;
};

/// The bytes per second that Adam reads and writes on the host in the profiles
/// of Harmony's authors: 15e9 to 20e9.
inline constexpr double kHarmonyHostRate = 15e9;

/// The server: devices behind one PCIe root. The defaults are those of the
/// paper's machine (four GTX 1080 Ti) as its public simulator has them.
struct HarmonyMachine {
  int64_t devices = 1;
  /// The bytes that tasks may use of a device's memory.
  int64_t capacity = int64_t(10) << 30;
  /// Host to device and back, bytes per second and direction, shared evenly by
  /// the devices in use.
  double swapRate = 11.5 * (1 << 30);
  /// Device to device, bytes per second and direction; not shared.
  double peerRate = 8.2 * (1 << 30);
  /// The rate between two processes of the host, bytes per second; half duplex
  /// and shared by the devices in use.
  double messageRate = 16.0 * (1 << 30);
  /// The time a task costs besides its work, once it has ended.
  Picoseconds taskOverhead = 40'000'000'000;
  /// The memory bandwidth of a device, bytes per second: it limits an update
  /// there. The value is the data sheet's of the GTX 1080 Ti.
  double memoryRate = 484e9;
};

} // namespace galvatron

#endif // GALVATRON_COST_HARMONYPROFILE_H
