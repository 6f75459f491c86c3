//===- fuzz_plan.cpp - Plan JSON ------------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What galvatron-plan --compare does with a plan from a file: it is read,
// printed, and priced for a model and a cluster that it may not be for.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Cost/ProfileLayerModel.h"
#include "galvatron/Planner/Planner.h"
#include "galvatron/Support/Json.h"

#include "llvm/Support/raw_ostream.h"

#include <cstdlib>

using namespace galvatron;

namespace {

/// Layers "embed", "block.0" to "block.3" and "head", as in the corpus.
LayerModel &model() {
  static std::unique_ptr<ProfileLayerModel> made = [] {
    std::vector<ProfileLayer> layers(3);
    for (ProfileLayer &layer : layers) {
      layer.forwardFlops = 1e9;
      layer.forwardMovedBytes = 1e6;
      layer.parameterBytes = 1 << 20;
      layer.boundaryBytes = 1 << 16;
      layer.intermediateBytes = 1 << 18;
    }
    layers[0].name = "embed";
    layers[1].name = "block";
    layers[1].count = 4;
    layers[2].name = "head";
    return llvm::cantFail(ProfileLayerModel::get("fuzzed", "f32", layers));
  }();
  return *made;
}

const Cluster &cluster() {
  static Cluster made = llvm::cantFail(Cluster::builtin("2x8xcpu"));
  return made;
}

/// An error has to say something.
void expectMessage(llvm::Error error) {
  if (llvm::toString(std::move(error)).empty())
    std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  llvm::StringRef text(reinterpret_cast<const char *>(data), size);
  llvm::Expected<llvm::json::Value> value = parseJson(text, "fuzzed");
  if (!value) {
    llvm::consumeError(value.takeError());
    return 0;
  }
  llvm::Expected<Plan> plan = Plan::fromJson(*value);
  if (!plan) {
    expectMessage(plan.takeError());
    return 0;
  }
  plan->print(llvm::nulls());
  // What is written is read again, as the same plan.
  llvm::json::Value written = plan->toJson();
  llvm::Expected<Plan> again = Plan::fromJson(written);
  if (!again || again->toJson() != written)
    std::abort();
  llvm::Expected<PlannerResult> priced =
      evaluate(model(), cluster(), *plan, int64_t(1) << 50);
  if (!priced)
    expectMessage(priced.takeError());
  else if (priced->feasible())
    priced->plan().print(llvm::nulls());
  return 0;
}
