//===- main.cpp - galvatron-run: runs a compiled program ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "agreement.h"
#include "base/error.h"
#include "base/files.h"
#include "check.h"
#include "children.h"
#include "core/manifest.h"
#include "core/program_check.h"
#include "error_file.h"
#include "grt/outputs.h"
#include "grt/processes.h"
#include "grt/variables.h"
#include "links.h"
#include "measure.h"
#include "options.h"
#include "per_gpu.h"
#include "restarts.h"
#include "run.h"
#include "signals.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

using namespace grt;

namespace {

void complain(const Status &status) {
  std::fprintf(stderr, "galvatron-run: error: %s\n", status.message().c_str());
}

/// A program of a run of so many ranks (0: any number); null where there is
/// none or it cannot be read, which the run itself says.
std::shared_ptr<const Program>
programFor(const Options &options, const ElasticPrograms &programs, int ranks) {
  std::vector<std::string> paths = {options.program};
  if (auto found = programs.find(ranks); found != programs.end())
    paths = {found->second};
  if (options.measure) {
    // All programs of a folder are for one cluster.
    paths.clear();
    std::error_code problem;
    for (const auto &entry :
         std::filesystem::directory_iterator(options.program, problem))
      if (entry.path().extension() == ".gvx")
        paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
  }
  std::shared_ptr<const Program> program;
  for (const std::string &path : paths)
    if (Program::loadFile(path, program) &&
        (ranks == 0 || program->worldSize() == ranks))
      return program;
  return nullptr;
}

/// Prints an answer that needs no processes, data or weights.
Status printAnswer(const std::string &text) {
  return guarded([&] { writeStandardOutput(text); });
}

/// `--check`: what is found makes the exit code.
Status checkOnly(const Options &options, Processes *processes,
                 const std::string &own, int &exitCode) {
  std::shared_ptr<const Program> program;
  Status status = Program::loadFile(options.program, program);
  if (processes)
    status = processes->agree(status, termsOfOptions(options, program.get()));
  bool ends = false;
  if (status)
    status = proven(*program);
  if (status)
    status = check(options, *program, processes, own, ends);
  if (ends)
    exitCode = ExitInvalid;
  return status;
}

/// Says what was found on the machines, at process 0; the first finding that
/// ends a run is the error of all processes.
Status tellFindings(const Findings &findings, const Processes *processes) {
  Status status;
  for (const Finding &finding : findings)
    if (finding.ends && status)
      status = Status(finding.ends, finding.text);
    else if (!processes || processes->number() == 0)
      std::fprintf(stderr, "galvatron-run: %s: %s\n",
                   finding.ends ? "error" : "warning", finding.text.c_str());
  return status;
}

/// `--describe`: what the program is. One that would not be run is described,
/// and is an error all the same.
Status describe(const Options &options) {
  std::shared_ptr<const Program> program;
  if (Status status = Program::loadFile(options.program, program); !status)
    return status;
  std::string text = options.described == "manifest"
                         ? std::string(program->manifestText()) + "\n"
                         : program->describe(!options.json.empty(),
                                             options.described == "whole");
  const Status sound = proven(*program);
  if (options.json.empty() || options.json == "-") {
    Status printed = printAnswer(text);
    return printed ? sound : printed;
  }
  const Output output{"--json", options.json, Output::Whole};
  const Input input{"the program", options.program};
  if (Status status = tryOutputs({&output, 1}, {&input, 1}); !status)
    return status;
  Status written = guarded([&] {
    AtomicFile file(options.json);
    file.write(text);
    file.commit();
  });
  return written ? sound : written;
}

/// Answers what is asked of the tool or of a program alone; nothing if a run is
/// wanted.
std::optional<Status> answer(const Options &options) {
  if (options.help)
    return printAnswer(helpText());
  if (options.version)
    return printAnswer(std::string("galvatron-run ") + version() + "\n");
  if (options.describe)
    return describe(options);
  return std::nullopt;
}

/// Returns how the process joins the others of its run. `programs`, and
/// `options`, must live as long.
ProcessOptions processOptionsOf(const Options &options,
                                const ElasticPrograms &programs) {
  ProcessOptions result;
  result.threadRanks = int(options.ranks.value_or(1));
  result.timeout = options.timeout;
  result.secretFile = options.launchSecret;
  result.listen = options.listen;
  result.restarts = isAttempt();
  for (const auto &[ranks, path] : programs)
    if (ranks % result.threadRanks == 0)
      result.smaller.push_back(int(ranks) / result.threadRanks);
  result.nodes = [&](int ranks) {
    std::shared_ptr<const Program> program =
        programFor(options, programs, ranks);
    return program ? program->nodes() : std::vector<int>();
  };
  return result;
}

/// Takes the program for as many ranks as have come, and says what is not as it
/// was started.
void settle(const Processes &processes, const ElasticPrograms &programs,
            Options &options, std::shared_ptr<const Program> &program) {
  const bool leads = processes.number() == 0;
  if (auto found = programs.find(processes.ranks()); found != programs.end()) {
    if (leads)
      std::fprintf(stderr, "galvatron-run: note: going on with %lld ranks\n",
                   static_cast<long long>(found->first));
    options.program = found->second;
    program = nullptr;
  }
  if (std::string text = processes.renumbering(); leads && !text.empty())
    std::fprintf(stderr, "galvatron-run: note: %s\n", text.c_str());
}

/// Ends the process as the run has ended.
int end(const Status &status, Processes *processes, int exitCode) {
  // The failure is told before others are ended: whoever is first is the cause.
  if (!status)
    writeErrorFile(status);
  if (processes) {
    int common = processes->finish(status);
    return common ? common : exitCode;
  }
  if (status)
    return exitCode;
  complain(status);
  // The process ends without destructors: a rank that is stuck still uses what
  // they end.
  std::fflush(nullptr);
  std::_Exit(status.exitCode());
}

/// Everything that runs a program, with the other processes where there are
/// some.
int runWithOthers(Options &options) {
  ElasticPrograms programs;
  Status status = findElasticPrograms(options, programs);
  ProcessOptions processOptions = processOptionsOf(options, programs);
  std::shared_ptr<const Program> program;
  if (status)
    program = programFor(options, programs, 0);
  if (program)
    processOptions.tells = lookAtMachine(options, *program);
  // The capture sets variables, and so begins behind the look at those of the
  // user.
  if (program && program->manifest().backend == "cuda")
    NcclLog::capture();
  std::shared_ptr<Processes> processes;
  if (status)
    status = Processes::join(processOptions, processes);
  if (status.exitCode() == exitSpare) {
    std::fprintf(stderr,
                 "galvatron-run: note: this process is not needed: %s\n",
                 status.message().c_str());
    return exitSpare;
  }
  if (processes)
    settle(*processes, programs, options, program);
  options.checkpoints.leads = !processes || processes->number() == 0;
  int exitCode = 0;
  if (status && options.check)
    status =
        checkOnly(options, processes.get(), processOptions.tells, exitCode);
  else if (status)
    status = tellFindings(findingsOfAll(processes.get(), processOptions.tells),
                          processes.get());
  if (status && !options.check)
    status = options.measure ? measure(options, processes, exitCode)
                             : run(options, program, processes, exitCode);
  return end(status, processes.get(), exitCode);
}

} // namespace

int main(int argc, char **argv) {
  openStandardDescriptors();
  setLibraryVariables();
  Options options;
  Status status = parseOptions(argc - 1, argv + 1, options);
  if (status)
    if (std::optional<Status> answered = answer(options)) {
      if (*answered)
        return 0;
      status = *answered;
    }
  // A fault that every process of a run finds is said once.
  if (!status) {
    writeErrorFile(status);
    if (Processes::launchedNumber() == 0)
      complain(status);
    return status.exitCode();
  }
  if (!options.check && options.restarts && !isAttempt())
    return supervise(options, argv);
  if (std::optional<int> code = runOnEachGpu(options, argv))
    return *code;
  makeWritesFail();
  catchWishes();
  unblockWishes();
  reportFatalSignals("galvatron-run: error: ", options.coreDumps);
  return runWithOthers(options);
}
