//===- describe.cpp - What a program is, without running it ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/text.h"
#include "core/capture.h"
#include "core/manifest.h"
#include "core/program_text.h"
#include "grt/session.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>

namespace grt {
namespace {

using Json = nlohmann::ordered_json;

std::string format(const char *pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), pattern, value);
  return text;
}

std::string ranksText(const std::vector<int> &ranks) {
  std::string text;
  for (size_t i = 0, next; i < ranks.size(); i = next) {
    next = i + 1;
    while (next < ranks.size() && ranks[next] == ranks[next - 1] + 1)
      ++next;
    text += (i ? "," : "") + std::to_string(ranks[i]);
    if (next - i > 1)
      text += "-" + std::to_string(ranks[next - 1]);
  }
  return text;
}

/// "wte: sdp4, h.0-h.3: tp2.sdp2.ckpt": neighbours under one strategy, chunk
/// by chunk. Copies of layers that a stage runs forward for others say so.
std::vector<std::pair<std::string, std::string>> runsOf(const Role &role) {
  std::vector<std::pair<std::string, std::string>> runs;
  for (const Chunk &chunk : role.chunks)
    for (size_t i = chunk.firstLayer, next; i < chunk.endLayer(); i = next) {
      const std::string &strategy = role.layers[i].strategy;
      next = i + 1;
      while (next < chunk.endLayer() && role.layers[next].strategy == strategy)
        ++next;
      std::string name = role.layers[i].name;
      if (next - i > 1)
        name += "-" + role.layers[next - 1].name;
      runs.emplace_back(
          name, strategy + (chunk.forwardOnly ? ", runs forward only" : ""));
    }
  return runs;
}

/// Whether a stage's sums of gradients over ranks run beside backward passes,
/// and not at the end of the step.
bool overlapsSums(const Program &program, size_t role) {
  const grt_task_list &steady =
      program.file().schedules()[role].parts[GRT_PART_STEADY];
  return std::any_of(
      steady.tasks, steady.tasks + steady.count,
      [](const grt_task &task) { return task.flags & GRT_SYNC_BEHIND; });
}

/// Layers of a chunk by name.
Json namesOf(const Role &role, const Chunk &chunk) {
  Json names = Json::array();
  for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i)
    names.push_back(role.layers[i].name);
  return names;
}

/// Whether the backend may have graphs, which steps of training are.
bool hasGraphs(const Program &program) {
  return program.manifest().backend != "cpu" && !program.cacheRows();
}

/// How many graphs a step is where the device makes such, and why not one.
std::string graphsText(const Program &program) {
  const StepCapture step = captureOf(program.manifest(), program.file());
  return "graphs a step: " + std::to_string(step.graphs) +
         (*step.why ? std::string(", as ") + step.why : "") + "\n";
}

Json toJson(const Program &program) {
  const Manifest &manifest = program.manifest();
  ProgramFacts facts = program.facts();
  Json stages = Json::array(), layers = Json::array(), packs = Json::array();
  for (size_t r = 0; r < manifest.roles.size(); ++r) {
    const Role &role = manifest.roles[r];
    size_t own = 0;
    for (const Chunk &chunk : role.chunks) {
      if (manifest.hasPacks)
        packs.push_back({{"pack", chunk.number},
                         {"stage", role.stage},
                         {"pass", chunk.forwardOnly ? "forward" : "backward"},
                         {"layers", namesOf(role, chunk)}});
      // Copies that run forward only are no layers of the model.
      if (chunk.forwardOnly)
        continue;
      own += chunk.layerCount;
      for (size_t i = chunk.firstLayer; i < chunk.endLayer(); ++i)
        layers.push_back({{"name", role.layers[i].name},
                          {"stage", role.stage},
                          {"strategy", role.layers[i].strategy}});
    }
    stages.push_back(
        {{"stage", role.stage},
         {"ranks", role.devices},
         {"layers", own},
         {"arena-bytes", role.arenaBytes},
         {"host-bytes", role.homeBytes},
         {"gradient-sums", overlapsSums(program, r) ? "overlap" : "at-end"},
         {"ledger", role.ledger}});
  }
  bool timed = manifest.predictedStepMs > 0;
  Json json = {
      {"program", program.name()},
      {"sha256", program.hash()},
      {"tool-version", manifest.toolVersion},
      {"abi-version", GRT_ABI_VERSION},
      {"backend", manifest.backend},
      {"model", facts.model.empty() ? Json() : Json(facts.model)},
      {"parameters", facts.parameters},
      {"trained", facts.trained},
      {"dtype", facts.dtype},
      {"optimizer", manifest.optimizer},
      {"clip", manifest.clip},
      {"ranks", manifest.world},
      {"batch", manifest.batch},
      {"micro-batches", manifest.microBatches},
      {"schedule", manifest.schedule},
      {"seq-len", program.sequenceLength()},
      {"vocabulary", program.vocabularySize()},
      {"predicted-step-ms", timed ? Json(manifest.predictedStepMs) : Json()},
      {"nominal-cluster", manifest.nominal},
      {"model-bytes", facts.modelBytes},
      {"checkpoint-bytes", facts.checkpointBytes},
      {"stages", stages},
      {"layers", layers}};
  if (hasGraphs(program)) {
    const StepCapture step = captureOf(manifest, program.file());
    json["graphs-per-step"] = step.graphs;
    json["why-not-one-graph"] = *step.why ? Json(step.why) : Json();
  }
  if (program.cacheRows())
    json["generates"] = {{"texts", program.cacheRows()},
                         {"tokens", program.cacheLength()}};
  if (program.cachesSources())
    json["generates"]["source-tokens"] = program.sequenceLength();
  if (manifest.hasPacks)
    json["packs"] = packs;
  if (manifest.regroups())
    json["forward-micro-batches"] = manifest.forwardMicroBatches;
  return json;
}

/// What a step of training is.
std::string stepText(const Program &program) {
  const Manifest &manifest = program.manifest();
  auto number = [](int64_t value) { return std::to_string(value); };
  std::string text = "training: " + manifest.optimizer + ", clipping " +
                     (manifest.clip ? "on" : "off") + "\n";
  text +=
      "step: batch " + number(manifest.batch) +
      (program.sequenceLength() ? " of " : " ") +
      (program.sequenceLength() ? number(program.sequenceLength()) + " tokens, "
                                : std::string("samples, ")) +
      number(manifest.microBatches) +
      (manifest.microBatches == 1 ? " micro-batch" : " micro-batches") +
      (manifest.regroups()
           ? " (" + number(manifest.forwardMicroBatches) + " of forward packs)"
           : "") +
      ", schedule " + manifest.schedule;
  if (manifest.predictedStepMs > 0)
    text += format(", predicted %.4g ms", manifest.predictedStepMs) +
            (manifest.nominal ? " (nominal)" : "");
  return text;
}

/// What a program that keeps keys and values does instead.
std::string generationText(const Program &program) {
  const auto samples = std::to_string(program.manifest().batch);
  return "generates: texts at a time " + std::to_string(program.cacheRows()) +
         ", tokens of each " + std::to_string(program.cacheLength()) +
         (program.cachesSources() ? ", tokens of its source " +
                                        std::to_string(program.sequenceLength())
                                  : "") +
         ", positions of a pass " + samples;
}

std::string toText(const Program &program) {
  const Manifest &manifest = program.manifest();
  ProgramFacts facts = program.facts();
  auto number = [](int64_t value) { return std::to_string(value); };
  std::string text =
      "program: '" + program.name() + "', SHA-256 " + program.hash() + "\n";
  text += "made by: galvatron " + manifest.toolVersion + ", ABI " +
          number(GRT_ABI_VERSION) + ", for backend '" + manifest.backend +
          "'\n";
  text += "model: " + (facts.model.empty() ? "" : facts.model + ", ") +
          number(int64_t(facts.parameters)) + " parameters" +
          (facts.trained < facts.parameters
               ? " (" + number(int64_t(facts.trained)) + " trained)"
               : "") +
          ", " + facts.dtype +
          (program.vocabularySize()
               ? ", vocabulary of " + number(program.vocabularySize())
               : "") +
          "\n";
  text += program.cacheRows() ? generationText(program) : stepText(program);
  text += "\n";
  if (hasGraphs(program))
    text += graphsText(program);
  text += "ranks: " + number(manifest.world) + " in " +
          number(int64_t(manifest.roles.size())) +
          (manifest.roles.size() == 1 ? " stage" : " stages") + "\n";
  text += "on disk: model " + bytesText(facts.modelBytes) + ", checkpoint " +
          bytesText(facts.checkpointBytes) + "\n";
  uint64_t all = 0, home = 0;
  for (size_t r = 0; r < manifest.roles.size(); ++r) {
    const Role &role = manifest.roles[r];
    all += role.arenaBytes * role.devices.size();
    home += role.homeBytes * role.devices.size();
    text += "\nstage " + number(role.stage) + ": ranks " +
            ranksText(role.devices) + ", " + bytesText(role.arenaBytes) +
            " each\n";
    std::string ledger;
    for (const auto &[purpose, bytes] : role.ledger)
      if (bytes)
        ledger +=
            (ledger.empty() ? "  " : ", ") + purpose + " " + bytesText(bytes);
    text += ledger.empty() ? "" : ledger + "\n";
    if (overlapsSums(program, r))
      text += "  gradients summed beside backward passes\n";
    if (role.homeBytes)
      text += "  states on the host " + bytesText(role.homeBytes) + " each\n";
    auto runs = runsOf(role);
    size_t width = 0;
    for (const auto &[name, strategy] : runs)
      width = std::max(width, name.size());
    for (const auto &[name, strategy] : runs)
      text += "  " + name + std::string(width - name.size() + 2, ' ') +
              strategy + "\n";
  }
  return text + "\nall ranks together: " + bytesText(all) +
         (home ? ", on the host " + bytesText(home) : "") + "\n";
}

/// Calls title(kind, name) for every function, for every part of a role that
/// has tasks, for every procedure of a role and for its messages, and behind it
/// row(text) for each of its calls, tasks, commands or messages.
template <class Title, class Row>
void forEachTable(const Program &program, Title title, Row row) {
  const ProgramFile &file = program.file();
  for (size_t f = 0; f < file.functionCount(); ++f) {
    title("functions", program.manifest().functions[f]);
    for (const gvx::Call &call : file.calls(f))
      row(textOf(file, call));
  }
  for (size_t r = 0; r < file.schedules().size(); ++r) {
    const grt_schedule &schedule = file.schedules()[r];
    for (int part = 0; part < GRT_PART_COUNT; ++part) {
      const grt_task_list &list = schedule.parts[part];
      if (list.count)
        title("tasks", "stage " + std::to_string(r) + ", " + partName(part));
      for (uint64_t i = 0; i < list.count; ++i)
        row(textOf(list.tasks[i], schedule));
    }
    const ProgramFile::RoleCommands &of = file.ofRole(r);
    const std::string stage = "stage " + std::to_string(r) + ", ";
    for (const gvx::Procedure &procedure : of.procedures) {
      title("commands", stage + procedureName(procedure) +
                            (procedure.needsHost ? ", with the host" : ""));
      for (const gvx::Command &command : file.commands(procedure))
        row(textOf(command, of.places));
    }
    if (!of.messages.empty())
      title("messages", stage + "messages");
    for (const gvx::Message &message : of.messages)
      row(textOf(message, of.places));
  }
}

std::string tablesText(const Program &program) {
  std::string text;
  forEachTable(
      program,
      [&](const char *, const std::string &name) {
        text += "\n" + name + ":\n";
      },
      [&](const std::string &row) { text += "  " + row + "\n"; });
  return text;
}

void addTables(Json &json, const Program &program) {
  Json *rows = nullptr;
  forEachTable(
      program,
      [&](const char *kind, const std::string &name) {
        rows = &json[kind][name];
        *rows = Json::array();
      },
      [&](const std::string &row) { rows->push_back(row); });
}

} // namespace

std::string Program::describe(bool asJson, bool whole) const {
  if (!asJson)
    return toText(*this) + (whole ? tablesText(*this) : "");
  Json json = toJson(*this);
  if (whole)
    addTables(json, *this);
  return json.dump(2) + "\n";
}

} // namespace grt
