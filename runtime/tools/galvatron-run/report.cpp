//===- report.cpp - What galvatron-run prints and writes ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "report.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <sys/resource.h>

namespace {

using grt::RankMemory;
using grt::Status;
using Json = nlohmann::ordered_json;

const auto processBegin = std::chrono::steady_clock::now();

std::string format(const char *pattern, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), pattern, value);
  return text;
}

/// 1e-4, 3.21e-4: at most three digits, no padding.
std::string scientific(double value) {
  if (value == 0)
    return "0";
  std::string text = format("%.2e", value);
  size_t e = text.find('e');
  std::string digits = text.substr(0, e);
  while (digits.back() == '0')
    digits.pop_back();
  if (digits.back() == '.')
    digits.pop_back();
  return digits + "e" + std::to_string(std::atoi(text.c_str() + e + 1));
}

/// 950, 12.3k, 4.56M
std::string counted(double value) {
  const char *const units[] = {"", "k", "M", "G"};
  int unit = 0;
  while (value >= 1000 && unit < 3) {
    value /= 1000;
    ++unit;
  }
  return format(value >= 100 || unit == 0 ? "%.0f"
                : value >= 10             ? "%.1f"
                                          : "%.2f",
                value) +
         units[unit];
}

std::string mebibytes(uint64_t bytes) {
  double value = double(bytes) / (1 << 20);
  return format(value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.2f", value);
}

/// The largest of a field over ranks.
uint64_t largest(const std::vector<RankMemory> &memory,
                 uint64_t RankMemory::*field) {
  uint64_t most = 0;
  for (const RankMemory &rank : memory)
    most = std::max(most, rank.*field);
  return most;
}

uint64_t processPeakBytes() {
  struct rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return uint64_t(usage.ru_maxrss) * 1024;
}

Status cannot(const char *what, const std::string &path) {
  return Status(1, std::string("cannot ") + what + " '" + path +
                       "': " + strerror(errno));
}

Status writeFile(const std::string &path, const std::string &text) {
  FILE *file = std::fopen(path.c_str(), "w");
  if (!file)
    return cannot("create", path);
  bool wrote = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !wrote)
    return cannot("write", path);
  return Status();
}

} // namespace

Report::Report(const Options &options, const grt::Program &program,
               const grt::Processes *processes)
    : options(options), program(program), processes(processes),
      silent(processes && processes->number() != 0),
      people(options.json == "-" || options.summary == "-" || options.log == "-"
                 ? stderr
                 : stdout) {}

Report::~Report() {
  if (log && log != stdout)
    std::fclose(log);
}

Status Report::open(bool resumed) {
  if (options.log.empty() || silent)
    return Status();
  log = options.log == "-"
            ? stdout
            : std::fopen(options.log.c_str(), resumed ? "a" : "w");
  return log ? Status() : cannot("create", options.log);
}

void Report::note(const std::string &text) {
  if (silent)
    return;
  std::fprintf(people, "%s\n", text.c_str());
  std::fflush(people);
}

Status Report::step(const grt::StepResult &result,
                    const std::vector<RankMemory> &memory,
                    std::optional<double> validationLoss) {
  if (silent)
    return Status();
  skipped += result.skipped;
  if (steps++ == 0) {
    firstLoss = result.loss;
    startUpSeconds = std::chrono::duration<double>(
                         std::chrono::steady_clock::now() - processBegin)
                         .count();
  }
  finalLoss = result.loss;
  if (validationLoss)
    validation = validationLoss;
  milliseconds.push_back(result.milliseconds);

  double tokens = double(program.batchSize() * program.sequenceLength());
  double seconds = result.milliseconds / 1e3;
  double rate = seconds > 0 ? tokens / seconds : 0;
  double peak = program.peakFlops() * double(program.worldSize());
  bool hasMfu = peak > 0 && program.flopsPerToken() > 0;
  double mfu = hasMfu ? rate * program.flopsPerToken() / peak : 0;
  uint64_t measured = largest(memory, &RankMemory::measuredPeakBytes);
  uint64_t planned = largest(memory, &RankMemory::plannedPeakBytes);

  std::string line =
      "step " + std::to_string(result.step) + " loss " +
      format("%.4f", result.loss) + " norm " +
      format("%.3g", result.gradientNorm) + " lr " +
      scientific(result.learningRate) + " " +
      format(result.milliseconds < 10 ? "%.2f" : "%.0f", result.milliseconds) +
      " ms " + counted(rate) + " tok/s";
  if (hasMfu)
    line += " mfu " + format(mfu < 0.1 ? "%.1f%%" : "%.0f%%", mfu * 100);
  line += " mem " + mebibytes(measured) + "/" + mebibytes(planned) + " MiB";
  if (result.skipped)
    line += " update left out";
  if (validationLoss)
    line += " validation " + format("%.4f", *validationLoss);
  std::fprintf(people, "%s\n", line.c_str());
  std::fflush(people);

  if (!log)
    return Status();
  Json entry = {{"step", result.step},
                {"loss", result.loss},
                {"grad-norm", result.gradientNorm},
                {"lr", result.learningRate},
                {"ms", result.milliseconds},
                {"tokens-per-second", rate},
                {"mfu", hasMfu ? Json(mfu) : Json()},
                {"peak-bytes", measured},
                {"planned-bytes", planned}};
  if (result.skipped)
    entry["skipped"] = true;
  if (validationLoss)
    entry["validation-loss"] = *validationLoss;
  std::string text = entry.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), log) != text.size() ||
      std::fflush(log) != 0)
    return cannot("write", options.log);
  return Status();
}

void Report::generated(const std::string &prompt, const std::string &text) {
  if (silent)
    return;
  continuation = text;
  std::fprintf(people, "generated: ");
  std::fwrite(prompt.data(), 1, prompt.size(), people);
  std::fwrite(text.data(), 1, text.size(), people);
  std::fprintf(people, "\n");
}

double Report::medianMilliseconds() const {
  if (milliseconds.empty())
    return 0;
  std::vector<double> sorted = milliseconds;
  std::sort(sorted.begin(), sorted.end());
  size_t half = sorted.size() / 2;
  return sorted.size() % 2 ? sorted[half]
                           : (sorted[half - 1] + sorted[half]) / 2;
}

std::string Report::summaryText(const std::vector<RankMemory> &memory) const {
  Json ranks = Json::array();
  for (const RankMemory &rank : memory)
    ranks.push_back({{"rank", rank.rank},
                     {"planned-peak-bytes", rank.plannedPeakBytes},
                     {"measured-peak-bytes", rank.measuredPeakBytes},
                     {"outside-arena-bytes", rank.outsideArenaBytes},
                     {"device-peak-bytes",
                      rank.deviceBytes ? Json(rank.deviceBytes) : Json()}});
  double median = medianMilliseconds();
  double tokens = double(program.batchSize() * program.sequenceLength());
  Json summary = {
      {"ranks", ranks},
      {"process-peak-bytes", processPeakBytes()},
      {"steps", steps},
      {"start-up-seconds", steps ? Json(startUpSeconds) : Json()},
      {"skipped-steps", skipped},
      {"first-loss", steps ? Json(firstLoss) : Json()},
      {"final-loss", steps ? Json(finalLoss) : Json()},
      {"validation-loss", validation ? Json(*validation) : Json()},
      {"predicted-step-ms", program.predictedStepMilliseconds()},
      {"median-step-ms", median},
      {"tokens-per-second", median > 0 ? tokens / median * 1e3 : 0.0}};
  auto shares = [](const grt::TimeShares &time) {
    if (!time.steps)
      return Json();
    return Json{{"compute", time.compute},
                {"exposed-communication", time.exposedCommunication},
                {"bubble", time.bubble},
                {"idle", time.idle},
                {"step-ms", time.milliseconds}};
  };
  summary["time-shares"] = {{"steps", measuredShares.steps},
                            {"measured", shares(measuredShares)},
                            {"predicted", shares(predictedShares)}};
  if (processes)
    summary["processes"] = {{"count", processes->count()},
                            {"transport", processes->transport()},
                            {"buffer-bytes", processes->bufferBytes()}};
  if (continuation)
    summary["generated"] = *continuation;
  // What a byte model generates need not be valid UTF-8.
  return summary.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status Report::shares(const grt::Session &session) {
  return session.timeShares(measuredShares, predictedShares);
}

Status Report::finish(const std::vector<RankMemory> &memory) {
  if (silent)
    return Status();
  uint64_t planned = largest(memory, &RankMemory::plannedPeakBytes);
  uint64_t measured = largest(memory, &RankMemory::measuredPeakBytes);
  std::fprintf(people,
               "memory, largest rank: planned %s MiB, measured %s MiB "
               "(process %s MiB)\n",
               mebibytes(planned).c_str(), mebibytes(measured).c_str(),
               mebibytes(processPeakBytes()).c_str());
  if (steps) {
    std::string predicted =
        program.predictedStepMilliseconds() > 0
            ? format("predicted %.1f ms, ", program.predictedStepMilliseconds())
            : "";
    std::fprintf(people, "step time: %smedian %.1f ms\n", predicted.c_str(),
                 medianMilliseconds());
  }
  std::string text = summaryText(memory);
  for (const std::string &path : {options.summary, options.json}) {
    if (path.empty())
      continue;
    if (path == "-") {
      std::fputs(text.c_str(), stdout);
      continue;
    }
    if (Status status = writeFile(path, text); !status)
      return status;
  }
  if (std::fflush(stdout) != 0)
    return cannot("write", "standard output");
  return Status();
}
