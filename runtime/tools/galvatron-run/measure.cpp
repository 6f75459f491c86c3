//===- measure.cpp - Plans measured beside each other ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "measure.h"
#include "agreement.h"
#include "made_up.h"
#include "signals.h"

#include "base/error.h"
#include "base/files.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>

using namespace grt;
using Json = nlohmann::ordered_json;

namespace {

/// Steps that are timed, and those before them: the first ones touch memory for
/// the first time, and make graphs on devices.
constexpr uint64_t timedSteps = 10;
constexpr uint64_t warmUpSteps = 3;
constexpr uint64_t mostBytes = 16 << 20; ///< of a result file

/// One program of the folder, and what is known of it.
struct Candidate {
  std::string name, hash;
  double predictedMs = 0;
  std::vector<double> rounds; ///< the median step of each, ms
  std::string failure;        ///< of this call

  double milliseconds() const {
    std::vector<double> sorted = rounds;
    std::sort(sorted.begin(), sorted.end());
    size_t half = sorted.size() / 2;
    return sorted.size() % 2 ? sorted[half]
                             : (sorted[half - 1] + sorted[half]) / 2;
  }
};

/// "plan-2" before "plan-10".
bool comesBefore(const std::string &a, const std::string &b) {
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

Status listPrograms(const std::string &folder,
                    std::vector<Candidate> &candidates) {
  std::error_code problem;
  for (const auto &entry : std::filesystem::directory_iterator(folder, problem))
    if (entry.path().extension() == ".gvx")
      candidates.push_back({entry.path().stem().string(), {}, 0, {}, {}});
  if (problem)
    return Status(ExitInvalid, "--measure: cannot read folder '" + folder +
                                   "': " + problem.message());
  if (candidates.empty())
    return Status(ExitInvalid, "--measure: '" + folder +
                                   "' has no programs: galvatron-compile "
                                   "--measure-top=K -o " +
                                   folder + " writes them");
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate &a, const Candidate &b) {
              return comesBefore(a.name, b.name);
            });
  return Status();
}

std::string settingOf(const Options &options, const Program &program,
                      const Session &session, const Processes *processes) {
  return std::to_string(program.worldSize()) + " ranks in " +
         std::to_string(processes ? processes->count() : 1) +
         (processes ? " processes over " + processes->transport()
                    : std::string(" process")) +
         ", threads of a rank: " + std::to_string(session.threadsPerRank()) +
         (options.graphs ? "" : ", no graphs");
}

/// A measurement of a folder by the processes of a run; all make the same
/// calls.
class Measurement {
public:
  Measurement(const Options &options,
              const std::shared_ptr<Processes> &processes)
      : options(options), processes(processes),
        leads(!processes || processes->number() == 0),
        file(options.program + "/measured.json") {}

  Status run(int &exitCode);

private:
  /// Returns the first failure of any process.
  Status agree(const Status &own, const std::vector<Term> &terms = {}) {
    return processes ? processes->agree(own, terms) : own;
  }
  Status loadAll();
  Status load(Candidate &candidate, std::shared_ptr<const Program> &program);
  /// Takes what measured.json knows of these programs.
  Status readKnown();
  Status writeKnown();
  /// A round of steps of one program. One that cannot be started here is noted
  /// in the candidate, and is no error.
  Status measureOne(Candidate &candidate);
  Status runSteps(Session &session, std::vector<double> &times);
  void sayResult() const;
  Json toJson() const;

  const Options &options;
  const std::shared_ptr<Processes> processes;
  const bool leads;
  const std::string file;
  std::vector<Candidate> candidates;
  std::string setting; ///< under which all rounds were measured; "": none yet
  uint32_t endedBy = 0;
};

Status Measurement::load(Candidate &candidate,
                         std::shared_ptr<const Program> &program) {
  Status status = Program::loadFile(
      options.program + "/" + candidate.name + ".gvx", program);
  if (!status)
    return status;
  int64_t ranks = processes       ? processes->ranks()
                  : options.ranks ? *options.ranks
                                  : program->worldSize();
  if (ranks != program->worldSize())
    return Status(ExitInvalid, "program '" + candidate.name + "' needs " +
                                   std::to_string(program->worldSize()) +
                                   " ranks, there are " +
                                   std::to_string(ranks));
  candidate.hash = program->hash();
  candidate.predictedMs = program->predictedStepMilliseconds();
  return Status();
}

Status Measurement::loadAll() {
  Status status = listPrograms(options.program, candidates);
  std::vector<Term> terms = termsOfOptions(options, nullptr);
  for (Candidate &candidate : candidates) {
    std::shared_ptr<const Program> program;
    if (status)
      status = load(candidate, program);
    terms.push_back({"program " + candidate.name,
                     "program '" + candidate.name + "' with SHA-256 " +
                         candidate.hash.substr(0, 16) + ".."});
  }
  return agree(status, terms);
}

Status Measurement::readKnown() {
  std::string text;
  Status status = guarded([&] {
    std::error_code problem;
    if (leads && std::filesystem::exists(file, problem))
      text = readWholeFile(file, mostBytes);
  });
  if (processes)
    if (Status shared = processes->share(text); !shared)
      return shared;
  if (!status || text.empty())
    return status;
  Json known = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    setting = known.at("setting").get<std::string>();
    for (const Json &plan : known.at("plans"))
      for (Candidate &candidate : candidates)
        if (plan.at("program") == candidate.hash)
          candidate.rounds = plan.at("rounds").get<std::vector<double>>();
  } catch (const std::exception &) {
    return Status(ExitInvalid,
                  "'" + file + "' is not what --measure wrote: remove it");
  }
  return Status();
}

Json Measurement::toJson() const {
  Json plans = Json::array();
  const Candidate *fastest = nullptr;
  for (const Candidate &candidate : candidates) {
    Json plan = {{"name", candidate.name},
                 {"program", candidate.hash},
                 {"predicted-ms", candidate.predictedMs},
                 {"measured-ms", Json()},
                 {"rounds", candidate.rounds}};
    if (!candidate.rounds.empty()) {
      plan["measured-ms"] = candidate.milliseconds();
      if (!fastest || candidate.milliseconds() < fastest->milliseconds())
        fastest = &candidate;
    }
    if (!candidate.failure.empty())
      plan["failure"] = candidate.failure;
    plans.push_back(plan);
  }
  return {{"version", 1},
          {"setting", setting},
          {"fastest", fastest ? Json(fastest->name) : Json()},
          {"plans", plans}};
}

Status Measurement::writeKnown() {
  if (!leads)
    return Status();
  return guarded([&] {
    AtomicFile output(file);
    output.write(toJson().dump(2) + "\n");
    output.commit();
  });
}

Status Measurement::runSteps(Session &session, std::vector<double> &times) {
  const Program &program = session.program();
  DataBatch batch = madeUpBatch(program);
  uint64_t steps = warmUpSteps + options.steps.value_or(timedSteps);
  for (uint64_t number = 1; number <= steps; ++number) {
    endedBy = session.anywhere(takeRequests()) & endRequests;
    if (endedBy)
      return Status();
    Status status;
    if (!session.hasBegun())
      status = session.setBatch(batch);
    if (status && program.gradientDelay() > 0 && number < steps)
      status = session.setNextBatch(batch);
    StepResult result;
    if (status)
      status = session.step(result);
    if (!status)
      return status;
    if (number > warmUpSteps)
      times.push_back(result.milliseconds);
  }
  return session.finish();
}

Status Measurement::measureOne(Candidate &candidate) {
  std::shared_ptr<const Program> program;
  Status status = load(candidate, program);
  SessionOptions sessionOptions;
  sessionOptions.threadsPerRank = options.threadsPerRank;
  sessionOptions.timeoutSeconds = options.timeout;
  sessionOptions.graphs = options.graphs;
  sessionOptions.shareDevices = options.shareGpus;
  sessionOptions.anyPlacement = options.anyPlacement;
  sessionOptions.hostMemoryBytes = options.hostMemory;
  sessionOptions.seed = options.seed.value_or(0);
  sessionOptions.flightFile = options.flight;
  // Data that are made up may give any loss; the time is that of a step with
  // its update.
  sessionOptions.onNan =
      status && program->gradientDelay() > 0 ? OnNan::Late : OnNan::Skip;
  if (processes) {
    sessionOptions.world = processes->world();
    sessionOptions.timeoutSeconds = 0;
  }
  std::unique_ptr<Session> session;
  if (status)
    status = Session::create(program, sessionOptions, session);
  // Other plans may fit where memory is short for one.
  if (status.exitCode() == ExitMemory && !processes) {
    candidate.failure = status.message();
    return Status();
  }
  if (!status)
    return status;
  session->hyperparameters() = Hyperparameters::defaults(*program);
  session->hyperparameters().learningRate = 0;
  std::string now = settingOf(options, *program, *session, processes.get());
  if (now != setting) {
    if (!setting.empty() && leads)
      std::printf("'%s' is of %s: measured anew\n", file.c_str(),
                  setting.c_str());
    for (Candidate &other : candidates)
      other.rounds.clear();
    setting = now;
  }
  std::vector<double> times;
  status = runSteps(*session, times);
  if (!status || endedBy)
    return status;
  std::sort(times.begin(), times.end());
  double median = times[times.size() / 2];
  // Every process takes the time of process 0, as it decides what comes next.
  std::string text = std::to_string(median);
  if (processes)
    status = processes->share(text);
  if (!status)
    return status;
  candidate.rounds.push_back(std::stod(text));
  if (leads)
    std::printf("%s: %.2f ms (%.2f to %.2f, %zu steps), predicted %.2f ms\n",
                candidate.name.c_str(), candidate.rounds.back(), times.front(),
                times.back(), times.size(), candidate.predictedMs);
  std::fflush(stdout);
  return agree(writeKnown());
}

void Measurement::sayResult() const {
  std::vector<const Candidate *> known;
  for (const Candidate &candidate : candidates) {
    if (!candidate.failure.empty())
      std::printf("%s was not measured: %s\n", candidate.name.c_str(),
                  candidate.failure.c_str());
    if (!candidate.rounds.empty())
      known.push_back(&candidate);
  }
  size_t missing = candidates.size() - known.size();
  auto sayMissing = [&] {
    if (missing)
      std::printf("%zu of %zu not measured yet: the same command goes on\n",
                  missing, candidates.size());
  };
  if (known.empty()) {
    sayMissing();
    return;
  }
  std::stable_sort(known.begin(), known.end(),
                   [](const Candidate *a, const Candidate *b) {
                     return a->milliseconds() < b->milliseconds();
                   });
  std::printf("\n%-10s %12s %12s %8s %7s\n", "program", "predicted ms",
              "measured ms", "error", "rounds");
  std::vector<double> predicted, measured;
  for (const Candidate *candidate : known) {
    predicted.push_back(candidate->predictedMs);
    measured.push_back(candidate->milliseconds());
    std::printf("%-10s %12.2f %12.2f %+7.1f%% %7zu\n", candidate->name.c_str(),
                predicted.back(), measured.back(),
                (predicted.back() / measured.back() - 1) * 100,
                candidate->rounds.size());
  }
  const Candidate &fastest = *known.front();
  sayMissing();
  auto first = std::min_element(predicted.begin(), predicted.end());
  double gain =
      (measured[size_t(first - predicted.begin())] / measured.front() - 1) *
      100;
  std::printf("fastest: '%s/%s.gvx'", options.program.c_str(),
              fastest.name.c_str());
  if (gain > 0)
    std::printf(", %.1f%% faster than the one that was predicted to be", gain);
  else
    std::printf(", as predicted");
  if (known.size() > 1)
    std::printf("; rank correlation of predicted and measured %.2f",
                rankCorrelation(predicted, measured));
  std::printf("\n");
}

Status Measurement::run(int &exitCode) {
  catchSignals();
  Status status = loadAll();
  if (status)
    status = agree(readKnown());
  if (!status)
    return status;
  // The plans with the fewest rounds are next: what an earlier call did not
  // come to, or another round of all.
  size_t least = SIZE_MAX;
  for (const Candidate &candidate : candidates)
    least = std::min(least, candidate.rounds.size());
  for (Candidate &candidate : candidates) {
    if (candidate.rounds.size() > least)
      continue;
    if (Status measured = measureOne(candidate); !measured) {
      // Results of other plans stay, and the failure is told.
      if (leads)
        sayResult();
      return measured;
    }
    if (endedBy)
      break;
  }
  if (leads && options.json != "-")
    sayResult();
  if (leads && !options.json.empty())
    status = guarded([&] {
      std::string text = toJson().dump(2) + "\n";
      if (options.json == "-") {
        std::fputs(text.c_str(), stdout);
        return;
      }
      AtomicFile output(options.json);
      output.write(text);
      output.commit();
    });
  std::fflush(stdout);
  if (endedBy)
    exitCode = endingOf(endedBy).exitCode;
  return agree(status);
}

} // namespace

double rankCorrelation(const std::vector<double> &a,
                       const std::vector<double> &b) {
  auto ranksOf = [](const std::vector<double> &values) {
    std::vector<double> ranks;
    for (double value : values) {
      double below = 0, equal = 0;
      for (double other : values) {
        below += other < value;
        equal += other == value;
      }
      ranks.push_back(below + (equal + 1) / 2);
    }
    return ranks;
  };
  std::vector<double> x = ranksOf(a), y = ranksOf(b);
  double mean = (double(x.size()) + 1) / 2;
  double products = 0, squaresX = 0, squaresY = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    products += (x[i] - mean) * (y[i] - mean);
    squaresX += (x[i] - mean) * (x[i] - mean);
    squaresY += (y[i] - mean) * (y[i] - mean);
  }
  double scale = std::sqrt(squaresX * squaresY);
  return scale > 0 ? products / scale : 0;
}

Status measure(const Options &options,
               const std::shared_ptr<Processes> &processes, int &exitCode) {
  return Measurement(options, processes).run(exitCode);
}
