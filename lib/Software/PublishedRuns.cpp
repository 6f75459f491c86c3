//===- PublishedRuns.cpp - Published runs behind an execution -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/PublishedRuns.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace llvm;

namespace galvatron {
namespace {

/// The text of lib/Software/PublishedRuns.csv.
const char runsText[] =
#include "PublishedRuns.inc"
    ;

/// Weights of the sizes of model, card, degrees and batch in the distance of
/// two runs.
constexpr double kOfModel = 2, kOfCard = 4, kOfDegree = 1, kOfBatch = 0.5;

PublishedRun runOf(StringRef line) {
  SmallVector<StringRef, 15> parts;
  line.split(parts, ',');
  PublishedRun run;
  bool broken = parts.size() != 15;
  if (!broken) {
    run.execution = parts[0];
    run.source = parts[1];
    run.id = parts[2];
    run.device = parts[3];
    run.strategy = parts[12];
    constexpr int64_t PublishedRun::*counts[] = {
        &PublishedRun::devices,    &PublishedRun::parameters,
        &PublishedRun::tokens,     &PublishedRun::batch,
        &PublishedRun::microBatch, &PublishedRun::tensor,
        &PublishedRun::pipeline,   &PublishedRun::context};
    for (auto [text, member] :
         zip_equal(ArrayRef(parts).slice(4, std::size(counts)), counts))
      broken |= text.getAsInteger(10, run.*member) || run.*member < 1;
    broken |= parts[13].getAsDouble(run.seconds) ||
              parts[14].getAsDouble(run.predicted) || !(run.seconds > 0);
  }
  if (broken)
    report_fatal_error(Twine("PublishedRuns.csv cannot be read: ") + line);
  return run;
}

double apart(double a, double b) { return std::abs(std::log2(a / b)); }

} // namespace

std::string PublishedRun::str() const {
  std::string text =
      formatv("{0:f1}B, {1} samples of {2} tokens on {3} {4}, pp{5} {6}, {7} "
              "a micro-batch",
              double(parameters) / 1e9, batch, tokens, devices, device,
              pipeline, strategy, microBatch);
  if (context > 1)
    text += formatv(", positions cut in {0}", context);
  return text;
}

json::Value PublishedRun::toJson() const {
  return json::Object{
      {"source", source},         {"id", id},
      {"device", device},         {"devices", devices},
      {"parameters", parameters}, {"tokens", tokens},
      {"batch", batch},           {"micro-batch", microBatch},
      {"tensor", tensor},         {"pipeline", pipeline},
      {"context", context},       {"strategy", strategy},
      {"step-ms", 1e3 * seconds}, {"predicted-ms", 1e3 * predicted}};
}

ArrayRef<PublishedRun> publishedRuns() {
  static const std::vector<PublishedRun> runs = [] {
    std::vector<PublishedRun> runs;
    StringRef text = runsText;
    bool named = false; // the first line names the columns
    while (!text.empty()) {
      auto [line, rest] = text.split('\n');
      text = rest;
      if (line.empty() || line.starts_with("#"))
        continue;
      if (named)
        runs.push_back(runOf(line));
      named = true;
    }
    return runs;
  }();
  return runs;
}

Standing standingOf(StringRef execution) {
  std::vector<double> errors;
  for (const PublishedRun &run : publishedRuns())
    if (run.execution == execution)
      errors.push_back(100 * std::abs(run.predicted / run.seconds - 1));
  if (errors.empty())
    return {};
  sort(errors);
  size_t middle = errors.size() / 2;
  double median = errors.size() % 2 ? errors[middle]
                                    : (errors[middle - 1] + errors[middle]) / 2;
  return {int64_t(errors.size()), median};
}

const PublishedRun *nearestRun(StringRef execution, const ModelShape &shape,
                               const Configuration &configuration,
                               StringRef deviceType) {
  const double parameters = double(shape.layers * shape.blockWeights() +
                                   2 * shape.hidden * shape.vocabulary);
  const PublishedRun *nearest = nullptr;
  double least = 0;
  for (const PublishedRun &run : publishedRuns()) {
    if (run.execution != execution)
      continue;
    double distance =
        kOfModel * apart(double(run.parameters), parameters) +
        (run.device == deviceType ? 0 : kOfCard) +
        kOfDegree *
            (apart(double(run.devices), double(configuration.devices())) +
             apart(double(run.tensor), double(configuration.tensor)) +
             apart(double(run.pipeline), double(configuration.pipeline)) +
             apart(double(run.context), double(configuration.context)) +
             apart(double(run.tokens), double(shape.tokens))) +
        kOfBatch *
            (apart(double(run.batch), double(configuration.batch)) +
             apart(double(run.microBatch), double(configuration.microBatch)));
    if (!nearest || distance < least) {
      nearest = &run;
      least = distance;
    }
  }
  return nearest;
}

} // namespace galvatron
