//===- Paradigm.cpp - Ways to use several devices for a layer -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Strategy/Paradigm.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"

#include <array>
#include <cassert>

using namespace llvm;

namespace galvatron {

/// The paradigms by number; those of Paradigm::DP and so on first.
static std::array<std::optional<ParadigmDescriptor>, ParadigmRegistry::kMost>
    paradigmDescriptors = {
        ParadigmDescriptor{"dp", "sums of gradients", "data parallelism",
                           /*splitsBatch=*/true, /*shardsParameters=*/false,
                           /*shardsOptimizer=*/false, LayerAxis::None},
        ParadigmDescriptor{"sdp", "sharded parameters",
                           "data parallelism whose parameters are sharded",
                           /*splitsBatch=*/true, /*shardsParameters=*/true,
                           /*shardsOptimizer=*/true, LayerAxis::None},
        ParadigmDescriptor{"tp", "tensor parallelism", "tensor parallelism",
                           /*splitsBatch=*/false, /*shardsParameters=*/false,
                           /*shardsOptimizer=*/false, LayerAxis::Tensor},
        ParadigmDescriptor{"zdp", "sums of gradients",
                           "data parallelism whose optimizer state is sharded",
                           /*splitsBatch=*/true, /*shardsParameters=*/false,
                           /*shardsOptimizer=*/true, LayerAxis::None,
                           /*alone=*/true, SearchedIn::Executed},
        // Korthikanti et al., arXiv 2205.05198.
        ParadigmDescriptor{
            "tsp", "tensor parallelism", "tensor and sequence parallelism",
            /*splitsBatch=*/false, /*shardsParameters=*/false,
            /*shardsOptimizer=*/false, LayerAxis::Tensor,
            /*alone=*/false, SearchedIn::Long, RestingState::Rows},
        ParadigmDescriptor{"cp", "context parallelism", "context parallelism",
                           /*splitsBatch=*/false, /*shardsParameters=*/false,
                           /*shardsOptimizer=*/false, LayerAxis::Context,
                           /*alone=*/false, SearchedIn::Long,
                           RestingState::Rows},
        ParadigmDescriptor{"scp", "context parallelism",
                           "context parallelism whose parameters are sharded",
                           /*splitsBatch=*/false, /*shardsParameters=*/true,
                           /*shardsOptimizer=*/true, LayerAxis::Context,
                           /*alone=*/false, SearchedIn::Long,
                           RestingState::Rows},
        ParadigmDescriptor{
            "zcp", "context parallelism",
            "context parallelism whose optimizer state is sharded",
            /*splitsBatch=*/false, /*shardsParameters=*/false,
            /*shardsOptimizer=*/true, LayerAxis::Context, /*alone=*/true,
            SearchedIn::Long, RestingState::Rows},
        // Jacobs et al., "DeepSpeed Ulysses", arXiv 2309.14509.
        ParadigmDescriptor{"up", "Ulysses",
                           "context parallelism that exchanges heads",
                           /*splitsBatch=*/false, /*shardsParameters=*/false,
                           /*shardsOptimizer=*/false, LayerAxis::Context,
                           /*alone=*/false, SearchedIn::Long,
                           RestingState::Rows, PositionsMeet::ByHeads},
        ParadigmDescriptor{
            "sup", "Ulysses",
            "context parallelism that exchanges heads and shards parameters",
            /*splitsBatch=*/false, /*shardsParameters=*/true,
            /*shardsOptimizer=*/true, LayerAxis::Context,
            /*alone=*/false, SearchedIn::Long, RestingState::Rows,
            PositionsMeet::ByHeads},
        // Liu et al., "Ring Attention", arXiv 2310.01889.
        ParadigmDescriptor{"ring", "ring attention",
                           "context parallelism that passes keys round",
                           /*splitsBatch=*/false, /*shardsParameters=*/false,
                           /*shardsOptimizer=*/false, LayerAxis::Context,
                           /*alone=*/false, SearchedIn::Long,
                           RestingState::Rows, PositionsMeet::InRing},
        ParadigmDescriptor{
            "sring", "ring attention",
            "context parallelism that passes keys round and shards parameters",
            /*splitsBatch=*/false, /*shardsParameters=*/true,
            /*shardsOptimizer=*/true, LayerAxis::Context,
            /*alone=*/false, SearchedIn::Long, RestingState::Rows,
            PositionsMeet::InRing},
};
static size_t paradigmCount = static_cast<size_t>(count_if(
    paradigmDescriptors, [](const auto &each) { return each.has_value(); }));

StringRef ParadigmDescriptor::executedAs() const {
  switch (group()) {
  case GroupKind::Replicas:
    return splitsBatch ? "dp" : "cp";
  case GroupKind::Shards:
    if (splitsBatch)
      return shardsParameters ? "sdp" : "zdp";
    return shardsParameters ? "scp" : "zcp";
  case GroupKind::Model:
    return axis == LayerAxis::Tensor ? "tp" : "replica";
  }
  llvm_unreachable("all kinds of groups are handled");
}

StringRef ParadigmDescriptor::groupInside() const {
  if (axis == LayerAxis::Tensor)
    return "tp";
  return dividesPositions() ? "cp" : "";
}

const ParadigmDescriptor &Paradigm::operator*() const {
  assert(*this && number < paradigmCount && "no paradigm");
  return *paradigmDescriptors[number];
}

/// Why a descriptor breaks a constraint of its own; empty if none.
static std::string whyNotDescribed(const ParadigmDescriptor &descriptor) {
  auto isLetter = [](char c) { return c >= 'a' && c <= 'z'; };
  // (C1)
  if (descriptor.name.empty() || !all_of(descriptor.name, isLetter))
    return "expected a name of lower-case letters";
  if (descriptor.name == "single" || descriptor.name == "ckpt")
    return "the notation of strategies has this word already";
  if (ParadigmRegistry::find(descriptor.name))
    return "there is one of this name";
  // (C2)
  if (descriptor.hasAxis() && descriptor.splitsBatch)
    return "ranks that work inside the functions work on the same samples";
  // (C3)
  if (descriptor.shardsParameters && !descriptor.shardsOptimizer)
    return "whoever has a part of the parameters updates that part";
  if (descriptor.shardsOptimizer && !descriptor.hasTerms())
    return "nothing executes parts of parameters or states without parts of "
           "the samples or positions";
  // (C4)
  if (descriptor.gathersUpdates() && !descriptor.alone)
    return "gradients are summed once a step over one group, expected no other "
           "level beside it that cuts samples";
  // (C5)
  if (descriptor.resting == RestingState::Rows && !descriptor.hasAxis())
    return "rows are divided among ranks that work inside the functions";
  // (C6)
  if (descriptor.exchangesHeads() && !descriptor.dividesPositions())
    return "heads are exchanged for positions that are divided";
  if (descriptor.passesKeys() && !descriptor.dividesPositions())
    return "keys are passed round where positions are divided";
  return "";
}

Expected<Paradigm> ParadigmRegistry::add(const ParadigmDescriptor &descriptor) {
  std::string why = paradigmCount == kMost
                        ? "there are " + std::to_string(kMost) + " already"
                        : whyNotDescribed(descriptor);
  if (!why.empty())
    return makeError("paradigm '" + descriptor.name + "': " + why);
  paradigmDescriptors[paradigmCount].emplace(descriptor);
  return Paradigm(static_cast<uint8_t>(paradigmCount++));
}

ArrayRef<Paradigm> ParadigmRegistry::all() {
  static const auto numbers = [] {
    std::array<Paradigm, kMost> list;
    for (size_t i = 0; i < kMost; ++i)
      list[i] = Paradigm(static_cast<uint8_t>(i));
    return list;
  }();
  return ArrayRef(numbers).take_front(paradigmCount);
}

std::optional<Paradigm> ParadigmRegistry::find(StringRef name) {
  for (Paradigm paradigm : all())
    if (paradigm.name() == name)
      return paradigm;
  return std::nullopt;
}

std::string ParadigmRegistry::names() {
  std::string text;
  for (auto [index, paradigm] : enumerate(all())) {
    if (index > 0)
      text += index + 1 < paradigmCount ? ", " : " or ";
    text += ("'" + paradigm.name() + "'").str();
  }
  return text;
}

std::string whyNotBeside(Paradigm one, Paradigm other) {
  const bool haveTerms = one->hasTerms() && other->hasTerms();
  // Samples and positions, of which the product of both levels has parts.
  if (haveTerms && one->splitsBatch != other->splitsBatch &&
      one->shardsParameters == other->shardsParameters &&
      one->shardsOptimizer == other->shardsOptimizer)
    return "";
  if (haveTerms && (one->alone || other->alone)) {
    if (!one->alone)
      std::swap(one, other);
    return ("'" + one.name() + "' is " + one->definition + ", expected no '" +
            other.name() + "' beside it")
        .str();
  }
  // Of two axes one divides the rows, and the other its blocks.
  if (one->resting == RestingState::Rows && other->resting == one->resting &&
      one->axis == other->axis)
    return ("'" + one.name() + "' and '" + other.name() +
            "' both divide rows, expected one of them")
        .str();
  if (one->group() == other->group())
    return ("'" + one.name() + "' and '" + other.name() +
            "' are one kind of group to the executor, expected one of them")
        .str();
  return "";
}

bool cutsBlocks(Paradigm one, Paradigm other) {
  return one->resting == RestingState::Rows &&
         other->resting == RestingState::Rows && one->axis != other->axis;
}

ParadigmSet ParadigmSet::searched(bool executed) {
  ParadigmSet set;
  for (Paradigm paradigm : ParadigmRegistry::all())
    if (paradigm->searched == SearchedIn::Paper ||
        (executed && paradigm->searched == SearchedIn::Executed))
      set.insert(paradigm);
  return set;
}

} // namespace galvatron
