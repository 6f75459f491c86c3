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

#include "Families.h"
#include "Outcomes.h"

#include "galvatron/Pipelines/Compile.h"
#include "galvatron/Support/Units.h"
#include "galvatron/Target/Program.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

using namespace galvatron;
using namespace galvatron::test;
namespace cl = llvm::cl;
namespace ir = mlir::galvatron;

namespace {

cl::opt<bool> isLong("long", cl::desc("every family under every plan"),
                     cl::init(false));

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
  // What every pass makes of every family is verified here.
  verifyAfterEachPass();
  std::vector<std::string> wrong;
  const std::vector<Case> cases = familyCases(isLong ? familyPlanCount() : 1);
  size_t trips = 0;
  for (const Case &given : cases)
    trips += compareCase(given, wrong);
  for (const std::string &line : wrong)
    llvm::outs() << line << "\n";
  llvm::outs() << cases.size() << " plans, " << trips << " trips, "
               << wrong.size() << " wrong\n";
  return !wrong.empty();
}
