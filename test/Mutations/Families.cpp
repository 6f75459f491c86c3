//===- Families.cpp - Models of every family ------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Families.h"
#include "Twin.h"

#include "galvatron/Dialect/Galvatron/IR/Galvatron.h"
#include "galvatron/Pipelines/Compile.h"

#include <set>

namespace galvatron::test {

/// Plans that every family takes; their names are those of the cases behind the
/// family's.
static std::vector<Case> plansOfFamilies() {
  std::vector<Case> list;
  list.push_back({"tp2.sdp2", "", "tp2.sdp2"});
  list.push_back({"dp2.ckpt zb-h1", "", "dp2.ckpt", 2, 4, "zb-h1"});
  list.push_back({"streams sdp2", "", "sdp2", 2, 2});
  list.back().cluster = "4xh100";
  list.push_back({"tp2 gpipe", "", "tp2", 2, 2, "gpipe"});
  list.push_back({"zdp2 interleaved", "", "zdp2", 2, 4, "interleaved"});
  list.back().chunks = 2;
  list.push_back({"sdp2 2bw", "", "sdp2", 2, 4, "2bw"});
  list.push_back({"dp4 home", "", "dp4", 1, 2, "1f1b", "", 0, Offload::All});
  list.push_back({"streams tp4.ckpt", "", "tp4.ckpt"});
  list.back().cluster = "4xh100";
  return list;
}

/// The families that are imported, from the message that lists them, and a form
/// of T5 that has no name of its own.
static std::set<std::string> allFamilies() {
  auto context = createCompilerContext();
  auto unknown =
      loadModel(R"({"model_type": "unknown"})", "none.json", {}, *context);
  std::string message = llvm::toString(unknown.takeError());
  llvm::StringRef list = llvm::StringRef(message).split("expected ").second;
  std::set<std::string> names{"t5_v1_1"};
  while (true) {
    auto [before, rest] = list.split('\'');
    auto [name, behind] = rest.split('\'');
    if (name.empty())
      break;
    names.insert(name.str());
    list = behind;
  }
  if (names.size() < 20)
    llvm::report_fatal_error("expected the families in the importer's message");
  return names;
}

static std::string configOf(const std::string &family) {
  TwinModel model;
  model.layers = 4;
  // Scores that are dropped have no tensor parallelism here.
  if (family == "olmo3")
    model.dropout = 0;
  bool isRoberta = family == "xlm-roberta" || family == "camembert";
  model.family = isRoberta ? "roberta" : family;
  std::string text = model.config();
  if (isRoberta)
    text.replace(text.find("roberta"), std::string("roberta").size(), family);
  return text;
}

static bool hasFrozen(const std::string &config) {
  auto context = createCompilerContext();
  auto module = llvm::cantFail(loadModel(config, "config.json", {}, *context));
  return llvm::any_of(
      module->getOps<mlir::galvatron::ParameterOp>(),
      [](mlir::galvatron::ParameterOp op) { return op.getFrozen(); });
}

size_t familyPlanCount() { return plansOfFamilies().size(); }

std::vector<Case> familyCases(size_t plansEach) {
  const std::vector<Case> plans = plansOfFamilies();
  std::vector<Case> list;
  size_t number = 0;
  for (const std::string &family : allFamilies()) {
    for (size_t i = 0; i < plansEach; ++i) {
      Case given = plans[(number + i) % plans.size()];
      // 2BW keeps an older version of parameters, which a frozen one has not.
      if (given.schedule == "2bw" && hasFrozen(configOf(family)))
        continue;
      given.name = family + " " + given.name;
      given.config = configOf(family);
      given.isShort = false;
      list.push_back(std::move(given));
    }
    ++number;
  }
  return list;
}

} // namespace galvatron::test
