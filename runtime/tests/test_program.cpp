//===- test_program.cpp - Programs made by hand, for tests ----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "test_program.h"
#include "core/executor.h"
#include "core/manifest.h"
#include "core/program_text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

namespace grt::test {

using Json = nlohmann::ordered_json;

namespace {

constexpr size_t functionsPerLayer = 5; // and the norm

} // namespace

class Builder {
public:
  explicit Builder(const ModelPlan &plan)
      : plan(plan), width(plan.f64 ? 8 : 4),
        type(plan.f64 ? GRT_F64 : GRT_F32) {}

  gvx::Tables build();

private:
  struct Tensor {
    int parameter, group;
    int64_t offset; ///< elements
    std::vector<int64_t> view, local;
    int tpDim;
    int64_t elements() const {
      return local[0] * (local.size() > 1 ? local[1] : 1);
    }
  };
  struct LayerInfo {
    int64_t dp = 1, sdp = 1, tp = 1, samples = 0, rows = 0, shard[2] = {};
    std::vector<Tensor> tensors;
    uint64_t transient = 0, stash = 0, input = 0, recomputeStash = 0;
    bool ckpt = false;
  };

  /// A run of a stage's layers; numbered in the order of the model.
  struct ChunkPlan {
    size_t stage = 0;
    std::vector<int> layers;
  };
  static std::vector<ChunkPlan> chunksOf(const ModelPlan &plan);

  void describeLayer(int layer);
  Json datum(const std::string &kind, bool counted) const {
    return {{"name", kind},
            {"kind", kind},
            {"type", "i32"},
            {"shape", {plan.seqLen}},
            {"bytes-per-sample", plan.seqLen * 4},
            {"below", plan.vocab},
            {"counted", counted}};
  }
  /// The layer's inputs of all micro-batches.
  uint64_t dataBytes(int layer) const {
    return alignUp(uint64_t(layers[layer].rows) * 4) *
           uint64_t(plan.microBatches);
  }
  void writeFunctions(int layer);
  Json layerJson(int layer, const StagePlan &stage, const ChunkPlan &chunk,
                 uint64_t &parameters, uint64_t &gradients, uint64_t &optimizer,
                 std::map<int, uint64_t> &stashes, int &copies);
  int exchange(int from, const std::vector<int> &fromDevices, int to,
               const std::vector<int> &toDevices);
  std::vector<int64_t> heldBlocks(int layer, const std::vector<int> &devices);
  void schedules();

  // Emission of calls into the current function.
  grt_buffer buffer(grt_region region, uint64_t offset, int64_t elements) {
    return {uint32_t(region), uint32_t(type), offset,
            uint64_t(elements) * width};
  }
  grt_buffer transient(int64_t elements, uint64_t itemBytes = 0) {
    uint64_t bytes = uint64_t(elements) * (itemBytes ? itemBytes : width);
    grt_buffer result{GRT_REGION_TRANSIENT, uint32_t(type), top, bytes};
    top = alignUp(top + bytes);
    return result;
  }
  void launch(grt_kernel kernel, const std::vector<grt_buffer> &buffers,
              const std::vector<int64_t> &ints) {
    // Zeros are for what is not under way.
    if (kernel != GRT_KERNEL_ZERO)
      joinStreams();
    program.launch(kernel, buffers, ints, {}, kernelName(kernel));
  }
  void communicate(grt_collective collective, grt_axis axis, grt_buffer in,
                   grt_buffer out, uint32_t acc = 0,
                   grt_stream stream = GRT_STREAM_COMPUTE, int32_t argument = 0,
                   const grt_buffer *counts = nullptr) {
    if (!plan.streams)
      stream = GRT_STREAM_COMPUTE;
    bool apart = stream != GRT_STREAM_COMPUTE;
    if (apart) {
      order(events, GRT_STREAM_COMPUTE, 0);
      order(events++, stream, 1);
    }
    program.communicate({uint32_t(collective), uint32_t(axis), acc,
                         uint32_t(stream), 0, argument, in, out},
                        "collective", counts);
    if (apart) {
      order(events, stream, 0);
      awaited.push_back(events++);
    }
  }
  void order(uint32_t event, grt_stream stream, bool wait) {
    program.order(event, stream, wait, "");
  }
  /// COMPUTE waits for what is on other streams.
  void joinStreams() {
    for (uint32_t event : std::exchange(awaited, {}))
      order(event, GRT_STREAM_COMPUTE, 1);
  }
  void begin(grt_buffer b) { program.beginLife(b); }
  void end(grt_buffer b) {
    joinStreams();
    program.endLife(b);
  }
  /// Begins functions until there are `count`; those between have no calls.
  void beginFunctions(size_t count) {
    while (program.tables.functions.size() < count)
      program.beginFunction();
  }
  void open(int layer, size_t which) {
    beginFunctions(size_t(layer) * functionsPerLayer + which + 1);
    top = 0;
    events = 0;
  }
  void close(LayerInfo &info) {
    info.transient = std::max(info.transient, top);
  }

  /// The tensors of a layer, gathered if they are sharded.
  std::vector<grt_buffer> parameters(int layer);
  void moveBlocks(const grt_buffer &y, grt_buffer tokens, uint64_t members);
  /// The buffers of gradients; `finish` scatters them if sharded.
  std::vector<grt_buffer> gradients(int layer, int64_t &acc);
  void finishGradients(int layer);

  const ModelPlan &plan;
  gvx::ProgramBuilder program;
  uint64_t width;
  grt_dtype type;
  LayerInfo layers[3];
  uint64_t top = 0;
  uint32_t events = 0; ///< of the current function
  std::vector<uint32_t> awaited;
  std::vector<grt_buffer> fullGradients;
  Json exchanges = Json::array();
};

void Builder::describeLayer(int number) {
  LayerInfo &info = layers[number];
  for (const auto &[kind, degree] : plan.layers[number].levels)
    (kind == "dp" ? info.dp : kind == "sdp" ? info.sdp : info.tp) = degree;
  info.samples = plan.batch / plan.microBatches / (info.dp * info.sdp);
  info.rows = info.samples * plan.seqLen;
  info.ckpt = plan.layers[number].ckpt && number == 2;
  int64_t v = plan.vocab, h = plan.width;
  int64_t local = (v + info.tp - 1) / info.tp;
  int cut = info.tp > 1 ? 0 : -1;
  if (number == 0)
    info.tensors = {{0, 0, 0, {v, h}, {local, h}, cut}};
  if (number == 1)
    info.tensors = {{1, 0, 0, {h, h}, {h, h}, -1}, {2, 0, 0, {h}, {h}, -1}};
  if (number == 2)
    info.tensors = {
        {plan.tied ? 0 : 3, plan.tied ? 1 : 0, 0, {v, h}, {local, h}, cut}};
  int64_t line = int64_t(GRT_ALIGNMENT / width), ends[2] = {};
  for (Tensor &tensor : info.tensors) {
    tensor.offset = ends[tensor.group];
    ends[tensor.group] += (tensor.elements() + line - 1) / line * line;
  }
  for (int g : {0, 1})
    info.shard[g] = (ends[g] + line * info.sdp - 1) / (line * info.sdp) * line;
  info.input = number ? uint64_t(info.rows * h) * width : 0;
  if (number == 2) {
    uint64_t logits = alignUp(uint64_t(info.rows * local) * width);
    (info.ckpt ? info.recomputeStash : info.stash) = logits;
  }
}

std::vector<grt_buffer> Builder::parameters(int number) {
  LayerInfo &info = layers[number];
  uint64_t second = uint64_t(info.shard[0]) * width;
  std::vector<grt_buffer> result;
  grt_buffer full[2];
  if (info.sdp > 1)
    for (int g : {0, 1})
      if (info.shard[g]) {
        full[g] = transient(info.shard[g] * info.sdp);
        begin(full[g]);
        communicate(GRT_ALL_GATHER, GRT_AXIS_SDP,
                    buffer(GRT_REGION_PARAMETER, g ? second : 0, info.shard[g]),
                    full[g], 0, GRT_STREAM_GATHER);
      }
  for (const Tensor &tensor : info.tensors) {
    uint64_t base = info.sdp > 1   ? full[tensor.group].offset
                    : tensor.group ? second
                                   : 0;
    result.push_back(
        buffer(info.sdp > 1 ? GRT_REGION_TRANSIENT : GRT_REGION_PARAMETER,
               base + uint64_t(tensor.offset) * width, tensor.elements()));
  }
  return result;
}

std::vector<grt_buffer> Builder::gradients(int number, int64_t &acc) {
  LayerInfo &info = layers[number];
  uint64_t second = uint64_t(info.shard[0]) * width;
  std::vector<grt_buffer> result;
  fullGradients.assign(2, grt_buffer{});
  acc = info.sdp > 1 ? 0 : 2;
  if (info.sdp > 1)
    for (int g : {0, 1})
      if (info.shard[g]) {
        fullGradients[g] = transient(info.shard[g] * info.sdp);
        begin(fullGradients[g]);
        launch(GRT_KERNEL_ZERO, {fullGradients[g]}, {});
      }
  for (const Tensor &tensor : info.tensors) {
    uint64_t base = info.sdp > 1   ? fullGradients[tensor.group].offset
                    : tensor.group ? second
                                   : 0;
    result.push_back(
        buffer(info.sdp > 1 ? GRT_REGION_TRANSIENT : GRT_REGION_GRADIENT,
               base + uint64_t(tensor.offset) * width, tensor.elements()));
  }
  return result;
}

void Builder::finishGradients(int number) {
  LayerInfo &info = layers[number];
  if (info.sdp == 1)
    return;
  for (int g : {0, 1})
    if (info.shard[g]) {
      communicate(GRT_REDUCE_SCATTER, GRT_AXIS_SDP, fullGradients[g],
                  buffer(GRT_REGION_GRADIENT,
                         g ? uint64_t(info.shard[0]) * width : 0,
                         info.shard[g]),
                  2, GRT_STREAM_GRADIENT);
      end(fullGradients[g]);
    }
}

void Builder::moveBlocks(const grt_buffer &y, grt_buffer tokens,
                         uint64_t members) {
  const auto elements = int64_t(y.bytes / width);
  grt_buffer one = transient(elements), other = transient(elements);
  begin(one);
  begin(other);
  auto move = [&](grt_collective kind, const grt_buffer &in,
                  const grt_buffer &out, int32_t argument = 0,
                  const grt_buffer *counts = nullptr) {
    communicate(kind, GRT_AXIS_TP, in, out, 0, GRT_STREAM_COMPUTE, argument,
                counts);
  };
  move(GRT_SHIFT, y, one, -1);
  move(GRT_ALL_REDUCE_MAX, one, one);
  tokens.bytes = members * members * sizeof(int32_t);
  move(GRT_ALL_TO_ALL_COUNTS, one, other, int32_t(width), &tokens);
  move(GRT_ALL_TO_ALL, one, other);
  move(GRT_ALL_TO_ALL, other, y);
  end(one);
  end(other);
}

void Builder::writeFunctions(int number) {
  LayerInfo &info = layers[number];
  int64_t h = plan.width, rows = info.rows, v = plan.vocab;
  int64_t local = info.tensors[0].local[0];
  int64_t sharded = info.tp > 1;
  grt_buffer tokens{GRT_REGION_DATA, GRT_I32, 0, uint64_t(rows) * 4};
  grt_buffer x = buffer(GRT_REGION_INPUT, 0, rows * h);
  grt_buffer y = buffer(GRT_REGION_OUTPUT, 0, rows * h);
  grt_buffer dy = buffer(GRT_REGION_GRAD_IN, 0, rows * h);
  grt_buffer dx = buffer(GRT_REGION_GRAD_OUT, 0, rows * h);
  int64_t acc = 0;

  // The head's forward and recompute differ in where the logits go.
  auto head = [&](bool keep) {
    std::vector<grt_buffer> w = parameters(2);
    grt_buffer logits = keep ? buffer(GRT_REGION_STASH, 0, rows * local)
                             : transient(rows * local);
    if (plan.overrunStash && keep)
      logits.offset += GRT_ALIGNMENT;
    if (plan.wrongRegion && keep)
      logits.region = GRT_REGION_COUNT;
    begin(logits);
    launch(GRT_KERNEL_GEMM, {x, w[0], logits}, {rows, local, h, 0, 1, 0, 0});
    grt_buffer stats = transient(rows * 3), all = transient(rows * 3 * info.tp);
    begin(stats);
    begin(all);
    launch(GRT_KERNEL_SOFTMAX_STATS, {logits, tokens, stats},
           {rows, local, v, sharded});
    communicate(GRT_ALL_GATHER, GRT_AXIS_TP, stats, all);
    grt_buffer loss{GRT_REGION_LOSS, GRT_F64, 0, 8};
    launch(GRT_KERNEL_CROSS_ENTROPY, {logits, tokens, all, logits, loss},
           {rows, local, v, sharded, info.tp});
    end(stats);
    end(all);
    if (!keep)
      end(logits);
    if (info.sdp > 1)
      end(buffer(GRT_REGION_TRANSIENT, w[0].offset,
                 info.shard[info.tensors[0].group] * info.sdp));
  };

  open(number, 0);
  if (number == 0) {
    std::vector<grt_buffer> w = parameters(0);
    launch(GRT_KERNEL_EMBEDDING, {tokens, w[0], y}, {rows, h, local, sharded});
    if (sharded)
      communicate(GRT_ALL_REDUCE, GRT_AXIS_TP, y, y);
    if (sharded && plan.movesBlocks)
      moveBlocks(y, tokens, uint64_t(info.tp));
    if (info.sdp > 1)
      end(buffer(GRT_REGION_TRANSIENT, w[0].offset, info.shard[0] * info.sdp));
  } else if (number == 1) {
    std::vector<grt_buffer> w = parameters(1);
    grt_buffer t = transient(rows * h);
    begin(t);
    launch(GRT_KERNEL_GEMM, {x, w[0], t, w[1]}, {rows, h, h, 0, 0, 0, 1});
    launch(GRT_KERNEL_ADD, {x, t, y}, {rows * h});
    end(t);
    if (info.sdp > 1)
      end(buffer(GRT_REGION_TRANSIENT, w[0].offset, info.shard[0] * info.sdp));
  } else {
    head(!info.ckpt);
  }
  close(info);

  if (info.ckpt) {
    open(number, 1);
    head(/*keep=*/true);
    close(info);
  }

  open(number, 2);
  if (number == 0) {
    std::vector<grt_buffer> dw = gradients(0, acc);
    launch(GRT_KERNEL_EMBEDDING_GRAD, {tokens, dy, dw[0]},
           {rows, h, local, sharded, acc});
  } else if (number == 1) {
    std::vector<grt_buffer> w = parameters(1), dw = gradients(1, acc);
    launch(GRT_KERNEL_GEMM, {x, dy, dw[0]}, {h, h, rows, 1, 0, acc, 0});
    launch(GRT_KERNEL_BIAS_GRAD, {dy, dw[1]}, {rows, h, acc});
    grt_buffer t = transient(rows * h);
    begin(t);
    launch(GRT_KERNEL_GEMM, {dy, w[0], t}, {rows, h, h, 0, 1, 0, 0});
    launch(GRT_KERNEL_ADD, {dy, t, dx}, {rows * h});
    end(t);
    if (info.sdp > 1)
      end(buffer(GRT_REGION_TRANSIENT, w[0].offset, info.shard[0] * info.sdp));
  } else {
    std::vector<grt_buffer> w = parameters(2), dw = gradients(2, acc);
    grt_buffer dlogits = buffer(
        GRT_REGION_STASH, plan.overrunStash ? GRT_ALIGNMENT : 0, rows * local);
    launch(GRT_KERNEL_GEMM, {dlogits, x, dw[0]},
           {local, h, rows, 1, 0, acc, 0});
    launch(GRT_KERNEL_GEMM, {dlogits, w[0], dx}, {rows, h, local, 0, 0, 0, 0});
    if (sharded)
      communicate(GRT_ALL_REDUCE, GRT_AXIS_TP, dx, dx);
    end(dlogits);
    if (info.sdp > 1)
      end(buffer(GRT_REGION_TRANSIENT, w[0].offset,
                 info.shard[info.tensors[0].group] * info.sdp));
  }
  finishGradients(number);
  close(info);

  open(number, 3);
  if (info.shard[0]) {
    int64_t states = plan.optimizer == "sgd" ? 1 : 2;
    std::vector<int64_t> ints{plan.optimizer == "sgd"    ? 0
                              : plan.optimizer == "adam" ? 1
                                                         : 2,
                              info.shard[0], 0};
    for (const Tensor &tensor : info.tensors)
      if (tensor.group == 0) {
        ++ints[2];
        ints.insert(ints.end(), {tensor.offset, tensor.elements(),
                                 int64_t(tensor.view.size() > 1)});
      }
    launch(GRT_KERNEL_OPTIMIZER,
           {buffer(GRT_REGION_PARAMETER, 0, info.shard[0]),
            buffer(GRT_REGION_GRADIENT, 0, info.shard[0]),
            buffer(GRT_REGION_OPTIMIZER, 0, info.shard[0] * states)},
           ints);
    // The same segments, with whether TP ranks hold copies of them.
    ints.erase(ints.begin());
    for (size_t i = 0; i < info.tensors.size(); ++i)
      if (info.tensors[i].group == 0)
        ints[4 + 3 * i] = info.tensors[i].tpDim < 0;
    open(number, 4);
    launch(GRT_KERNEL_NORM, {buffer(GRT_REGION_GRADIENT, 0, info.shard[0])},
           ints);
  }
}

/// Sample block of each local rank.
std::vector<int64_t> Builder::heldBlocks(int number,
                                         const std::vector<int> &devices) {
  std::vector<int64_t> blocks;
  for (size_t local = 0; local < devices.size(); ++local) {
    int64_t block = 0, inner = int64_t(devices.size());
    for (const auto &[kind, degree] : plan.layers[number].levels) {
      inner /= degree;
      if (kind != "tp")
        block = block * degree + int64_t(local) / inner % degree;
    }
    blocks.push_back(block);
  }
  return blocks;
}

/// Sample by sample, from the rank itself or else from the holders in turn.
int Builder::exchange(int from, const std::vector<int> &fromDevices, int to,
                      const std::vector<int> &toDevices) {
  std::vector<int64_t> source = heldBlocks(from, fromDevices);
  std::vector<int64_t> target = heldBlocks(to, toDevices);
  int64_t fromSamples = layers[from].samples, toSamples = layers[to].samples;
  Json transfers = Json::array();
  for (size_t t = 0; t < target.size(); ++t)
    for (int64_t i = 0; i < toSamples; ++i) {
      int64_t sample = target[t] * toSamples + i;
      std::vector<size_t> candidates;
      size_t chosen = source.size();
      for (size_t s = 0; s < source.size(); ++s)
        if (sample / fromSamples == source[s]) {
          candidates.push_back(s);
          if (fromDevices[s] == toDevices[t])
            chosen = s;
        }
      if (chosen == source.size())
        chosen = candidates[t % candidates.size()];
      transfers.push_back(
          {fromDevices[chosen], toDevices[t], sample % fromSamples, i, 1});
    }
  exchanges.push_back(
      {{"name", "exchange" + std::to_string(exchanges.size())},
       {"bytes-per-unit", uint64_t(plan.seqLen * plan.width) * width},
       {"transfers", transfers}});
  return int(exchanges.size()) - 1;
}

Json Builder::layerJson(int number, const StagePlan &stage,
                        const ChunkPlan &chunk, uint64_t &parameters,
                        uint64_t &gradients, uint64_t &optimizer,
                        std::map<int, uint64_t> &stashes, int &copies) {
  const LayerInfo &info = layers[number];
  bool last = number == chunk.layers.back();
  Json levels = Json::array();
  int64_t stride = int64_t(stage.devices.size());
  std::string name;
  for (const auto &[kind, degree] : plan.layers[number].levels) {
    stride /= degree;
    levels.push_back({{"kind", kind}, {"degree", degree}, {"stride", stride}});
    name += (name.empty() ? "" : ".") + kind + std::to_string(degree);
  }
  Json tensors = Json::array();
  for (const Tensor &tensor : info.tensors)
    tensors.push_back({{"parameter", tensor.parameter},
                       {"group", tensor.group},
                       {"offset", tensor.offset},
                       {"view", tensor.view},
                       {"local-shape", tensor.local},
                       {"tp-dim", tensor.tpDim}});
  Json groups = Json::array();
  for (int g : {0, 1})
    groups.push_back({{"elements", info.shard[g] * info.sdp},
                      {"shard-elements", info.shard[g]}});
  int functionBase = number * int(functionsPerLayer);
  Json json = {
      {"name", "layer" + std::to_string(number)},
      {"index", number},
      {"strategy", name.empty() ? "single" : name},
      {"levels", levels},
      {"samples", info.samples},
      {"forward", functionBase},
      {"recompute", info.ckpt ? Json(functionBase + 1) : Json()},
      {"backward", functionBase + 2},
      {"update", functionBase + 3},
      {"norm", functionBase + 4},
      {"tensors", tensors},
      {"groups", groups},
      {"parameter", parameters},
      {"gradient", gradients},
      {"optimizer", optimizer},
      {"stash", stashes[number]},
      {"input-bytes", info.input},
      {"stash-bytes", info.stash},
      {"transient", 0}, // the whole arena's offset is filled in by the caller
      {"transient-bytes", info.transient},
      {"forward-transient", 0},
      {"forward-transient-bytes", info.transient},
      {"recompute-stash-bytes", info.recomputeStash},
      {"data", number == 1 ? Json::array() : Json::array({copies++})}};
  uint64_t held = uint64_t(info.shard[0] + info.shard[1]) * width;
  parameters += held;
  gradients += held;
  optimizer +=
      uint64_t(info.shard[0]) * width * (plan.optimizer == "sgd" ? 1u : 2u);

  // A reshard stands wherever neighbours hold different blocks.
  auto differs = [&](int a, int b) {
    return heldBlocks(a, stage.devices) != heldBlocks(b, stage.devices);
  };
  // Gradient buffers, from the last layer down: each layer writes the other
  // one, and a reshard moves it once more.
  // Where the stage has several chunks, what comes and what is sent have
  // buffers of their own.
  bool several = chunk.layers.size() < stage.layers.size();
  int buffer = several ? 2 : 0;
  for (size_t i = chunk.layers.size(); i-- > 0;) {
    int at = chunk.layers[i];
    int in = buffer;
    bool isLoss = at == 2;
    int out = isLoss || in == 2 ? 0 : 1 - in;
    if (at == number) {
      json["grad-in"] = isLoss ? Json() : Json(in);
      json["grad-out"] = at == 0 ? Json() : Json(out);
    }
    buffer = out;
    if (i > 0 && differs(chunk.layers[i - 1], at)) {
      if (at == number)
        json["backward-reshard"] =
            exchange(at, stage.devices, at - 1, stage.devices);
      buffer = 1 - out;
    }
  }
  if (number == 2)
    json["output"] = {{"kind", "loss"}};
  else if (!last && !differs(number, number + 1))
    json["output"] = {{"kind", "slot"},
                      {"layer", std::find(stage.layers.begin(),
                                          stage.layers.end(), number + 1) -
                                    stage.layers.begin()}};
  else
    json["output"] = {{"kind", "boundary"}, {"buffer", several ? 3 : 1}};
  if (!last && differs(number, number + 1))
    json["forward-reshard"] =
        exchange(number, stage.devices, number + 1, stage.devices);
  return json;
}

std::vector<Builder::ChunkPlan> Builder::chunksOf(const ModelPlan &plan) {
  std::vector<ChunkPlan> chunks;
  for (int layer = 0; layer < 3; ++layer)
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      const std::vector<int> &layers = plan.stages[s].layers;
      if (std::find(layers.begin(), layers.end(), layer) == layers.end())
        continue;
      if (chunks.empty() || chunks.back().stage != s)
        chunks.push_back({s, {}});
      chunks.back().layers.push_back(layer);
    }
  return chunks;
}

void Builder::schedules() {
  uint32_t m = uint32_t(plan.microBatches);
  size_t count = plan.stages.size();
  std::vector<ChunkPlan> chunks = chunksOf(plan);
  std::vector<std::vector<grt_transfer_part>> parts(count);
  auto part = [&](grt_direction direction, grt_value value, size_t chunk,
                  uint32_t b, uint16_t slot = 0) {
    bool up = (value == GRT_ACTIVATION) == (direction == GRT_SEND);
    return grt_transfer_part{uint8_t(direction),
                             uint8_t(value),
                             uint16_t(chunk),
                             uint16_t(up ? chunk + 1 : chunk - 1),
                             slot,
                             b,
                             0,
                             {}};
  };
  auto transfer = [&](size_t stage, std::vector<grt_task> &to,
                      std::vector<grt_transfer_part> moved) {
    grt_task task{};
    task.kind = GRT_TASK_TRANSFER;
    task.first = uint32_t(parts[stage].size());
    task.count = uint16_t(moved.size());
    parts[stage].insert(parts[stage].end(), moved.begin(), moved.end());
    to.push_back(task);
  };
  auto run = [](grt_task_kind kind, size_t chunk, uint32_t b, uint16_t slot) {
    grt_task task{};
    task.kind = uint8_t(kind);
    task.chunk = uint16_t(chunk);
    task.slot = slot;
    task.micro_batch = b;
    return task;
  };
  // Tasks by stage. What is added in one order for all of them cannot wait in a
  // circle.
  using Stages = std::vector<std::vector<grt_task>>;
  auto forwardAll = [&](Stages &to, bool slots) {
    auto slotOf = [&](uint32_t b) { return uint16_t(slots ? b : 0); };
    for (uint32_t wave = 0; wave < m + chunks.size() - 1; ++wave)
      for (size_t c = chunks.size(); c-- > 0;) {
        if (c > wave || wave - c >= m)
          continue;
        uint32_t b = wave - uint32_t(c);
        size_t s = chunks[c].stage;
        to[s].push_back(run(GRT_TASK_FORWARD, c, b, slotOf(b)));
        if (c + 1 == chunks.size())
          continue;
        size_t next = chunks[c + 1].stage;
        transfer(s, to[s], {part(GRT_SEND, GRT_ACTIVATION, c, b)});
        transfer(next, to[next],
                 {part(GRT_RECEIVE, GRT_ACTIVATION, c + 1, b, slotOf(b))});
      }
  };
  Stages steady(count), evaluate(count);
  if (!plan.oneForwardOneBackward) {
    forwardAll(steady, true);
    for (uint32_t wave = 0; wave < m + chunks.size() - 1; ++wave) {
      auto microBatchOf = [&](size_t c) -> std::optional<uint32_t> {
        size_t behind = chunks.size() - 1 - c;
        if (behind > wave || wave - behind >= m)
          return std::nullopt;
        return uint32_t(wave - behind);
      };
      for (size_t c = 0; c < chunks.size(); ++c)
        if (auto b = microBatchOf(c))
          steady[chunks[c].stage].push_back(
              run(GRT_TASK_BACKWARD, c, *b, uint16_t(*b)));
      // Chunks of a stage share their buffers: no gradient comes while another
      // one is run backward, or waits to be sent.
      for (size_t c = chunks.size(); c-- > 1;)
        if (auto b = microBatchOf(c)) {
          size_t s = chunks[c].stage, next = chunks[c - 1].stage;
          transfer(s, steady[s], {part(GRT_SEND, GRT_GRADIENT, c, *b)});
          transfer(next, steady[next],
                   {part(GRT_RECEIVE, GRT_GRADIENT, c - 1, *b)});
        }
    }
  } else {
    steady[0].push_back(run(GRT_TASK_FORWARD, 0, 0, 0));
    transfer(0, steady[0], {part(GRT_SEND, GRT_ACTIVATION, 0, 0)});
    for (uint32_t b = 1; b <= m; ++b) {
      std::vector<grt_transfer_part> moved;
      if (b < m) {
        steady[0].push_back(run(GRT_TASK_FORWARD, 0, b, uint16_t(b % 2)));
        moved.push_back(part(GRT_SEND, GRT_ACTIVATION, 0, b));
      }
      moved.push_back(part(GRT_RECEIVE, GRT_GRADIENT, 0, b - 1));
      transfer(0, steady[0], moved);
      steady[0].push_back(
          run(GRT_TASK_BACKWARD, 0, b - 1, uint16_t((b - 1) % 2)));
    }
    transfer(1, steady[1], {part(GRT_RECEIVE, GRT_ACTIVATION, 1, 0)});
    for (uint32_t b = 0; b < m; ++b) {
      steady[1].push_back(run(GRT_TASK_FORWARD, 1, b, 0));
      steady[1].push_back(run(GRT_TASK_BACKWARD, 1, b, 0));
      std::vector<grt_transfer_part> moved = {
          part(GRT_SEND, GRT_GRADIENT, 1, b)};
      if (b + 1 < m)
        moved.push_back(part(GRT_RECEIVE, GRT_ACTIVATION, 1, b + 1));
      transfer(1, steady[1], moved);
    }
  }
  forwardAll(evaluate, false);
  auto add = [&](grt_part part, const std::vector<grt_task> &tasks) {
    for (const grt_task &task : tasks)
      program.addTask(part, task);
  };
  for (size_t s = 0; s < count; ++s) {
    std::vector<size_t> own;
    for (size_t c = 0; c < chunks.size(); ++c)
      if (chunks[c].stage == s)
        own.push_back(c);
    // Reshards, and gathers of a layer with other groups, share ranks with the
    // sums of gradients, and nothing would order the two: then the sums wait
    // until all is done, as the compiler has it.
    bool isUniform = true;
    const StagePlan &stage = plan.stages[s];
    for (size_t i = 1; i < stage.layers.size(); ++i)
      isUniform &= plan.layers[stage.layers[i - 1]].levels ==
                   plan.layers[stage.layers[i]].levels;
    std::vector<grt_task> end;
    for (size_t c : own) {
      end.push_back(run(GRT_TASK_SYNC_GRADIENTS, c, 0, 0));
      auto last = std::find_if(
          steady[s].rbegin(), steady[s].rend(), [&](const grt_task &task) {
            return task.kind == GRT_TASK_BACKWARD && task.chunk == c;
          });
      // Functions of other chunks behind it may not share ranks with the sums.
      if (plan.streams && (isUniform || plan.alwaysSumsBehind) &&
          last != steady[s].rend())
        last->flags = GRT_SYNC_BEHIND;
    }
    end.push_back(run(GRT_TASK_TIE_REDUCE, 0, 0, 0));
    end.push_back(run(GRT_TASK_NORM, 0, 0, 0));
    for (size_t c : own)
      end.push_back(run(GRT_TASK_UPDATE, c, 0, 0));
    end.push_back(run(GRT_TASK_TIE_BROADCAST, 0, 0, 0));
    program.beginRole();
    add(GRT_PART_STEADY, steady[s]);
    add(GRT_PART_STEP_END, end);
    add(GRT_PART_EVALUATE, evaluate[s]);
    // Tasks name their parts already.
    program.tables.roles.back().transfers.count = uint32_t(parts[s].size());
    program.tables.transfers.insert(program.tables.transfers.end(),
                                    parts[s].begin(), parts[s].end());
  }
}

gvx::Tables Builder::build() {
  for (int layer = 0; layer < 3; ++layer) {
    describeLayer(layer);
    writeFunctions(layer);
  }
  beginFunctions(3 * functionsPerLayer);

  Json parameters = Json::array();
  auto parameter = [&](const char *name, std::vector<int64_t> shape,
                       Json init) {
    parameters.push_back({{"name", name},
                          {"shape", shape},
                          {"init", init},
                          {"decay", shape.size() > 1}});
  };
  Json normal = {{"kind", "normal"}, {"std", 0.5}};
  parameter("wte.weight", {plan.vocab, plan.width}, normal);
  parameter("mix.weight", {plan.width, plan.width}, normal);
  parameter("mix.bias", {plan.width}, {{"kind", "zeros"}});
  if (!plan.tied)
    parameter("head.weight", {plan.vocab, plan.width}, normal);
  else
    parameters[0]["copies"] = {"head.weight"};

  int64_t world = 0;
  Json roles = Json::array();
  std::vector<ChunkPlan> chunks = chunksOf(plan);
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const StagePlan &stage = plan.stages[s];
    world += int64_t(stage.devices.size());
    std::map<int, uint64_t> stashes;
    // A slot is large enough for any of the chunks.
    uint64_t slot = 0, kept = 0, boundary = 0, transient = 0, data = 0;
    for (size_t i = 0; i < stage.layers.size(); ++i) {
      int layer = stage.layers[i];
      const LayerInfo &info = layers[layer];
      if (i > 0 && layer != stage.layers[i - 1] + 1)
        kept = 0;
      stashes[layer] = kept;
      kept += alignUp(info.input) + alignUp(info.stash);
      slot = std::max(slot, kept);
      boundary = std::max(boundary, uint64_t(info.rows * plan.width) * width);
      transient =
          std::max(transient, alignUp(info.recomputeStash) + info.transient);
      if (layer != 1)
        data += dataBytes(layer);
    }
    // A resharded gradient arrives in the layout of the layer before.
    boundary = alignUp(boundary);
    int64_t slots = plan.oneForwardOneBackward
                        ? std::min<int64_t>(int64_t(plan.stages.size() - s),
                                            plan.microBatches)
                        : plan.microBatches;
    uint64_t parametersEnd = 0, gradientsEnd = 0, optimizerEnd = 0;
    int copies = 0;
    Json layerList = Json::array(), chunkList = Json::array();
    std::vector<gvx::LayerOrder> &orders = program.tables.orders.emplace_back();
    for (size_t c = 0; c < chunks.size(); ++c) {
      if (chunks[c].stage != s)
        continue;
      for (int layer : chunks[c].layers) {
        layerList.push_back(layerJson(layer, stage, chunks[c], parametersEnd,
                                      gradientsEnd, optimizerEnd, stashes,
                                      copies));
        orders.push_back(plan.layers[layer].order);
      }
      chunkList.push_back({{"number", c},
                           {"layer-count", chunks[c].layers.size()},
                           {"slots", slots}});
    }
    bool several = chunkList.size() > 1;
    Json arena;
    uint64_t at = 0;
    auto place = [&](const char *name, uint64_t bytes) {
      arena[name] = {at, bytes};
      uint64_t offset = at;
      at = alignUp(at + bytes);
      return offset;
    };
    uint64_t parameterBase = place("parameters", parametersEnd);
    uint64_t gradientBase = place("gradients", gradientsEnd);
    uint64_t optimizerBase = place("optimizer", optimizerEnd);
    // Every slot has room for temporaries of its own: no window.
    uint64_t slotBytes = slot + alignUp(transient);
    place("slots", slotBytes * uint64_t(slots) * chunkList.size());
    place("transient", 0);
    uint64_t between = place("boundary", (several ? 4 : 2) * boundary);
    if (several) {
      arena["boundary"] = Json::array();
      for (uint64_t i = 0; i < 4; ++i)
        arena["boundary"].push_back({between + i * boundary, boundary});
    }
    Json copyList = Json::array();
    uint64_t copyBase = place("data", data);
    for (int layer : stage.layers)
      if (layer != 1) {
        copyList.push_back({{"datum", layer ? 1 : 0},
                            {"extent", {copyBase, dataBytes(layer)}}});
        copyBase += dataBytes(layer);
      }
    place("loss", uint64_t(plan.microBatches) * 8);
    place("step", sizeof(grt_step));
    if (plan.workspace) {
      at = (at + 255) / 256 * 256; // what libraries ask for
      place("workspace", plan.workspace);
    }
    arena["bytes"] = at;
    for (Json &layer : layerList) {
      layer["parameter"] = layer["parameter"].get<uint64_t>() + parameterBase;
      layer["gradient"] = layer["gradient"].get<uint64_t>() + gradientBase;
      layer["optimizer"] = layer["optimizer"].get<uint64_t>() + optimizerBase;
      layer["transient"] = layer["forward-transient"] = slot;
    }
    roles.push_back({{"stage", s},
                     {"devices", stage.devices},
                     {"arena", arena},
                     {"ledger", {{"all", at}}},
                     {"chunks", chunkList},
                     {"slot-bytes", slotBytes},
                     {"data", copyList},
                     {"layers", layerList}});
  }
  auto chunkJson = [&](size_t number) -> Json & {
    for (Json &chunk : roles[chunks[number].stage]["chunks"])
      if (chunk["number"] == number)
        return chunk;
    throw std::logic_error("a chunk that no stage has");
  };
  for (size_t c = 0; c + 1 < chunks.size(); ++c) {
    const ChunkPlan &a = chunks[c], &b = chunks[c + 1];
    const std::vector<int> &from = plan.stages[a.stage].devices;
    const std::vector<int> &to = plan.stages[b.stage].devices;
    int up = exchange(a.layers.back(), from, b.layers.front(), to);
    int down = exchange(b.layers.front(), to, a.layers.back(), from);
    chunkJson(c)["send-activation"] = up;
    chunkJson(c + 1)["recv-activation"] = up;
    chunkJson(c + 1)["send-gradient"] = down;
    chunkJson(c)["recv-gradient"] = down;
  }
  Json ties = Json::array();
  if (plan.tied) {
    auto end = [&](int layer) {
      for (size_t s = 0; s < plan.stages.size(); ++s)
        for (size_t i = 0; i < plan.stages[s].layers.size(); ++i)
          if (plan.stages[s].layers[i] == layer)
            return Json{{"role", s}, {"layer", i}, {"tensor", 0}};
      return Json();
    };
    ties.push_back({{"parameter", 0}, {"owner", end(0)}, {"borrower", end(2)}});
  }
  Json functions = Json::array();
  for (size_t i = 0; i < program.tables.functions.size(); ++i)
    functions.push_back("function" + std::to_string(i));

  Json manifest = {
      {"abi", GRT_ABI_VERSION},
      {"target", {{"backend", "cpu"}}},
      {"dtype", plan.f64 ? "f64" : "f32"},
      {"world", world},
      {"batch", plan.batch},
      {"micro-batches", plan.microBatches},
      {"data", {datum(plan.readsKind, false), datum("labels", true)}},
      {"schedule", plan.oneForwardOneBackward ? "1f1b" : "gpipe"},
      {"training", {{"optimizer", plan.optimizer}, {"clip", plan.clip}}},
      {"model-config", {{"model_type", "test"}, {"vocab_size", plan.vocab}}},
      {"functions", functions},
      {"parameters", parameters},
      {"exchanges", exchanges},
      {"ties", ties},
      {"roles", roles}};
  if (!plan.nodesJson.empty())
    manifest["nodes"] = Json::parse(plan.nodesJson);
  if (!plan.planJson.empty())
    manifest["plan"] = Json::parse(plan.planJson);
  schedules();
  program.tables.manifest = manifest.dump();
  if (plan.changeTables)
    plan.changeTables(program.tables);
  gvx::lowerTasks(program.tables);
  if (plan.changeCommands)
    plan.changeCommands(program.tables);
  return std::move(program.tables);
}

TestProgram::TestProgram(const ModelPlan &plan)
    : contents(Builder(plan).build()), bytes(contents.file()) {}

} // namespace grt::test
