//===- verifying.cpp - What verifiers take of a compilation ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compiles a configuration under a strategy, each time in a process of its own,
// and prints medians of the processor time that it takes from the text of the
// configuration to the bytes of the program, and of that what takes
//
//   passes    those whose name says that they verify
//   program   the checks by which the runtime loads the program
//   MLIR      MLIR's own verifier, with the verifiers of operations, attributes
//             and types, on the imported model
//
// Besides it prints what MLIR's verifier takes behind every pass (`each`),
// where the compiler runs it with --verify-each; the whole is without it.
//
//   bench-verifying CONFIG CLUSTER STRATEGY BATCH MICRO-BATCHES [ROUNDS]
//
//===----------------------------------------------------------------------===//

#include "galvatron/Pipelines/Compile.h"
#include "galvatron/Pipelines/PhasePipeline.h"
#include "galvatron/Target/Program.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <array>
#include <ctime>
#include <sys/wait.h>
#include <unistd.h>

using namespace galvatron;

namespace {

/// Milliseconds of processor time that this process has taken.
double spent() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) * 1e3 + double(now.tv_nsec) / 1e6;
}

enum Part { Whole, Passes, Program, Mlir, Each, Parts };
using Times = std::array<double, Parts>;

/// The milliseconds that MLIR's verifier takes of a module.
double verified(mlir::Operation *op) {
  const double begin = spent();
  if (failed(mlir::verify(op)))
    llvm::report_fatal_error("wrong IR");
  return spent() - begin;
}

/// Times passes that verify, and verifies behind every other pass, as a pass
/// manager does by itself.
class Timer : public mlir::PassInstrumentation {
public:
  explicit Timer(Times &times) : times(times) {}

  void runBeforePass(mlir::Pass *, mlir::Operation *) override {
    begin = spent();
  }
  void runAfterPass(mlir::Pass *pass, mlir::Operation *op) override {
    const double end = spent();
    if (pass->getArgument().contains("verify")) {
      times[Passes] += end - begin;
      return;
    }
    // A pass that runs others on what is in an operation is not looked at
    // again.
    if (!pass->getArgument().empty())
      times[Each] += verified(op);
  }

private:
  Times &times;
  double begin = 0;
};

struct Settings {
  std::string config, cluster, strategy;
  int64_t batch = 0, microBatches = 0;
};

Times compileOnce(const Settings &settings) {
  llvm::ExitOnError check("bench-verifying: ");
  Times times{};
  const double begin = spent();
  auto context = createCompilerContext();
  ImportOptions import;
  import.dtype = "bf16";
  auto module =
      check(loadModel(settings.config, "config.json", import, *context));
  // The import has done this already; here it is timed.
  const double imported = verified(*module);
  TrainingOptions training;
  training.dtype = "bf16";
  check(applyTraining(*module, training));
  PlanRequest request;
  request.planner.batch = settings.batch;
  request.planner.strategy = check(Strategy::parse(settings.strategy));
  request.planner.pipelineDegree = 1;
  request.planner.microBatches = settings.microBatches;
  const Cluster cluster = check(Cluster::load(settings.cluster));
  if (!check(planModule(*module, cluster, request)).feasible())
    llvm::report_fatal_error("no plan");
  mlir::PassManager manager(context.get());
  manager.enableVerifier(false);
  manager.addInstrumentation(std::make_unique<Timer>(times));
  buildPhasePipelines(manager, Phase::Plan, Phase::Emit);
  if (failed(manager.run(*module)))
    llvm::report_fatal_error("no program");
  times[Mlir] = imported;
  ::grt::gvx::ProgramBuilder builder;
  auto program = mlir::galvatron::buildProgram(*module, {}, builder);
  const double built = spent();
  if (failed(program) || failed(mlir::galvatron::verifyProgram(
                             *module, *program, &builder.tables)))
    llvm::report_fatal_error("no program");
  times[Program] = spent() - built;
  times[Whole] = spent() - begin - times[Each] - imported;
  return times;
}

/// The times of a compilation in a process of its own, whose memory is fresh.
Times compileInProcess(const Settings &settings) {
  int ends[2];
  if (pipe(ends) != 0)
    llvm::report_fatal_error("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    const Times times = compileOnce(settings);
    _exit(write(ends[1], times.data(), sizeof(times)) != sizeof(times));
  }
  Times times{};
  close(ends[1]);
  if (read(ends[0], times.data(), sizeof(times)) != sizeof(times))
    llvm::report_fatal_error("a compilation failed");
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return times;
}

double median(std::vector<double> values) {
  llvm::sort(values);
  return values[values.size() / 2];
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 6) {
    llvm::errs() << "usage: bench-verifying CONFIG CLUSTER STRATEGY BATCH "
                    "MICRO-BATCHES [ROUNDS]\n";
    return 2;
  }
  auto file = llvm::MemoryBuffer::getFile(argv[1]);
  if (!file) {
    llvm::errs() << "cannot read '" << argv[1] << "'\n";
    return 2;
  }
  const Settings settings{(*file)->getBuffer().str(), argv[2], argv[3],
                          std::atoll(argv[4]), std::atoll(argv[5])};
  const int rounds = argc > 6 ? std::atoi(argv[6]) : 15;
  std::array<std::vector<double>, Parts> all, shares;
  for (int round = 0; round < rounds; ++round) {
    const Times times = compileInProcess(settings);
    for (int part = 0; part < Parts; ++part) {
      all[part].push_back(times[part]);
      shares[part].push_back(100 * times[part] / times[Whole]);
    }
  }
  static constexpr const char *names[] = {"whole", "passes", "program", "MLIR",
                                          "each"};
  for (int part = 0; part < Parts; ++part)
    llvm::outs() << llvm::left_justify(names[part], 8)
                 << llvm::format("%8.2f ms %6.2f%%\n", median(all[part]),
                                 median(shares[part]));
}
