//===- ProfileLayerModel.cpp - A model from a layer profile ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/ProfileLayerModel.h"
#include "galvatron/Cluster/Measured.h"
#include "galvatron/Strategy/Dtype.h"
#include "galvatron/Support/Hash.h"
#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

using namespace llvm;

namespace galvatron {

double BatchTimes::milliseconds(double samples) const {
  if (points.empty())
    return 0;
  auto between = [&](double x0, double y0, double x1, double y1) {
    return y0 + (y1 - y0) * (samples - x0) / (x1 - x0);
  };
  if (samples <= points.front().first)
    return between(0, 0, points.front().first, points.front().second);
  for (size_t i = 1; i < points.size(); ++i)
    if (samples <= points[i].first)
      return between(points[i - 1].first, points[i - 1].second, points[i].first,
                     points[i].second);
  if (points.size() == 1)
    return between(0, 0, points.front().first, points.front().second);
  const auto &[x0, y0] = points[points.size() - 2];
  const auto &[x1, y1] = points.back();
  return std::max(y1, between(x0, y0, x1, y1));
}

Expected<std::unique_ptr<ProfileLayerModel>>
ProfileLayerModel::get(std::string name, std::string dtype,
                       std::vector<ProfileLayer> layers,
                       const TrainingOptions &training, double measuredFlops,
                       ProfileSoftware software) {
  Expected<int64_t> width = elementBytes(dtype);
  if (!width)
    return makeError("profile '" + name + "': " + toString(width.takeError()));
  std::string accumulator = dtype == "f64" ? "f64" : "f32";
  const std::string &gradientDtype = software.gradientDtype;
  if (!gradientDtype.empty() && gradientDtype != accumulator &&
      !(isHalf(dtype) && gradientDtype == dtype))
    return makeError("profile '" + name + "': expected gradient-dtype '" +
                     accumulator + "'" +
                     (isHalf(dtype) ? " or '" + dtype + "'" : "") +
                     ", found '" + gradientDtype + "'");
  if (layers.empty())
    return makeError("profile '" + name + "': expected at least one layer");
  auto model = std::make_unique<ProfileLayerModel>();
  model->modelName = name;
  model->elementType = dtype;
  model->width = *width;
  model->optimizer =
      optimizerNamed(training.optimizer).value_or(Optimizer::AdamW);
  model->measuredFlops = measuredFlops;
  if (gradientDtype.empty())
    software.gradientDtype = accumulator;
  Expected<int64_t> gradientWidth = elementBytes(software.gradientDtype);
  if (!gradientWidth)
    return gradientWidth.takeError();
  model->gradientWidth = *gradientWidth;
  std::string text = dtype + "/" + training.optimizer;
  if (gradientDtype != accumulator)
    text += "/" + gradientDtype;
  if (software.gathersAhead)
    text += "/gathers-ahead";
  if (software.addsGradients)
    text += "/adds-gradients";
  if (software.sumsEverywhere)
    text += "/sums-everywhere";
  if (software.shardsStatesAlone)
    text += "/states-alone";
  raw_string_ostream os(text);
  os << format("/%.17g", measuredFlops);
  for (size_t kind = 0; kind < layers.size(); ++kind) {
    const ProfileLayer &layer = layers[kind];
    if (layer.count < 1 || layer.count > 1000000)
      return makeError("layer '" + layer.name +
                       "': expected a count from 1 to 1000000, found " +
                       Twine(layer.count));
    if (layer.borrowedBytes > layer.parameterBytes ||
        (kind == 0 && layer.borrowedBytes > 0) || layer.borrowedBytes < 0)
      return makeError("layer '" + layer.name +
                       "': 'borrowed-bytes' is a part of 'parameter-bytes' of "
                       "a layer behind the first, found " +
                       Twine(layer.borrowedBytes) + " of " +
                       Twine(layer.parameterBytes));
    if (layer.borrowedBytes > layers.front().parameterBytes)
      return makeError("layer '" + layer.name +
                       "': expected 'borrowed-bytes' that the first layer has, "
                       "found " +
                       Twine(layer.borrowedBytes) + " of " +
                       Twine(layers.front().parameterBytes));
    if (layer.borrowedBytes > 0 &&
        (layer.count > 1 || layers.front().count > 1))
      return makeError("layer '" + layer.name +
                       "': expected a count of 1 beside 'borrowed-bytes', as "
                       "the first layer has");
    if (layer.tpReplicatedBytes > layer.intermediateBytes)
      return makeError("layer '" + layer.name +
                       "': 'tp-replicated-bytes' is a part of "
                       "'intermediate-bytes', found " +
                       Twine(layer.tpReplicatedBytes) + " of " +
                       Twine(layer.intermediateBytes));
    if (layer.sentBytes > layer.boundaryBytes)
      return makeError("layer '" + layer.name +
                       "': 'sent-bytes' is a part of 'boundary-bytes', found " +
                       Twine(layer.sentBytes) + " of " +
                       Twine(layer.boundaryBytes));
    if (layer.tpReplicatedMovedBytes > layer.forwardMovedBytes)
      return makeError("layer '" + layer.name +
                       "': 'tp-replicated-moved-bytes' is a part of "
                       "'forward-moved-bytes', found more");
    for (int64_t i = 0; i < layer.count; ++i) {
      model->kinds.push_back(kind);
      model->indexInKind.push_back(static_cast<size_t>(i));
    }
    os << "/" << layer.name << "," << layer.count << "," << layer.parameterBytes
       << "," << layer.boundaryBytes << "," << layer.intermediateBytes << ","
       << layer.tpAllReduceBytes << "," << layer.tpReplicatedBytes << ","
       << format("%.17g,%.17g,%.17g", layer.forwardFlops,
                 layer.forwardMovedBytes, layer.forwardProductBytes)
       << "," << layer.forwardKernels;
    if (layer.forwardAttentionFlops > 0)
      os << format(",%.17g,%.17g", layer.forwardAttentionFlops,
                   layer.forwardAttentionBytes);
    if (layer.backwardAttentionFlops >= 0)
      os << format(",backward,%.17g", layer.backwardAttentionFlops);
    if (layer.borrowedBytes > 0)
      os << ",borrowed," << layer.borrowedBytes;
    if (layer.sentBytes >= 0)
      os << ",sent," << layer.sentBytes;
    if (layer.tpReplicatedMovedBytes >= 0)
      os << format(",moved,%.17g", layer.tpReplicatedMovedBytes);
    if (const ProfileLayer::Again &again = layer.again;
        again != ProfileLayer::Again())
      os << format(",again,%.17g,%.17g,", again.flops, again.movedBytes)
         << again.kernels << ',' << again.bytes << ','
         << again.tpAllReduceBytes;
    for (double samples : {0.5, 1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 64.0, 1024.0})
      os << format(",%.17g,%.17g", layer.forward.milliseconds(samples),
                   layer.backward.milliseconds(samples));
    if (!layer.weight && layer.weightBytes > 0)
      os << ",weight," << layer.weightBytes;
    if (layer.weight) {
      os << "," << layer.weightBytes;
      for (double samples : {0.5, 1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 64.0, 1024.0})
        os << format(",%.17g", layer.weight->milliseconds(samples));
    }
    for (const ProfileTimes &times : layer.times) {
      os << "," << times.deviceType << "," << times.tp;
      for (double samples : {0.5, 1.0, 2.0, 3.0, 4.0, 8.0, 16.0, 64.0, 1024.0})
        os << format(",%.17g,%.17g", times.forward.milliseconds(samples),
                     times.backward.milliseconds(samples));
    }
  }
  if (Error error = model->checkTimes(layers))
    return error;
  model->modelHash = contentHash(text);
  // The output of a layer is the input of the next. A kind whose last layer
  // differs from its others there would not be one kind: the output of a run
  // counts as the larger of its own input and the next kind's.
  for (size_t kind = 0; kind < layers.size(); ++kind) {
    int64_t next =
        kind + 1 < layers.size() ? layers[kind + 1].boundaryBytes : 0;
    model->outputBytes.push_back(
        layers[kind].count > 1 ? std::max(layers[kind].boundaryBytes, next)
                               : next);
  }
  model->profile = std::move(layers);
  model->software = std::move(software);
  return model;
}

/// Every degree of tensor parallelism must be there once for every device type,
/// and 1 be one of them; layers with such times have the same device types.
Error ProfileLayerModel::checkTimes(const std::vector<ProfileLayer> &layers) {
  for (const ProfileLayer &layer : layers) {
    if (layer.times.empty())
      continue;
    std::map<std::string, std::set<int64_t>> degrees;
    for (const ProfileTimes &times : layer.times)
      if (!degrees[times.deviceType].insert(times.tp).second)
        return makeError("layer '" + layer.name + "': 'times' has degree " +
                         Twine(times.tp) + " twice for device type '" +
                         times.deviceType + "'");
    const auto &[first, expected] = *degrees.begin();
    if (!expected.count(1))
      return makeError("layer '" + layer.name +
                       "': expected 'times' of tensor parallelism of degree 1");
    std::vector<std::string> types;
    for (const auto &[type, found] : degrees) {
      if (found != expected)
        return makeError("layer '" + layer.name +
                         "': expected 'times' of the same degrees for device "
                         "types '" +
                         first + "' and '" + type + "'");
      if (!type.empty())
        types.push_back(type);
    }
    if (!types.empty() && degrees.count(""))
      return makeError("layer '" + layer.name +
                       "': expected a device type in all of 'times' or in "
                       "none");
    if (!types.empty() && !typesMeasured.empty() && typesMeasured != types)
      return makeError("layer '" + layer.name +
                       "': expected 'times' on the device types of the layers "
                       "before it");
    if (!types.empty())
      typesMeasured = std::move(types);
  }
  return Error::success();
}

std::vector<std::string> ProfileLayerModel::measuredTypes() const {
  return typesMeasured;
}

/// A number (milliseconds per sample) or [[batch, ms], ..] (of the batch).
static BatchTimes readTimes(ObjectReader &reader, StringRef key) {
  const json::Value *value = reader.value(key);
  if (!value)
    return {};
  auto fail = [&](const Twine &what) {
    reader.fail(Twine("'") + reader.pathOf(key) + "': " + what);
    return BatchTimes();
  };
  if (std::optional<double> number = value->getAsNumber()) {
    if (*number < 0)
      return fail("expected milliseconds of at least 0");
    return BatchTimes({{1.0, *number}});
  }
  const json::Array *array = value->getAsArray();
  if (!array || array->empty())
    return fail("expected milliseconds or [[batch, ms], ..]");
  std::vector<std::pair<double, double>> points;
  for (const json::Value &entry : *array) {
    const json::Array *pair = entry.getAsArray();
    std::optional<double> batch, ms;
    if (pair && pair->size() == 2) {
      batch = (*pair)[0].getAsNumber();
      ms = (*pair)[1].getAsNumber();
    }
    if (!batch || !ms || *batch <= 0 || *ms < 0)
      return fail("expected pairs [batch, ms] with a batch above 0");
    points.push_back({*batch, *ms});
  }
  llvm::sort(points);
  for (size_t i = 1; i < points.size(); ++i)
    if (points[i].first == points[i - 1].first)
      return fail("a batch is listed twice");
  return BatchTimes(std::move(points));
}

/// "times": a list of times by device type and degree.
static std::vector<ProfileTimes> readTimesList(ObjectReader &reader) {
  std::vector<ProfileTimes> list;
  const json::Array *array = reader.array("times");
  for (size_t i = 0; array && i < array->size(); ++i) {
    ObjectReader item((*array)[i],
                      reader.pathOf("times") + "[" + std::to_string(i) + "]");
    ProfileTimes times;
    times.deviceType = item.stringOr("device-type", "");
    times.tp = item.integerOr("tp", 1);
    if (times.tp < 1)
      item.fail("'" + item.pathOf("tp") + "': expected at least 1, found " +
                Twine(times.tp));
    times.forward = readTimes(item, "forward-ms");
    times.backward = readTimes(item, "backward-ms");
    if (Error error = item.finish())
      reader.fail(toString(std::move(error)));
    list.push_back(std::move(times));
  }
  if (array && array->empty())
    reader.fail("'" + reader.pathOf("times") + "': expected at least one");
  return list;
}

Expected<std::unique_ptr<ProfileLayerModel>>
ProfileLayerModel::fromJson(const json::Value &value, std::string name,
                            const TrainingOptions &training) {
  ObjectReader reader(value, "");
  if (int64_t version = reader.integer("version");
      !reader.failed() && version != 1)
    reader.fail("'version': expected 1, found " + Twine(version));
  std::string dtype = reader.stringOr("dtype", "f32");
  ProfileSoftware software;
  software.gradientDtype = reader.stringOr("gradient-dtype", "");
  software.gathersAhead = reader.booleanOr("gathers-ahead", false);
  software.addsGradients = reader.booleanOr("adds-gradients", false);
  software.sumsEverywhere = reader.booleanOr("all-reduces-gradients", false);
  double measuredFlops = 0;
  if (reader.has("measured-flops")) {
    Expected<double> flops = parseFlops(reader.string("measured-flops"));
    if (flops)
      measuredFlops = *flops;
    else
      reader.fail("'measured-flops': " + toString(flops.takeError()));
  }
  std::vector<ProfileLayer> layers;
  if (const json::Array *array = reader.array("layers")) {
    for (size_t i = 0; i < array->size(); ++i) {
      ObjectReader item((*array)[i], "layers[" + std::to_string(i) + "]");
      ProfileLayer layer;
      layer.name = item.string("name");
      layer.count = item.integerOr("count", 1);
      layer.parameterBytes = item.natural("parameter-bytes");
      layer.boundaryBytes = item.natural("boundary-bytes");
      layer.borrowedBytes = item.naturalOr("borrowed-bytes", 0);
      if (item.has("sent-bytes"))
        layer.sentBytes = item.natural("sent-bytes");
      layer.intermediateBytes = item.natural("intermediate-bytes");
      layer.tpAllReduceBytes = item.naturalOr("tp-allreduce-bytes", 0);
      layer.tpReplicatedBytes = item.naturalOr("tp-replicated-bytes", 0);
      if (item.has("times")) {
        for (StringRef other : {"forward-ms", "backward-ms", "forward-flops"})
          if (item.has(other))
            item.fail("'" + item.pathOf(other) +
                      "': expected either it or 'times', found both");
        layer.measured = true;
        layer.times = readTimesList(item);
      } else if (item.has("forward-flops")) {
        if (item.has("forward-ms"))
          item.fail("'" + item.pathOf("forward-flops") +
                    "': expected either times or FLOPs, found both");
        layer.forwardFlops = item.number("forward-flops");
        layer.forwardMovedBytes = item.numberOr("forward-moved-bytes", 0);
        if (item.has("tp-replicated-moved-bytes"))
          layer.tpReplicatedMovedBytes =
              static_cast<double>(item.natural("tp-replicated-moved-bytes"));
        if (item.has("forward-product-bytes"))
          layer.forwardProductBytes =
              static_cast<double>(item.natural("forward-product-bytes"));
        layer.forwardKernels = item.naturalOr("forward-kernels", 0);
        if (item.has("forward-attention-flops")) {
          layer.forwardAttentionFlops = item.number("forward-attention-flops");
          layer.forwardAttentionBytes =
              static_cast<double>(item.natural("forward-attention-bytes"));
          if (item.has("backward-attention-flops"))
            layer.backwardAttentionFlops =
                static_cast<double>(item.natural("backward-attention-flops"));
        }
        layer.weightBytes = item.naturalOr("weight-bytes", 0);
        if (layer.forwardFlops < 0 || layer.forwardMovedBytes < 0 ||
            layer.forwardAttentionFlops < 0)
          item.fail("'" + item.pathOf("forward-flops") +
                    "': expected FLOPs and bytes of at least 0");
      } else {
        layer.measured = true;
        layer.forward = readTimes(item, "forward-ms");
        layer.backward = readTimes(item, "backward-ms");
        if (item.has("weight-ms"))
          layer.weight = readTimes(item, "weight-ms");
        layer.weightBytes = item.naturalOr("weight-bytes", 0);
        if (layer.weight && !item.failed() &&
            layer.weight->milliseconds(1) > layer.backward.milliseconds(1))
          item.fail("'" + item.pathOf("weight-ms") +
                    "': expected a part of 'backward-ms'");
        if (!layer.weight && layer.weightBytes > 0)
          item.fail("'" + item.pathOf("weight-bytes") +
                    "': expected 'weight-ms' beside it");
      }
      if (Error error = item.finish())
        reader.fail(toString(std::move(error)));
      layers.push_back(std::move(layer));
    }
  }
  if (Error error = reader.finish(/*rejectUnknown=*/false))
    return error;
  return get(std::move(name), std::move(dtype), std::move(layers), training,
             measuredFlops, std::move(software));
}

std::string ProfileLayerModel::layerName(size_t layer) const {
  const ProfileLayer &kind = profile[kinds[layer]];
  if (kind.count == 1)
    return kind.name;
  return kind.name + "." + std::to_string(indexInKind[layer]);
}

std::vector<Tie> ProfileLayerModel::ties() const {
  std::vector<Tie> ties;
  for (size_t layer = 0; layer < kinds.size(); ++layer)
    if (int64_t bytes = profile[kinds[layer]].borrowedBytes)
      ties.push_back({0, layer, bytes});
  return ties;
}

int64_t ProfileLayerModel::parameterCount() const {
  double bytes = 0;
  for (const ProfileLayer &layer : profile)
    bytes += static_cast<double>(layer.count) *
             static_cast<double>(layer.parameterBytes - layer.borrowedBytes);
  double elements = bytes / static_cast<double>(width);
  // Sums of what a file says have no bound of their own.
  constexpr double most = static_cast<double>(int64_t(1) << 53);
  return static_cast<int64_t>(std::min(elements, most));
}

double ProfileLayerModel::flopsPerSample() const {
  double flops = 0;
  for (const ProfileLayer &layer : profile) {
    if (layer.measured)
      return 0;
    // Matrix products have twice the work in backward.
    flops += 3 * static_cast<double>(layer.count) *
             (layer.forwardFlops + layer.forwardAttentionFlops);
  }
  return flops;
}

int64_t ProfileLayerModel::boundaryBytesPerSample(size_t layer) const {
  if (layer + 1 >= kinds.size())
    return 0;
  const ProfileLayer &next = profile[kinds[layer + 1]];
  return next.sentBytes >= 0 ? next.sentBytes : next.boundaryBytes;
}

bool ProfileLayerModel::splitsBackward() const {
  return any_of(profile, [](const ProfileLayer &layer) {
    return layer.weight.has_value() ||
           (!layer.measured && layer.forwardFlops > 0);
  });
}

Expected<LayerFootprint>
ProfileLayerModel::splitFootprint(size_t kind, const Strategy &strategy,
                                  int64_t samples) {
  Expected<LayerFootprint> out = footprint(kind, strategy, samples);
  const ProfileLayer &layer = profile[kind];
  if (!out || strategy.checkpoint())
    return out;
  int64_t tp = strategy.degree(strategy.on(LayerAxis::Tensor));
  if (layer.weight) {
    out->weightSeconds =
        layer.weight->milliseconds(static_cast<double>(samples)) * 1e-3 /
        static_cast<double>(tp);
  } else if (!layer.measured && layer.forwardFlops > 0) {
    // One of a product's two products in backward is for its parameters;
    // attention has none, and what else moves is for the input.
    for (const ProductWork &product : out->forwardProducts)
      if (!product.attention)
        out->weightProducts.push_back(product);
    out->weightFlops = layer.forwardFlops * static_cast<double>(samples) /
                       static_cast<double>(tp);
  } else {
    return out;
  }
  out->split = true;
  out->stashBytes += align64((samples * layer.weightBytes + tp - 1) / tp);
  return out;
}

Expected<LayerFootprint> ProfileLayerModel::footprint(size_t kind,
                                                      const Strategy &strategy,
                                                      int64_t samples) {
  const ProfileLayer &layer = profile[kind];
  if (strategy.point() > 0)
    return keptValues(kind, strategy, samples).takeError();
  for (const Level &axis : strategy.axes())
    if (axis.paradigm->resting == RestingState::Rows)
      return makeError("'" + axis.paradigm.name() +
                       "' divides rows between products, and a profile does "
                       "not say what these take");
  int64_t zdp = strategy.optimizerShards();
  int64_t sdp = strategy.degree(strategy.parameterSharding());
  const bool groups = software.shardsStatesAlone && sdp > 1;
  if (groups)
    zdp = std::exchange(sdp, 1);
  int64_t tp = strategy.degree(strategy.on(LayerAxis::Tensor));
  bool checkpoint = strategy.checkpoint();
  auto divided = [](int64_t bytes, int64_t parts) {
    return align64((bytes + parts - 1) / parts);
  };

  LayerFootprint out;
  out.inputBytes = align64(samples * layer.boundaryBytes);
  out.outputBytes = align64(samples * outputBytes[kind]);
  int64_t intermediate =
      align64(samples * layer.tpReplicatedBytes) +
      divided(samples * (layer.intermediateBytes - layer.tpReplicatedBytes),
              tp);
  out.stashBytes = checkpoint ? 0 : intermediate;

  // Optimizer state is f32 whatever the compute type is, and so are gradients
  // unless the profile says otherwise.
  int64_t accumulator = elementType == "f64" ? 8 : 4;
  int64_t gradient = gradientWidth;
  int64_t local = divided(layer.parameterBytes, tp);
  int64_t elements = (layer.parameterBytes + width - 1) / width;
  int64_t borrowed = (layer.borrowedBytes + width - 1) / width;
  auto states = [&](int64_t bytesPerElement) {
    return divided(elements * bytesPerElement, tp * sdp);
  };
  auto borrowedStates = [&](int64_t bytesPerElement) {
    return divided(borrowed * bytesPerElement, tp * sdp);
  };
  // Bytes read and written by updates alone.
  auto owned = [&](int64_t bytesPerElement) {
    return divided((elements - borrowed) * bytesPerElement, tp * sdp * zdp);
  };
  out.parameterBytes = states(width);
  out.gradientBytes = states(gradient);
  out.borrowedGradientBytes = borrowedStates(gradient);
  // Adam: two moments; SGD: momentum; bf16 adds f32 master weights.
  int64_t moments = optimizerMoments(optimizer);
  out.optimizerBytes =
      owned(moments * accumulator + (isHalf(elementType) ? 4 : 0));

  int64_t gathered = sdp > 1 ? local : 0;
  int64_t fullGradients = sdp > 1 ? divided(elements * gradient, tp) : 0;
  if (software.gathersAhead)
    out.forwardGathered = out.backwardGathered = gathered;
  out.forwardTransient = gathered;
  // A layer that is recomputed whole has these among the others.
  const ProfileLayer::Again again =
      checkpoint ? ProfileLayer::Again() : layer.again;
  out.backwardTransient = gathered + fullGradients +
                          (checkpoint ? intermediate : 0) +
                          align64(samples * again.bytes);

  double share = 1.0 / static_cast<double>(tp);
  double count = static_cast<double>(samples);
  // True if times were measured with the communication of this degree.
  bool communicates = false;
  if (!layer.times.empty()) {
    communicates =
        tp > 1 && any_of(layer.times, [&](const ProfileTimes &times) {
          return times.tp == tp;
        });
    out.measured = true;
    for (const ProfileTimes &times : layer.times) {
      if (times.tp != (communicates ? tp : 1))
        continue;
      double scale = 1e-3 * (communicates ? 1 : share);
      double forward = times.forward.milliseconds(count) * scale;
      double backward = times.backward.milliseconds(count) * scale;
      if (times.deviceType.empty()) {
        out.forwardSeconds = forward;
        out.backwardSeconds = backward;
        out.recomputeSeconds = checkpoint ? forward : 0;
      } else {
        out.measuredOn.push_back({times.deviceType, forward, backward});
      }
    }
  } else if (layer.measured) {
    out.measured = true;
    out.measuredFlops = measuredFlops;
    out.forwardSeconds = layer.forward.milliseconds(count) * 1e-3 * share;
    out.backwardSeconds = layer.backward.milliseconds(count) * 1e-3 * share;
    out.recomputeSeconds = checkpoint ? out.forwardSeconds : 0;
  } else {
    // TP splits as much of the bytes that move as of the activations.
    double replicated = static_cast<double>(layer.tpReplicatedBytes);
    double kept = static_cast<double>(layer.intermediateBytes);
    double fraction = kept > 0 ? replicated / kept : 0;
    double bytesShare = fraction + (1 - fraction) * share;
    out.forwardFlops = layer.forwardFlops * count * share;
    out.forwardMovedBytes = layer.forwardMovedBytes * count * bytesShare;
    if (double whole = layer.tpReplicatedMovedBytes; whole >= 0)
      out.forwardMovedBytes =
          count * (whole + (layer.forwardMovedBytes - whole) * share);
    out.forwardKernels = layer.forwardKernels;
    double touched = layer.forwardProductBytes >= 0
                         ? layer.forwardProductBytes
                         : kept + static_cast<double>(layer.boundaryBytes);
    double elements = (static_cast<double>(layer.parameterBytes) * share +
                       count * touched * bytesShare) /
                      static_cast<double>(width);
    if (out.forwardFlops > 0)
      out.forwardProducts.push_back(
          {out.forwardFlops, productSize(out.forwardFlops, elements)});
    if (layer.forwardAttentionFlops > 0) {
      // Heads are split by TP, so neither work nor bytes are replicated.
      double flops = layer.forwardAttentionFlops * count * share;
      double moved = layer.forwardAttentionBytes * count * share /
                     static_cast<double>(width);
      out.forwardProducts.push_back({flops, productSize(flops, moved), true});
      out.forwardFlops += flops;
    }
    // Backward has each product twice, with the same three dimensions.
    out.backwardFlops = 2 * out.forwardFlops;
    out.backwardMovedBytes = 2 * out.forwardMovedBytes;
    // The part that is added is read, and the sum is read and written.
    if (software.addsGradients)
      out.backwardMovedBytes += static_cast<double>(states(width)) +
                                2 * static_cast<double>(states(gradient));
    out.backwardKernels = 2 * out.forwardKernels;
    out.backwardProducts = out.forwardProducts;
    for (ProductWork &product : out.backwardProducts) {
      double twice = 2 * product.flops;
      product.flops = product.attention && layer.backwardAttentionFlops >= 0
                          ? layer.backwardAttentionFlops * count * share
                          : twice;
      out.backwardFlops += product.flops - twice;
    }
    if (checkpoint) {
      out.recomputeFlops = out.forwardFlops;
      out.recomputeMovedBytes = out.forwardMovedBytes;
      out.recomputeKernels = out.forwardKernels;
      out.recomputeProducts = out.forwardProducts;
    } else if (!out.forwardProducts.empty()) {
      out.recomputeFlops = again.flops * count;
      out.recomputeMovedBytes = again.movedBytes * count;
      out.recomputeKernels = again.kernels;
      if (again.flops > 0)
        out.recomputeProducts.push_back(
            {out.recomputeFlops, out.forwardProducts.front().size});
    }
  }

  if (tp > 1 && !communicates) {
    // Megatron's two all-reduces of the boundary in each direction, unless the
    // profile says otherwise.
    int64_t perSample = layer.tpAllReduceBytes > 0 ? layer.tpAllReduceBytes
                                                   : 2 * layer.boundaryBytes;
    auto exchange = [&](CollectiveTime when, int64_t bytes) {
      out.addCollective({CollectiveGroup::Tensor, Collective::AllReduce, when,
                         samples * bytes, /*calls=*/2});
    };
    exchange(CollectiveTime::Forward, perSample);
    exchange(CollectiveTime::Backward, perSample);
    exchange(CollectiveTime::Recompute,
             checkpoint ? perSample : again.tpAllReduceBytes);
  }
  auto add = [&](CollectiveGroup among, Collective kind, CollectiveTime when,
                 int64_t bytes) {
    out.addCollective({among, kind, when, bytes});
  };
  using Group = CollectiveGroup;
  using Time = CollectiveTime;
  add(Group::Parameters, Collective::AllGather, Time::Forward, gathered);
  add(Group::Parameters, Collective::AllGather,
      checkpoint ? Time::Recompute : Time::Backward, gathered);
  add(Group::Parameters, Collective::ReduceScatter, Time::Backward,
      fullGradients);
  // The ranks among which states alone are cut.
  const Group owners = groups ? Group::Parameters : Group::Gradients;
  int64_t summed = 0, scattered = 0;
  if (strategy.sumsOnce() && zdp == 1)
    summed = states(gradient);
  if (zdp > 1) {
    // Borrowed gradients go whole to their owner.
    summed = borrowedStates(gradient);
    int64_t own = states(gradient) - summed;
    if (software.sumsEverywhere)
      summed += own;
    else
      scattered = own;
    add(owners, Collective::ReduceScatter, Time::Step, scattered);
    add(owners, Collective::AllGather, Time::Update,
        states(width) - borrowedStates(width));
  }
  add(owners, Collective::AllReduce, Time::Step, summed);
  // Every rank of a group sums what it has with its peers in the others.
  if (groups && strategy.sumsOnce())
    add(Group::Gradients, Collective::AllReduce, Time::Step,
        summed + divided(scattered, zdp));
  out.normBytes = owned(gradient);
  // A gradient is read once more, of the width that it is stored in.
  out.updateBytes =
      owned(updateTraffic(width, accumulator, moments + isHalf(elementType)) -
            accumulator + gradient);
  return out;
}

} // namespace galvatron
