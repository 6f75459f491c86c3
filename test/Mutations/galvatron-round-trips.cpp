//===- galvatron-round-trips.cpp - IR of every phase, compiled on ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Prints the IR of a model behind every phase, in both forms, reads it back and
// compiles it on. Fails where it prints differently then, is not the IR of the
// phase `allocate`, or not the program, that the model compiles to at once.
//
//===----------------------------------------------------------------------===//

#include "Cases.h"
#include "Outcomes.h"
#include "Twin.h"

#include "galvatron/Pipelines/Compile.h"
#include "galvatron/Support/Units.h"
#include "galvatron/Target/Program.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

#include <set>

using namespace galvatron;
using namespace galvatron::test;
namespace cl = llvm::cl;
namespace ir = mlir::galvatron;

namespace {

cl::opt<bool> isLong("long", cl::desc("every family under every plan"),
                     cl::init(false));

/// Plans that every family takes. A short run has one for each family.
std::vector<Case> allPlans() {
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

/// The families that are imported, from the message that lists them.
std::set<std::string> allFamilies() {
  auto context = createCompilerContext();
  auto unknown =
      loadModel(R"({"model_type": "unknown"})", "none.json", {}, *context);
  std::string message = llvm::toString(unknown.takeError());
  llvm::StringRef list = llvm::StringRef(message).split("expected ").second;
  std::set<std::string> names;
  while (true) {
    auto [before, rest] = list.split('\'');
    auto [name, behind] = rest.split('\'');
    if (name.empty())
      return names;
    names.insert(name.str());
    list = behind;
  }
}

std::string configOf(const std::string &family) {
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

std::string textOf(mlir::ModuleOp module, bool isGeneric) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  mlir::OpPrintingFlags flags;
  if (isGeneric)
    flags.printGenericOpForm();
  module->print(stream, flags);
  return text;
}

/// A module's IR of the phase `allocate`, and its program.
struct Compiled {
  std::string text, program;
};

/// Compiles a module of a phase on; in front of the plan it is planned.
Compiled compileOn(mlir::ModuleOp module, Phase phase, const Case &given) {
  llvm::ExitOnError check("case '" + given.name + "', from '" +
                          ir::stringifyPhase(phase).str() + "': ");
  if (phase < Phase::Plan) {
    planCase(module, given);
    phase = Phase::Plan;
  }
  check(runPhases(module, phase, Phase::Allocate));
  mlir::FailureOr<std::string> program = ir::buildProgram(module);
  if (failed(program) || failed(ir::verifyProgram(module, *program)))
    check(makeError("no program"));
  return {textOf(module, false), std::move(*program)};
}

/// What is wrong with the IR of a phase in one of its forms; "" if nothing is.
std::string wrongTrip(mlir::ModuleOp module, Phase phase, bool isGeneric,
                      const Case &given, const Compiled &straight) {
  std::string text = textOf(module, isGeneric);
  auto context = createCompilerContext();
  auto read = loadModel(text, "ir.mlir", {}, *context);
  if (!read)
    return llvm::toString(read.takeError());
  if (textOf(**read, isGeneric) != text)
    return "it prints differently when it is read";
  Compiled found = compileOn(**read, phase, given);
  if (found.text != straight.text)
    return "compiled on it is other IR at 'allocate'";
  return found.program == straight.program ? "" : "it is another program";
}

/// Compares all phases of a case; the number of trips.
size_t compareCase(const Case &given, std::vector<std::string> &wrong) {
  auto context = createCompilerContext();
  auto module = trainedModule(given, *context, "f32");
  Compiled straight;
  {
    mlir::OwningOpRef<mlir::ModuleOp> whole(module->clone());
    straight = compileOn(*whole, Phase::Import, given);
  }
  size_t trips = 0;
  Phase last = Phase::Import;
  for (Phase phase : ir::allPhases()) {
    if (phase == Phase::Emit)
      continue;
    if (phase == Phase::Plan)
      planCase(*module, given);
    else if (phase > last)
      llvm::ExitOnError("case '" + given.name +
                        "': ")(runPhases(*module, last, phase));
    last = phase;
    for (bool isGeneric : {false, true}) {
      // Planning takes longest, and the form of what is planned is the same.
      if (isGeneric && phase < Phase::Plan && !isLong)
        continue;
      std::string what = wrongTrip(*module, phase, isGeneric, given, straight);
      if (!what.empty())
        wrong.push_back(given.name + ", " + ir::stringifyPhase(phase).str() +
                        (isGeneric ? ", generic: " : ": ") + what);
      ++trips;
    }
  }
  return trips;
}

} // namespace

int main(int argc, char **argv) {
  cl::ParseCommandLineOptions(argc, argv, "IR of every phase, compiled on\n");
  std::vector<std::string> wrong;
  std::vector<Case> plans = allPlans();
  size_t cases = 0, trips = 0, number = 0;
  std::set<std::string> families = allFamilies();
  families.insert("t5_v1_1");
  if (families.size() < 20)
    wrong.push_back("expected the families in the importer's message");
  for (const std::string &family : families) {
    for (size_t i = 0; i < (isLong ? plans.size() : 1); ++i) {
      Case given = plans[(number + i) % plans.size()];
      given.name = family + " " + given.name;
      given.config = configOf(family);
      trips += compareCase(given, wrong);
      ++cases;
    }
    ++number;
  }
  for (const std::string &line : wrong)
    llvm::outs() << line << "\n";
  llvm::outs() << families.size() << " families, " << cases << " plans, "
               << trips << " trips, " << wrong.size() << " wrong\n";
  return !wrong.empty();
}
