//===- bigram.cpp - Writes a program as the compiler would, by hand -------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A bigram model over bytes: a table of 256 x 256 logits and cross entropy, on
// 1 or 2 data-parallel ranks. Batch 4 in 2 micro-batches, 8 tokens a sample.
//
//   grt-bigram RANKS BACKEND TOOL-VERSION FILE [unclipped]
//
// Programs that differ in nothing but the version have different hashes.
//
//===----------------------------------------------------------------------===//

#include "grt/program_file.h"

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>
#include <iostream>

using namespace grt;
using Json = nlohmann::ordered_json;

namespace {

constexpr uint64_t tableElements = 65536, tableBytes = 4 * tableElements;

/// Sizes that follow from the number of ranks, and the arena: parameters,
/// gradients, m and v, two slots of input and kept values, statistics (which
/// follow the slot), two boundary buffers, data, losses, step.
struct Sizes {
  explicit Sizes(int ranks)
      : ranks(ranks), samples(ranks == 1 ? 2 : 1), rows(8 * uint64_t(samples)),
        logitBytes(rows * 1024), copyBytes(8 * rows),
        slotBytes(2 * logitBytes) {}

  int ranks, samples;
  uint64_t rows, logitBytes, copyBytes, slotBytes;
  uint64_t transient() const { return 4 * tableBytes + slotBytes; }
  uint64_t boundary() const { return transient() + 256; }
  uint64_t data() const { return boundary() + logitBytes; }
  uint64_t labels() const { return data() + copyBytes; }
  uint64_t loss() const { return labels() + copyBytes; }
  uint64_t step() const { return loss() + 64; }
  uint64_t bytes() const { return step() + 128; }
};

Json datum(const char *name, bool counted) {
  return {{"name", name},      {"kind", name},           {"type", "i32"},
          {"shape", {8}},      {"bytes-per-sample", 32}, {"below", 256},
          {"counted", counted}};
}

Json layerJson(const Sizes &sizes, bool isEmbed) {
  Json levels = Json::array();
  if (sizes.ranks == 2)
    levels.push_back({{"kind", "dp"}, {"degree", 2}, {"stride", 1}});
  Json layer = {{"name", isEmbed ? "embed" : "loss"},
                {"index", isEmbed ? 0 : 1},
                {"strategy", "by hand"},
                {"levels", levels},
                {"samples", sizes.samples},
                {"forward", isEmbed ? 0 : 3},
                {"recompute", nullptr},
                {"backward", isEmbed ? 1 : 4},
                {"update", isEmbed ? Json(2) : Json()},
                {"tensors", Json::array()},
                {"groups", Json::array()},
                {"parameter", 0},
                {"gradient", isEmbed ? tableBytes : 0},
                {"optimizer", isEmbed ? 2 * tableBytes : 0},
                {"stash", 0},
                {"input-bytes", isEmbed ? 0 : sizes.logitBytes},
                {"stash-bytes", isEmbed ? 0 : sizes.logitBytes},
                {"transient", sizes.slotBytes},
                {"transient-bytes", isEmbed ? 0 : 256},
                {"forward-transient", sizes.slotBytes},
                {"forward-transient-bytes", isEmbed ? 0 : 256},
                {"recompute-stash-bytes", 0},
                {"data", {isEmbed ? 0 : 1}},
                {"grad-in", isEmbed ? Json(0) : Json()},
                {"grad-out", isEmbed ? Json() : Json(0)}};
  if (!isEmbed) {
    layer["output"] = {{"kind", "loss"}};
    return layer;
  }
  layer["norm"] = 5;
  layer["tensors"] = {{{"parameter", 0},
                       {"group", 0},
                       {"offset", 0},
                       {"view", {256, 256}},
                       {"local-shape", {256, 256}},
                       {"tp-dim", -1}}};
  layer["groups"] = {
      {{"elements", tableElements}, {"shard-elements", tableElements}}};
  layer["output"] = {{"kind", "slot"}, {"layer", 1}};
  return layer;
}

Json roleJson(const Sizes &sizes) {
  const Json place = {sizes.boundary(), sizes.logitBytes};
  return {{"stage", 0},
          {"devices", sizes.ranks == 1 ? Json{0} : Json{0, 1}},
          {"arena",
           {{"bytes", sizes.bytes()},
            {"parameters", {0, tableBytes}},
            {"gradients", {tableBytes, tableBytes}},
            {"optimizer", {2 * tableBytes, 2 * tableBytes}},
            {"slots", {4 * tableBytes, sizes.slotBytes}},
            {"transient", {sizes.transient(), 256}},
            {"boundary", Json::array({place, place})},
            {"data", {sizes.data(), 2 * sizes.copyBytes}},
            {"loss", {sizes.loss(), 16}},
            {"step", {sizes.step(), 128}}}},
          {"chunks", {{{"number", 0}, {"layer-count", 2}, {"slots", 1}}}},
          {"slot-bytes", sizes.slotBytes},
          {"data",
           {{{"datum", 0}, {"extent", {sizes.data(), sizes.copyBytes}}},
            {{"datum", 1}, {"extent", {sizes.labels(), sizes.copyBytes}}}}},
          {"layers",
           Json::array({layerJson(sizes, true), layerJson(sizes, false)})}};
}

Json manifestOf(const Sizes &sizes, const std::string &backend,
                const std::string &version, bool clips) {
  return {
      {"abi", GRT_ABI_VERSION},
      {"tool-version", version},
      {"target", {{"backend", backend}}},
      {"dtype", "f32"},
      {"world", sizes.ranks},
      {"batch", 4},
      {"micro-batches", 2},
      {"data", Json::array({datum("tokens", false), datum("labels", true)})},
      {"schedule", "gpipe"},
      {"training", {{"optimizer", "adamw"}, {"clip", clips}}},
      {"model-config", {{"model_type", "bigram"}, {"vocab_size", 256}}},
      {"predicted-step-ms", 1.5},
      {"flops-per-sample", 8000},
      {"peak-flops", 1e9},
      {"functions",
       {"embed.forward", "embed.backward", "embed.update", "loss.forward",
        "loss.backward", "embed.norm"}},
      {"parameters",
       {{{"name", "table.weight"},
         {"shape", {256, 256}},
         {"init", {{"kind", "normal"}, {"std", 0.02}}},
         {"decay", true}}}},
      {"exchanges", Json::array()},
      {"ties", Json::array()},
      {"roles", Json::array({roleJson(sizes)})}};
}

void addFunctions(gvx::ProgramBuilder &program, const Sizes &sizes) {
  auto f32 = [](grt_region region, uint64_t bytes) {
    return grt_buffer{uint32_t(region), GRT_F32, 0, bytes};
  };
  const grt_buffer ids{GRT_REGION_DATA, GRT_I32, 0, sizes.rows * 4},
      lossSum{GRT_REGION_LOSS, GRT_F64, 0, 8};
  const grt_buffer table = f32(GRT_REGION_PARAMETER, tableBytes),
                   gradient = f32(GRT_REGION_GRADIENT, tableBytes),
                   states = f32(GRT_REGION_OPTIMIZER, 2 * tableBytes),
                   output = f32(GRT_REGION_OUTPUT, sizes.logitBytes),
                   input = f32(GRT_REGION_INPUT, sizes.logitBytes),
                   above = f32(GRT_REGION_GRAD_IN, sizes.logitBytes),
                   below = f32(GRT_REGION_GRAD_OUT, sizes.logitBytes),
                   stats = f32(GRT_REGION_TRANSIENT, sizes.rows * 12),
                   kept = f32(GRT_REGION_STASH, sizes.logitBytes);
  auto launch = [&](grt_kernel kernel, const std::vector<grt_buffer> &buffers,
                    const std::vector<int64_t> &integers, const char *name) {
    program.launch(kernel, buffers, integers, {}, name);
  };
  const int64_t rows = int64_t(sizes.rows), elements = tableElements;
  program.beginFunction();
  launch(GRT_KERNEL_EMBEDDING, {ids, table, output}, {rows, 256, 256, 0},
         "table");
  program.beginFunction();
  launch(GRT_KERNEL_EMBEDDING_GRAD, {ids, above, gradient},
         {rows, 256, 256, 0, 2}, "table");
  program.beginFunction();
  launch(GRT_KERNEL_OPTIMIZER, {table, gradient, states},
         {GRT_OPTIMIZER_ADAMW, elements, 1, 0, elements, 1}, "update");
  program.beginFunction();
  program.beginLife(stats);
  launch(GRT_KERNEL_SOFTMAX_STATS, {input, ids, stats}, {rows, 256, 256, 0},
         "loss");
  program.beginLife(kept);
  launch(GRT_KERNEL_CROSS_ENTROPY, {input, ids, stats, kept, lossSum},
         {rows, 256, 256, 0, 1}, "loss");
  program.endLife(stats);
  program.beginFunction();
  const int64_t bytes = int64_t(sizes.logitBytes);
  launch(GRT_KERNEL_COPY, {kept, below}, {1, bytes, bytes, bytes}, "gradient");
  program.endLife(kept);
  program.beginFunction();
  launch(GRT_KERNEL_NORM, {gradient}, {elements, 1, 0, elements, 1}, "norm");
}

void addTasks(gvx::ProgramBuilder &program) {
  auto add = [&](grt_part part, grt_task_kind kind, uint32_t microBatch = 0) {
    grt_task task{};
    task.kind = uint8_t(kind);
    task.micro_batch = microBatch;
    program.addTask(part, task);
  };
  program.beginRole();
  for (uint32_t microBatch : {0, 1}) {
    add(GRT_PART_STEADY, GRT_TASK_FORWARD, microBatch);
    add(GRT_PART_STEADY, GRT_TASK_BACKWARD, microBatch);
  }
  for (grt_task_kind kind :
       {GRT_TASK_SYNC_GRADIENTS, GRT_TASK_NORM, GRT_TASK_UPDATE})
    add(GRT_PART_STEP_END, kind);
  for (uint32_t microBatch : {0, 1})
    add(GRT_PART_EVALUATE, GRT_TASK_FORWARD, microBatch);
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 5 && argc != 6)
    return 2;
  const Sizes sizes(std::atoi(argv[1]));
  gvx::ProgramBuilder program;
  addFunctions(program, sizes);
  addTasks(program);
  std::string problem;
  const std::string file = program.finish(
      manifestOf(sizes, argv[2], argv[3], /*clips=*/argc == 5).dump(), problem);
  std::cerr << problem;
  std::ofstream out(argv[4], std::ios::binary);
  out << file;
  return problem.empty() && out.flush() ? 0 : 1;
}
