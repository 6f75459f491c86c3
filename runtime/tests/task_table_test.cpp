//===- task_table_test.cpp - Tables of tasks that must be refused ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows of schedules and of transfers, each refusal next to the nearest row that
// is accepted. Programs are made by hand and never run.
//
//===----------------------------------------------------------------------===//

#include "changed_manifests.h"
#include "grt/session.h"

#include <gtest/gtest.h>

#include <functional>

using namespace grt;
using namespace grt::test;

namespace {

/// A program of which everything can be changed.
struct Tables {
  struct RoleTables {
    std::vector<grt_task> parts[GRT_PART_COUNT];
    std::vector<grt_transfer_part> transfers;
  };
  Json manifest;
  std::vector<RoleTables> roles;

  explicit Tables(Json m) : manifest(std::move(m)) {
    roles.resize(manifest["roles"].size());
  }
  std::vector<grt_task> &steady(size_t role = 0) {
    return roles[role].parts[GRT_PART_STEADY];
  }
  std::vector<grt_task> &stepEnd(size_t role = 0) {
    return roles[role].parts[GRT_PART_STEP_END];
  }

  /// The message with which it is refused, "" if it is accepted.
  std::string refusal() const {
    gvx::ProgramBuilder made;
    for (size_t i = 0; i < manifest["functions"].size(); ++i)
      made.beginFunction();
    for (const RoleTables &role : roles) {
      made.beginRole();
      for (int part = 0; part < GRT_PART_COUNT; ++part)
        for (const grt_task &task : role.parts[part])
          made.addTask(grt_part(part), task);
      // Tasks name their parts already.
      made.tables.roles.back().transfers.count =
          uint32_t(role.transfers.size());
      made.tables.transfers.insert(made.tables.transfers.end(),
                                   role.transfers.begin(),
                                   role.transfers.end());
    }
    std::string problem;
    std::shared_ptr<const Program> program;
    Status status = Program::loadMemory(made.finish(manifest.dump(), problem),
                                        "p", program);
    EXPECT_EQ(problem, "");
    EXPECT_EQ(status.exitCode(), status ? 0 : 2);
    return status.message();
  }
};

struct TableRow {
  std::string message; ///< behind "program 'p': "; "": accepted
  std::function<void(Tables &)> change;
};

void expectTables(const Json &manifest, const std::string &place,
                  const std::vector<TableRow> &rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    Tables tables(manifest);
    rows[i].change(tables);
    EXPECT_EQ(tables.refusal(), rows[i].message.empty()
                                    ? ""
                                    : "program 'p': " + place + rows[i].message)
        << "row " << i;
  }
}

grt_task taskOf(grt_task_kind kind, uint16_t chunk = 0, uint32_t microBatch = 0,
                uint16_t slot = 0) {
  grt_task task{};
  task.kind = uint8_t(kind);
  task.chunk = chunk;
  task.micro_batch = microBatch;
  task.slot = slot;
  return task;
}

grt_task swapOf(unsigned classes, unsigned tiers, uint16_t chunk = 0,
                uint32_t microBatch = 0, uint16_t slot = 0) {
  grt_task task = taskOf(GRT_TASK_SWAP, chunk, microBatch, slot);
  task.classes = uint8_t(classes);
  task.tiers = uint8_t(tiers);
  return task;
}

grt_task transferOf(uint32_t first, uint16_t count) {
  grt_task task = taskOf(GRT_TASK_TRANSFER);
  task.first = first;
  task.count = count;
  return task;
}

grt_transfer_part partOf(unsigned direction, unsigned value, uint16_t chunk,
                         uint16_t peer, uint32_t microBatch = 0,
                         uint16_t slot = 0) {
  return {
      uint8_t(direction), uint8_t(value), chunk, peer, slot, microBatch, 0, {}};
}

/// Makes one task the only one of the first role's steady part.
std::function<void(Tables &)> oneTask(const grt_task &task) {
  return [task](Tables &t) { t.steady() = {task}; };
}

TEST(TaskTable, Swaps) {
  auto classes = [](unsigned classes, unsigned tiers) {
    return TableRow{"a swap of classes " + std::to_string(classes) +
                        ", tiers " + std::to_string(tiers) +
                        ", expected 1 to 4, 8 in or 9 out, and 1 or 2, and "
                        "states that have their home on the host",
                    oneTask(swapOf(classes, tiers))};
  };
  const std::string place = "schedule of role 0, steady, task 0: ";
  expectTables(atHome(2), place,
               {classes(0, 1),
                classes(5, 1),
                classes(8, 2),
                classes(9, 1),
                classes(4, 0),
                classes(4, 3),
                {"", oneTask(swapOf(1, 1))},
                {"", oneTask(swapOf(3, 2))},
                {"", oneTask(swapOf(4, 2))},
                {"optimizer state of chunk 0, which is updated at home",
                 oneTask(swapOf(8, 1))},
                {"optimizer state of chunk 0, which is updated at home",
                 oneTask(swapOf(9, 2))},
                {"chunk 1 is not the role's", oneTask(swapOf(1, 1, 1))},
                {"unknown kind 11", oneTask(taskOf(grt_task_kind(11)))},
                {"", oneTask(swapOf(4, 1, 0, 1, 1))},
                {"slot 2 is not one at home", oneTask(swapOf(4, 1, 0, 1, 2))},
                {"micro-batch out of range, expected less than 2",
                 oneTask(swapOf(4, 1, 0, 2, 1))}});
  expectTables(oneChunk(), place, {classes(1, 1)});
  // Fewer at home than the chunk has, none, and none as none of a role's are.
  expectTables(atHome(1), place,
               {{"", oneTask(swapOf(4, 1, 0, 1, 0))},
                {"slot 1 is not one at home", oneTask(swapOf(4, 1, 0, 1, 1))}});
  expectTables(atHome(3), place,
               {{"slot 2 is not one at home", oneTask(swapOf(4, 1, 0, 1, 2))}});
  Json none = atHome(1);
  none["roles"][0]["home"].erase("slots");
  expectTables(none, place,
               {{"slot 0 is not one at home", oneTask(swapOf(4, 1))}});
  Json &role = none["roles"][0];
  const uint64_t end = alignUp(role["arena"]["bytes"].get<uint64_t>());
  role["arena"]["away-slot"] = {end, 64};
  role["arena"]["bytes"] = role["ledger"]["all"] = end + 64;
  expectTables(none, place, {{"", oneTask(swapOf(4, 1))}});
}

TEST(TaskTable, StreamsAndEvents) {
  auto with = [](grt_task task, auto change) {
    change(task);
    return oneTask(task);
  };
  auto unknown = [](const std::string &name, int found) {
    return "expected " + name + " 0, found " + std::to_string(found) +
           "; this runtime does not know its meaning";
  };
  const std::string place = "schedule of role 0, steady, task 0: ";
  expectTables(
      atHome(2), place,
      {{"", with(swapOf(1, 1), [](grt_task &t) { t.stream = GRT_STREAM_IN; })},
       {"", with(swapOf(1, 2), [](grt_task &t) { t.stream = GRT_STREAM_OUT; })},
       {unknown("stream", GRT_STREAM_OUT),
        with(swapOf(1, 1), [](grt_task &t) { t.stream = GRT_STREAM_OUT; })},
       {unknown("stream", GRT_STREAM_IN),
        with(swapOf(1, 2), [](grt_task &t) { t.stream = GRT_STREAM_IN; })},
       {unknown("stream", GRT_STREAM_IN),
        with(taskOf(GRT_TASK_FORWARD),
             [](grt_task &t) { t.stream = GRT_STREAM_IN; })},
       {"", with(swapOf(1, 1), [](grt_task &t) { t.records = 32; })},
       {unknown("recorded event", 33),
        with(swapOf(1, 1), [](grt_task &t) { t.records = 33; })},
       {unknown("event to wait for", 33),
        with(swapOf(1, 1), [](grt_task &t) { t.waits[1] = 33; })},
       {"waits for event 32, which no task before it records",
        with(swapOf(1, 1), [](grt_task &t) { t.records = t.waits[2] = 32; })},
       {unknown("recorded event", 1), with(taskOf(GRT_TASK_SYNC_GRADIENTS),
                                           [](grt_task &t) { t.records = 1; })},
       {unknown("generation", 1),
        with(taskOf(GRT_TASK_FORWARD), [](grt_task &t) { t.generation = 1; })},
       {"", [](Tables &t) {
          t.steady() = {swapOf(1, 1), taskOf(GRT_TASK_FORWARD)};
          t.steady()[0].records = 32;
          t.steady()[1].waits[2] = 32;
        }}});
  // Events are those of one part.
  expectTables(
      atHome(2), "schedule of role 0, step end, task 0: ",
      {{"waits for event 1, which no task before it records", [](Tables &t) {
          t.steady() = {swapOf(1, 1)};
          t.steady()[0].records = 1;
          t.stepEnd() = {swapOf(1, 1)};
          t.stepEnd()[0].waits[0] = 1;
        }}});
}

TEST(TaskTable, EndsOfSteps) {
  const std::string early = "it ends a step, and only updates at home without "
                            "clipping come before",
                    place = "schedule of role 0, steady, task 0: ";
  auto each = [&](std::initializer_list<grt_task_kind> kinds,
                  const std::string &message) {
    std::vector<TableRow> rows;
    for (grt_task_kind kind : kinds)
      rows.push_back({message, oneTask(taskOf(kind))});
    return rows;
  };
  expectTables(oneChunk(), place,
               each({GRT_TASK_SYNC_GRADIENTS, GRT_TASK_TIE_REDUCE,
                     GRT_TASK_NORM, GRT_TASK_UPDATE, GRT_TASK_TIE_BROADCAST},
                    early));
  Json unclipped = oneChunk();
  unclipped["training"]["clip"] = false;
  expectTables(unclipped, place, each({GRT_TASK_UPDATE}, early));
  Json home = atHome(2);
  expectTables(home, place,
               each({GRT_TASK_SYNC_GRADIENTS, GRT_TASK_UPDATE}, ""));
  expectTables(
      home, place,
      each({GRT_TASK_TIE_REDUCE, GRT_TASK_NORM, GRT_TASK_TIE_BROADCAST},
           early));
  home["training"]["clip"] = true;
  expectTables(home, place,
               each({GRT_TASK_SYNC_GRADIENTS, GRT_TASK_UPDATE}, early));
  for (grt_task_kind kind : {GRT_TASK_SYNC_GRADIENTS, GRT_TASK_UPDATE})
    expectTables(oneChunk(), "schedule of role 0, step end, task 0: ",
                 {{"", [=](Tables &t) { t.stepEnd() = {taskOf(kind)}; }},
                  {"chunk 1 is not the role's",
                   [=](Tables &t) { t.stepEnd() = {taskOf(kind, 1)}; }}});
  expectTables(atHome(2), "schedule of role 0, evaluate, task 0: ",
               {{early, [](Tables &t) {
                   t.roles[0].parts[GRT_PART_EVALUATE] = {
                       taskOf(GRT_TASK_UPDATE)};
                 }}});
}

/// Gradients are summed over ranks behind the last backward pass of a chunk.
TEST(TaskTable, SumsBehindPasses) {
  auto passes = [](std::initializer_list<grt_task_kind> kinds, size_t flagged) {
    return [=](Tables &t) {
      t.steady().clear();
      for (grt_task_kind kind : kinds)
        t.steady().push_back(taskOf(kind));
      t.steady()[flagged].flags = GRT_SYNC_BEHIND;
    };
  };
  const auto one = {GRT_TASK_FORWARD, GRT_TASK_BACKWARD, GRT_TASK_FORWARD,
                    GRT_TASK_BACKWARD};
  const auto split = {GRT_TASK_FORWARD, GRT_TASK_BACKWARD_INPUT,
                      GRT_TASK_BACKWARD_WEIGHT};
  expectTables(oneChunk(), "schedule of role 0, steady, task ",
               {{"", passes(one, 3)},
                {"1: expected sums of gradients of chunk 0 behind task 3, its "
                 "last backward pass",
                 passes(one, 1)},
                {"", passes(split, 2)}});
  expectTables(atHome(2), "schedule of role 0, steady, task ",
               {{"3: expected flags 0, as gradients are summed at home",
                 passes(one, 3)}});
}

TEST(TaskTable, LateGradients) {
  const std::string place = "schedule of role 0, steady, task 0: ";
  auto ahead = [](unsigned batches) {
    grt_task task = taskOf(GRT_TASK_FORWARD);
    task.generation = uint8_t(batches);
    return oneTask(task);
  };
  auto inPart = [](grt_part part, grt_task_kind kind) {
    return [=](Tables &t) { t.roles[0].parts[part] = {taskOf(kind)}; };
  };
  expectTables(lateChunk(), place,
               {{"", ahead(1)},
                {"expected generation 0, found 2; this runtime does not know "
                 "its meaning",
                 ahead(2)},
                {"", oneTask(taskOf(GRT_TASK_TIE_BROADCAST))},
                {"", inPart(GRT_PART_PROLOGUE, GRT_TASK_FORWARD)},
                {"", inPart(GRT_PART_DRAIN, GRT_TASK_BACKWARD)},
                {"", inPart(GRT_PART_STEP_END, GRT_TASK_NORM)}});
  Json unclipped = lateChunk();
  unclipped["training"]["clip"] = false;
  expectTables(unclipped, "schedule of role 0, step end, task 0: ",
               {{"a norm, where updates do not wait for all ranks",
                 inPart(GRT_PART_STEP_END, GRT_TASK_NORM)}});
  const std::string none = ": expected no tasks, found 1, as gradients are not "
                           "late";
  expectTables(
      oneChunk(), "schedule of role 0, ",
      {{"prologue" + none, inPart(GRT_PART_PROLOGUE, GRT_TASK_FORWARD)},
       {"drain" + none, inPart(GRT_PART_DRAIN, GRT_TASK_BACKWARD)}});
}

/// Four packs of three layers on two ranks. Pack 0 runs two layers forward;
/// packs 1 and 2 run them again and backward, the latter from a stash at home;
/// pack 3 is the head. A micro-batch of anything takes 128 bytes.
Json packed() {
  auto layer = [](int index, int inputBytes, const Json &data,
                  const Json &output, const Json &gradIn,
                  const Json &gradOut) -> Json {
    return {{"name", "layer" + std::to_string(index)},
            {"index", index},
            {"strategy", "single"},
            {"levels", Json::array()},
            {"samples", 2},
            {"forward", 0},
            {"backward", 0},
            {"tensors", Json::array()},
            {"groups", Json::array()},
            {"parameter", 0},
            {"gradient", 0},
            {"optimizer", 0},
            {"resident-parameter", 0},
            {"resident-gradient", 0},
            {"stash", 0},
            {"input-bytes", inputBytes},
            {"stash-bytes", 0},
            {"transient", 0},
            {"transient-bytes", 0},
            {"forward-transient", 0},
            {"forward-transient-bytes", 0},
            {"recompute-stash-bytes", 0},
            {"data", data},
            {"output", output},
            {"grad-in", gradIn},
            {"grad-out", gradOut}};
  };
  auto boundary = [](int buffer) -> Json {
    return {{"kind", "boundary"}, {"buffer", buffer}};
  };
  Json behind = layer(1, 128, Json::array(), boundary(7), 4, 5);
  behind["tensors"] = {{{"parameter", 0},
                        {"group", 0},
                        {"offset", 0},
                        {"local-shape", {16}},
                        {"tp-dim", -1}}};
  behind["groups"] = {{{"elements", 16}, {"shard-elements", 16}}};
  behind["update"] = behind["norm"] = 0;
  behind["gradient"] = 64;
  behind["optimizer"] = 128;
  behind["resident-parameter"] = 768;
  behind["resident-gradient"] = 832;
  Json buffers = Json::array(), roles = Json::array();
  for (int i = 0; i < 8; ++i)
    buffers.push_back({256 + i % 4 * 128, 128});
  for (int stage : {0, 1})
    roles.push_back({{"stage", stage},
                     {"devices", {stage}},
                     {"arena",
                      {{"bytes", 2048},
                       {"parameters", {0, 1280}},
                       {"gradients", {0, 1280}},
                       {"slots", {0, 256}},
                       {"transient", {256, 0}},
                       {"boundary", buffers},
                       {"packs", {0, 1280}},
                       {"data", {1280, 256}},
                       {"loss", {1536, 64}},
                       {"step", {1600, 448}}}},
                     {"home",
                      {{"bytes", 2048},
                       {"parameters", {0, 64}},
                       {"gradients", {64, 64}},
                       {"optimizer", {128, 128}},
                       {"slots", {256, 256}},
                       {"slot-bytes", 128}}},
                     {"waiting-places", 2},
                     {"slot-bytes", 256}});
  roles[0]["data"] = {{{"datum", 0}, {"extent", {1280, 64}}}};
  roles[0]["chunks"] = {{{"number", 0},
                         {"layer-count", 2},
                         {"slots", 0},
                         {"send-activation", 0},
                         {"forward-only", true},
                         {"waiting-bytes", 0}},
                        {{"number", 2},
                         {"layer-count", 1},
                         {"slots", 3},
                         {"recv-gradient", 2},
                         {"send-gradient", 3},
                         {"stash-from", 0},
                         {"recv-stash", 1},
                         {"waiting-bytes", 128}}};
  roles[0]["layers"] = {
      layer(0, 0, {0}, {{"kind", "slot"}, {"layer", 1}}, nullptr, nullptr),
      layer(1, 128, Json::array(), boundary(3), nullptr, nullptr), behind};
  roles[1]["data"] = {{{"datum", 0}, {"extent", {1280, 64}}},
                      {{"datum", 1}, {"extent", {1344, 64}}}};
  roles[1]["chunks"] = {{{"number", 1},
                         {"layer-count", 1},
                         {"slots", 0},
                         {"recv-gradient", 3},
                         {"waiting-bytes", 128}},
                        {{"number", 3},
                         {"layer-count", 1},
                         {"slots", 0},
                         {"recv-activation", 0},
                         {"send-gradient", 2},
                         {"waiting-bytes", 128}}};
  roles[1]["layers"] = {layer(0, 0, {0}, boundary(3), 0, nullptr),
                        layer(2, 128, {1}, {{"kind", "loss"}}, nullptr, 4)};
  auto datum = [](const char *name, bool counted) -> Json {
    return {{"name", name},      {"kind", name},           {"type", "i32"},
            {"shape", {4}},      {"bytes-per-sample", 16}, {"below", 11},
            {"counted", counted}};
  };
  auto exchange = [](const char *name, int from, int to) -> Json {
    return {{"name", name},
            {"bytes-per-unit", 64},
            {"transfers", {{from, to, 0, 0, 2}}}};
  };
  return {{"abi", GRT_ABI_VERSION},
          {"target", {{"backend", "cpu"}}},
          {"dtype", "f32"},
          {"world", 2},
          {"batch", 4},
          {"micro-batches", 2},
          {"forward-packs", 1},
          {"data", {datum("tokens", false), datum("labels", true)}},
          {"schedule", "harmony-pp"},
          {"training", {{"optimizer", "adamw"}, {"clip", false}}},
          {"model-config", Json::object()},
          {"functions", {"pass"}},
          {"parameters",
           {{{"name", "w"},
             {"shape", {16}},
             {"init", {{"kind", "zeros"}}},
             {"decay", false}}}},
          {"exchanges",
           {exchange("activation", 0, 1), exchange("stash", 0, 0),
            exchange("gradient 3", 1, 0), exchange("gradient 2", 0, 1)}},
          {"ties", Json::array()},
          {"roles", roles}};
}

TEST(TaskTable, Packs) {
  const std::string parts = "a backward pass in parts, or of a chunk that runs "
                            "forward only";
  const std::string place = "schedule of role 0, steady, task 0: ";
  expectTables(
      packed(), place,
      {{"", [](Tables &) {}},
       {"", oneTask(swapOf(4, 1, 2))},
       {"a stash is sent home, not swapped out", oneTask(swapOf(4, 2, 2))},
       // Three slots, of which two are there.
       {"", oneTask(swapOf(4, 1, 2, 1, 1))},
       {"slot 2 is not one at home", oneTask(swapOf(4, 1, 2, 1, 2))},
       {"", oneTask(taskOf(GRT_TASK_BACKWARD, 2))},
       {parts, oneTask(taskOf(GRT_TASK_BACKWARD, 0))},
       {parts, oneTask(taskOf(GRT_TASK_BACKWARD_INPUT, 2))},
       {parts, oneTask(taskOf(GRT_TASK_BACKWARD_WEIGHT, 2))},
       // The place of its message.
       {"", oneTask(taskOf(GRT_TASK_FORWARD, 0, 1, 1))},
       {"slot 2 of 2", oneTask(taskOf(GRT_TASK_FORWARD, 0, 1, 2))},
       {"micro-batch out of range, expected less than 2",
        oneTask(taskOf(GRT_TASK_FORWARD, 0, 2, 1))},
       {"slot 1 of 1",
        [](Tables &t) {
          t.manifest["roles"][0]["waiting-places"] = 0;
          t.steady() = {taskOf(GRT_TASK_FORWARD, 0, 0, 1)};
        }},
       {"", [](Tables &t) {
          t.manifest["roles"][0]["waiting-places"] = 0;
          t.steady() = {taskOf(GRT_TASK_FORWARD, 0, 0, 0)};
        }}});
  // Chunk 2 is updated on the device: its state comes, and goes back with its
  // parameters.
  Json there = packed();
  there["roles"][0]["layers"][2]["resident-optimizer"] = 896;
  there["roles"][0]["layers"][2].erase("gradient");
  expectTables(there, place,
               {{"", oneTask(swapOf(8, 1, 2))},
                {"", oneTask(swapOf(9, 2, 2))},
                {"optimizer state of chunk 0, which is updated at home",
                 oneTask(swapOf(8, 1, 0))},
                {"", oneTask(taskOf(GRT_TASK_UPDATE, 2))}});
  expectTables(
      there, "schedule of role 0, step end, task 0: ",
      {{"chunk 2 is updated on the device, where it is no more",
        [](Tables &t) { t.stepEnd() = {taskOf(GRT_TASK_UPDATE, 2)}; }},
       {"", [](Tables &t) { t.stepEnd() = {taskOf(GRT_TASK_UPDATE, 0)}; }}});
}

TEST(TaskTable, PartsOfTransfers) {
  auto part = [](const grt_transfer_part &part, size_t role = 0) {
    return [=](Tables &t) { t.roles[role].transfers = {part}; };
  };
  auto changed = [&](grt_transfer_part one, auto change) {
    change(one);
    return part(one);
  };
  const auto send = partOf(GRT_SEND, GRT_ACTIVATION, 0, 3);
  auto ofRole = [](int role) {
    return "schedule of role " + std::to_string(role) +
           ", part 0 of transfers: ";
  };
  auto generation = [](int found) {
    return "expected a generation of at most 0, found " +
           std::to_string(found) + ", or a reserved field that is not 0";
  };
  auto reserved = [&](int i) {
    return changed(send, [i](grt_transfer_part &p) { p.reserved[i] = 1; });
  };
  expectTables(
      packed(), ofRole(0),
      {{"", part(send)},
       {"unknown direction 2 or value 0",
        part(partOf(2, GRT_ACTIVATION, 0, 3))},
       {"unknown direction 0 or value 3", part(partOf(GRT_SEND, 3, 0, 3))},
       {"chunk 1 is not the role's",
        part(partOf(GRT_SEND, GRT_ACTIVATION, 1, 3))},
       {"chunk 2 does not send an activation",
        part(partOf(GRT_SEND, GRT_ACTIVATION, 2, 3))},
       {"chunk 0 does not receive an activation",
        part(partOf(GRT_RECEIVE, GRT_ACTIVATION, 0, 3))},
       {"chunk 0 does not send a gradient",
        part(partOf(GRT_SEND, GRT_GRADIENT, 0, 3))},
       {"chunk 0 does not receive a gradient",
        part(partOf(GRT_RECEIVE, GRT_GRADIENT, 0, 1))},
       {"chunk 0 does not send a stash",
        part(partOf(GRT_SEND, GRT_STASH, 0, 3))},
       {"chunk 2 does not send a stash",
        part(partOf(GRT_SEND, GRT_STASH, 2, 2))},
       {"chunk 0 does not receive a stash",
        part(partOf(GRT_RECEIVE, GRT_STASH, 0, 2))},
       {"expected peer chunk 3, found 1",
        part(partOf(GRT_SEND, GRT_ACTIVATION, 0, 1))},
       {"expected peer chunk 0, found 1",
        part(partOf(GRT_RECEIVE, GRT_STASH, 2, 1))},
       {"", part(partOf(GRT_SEND, GRT_ACTIVATION, 0, 3, 1))},
       {"micro-batch out of range, expected less than 2",
        part(partOf(GRT_SEND, GRT_ACTIVATION, 0, 3, 2))},
       {"micro-batch out of range, expected less than 2",
        part(partOf(GRT_RECEIVE, GRT_STASH, 2, 0, 2))},
       {"slot 1 of 1", part(partOf(GRT_SEND, GRT_ACTIVATION, 0, 3, 0, 1))},
       {"", part(partOf(GRT_RECEIVE, GRT_GRADIENT, 2, 3, 0, 1))},
       {"slot 2 of 2", part(partOf(GRT_RECEIVE, GRT_GRADIENT, 2, 3, 0, 2))},
       {"", part(partOf(GRT_RECEIVE, GRT_STASH, 2, 0, 0, 1))},
       {"slot 2 is not one at home",
        part(partOf(GRT_RECEIVE, GRT_STASH, 2, 0, 0, 2))},
       {"slot 3 of 3", part(partOf(GRT_RECEIVE, GRT_STASH, 2, 0, 0, 3))},
       {generation(1),
        changed(send, [](grt_transfer_part &p) { p.generation = 1; })},
       {generation(0), reserved(0)},
       {generation(0), reserved(1)},
       {generation(0), reserved(2)}});
  expectTables(packed(), ofRole(1),
               {{"", part(partOf(GRT_RECEIVE, GRT_ACTIVATION, 3, 0, 1, 1), 1)},
                {"expected peer chunk 2, found 1",
                 part(partOf(GRT_SEND, GRT_GRADIENT, 3, 1), 1)}});
  // A batch ahead, where gradients are late.
  ModelPlan plan;
  plan.stages = {{{0, 1}, {0}}, {{2}, {1}}};
  Tables two(Json::parse(TestProgram(plan).manifest()));
  two.roles[0].transfers = {partOf(GRT_RECEIVE, GRT_GRADIENT, 0, 1, 0, 1)};
  EXPECT_EQ(two.refusal(), "program 'p': " + ofRole(0) + "slot 1 of 1");
  two.roles[0].transfers = {partOf(GRT_SEND, GRT_STASH, 0, 1)};
  EXPECT_EQ(two.refusal(),
            "program 'p': " + ofRole(0) + "unknown direction 0 or value 2");
  two.roles[0].transfers.clear();
  two.roles[1].transfers = {partOf(GRT_RECEIVE, GRT_ACTIVATION, 1, 0, 0, 1)};
  EXPECT_EQ(two.refusal(), "");
  two.roles[1].transfers[0].slot = 2;
  EXPECT_EQ(two.refusal(), "program 'p': " + ofRole(1) + "slot 2 of 2");
}

/// Packs that run forward only have four micro-batches, the others two.
TEST(TaskTable, MicroBatchesOfTwoSizes) {
  Json regrouped = packed();
  regrouped["forward-micro-batches"] = 4;
  Json &role = regrouped["roles"][0];
  role["layers"][0]["samples"] = role["layers"][1]["samples"] = 1;
  role["data"][0]["of-forward-packs"] = true;
  regrouped["exchanges"][1]["transfers"][0][4] = 1;
  auto part = [](const grt_transfer_part &part) {
    return [=](Tables &t) { t.roles[0].transfers = {part}; };
  };
  const std::string out = "micro-batch out of range, expected less than ";
  expectTables(regrouped, "schedule of role 0, part 0 of transfers: ",
               {{out + "4", part(partOf(GRT_RECEIVE, GRT_STASH, 2, 0, 4))},
                {out + "4", part(partOf(GRT_SEND, GRT_STASH, 0, 2, 4))},
                {out + "2", part(partOf(GRT_RECEIVE, GRT_GRADIENT, 2, 3, 2))},
                // Its output goes home.
                {"expected peer chunk -1, found 3",
                 part(partOf(GRT_SEND, GRT_ACTIVATION, 0, 3))}});
  expectTables(regrouped, "schedule of role 0, steady, task 0: ",
               {{out + "4", oneTask(taskOf(GRT_TASK_FORWARD, 0, 4))},
                {out + "2", oneTask(taskOf(GRT_TASK_FORWARD, 2, 2))},
                {out + "2", oneTask(swapOf(4, 1, 2, 2))}});
  const TableRow last = {"chunk 0 of stage 0: sends activations to no chunk",
                         part(partOf(GRT_SEND, GRT_STASH, 0, 2, 3))};
  expectTables(regrouped, "manifest: ", {last});
  role["chunks"][0].erase("send-activation");
  expectTables(regrouped, "manifest: ",
               {{"chunk 3 of stage 1: expected the last chunk to take its "
                 "input from home where micro-batches have two sizes, and only "
                 "there",
                 last.change}});
}

TEST(TaskTable, Transfers) {
  using Parts = std::vector<grt_transfer_part>;
  auto transfer = [](const Parts &parts, uint32_t first, uint16_t count) {
    return [=](Tables &t) {
      t.roles[0].transfers = parts;
      t.steady() = {transferOf(first, count)};
    };
  };
  const auto activation = partOf(GRT_SEND, GRT_ACTIVATION, 0, 3),
             gradient = partOf(GRT_RECEIVE, GRT_GRADIENT, 2, 3),
             back = partOf(GRT_SEND, GRT_GRADIENT, 2, 1),
             stash = partOf(GRT_SEND, GRT_STASH, 0, 2),
             kept = partOf(GRT_RECEIVE, GRT_STASH, 2, 0);
  auto next = [](grt_transfer_part part) {
    part.micro_batch = 1;
    return part;
  };
  const std::string twice = "two parts of one direction and value",
                    ends = "expected both ends of a message between chunks ";
  expectTables(
      packed(), "schedule of role 0, steady, task 0: ",
      {{"", transfer({activation, gradient, stash, kept}, 0, 4)},
       {"expected 1 to 4 parts of a transfer, found 0",
        transfer({activation}, 0, 0)},
       {"expected 1 to 4 parts of a transfer, found 5",
        transfer({activation, gradient, back, stash, kept}, 0, 5)},
       {"", transfer({activation, gradient}, 1, 1)},
       {"parts from 1 on of 2", transfer({activation, gradient}, 1, 2)},
       {"parts from 3 on of 2", transfer({activation, gradient}, 3, 1)},
       {"", transfer({gradient, back}, 0, 2)},
       {twice, transfer({activation, next(activation)}, 0, 2)},
       {twice, transfer({gradient, back, next(gradient)}, 0, 3)},
       {"", transfer({stash, kept}, 0, 2)},
       {ends + "0 and 2, which are on one role", transfer({stash}, 0, 1)},
       {ends + "2 and 0, which are on one role", transfer({kept}, 0, 1)},
       {ends + "0 and 2, which are on one role",
        transfer({stash, next(kept)}, 0, 2)},
       // The other end stands in another transfer.
       {ends + "0 and 2, which are on one role",
        transfer({stash, kept}, 0, 1)}});
}

/// The fields by which chunks that are packs name each other are checked.
TEST(TaskTable, WiringOfPacks) {
  auto chunk = [](Tables &t, int number) -> Json & {
    return t.manifest["roles"][number % 2]["chunks"][number / 2];
  };
  auto moved = [](int exchange, int number, int to) {
    return [=](Tables &t) {
      t.manifest["exchanges"][exchange]["transfers"][0][number] = to;
    };
  };
  expectTables(
      packed(), "manifest: ",
      {{"forward-packs: expected less than the 4 chunks, found 4",
        [&](Tables &t) {
          t.manifest["forward-packs"] = 4;
          for (int number : {1, 2, 3})
            chunk(t, number)["forward-only"] = true;
        }},
       // Chunks that there would be.
       {"forward-packs: expected less than the 4 chunks, found 9",
        [&](Tables &t) {
          t.manifest["forward-packs"] = 9;
          for (int number : {1, 2, 3})
            chunk(t, number)["forward-only"] = true;
          chunk(t, 2)["stash-from"] = 8;
        }},
       {"chunk 2 of stage 0: sends activations to no chunk",
        [&](Tables &t) { chunk(t, 2)["send-activation"] = 0; }},
       {"chunk 1 of stage 1: sends gradients to no chunk",
        [&](Tables &t) { chunk(t, 1)["send-gradient"] = 2; }},
       {"chunk 0 of stage 0: sends 128 bytes to places of 64",
        [&](Tables &t) { chunk(t, 3)["waiting-bytes"] = 64; }},
       {"chunk 2 of stage 0: sends 128 bytes to places of 64",
        [&](Tables &t) { chunk(t, 1)["waiting-bytes"] = 64; }},
       {"chunk 3 of stage 1: expected the last chunk to take its input from "
        "home where micro-batches have two sizes, and only there",
        [&](Tables &t) {
          chunk(t, 3)["slots"] = 1;
          chunk(t, 3)["recv-stash"] = 1;
          chunk(t, 3)["stash-from"] = 0;
        }},
       {"chunk 2 of stage 0: a stash of 128 bytes, slots at home have 127",
        [](Tables &t) { t.manifest["roles"][0]["home"]["slot-bytes"] = 127; }},
       {"chunk 2 of stage 0: its first layer is none of chunk 0's",
        [](Tables &t) { t.manifest["roles"][0]["layers"][2]["index"] = 2; }},
       {"exchange 'activation': source rank 0 needs 3 units of 64 bytes in a "
        "buffer of 128",
        moved(0, 2, 1)},
       {"exchange 'activation': destination rank 1 needs 3 units of 64 bytes "
        "in a buffer of 128",
        moved(0, 3, 1)},
       {"exchange 'stash': source rank 0 needs 3 units of 64 bytes in a buffer "
        "of 128",
        moved(1, 2, 1)},
       {"exchange 'stash': destination rank 0 needs 3 units of 64 bytes in a "
        "buffer of 128",
        moved(1, 3, 1)},
       {"exchange 'gradient 3': source rank 1 needs 3 units of 64 bytes in a "
        "buffer of 128",
        moved(2, 2, 1)},
       {"exchange 'gradient 3': destination rank 1 is not in stage 0",
        moved(2, 1, 1)}});
}

/// Packs take turns in memory where messages wait.
TEST(TaskTable, MemoryOfPacks) {
  auto resident = [](const char *name, int at) {
    return [=](Tables &t) {
      Json &layer = t.manifest["roles"][0]["layers"][2];
      layer[std::string("resident-") + name] = at;
      if (std::string(name) == "optimizer")
        layer.erase("gradient");
    };
  };
  const std::string chunk = "manifest: chunk 2 of stage 0: 128 bytes at 640 "
                            "meet 64 bytes at ";
  expectTables(packed(), "",
               {{"", resident("parameter", 896)},
                {chunk + "704", resident("parameter", 704)},
                {chunk + "704", resident("gradient", 704)},
                {"manifest: chunk 2 of stage 0: 64 bytes at 768 meet 64 bytes "
                 "at 768",
                 resident("gradient", 768)},
                // Two states of 64 bytes behind the parameters and gradients,
                // where buffers may be.
                {"", resident("optimizer", 896)},
                {"", resident("optimizer", 0)},
                {"manifest: chunk 2 of stage 0: 64 bytes at 832 meet 128 bytes "
                 "at 832",
                 resident("optimizer", 832)},
                {"manifest: chunk 2 of stage 0: 128 bytes at 704 meet 64 bytes "
                 "at 768",
                 resident("optimizer", 704)}});
  // A gradient for chunk 2 comes to a place; then a chunk runs.
  auto waits = [](int bytes, uint16_t place, std::vector<grt_task> behind) {
    return [=](Tables &t) {
      t.manifest["roles"][0]["chunks"][1]["waiting-bytes"] = bytes;
      t.roles[0].transfers = {
          partOf(GRT_RECEIVE, GRT_GRADIENT, 2, 3, 0, place),
          partOf(GRT_RECEIVE, GRT_GRADIENT, 2, 3, 1, uint16_t(1 - place))};
      t.steady() = behind;
      t.steady().insert(t.steady().begin(), transferOf(0, 1));
    };
  };
  const auto forward = taskOf(GRT_TASK_FORWARD, 0),
             backward = taskOf(GRT_TASK_BACKWARD, 2, 0, 1);
  const std::string place = "schedule of role 0, task ";
  expectTables(
      packed(), place,
      {{"", waits(192, 1, {forward})},
       // Chunk 0 ends at byte 768, chunk 2 with its gradients at 896.
       {"", waits(256, 1, {forward})},
       {"1: 320 bytes that wait for chunk 2 meet chunk 0, which is there",
        waits(320, 1, {forward})},
       {"", waits(320, 0, {forward})},
       {"", waits(192, 1, {backward})},
       {"1: 256 bytes that wait for chunk 2 meet chunk 2, which is there",
        waits(256, 1, {backward})},
       {"1: 256 bytes that wait for chunk 2 meet chunk 2, which is there",
        waits(256, 1, {swapOf(1, 1, 2)})},
       // Once used it waits no more.
       {"", waits(192, 1, {backward, transferOf(1, 1), forward})},
       {"2: 320 bytes that wait for chunk 2 meet chunk 0, which is there",
        waits(320, 0, {forward, transferOf(1, 1)})}});
}

} // namespace
