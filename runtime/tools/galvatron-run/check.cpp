//===- check.cpp - A look at the machines before a run --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "check.h"

#include "base/error.h"
#include "base/files.h"
#include "comm/world.h"
#include "core/manifest.h"
#include "core/placement.h"
#include "core/topology.h"
#include "grt/launcher.h"
#include "links.h"

#include <algorithm>
#include <cstdlib>

using namespace grt;

namespace {

/// Numbers of the GPUs that this process takes, or will give to those that it
/// starts; what is wrong about them is added to `findings`.
std::vector<int> cardsOf(const Options &options, const Program &program,
                         const Launch &launch, const MachineFacts &machine,
                         Findings &findings) {
  const std::vector<int> visible =
      visibleCards(std::getenv("CUDA_VISIBLE_DEVICES"), machine.cards);
  auto first = [&](int64_t count) {
    return std::vector<int>(
        visible.begin(),
        visible.begin() +
            ptrdiff_t(std::min<int64_t>(count, int64_t(visible.size()))));
  };
  if (!machine.cardProblem.empty() || visible.empty())
    return {};
  if (const char *chosen = std::getenv("GRT_CUDA_DEVICE"); chosen && *chosen) {
    const auto number = size_t(std::strtoul(chosen, nullptr, 10));
    return {number < visible.size() ? visible[number] : int(number)};
  }
  if (launch.launcher == Launcher::None) {
    const int64_t ranks = options.shareGpus ? 1 : program.worldSize();
    if (ranks > int64_t(visible.size()))
      findings.push_back(
          {ExitInvalid, "the program needs " + std::to_string(ranks) +
                            " ranks, with a GPU each, and this machine has " +
                            std::to_string(visible.size())});
    return first(ranks);
  }
  int number = 0;
  if (Status status = guarded([&] {
        number = chooseDevice(launch, int(visible.size()), options.shareGpus);
      });
      !status) {
    findings.push_back({status.exitCode(), status.message()});
    return {};
  }
  return {visible[size_t(number)]};
}

RunFacts runFactsOf(const Program &program, const Launch &launch) {
  RunFacts run;
  run.usesCards = program.manifest().backend == "cuda";
  run.ranks = program.worldSize();
  for (const Role &role : program.manifest().roles)
    run.bytesOfCard = std::max(run.bytesOfCard, role.arenaBytes);
  if (launch.localSize)
    run.machineProcesses = launch.localSize->value;
  run.severalHosts = launch.size && launch.localSize &&
                     launch.size->value > launch.localSize->value;
  return run;
}

std::string countText(size_t count, const char *one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

} // namespace

std::string lookAtMachine(Options &options, const Program &program) {
  Launch launch;
  // The run itself says what is wrong with the launcher's variables.
  if (!readLaunch(launch))
    return "";
  RunFacts run = runFactsOf(program, launch);
  if (options.checkStreams || (!run.usesCards && !options.check))
    return "";
  Told told;
  MachineFacts machine = readMachine();
  told.host = machine.host;
  if (run.usesCards) {
    readCards(machine);
    run.cards = cardsOf(options, program, launch, machine, told.findings);
    told.variables = machine.variables;
    if (run.cards.size() == 1)
      options.card = run.cards[0];
    options.gpu = gpuText(machine, run);
  }
  for (const Finding &finding : judge(machine, ownBuildFacts(), run))
    told.findings.push_back(finding);
  // The process is bound before it has other threads: memory comes from where a
  // thread runs.
  const char *bind = std::getenv("GRT_BIND");
  if (const std::vector<int> cores = coresToTake(machine, run);
      !cores.empty() && !options.check &&
      (!bind || std::string(bind) != "none"))
    runOn(cores);
  return encode(told);
}

Findings findingsOfAll(const Processes *processes, const std::string &own) {
  std::vector<Told> all;
  std::vector<std::string> texts{own};
  if (processes)
    texts = processes->told();
  for (const std::string &text : texts)
    all.push_back(decodeTold(text).value_or(Told()));
  return joinTold(all);
}

namespace {

bool endsRun(const Finding &finding) { return finding.ends != 0; }

/// Measures links unless the run ends anyway; what is wrong with them is added
/// to `findings`, and what is to be said to `lines`.
Status checkLinks(const Options &options, const Program &program,
                  Processes *processes, Findings &findings,
                  std::vector<std::string> &lines) {
  if (std::any_of(findings.begin(), findings.end(), endsRun))
    return Status();
  LinksFound found;
  std::string why;
  Status status = lookAtLinks(options, program, processes, found, why);
  if (!status)
    return status;
  if (!why.empty())
    findings.push_back({0, "links are not measured: " + why});
  if (!options.gpu.empty())
    lines.push_back("GPU: " + options.gpu);
  for (const std::string &line : linesOf(found))
    lines.push_back(line);
  const Findings slow = judgeLinks(found, program.manifest().backend == "cuda");
  findings.insert(findings.end(), slow.begin(), slow.end());
  return status;
}

} // namespace

Status check(const Options &options, const Program &program,
             Processes *processes, const std::string &own, bool &ends) {
  Findings findings = findingsOfAll(processes, own);
  std::vector<std::string> lines;
  size_t hosts = 1;
  if (processes) {
    if (const RunHosts *known = processes->world()->hosts()) {
      hosts = known->names.size();
      if (std::string text = misplacedText(program.manifest(), *known);
          !text.empty())
        findings.push_back(
            {program.manifest().backend == "cuda" && !options.anyPlacement
                 ? ExitInvalid
                 : 0,
             text});
    }
    if (processes->ranks() != program.worldSize())
      findings.push_back(
          {ExitInvalid,
           "the program needs " + std::to_string(program.worldSize()) +
               " ranks, " + std::to_string(processes->count()) +
               " processes have " + std::to_string(processes->ranks())});
  }
  Status status = checkLinks(options, program, processes, findings, lines);
  if (!status)
    return status;
  const int count = processes ? processes->count() : 1;
  for (const Finding &finding : findings)
    lines.push_back((finding.ends ? "error: " : "warning: ") + finding.text);
  const auto errors =
      size_t(std::count_if(findings.begin(), findings.end(), endsRun));
  lines.push_back(
      countText(size_t(program.worldSize()), "rank") + ", " +
      std::to_string(count) + (count == 1 ? " process on " : " processes on ") +
      countText(hosts, "host") + ": " +
      (findings.empty() ? "nothing found"
                        : countText(errors, "error") + ", " +
                              countText(findings.size() - errors, "warning")));
  if (!processes || processes->number() == 0) {
    std::string text;
    for (const std::string &line : lines)
      text += line + "\n";
    status = guarded([&] { writeStandardOutput(text); });
  }
  ends = errors > 0;
  return status;
}
