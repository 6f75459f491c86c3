//===- facts.cpp - What a program is, in a few words ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checkpoint/pieces.h"
#include "core/manifest.h"
#include "grt/checkpoint.h"
#include "grt/session.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace grt {
namespace {

/// Groups of equal strategies that a line has room for.
constexpr size_t mostGroups = 8;

std::string planText(const Manifest &manifest) {
  std::string text =
      std::to_string(manifest.roles.size()) +
      (manifest.roles.size() == 1 ? " stage (" : " stages (") +
      manifest.schedule + ", " + std::to_string(manifest.microBatches) +
      (manifest.microBatches == 1 ? " micro-batch):" : " micro-batches):");
  size_t groups = 0;
  for (const Role &role : manifest.roles) {
    if (&role != &manifest.roles.front())
      text += " |";
    for (size_t i = 0, next; i < role.layers.size(); i = next) {
      const std::string &strategy = role.layers[i].strategy;
      next = i + 1;
      while (next < role.layers.size() &&
             role.layers[next].strategy == strategy)
        ++next;
      if (groups++ == mostGroups)
        return text + " ...";
      text += (i ? ", " : " ") + strategy;
      if (next - i > 1)
        text += " x" + std::to_string(next - i);
    }
  }
  return text;
}

} // namespace

ProgramFacts Program::facts() const {
  const Manifest &manifest = *parsed;
  ProgramFacts facts;
  nlohmann::json config = nlohmann::json::parse(manifest.modelConfig, nullptr,
                                                /*allow_exceptions=*/false);
  if (config.is_object() && config.contains("model_type") &&
      config["model_type"].is_string())
    facts.model = config["model_type"].get<std::string>();
  facts.dtype = dtypeName(manifest.dtype);
  facts.plan = planText(manifest);
  facts.nominal = manifest.nominal;
  facts.adapterRank = manifest.adapters.rank;
  std::vector<uint64_t> offsets;
  for (bool states : {false, true}) {
    std::vector<TensorEntry> entries;
    for (const TensorPlace &place : tensorPlaces(manifest, states)) {
      entries.push_back(place.entry);
      const auto elements =
          uint64_t(manifest.parameters[size_t(place.parameter)].elements());
      facts.parameters += states ? 0 : elements;
      facts.trained += states || place.kind == Held::Frozen ? 0 : elements;
      facts.largestFileBytes =
          std::max(facts.largestFileBytes, place.entry.bytes());
    }
    uint64_t bytes = safetensorsHeader(entries, offsets).size();
    for (const TensorEntry &entry : entries)
      bytes += entry.bytes();
    bytes += manifest.modelConfig.size();
    (states ? facts.checkpointBytes : facts.modelBytes) = bytes;
  }
  facts.largestFileBytes =
      std::max(facts.largestFileBytes,
               std::min(facts.checkpointBytes, CheckpointOptions().shardBytes));
  return facts;
}

} // namespace grt
