//===- PhasePipeline.cpp - Pipelines of the phases ------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/PhasePipeline.h"

#include "galvatron/Conversion/NNToGRT/LayerSteps.h"
#include "galvatron/Dialect/GRT/Transforms/Passes.h"

#include "galvatron/Target/Passes.h"

#include "mlir/Pass/PassRegistry.h"

using namespace ::galvatron;
using namespace mlir;
using mlir::galvatron::GalvatronSelectPlanOptions;
using mlir::galvatron::GalvatronVerifyPhaseOptions;

/// `isRead`: of IR that comes from elsewhere, of which everything is checked;
/// else of what the phase has made just now.
static void addVerifier(OpPassManager &manager, Phase phase, bool isRead) {
  GalvatronVerifyPhaseOptions options;
  options.phase = mlir::galvatron::stringifyPhase(phase).str();
  options.read = isRead;
  manager.addPass(mlir::galvatron::createGalvatronVerifyPhase(options));
  if (isRead ? phase >= Phase::Bufferize : phase == Phase::Schedule)
    manager.addPass(
        mlir::grt::createVerifyRoles({/*placed=*/false, /*values=*/isRead}));
  if (!isRead)
    return;
  // IR that is read is proven as the phase that makes it proves its own.
  if (phase >= Phase::Schedule)
    manager.addPass(mlir::grt::createVerifySchedule());
  if (phase < Phase::Allocate)
    return;
  manager.addPass(
      mlir::grt::createVerifyRoles({/*placed=*/true, /*values=*/false}));
  manager.addPass(mlir::galvatron::createGalvatronVerifyProgram());
}

/// Numbers what a phase has made, so that changes by hand are known when it is
/// read again.
static void addNumbers(OpPassManager &manager, Phase phase) {
  if (phase >= Phase::Bufferize)
    manager.addPass(mlir::grt::createNumberBuffers());
  else if (phase >= Phase::Differentiate)
    manager.addPass(mlir::galvatron::createGalvatronNumberValues());
}

void ::galvatron::buildPhasePipeline(OpPassManager &manager, Phase phase,
                                     const GalvatronSelectPlanOptions &plan) {
  switch (phase) {
  case Phase::Import:
    // Frontends make the module; there is nothing to run.
    break;
  case Phase::Annotate:
    manager.addPass(mlir::galvatron::createGalvatronAnnotateCosts());
    break;
  case Phase::Plan:
    // After annotation only so that the printed IR holds the costs; footprints
    // are made by compiling layers, not read from attributes.
    manager.addPass(mlir::galvatron::createGalvatronSelectPlan(plan));
    break;
  case Phase::Split:
    manager.addPass(mlir::galvatron::createGalvatronSplitStages());
    break;
  case Phase::Differentiate:
  case Phase::Partition:
  case Phase::Bufferize:
    grt::addLayerSteps(manager, phase);
    break;
  case Phase::Schedule:
    manager.addPass(mlir::grt::createScheduleTasks());
    // Events order kernels, so fusion and in-place buffers are settled. What
    // they cost in memory is nothing: lifetimes are as they were.
    manager.addPass(mlir::grt::createAssignStreams());
    // The proof reads the schedules back from the IR, so that it holds for what
    // is there and not for what was meant.
    manager.addPass(mlir::grt::createVerifySchedule());
    break;
  case Phase::Allocate:
    // Slots are known once the schedule says how many micro-batches are in
    // flight.
    manager.addPass(mlir::grt::createAllocateArena());
    break;
  case Phase::Emit:
    // Offsets are in descriptors, so a program is made of what is allocated.
    return;
  }
  addVerifier(manager, phase, /*isRead=*/false);
}

void ::galvatron::buildPhasePipelines(OpPassManager &manager, Phase from,
                                      Phase to,
                                      const GalvatronSelectPlanOptions &plan) {
  // IR that people print, edit and compile on is read by the rules of the phase
  // that it came from.
  if (from > Phase::Import)
    addVerifier(manager, from, /*isRead=*/true);
  for (Phase phase : mlir::galvatron::allPhases())
    if (phase > from && phase <= to)
      buildPhasePipeline(manager, phase, plan);
  // A program has no numbers.
  if (to < Phase::Emit)
    addNumbers(manager, to);
}

namespace {

struct PhasePipelineOptions : public PassPipelineOptions<PhasePipelineOptions> {
  Option<std::string> phase{*this, "phase",
                            llvm::cl::desc("run the passes of this phase")};
  Option<std::string> from{
      *this, "from",
      llvm::cl::desc("run the phases after this one, up to 'to'"),
      llvm::cl::init("import")};
  Option<std::string> to{*this, "to", llvm::cl::desc("the last phase to run")};
  Option<std::string> cluster{
      *this, "cluster",
      llvm::cl::desc("built-in name or file; the module's if not given")};
  Option<std::string> space{*this, "space", llvm::cl::desc("search space")};
  Option<std::string> memory{*this, "memory",
                             llvm::cl::desc("memory of every device")};
  Option<int64_t> batch{*this, "batch", llvm::cl::desc("samples of a step"),
                        llvm::cl::init(0)};
  Option<bool> keepPlan{*this, "keep-plan",
                        llvm::cl::desc("price the plan of the module"),
                        llvm::cl::init(false)};
};

} // namespace

void ::galvatron::registerPhasePipelines() {
  PassPipelineRegistration<PhasePipelineOptions>(
      "galvatron-pipeline",
      "Runs one phase of compilation (phase=NAME) or several (from=NAME "
      "to=NAME), each with its verifier",
      [](OpPassManager &manager, const PhasePipelineOptions &options) {
        auto parse = [](StringRef name) {
          std::optional<Phase> phase = mlir::galvatron::symbolizePhase(name);
          if (!phase)
            llvm::report_fatal_error(llvm::Twine("unknown phase '") + name +
                                         "', expected one of " +
                                         mlir::galvatron::phaseNames(),
                                     /*gen_crash_diag=*/false);
          return *phase;
        };
        GalvatronSelectPlanOptions plan;
        plan.cluster = options.cluster;
        plan.space = options.space;
        plan.memory = options.memory;
        plan.batch = options.batch;
        plan.keepPlan = options.keepPlan;
        if (!options.phase.empty()) {
          buildPhasePipeline(manager, parse(options.phase), plan);
          addNumbers(manager, parse(options.phase));
        } else
          buildPhasePipelines(manager, parse(options.from),
                              parse(options.to.empty() ? StringRef("allocate")
                                                       : StringRef(options.to)),
                              plan);
      });
}
