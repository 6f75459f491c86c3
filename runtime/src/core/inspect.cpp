//===- inspect.cpp - Finding values that are not finite -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// When a step's loss or gradient norm is not finite its update is left out, so
// the forward pass can be run again exactly as it was (random numbers are keyed
// by the step), now looking at the output of every layer.
//
//===----------------------------------------------------------------------===//

#include "core/executor.h"

#include <cmath>
#include <limits>

namespace grt {
namespace {

/// Whether all values are finite. Exponents are compared as integers, so the
/// answer does not depend on how the compiler treats NaNs.
template <typename Bits>
bool finiteBits(const char *values, uint64_t bytes, Bits exponent) {
  for (uint64_t at = 0; at + sizeof(Bits) <= bytes; at += sizeof(Bits)) {
    Bits bits;
    __builtin_memcpy(&bits, values + at, sizeof(Bits));
    if ((bits & exponent) == exponent)
      return false;
  }
  return true;
}

bool allFinite(const char *values, uint64_t bytes, grt_dtype dtype) {
  switch (dtype) {
  case GRT_F64:
    return finiteBits<uint64_t>(values, bytes, 0x7ff0000000000000ull);
  case GRT_BF16:
    return finiteBits<uint16_t>(values, bytes, 0x7f80);
  default:
    return finiteBits<uint32_t>(values, bytes, 0x7f800000u);
  }
}

constexpr double nothing = std::numeric_limits<double>::infinity();

/// What was found, as one number of which the smallest counts: layers in the
/// order of the model, parameters before outputs; then gradients, last layer
/// first.
enum Place { InParameters = 0, InOutput = 1 };
double forwardKey(int64_t layer, Place place) {
  return double(2 * layer + place);
}
double gradientKey(int64_t layer) { return 1e15 - double(layer); }

} // namespace

bool Rank::isFinite(Device &memory, const char *values, uint64_t bytes,
                    grt_dtype dtype) {
  bool finite = true;
  uint64_t width = dtypeBytes(dtype);
  memory.read(values, bytes / width, width,
              [&](const char *piece, uint64_t, uint64_t count) {
                finite &= allFinite(piece, count * width, dtype);
              });
  return finite;
}

void Rank::inspectLayer(size_t number) {
  const Layer &layer = roleData->layers[number];
  const BoundLayer::Region &output = bound.region(
      layer.output == OutputKind::Loss ? GRT_REGION_LOSS : GRT_REGION_OUTPUT);
  uint64_t bytes = layer.output == OutputKind::Loss
                       ? output.bytes
                       : layers[number].outputBytes;
  grt_dtype dtype = layer.output == OutputKind::Loss ? GRT_F64 : manifest.dtype;
  bool finite = true;
  uint64_t at = 0;
  // Between several tensors, and behind them, is nothing of the layer's.
  for (uint64_t each : layer.outputs) {
    finite &= isFinite(*device, output.base + at, each, dtype);
    at += alignUp(each);
  }
  if (layer.outputs.empty())
    finite = isFinite(*device, output.base, bytes, dtype);
  if (!finite)
    inspection.notFinite =
        std::min(inspection.notFinite, forwardKey(layer.index, InOutput));
}

void Rank::inspect() {
  inspection.notFinite = nothing;
  auto scan = [&](const Layer &layer, uint64_t base, grt_dtype dtype) {
    bool finite = true;
    uint64_t width = dtypeBytes(dtype);
    for (const LayerTensor &tensor : layer.tensors)
      forEachStretch(layer, tensor, local, [&](const TensorStretch &of) {
        finite &= isFinite(access(layer),
                           home(layer) + base + uint64_t(of.held()) * width,
                           uint64_t(of.count()) * width, dtype);
      });
    return finite;
  };
  for (const Layer &layer : roleData->layers) {
    if (!scan(layer, layer.parameter, manifest.dtype))
      inspection.notFinite =
          std::min(inspection.notFinite, forwardKey(layer.index, InParameters));
    // Those of what is updated on the device are there no more.
    if (layer.holdsGradients() &&
        !scan(layer, layer.gradient, manifest.accumulatorType()))
      inspection.notFinite =
          std::min(inspection.notFinite, gradientKey(layer.index));
  }
  inspection.ofOutputs = true;
  beginStep();
  leaveGraphs();
  do
    runPart(GRT_PART_EVALUATE, false);
  while (toNextPart());
  inspection.ofOutputs = false;
  RankNumbers::gather(host, {inspection.notFinite}, stepEnd.gathered);
  for (const RankNumbers &each : stepEnd.gathered)
    inspection.notFinite = std::min(inspection.notFinite, each.squares);
}

std::string Rank::describeNotFinite() const {
  if (inspection.notFinite == nothing)
    return "though no layer has a value that is not finite";
  std::string place = "gradient";
  int64_t index = int64_t(1e15 - inspection.notFinite);
  if (inspection.notFinite < 1e14) {
    index = int64_t(inspection.notFinite) / 2;
    place = int64_t(inspection.notFinite) % 2 == InParameters ? "parameters"
                                                              : "output";
  }
  for (const Role &role : manifest.roles)
    for (const Layer &layer : role.layers)
      if (layer.index == index)
        return "the first layer with a value that is not finite is '" +
               layer.name + "', in its " + place +
               (place == "gradient" ? "; the forward pass is finite" : "");
  return "in layer " + std::to_string(index);
}

} // namespace grt
