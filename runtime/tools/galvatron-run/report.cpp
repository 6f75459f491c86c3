//===- report.cpp - What galvatron-run prints and writes ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "report.h"
#include "base/text.h"
#include "core/manifest.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace {

using grt::RankMemory;
using grt::RankSwaps;
using grt::Status;
using grt::StepKind;
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

/// Now: 2026-11-22T19:13:31Z.
std::string timeText() {
  std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// 1,234,567
std::string grouped(uint64_t value) {
  std::string text = std::to_string(value);
  for (size_t at = text.size(); at > 3; at -= 3)
    text.insert(at - 3, ",");
  return text;
}

std::string plural(uint64_t count, const char *one, const char *several) {
  return grouped(count) + " " + (count == 1 ? one : several);
}

Status storageFails(const std::string &what) {
  return Status(grt::ExitStorage, "cannot " + what + ": " + strerror(errno));
}

Status cannot(const char *what, const std::string &path) {
  return storageFails(std::string(what) + " '" + path + "'");
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

double secondsSinceStart() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                       processBegin)
      .count();
}

Report::Report(const Options &options, const grt::Program &program,
               const grt::Processes *processes)
    : options(options), program(program), processes(processes),
      silent(processes && processes->number() != 0),
      console(options.json == "-" || options.summary == "-" ||
                      options.log == "-"
                  ? stderr
                  : stdout),
      onTerminal(isatty(fileno(console))) {}

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

void Report::failure(const Status &status) {
  warn(status.message());
  failed.push_back(status);
}

size_t Report::terminalColumns() const {
  winsize size{};
  size_t stamp = options.timestamps ? timeText().size() + 1 : 0;
  if (!onTerminal || ioctl(fileno(console), TIOCGWINSZ, &size) != 0 ||
      size.ws_col <= stamp)
    return SIZE_MAX;
  return size.ws_col - stamp;
}

void Report::say(const std::string &line) {
  if (silent || gone)
    return;
  std::string stamp = options.timestamps ? timeText() + " " : "";
  std::fputs((stamp + line + "\n").c_str(), console);
  if (std::fflush(console) == 0)
    return;
  // A closed pipe, a terminal that was hung up, or a full disk: no line after
  // this one can be seen.
  gone = true;
  if (errno != EPIPE && !onTerminal)
    failure(storageFails(console == stderr ? "write standard error"
                                           : "write standard output"));
}

void Report::note(const std::string &text) { say(text); }

void Report::warn(const std::string &text) {
  if (silent)
    return;
  std::string stamp = options.timestamps ? timeText() + " " : "";
  std::fprintf(stderr, "%sgalvatron-run: warning: %s\n", stamp.c_str(),
               text.c_str());
  std::fflush(stderr);
}

double Report::epochs(uint64_t samples) const {
  return trainingSamples ? double(samples) / double(trainingSamples) : 0;
}

std::vector<double> Report::sourcePasses() const {
  std::vector<double> result;
  for (const grt::Dataset::Draws &source : data->draws(lastSamples))
    result.push_back(double(source.drawn) / double(source.training));
  return result;
}

/// "1.25 epochs", of a mixture those of the sources that were read least and
/// most.
std::string Report::passesText() const {
  std::vector<double> passes = sourcePasses();
  auto [least, most] = std::minmax_element(passes.begin(), passes.end());
  if (passes.size() == 1)
    return format("%.2f epochs", *least);
  return format("%.2f", *least) + " to " + format("%.2f", *most) +
         " epochs of its " + std::to_string(passes.size()) + " sources";
}

void Report::header(const grt::Session &session, const grt::Dataset *data,
                    const grt::TrainingState &state,
                    const std::vector<std::string> &links) {
  grt::ProgramFacts facts = program.facts();
  firstStep = state.step;
  accumulate = state.accumulate;
  lastSamples = state.samples;
  graphsPerStep = session.graphsPerStep();
  stepsBegan = secondsSinceStart();
  if (data)
    trainingSamples = data->trainingSamples();
  this->data = data;
  page.facts = {"model: " + (facts.model.empty() ? "" : facts.model + ", ") +
                    counted(double(facts.parameters)) + " parameters" +
                    (facts.trained < facts.parameters
                         ? " (" + counted(double(facts.trained)) + " trained)"
                         : "") +
                    ", " + facts.dtype + ", " + program.optimizer(),
                "plan: " + facts.plan};
  for (const std::string &line : page.facts)
    say(line);
  int64_t ranks = program.worldSize();
  std::string where = "in this process";
  if (processes)
    where = "in " +
            plural(uint64_t(processes->count()), "process", "processes") +
            " over " + processes->transport();
  say("ranks: " + std::to_string(ranks) + " x " +
      plural(uint64_t(session.threadsPerRank()), "thread", "threads") + " " +
      where);
  collectives = session.collectivesLibrary();
  if (!collectives.empty())
    say("collectives: " + collectives);
  this->links = links;
  for (const std::string &line : links)
    say(line);
  if (facts.nominal)
    say("cluster: nominal figures, which predicted times and mfu are of; "
        "galvatron-profile measures this machine");
  if (!data)
    return;
  uint64_t batch = stepSamples();
  size_t sources = data->draws(0).size();
  std::string line = "data: ", ofTokens;
  if (program.sequenceLength())
    ofTokens =
        " of " + plural(uint64_t(program.sequenceLength()), "token", "tokens");
  if (trainingSamples) {
    line +=
        plural(trainingSamples, "sample", "samples") + ofTokens +
        ", batches of " + grouped(batch) +
        (accumulate > 1 ? " in " + grouped(accumulate) + " parts" : "") +
        (sources > 1 ? ", a mixture of " + std::to_string(sources) + " sources"
                     : ", " +
                           plural((trainingSamples + batch - 1) / batch, "step",
                                  "steps") +
                           " an epoch");
    if (data->validationSamples())
      line += "; " + grouped(data->validationSamples()) + " for validation";
  } else {
    line += plural(data->validationSamples(), "sample", "samples") + ofTokens +
            " for evaluation";
  }
  const grt::Dataset::Usable values = data->usable();
  if (values.labels < values.all)
    line += "; " +
            format("%.3g", 100 * double(values.labels) / double(values.all)) +
            "% of the tokens count as labels";
  if (values.areMixed)
    line += "; documents packed into a sample see each other "
            "(galvatron-compile --documents=attention keeps them apart)";
  if (values.used < values.all) {
    const char *unit = program.sequenceLength() ? " tokens" : " values";
    line += "; " + grouped(values.used) + " of " + grouped(values.all) + unit;
    constexpr double fewPercent = 0.03;
    double left = double(values.all - values.used) / double(values.all);
    if (left > fewPercent)
      warn(format("%.0f", 100 * left) + "% of the data's " +
           grouped(values.all) + unit +
           " stand at ends of files, where they fill no sample: join the "
           "files, as galvatron-data does, or take shorter sequences");
  }
  say(line);
  if (trainingSamples && trainingSamples < batch && *options.steps > state.step)
    warn("the data has " + plural(trainingSamples, "sample", "samples") +
         " for training and a batch " + grouped(batch) +
         ": every step sees some of them more than once");
}

/// Whether the line of a step is printed.
bool Report::printed(const grt::StepResult &result, bool validates) {
  bool always = steps == 1 || result.step == *options.steps || validates ||
                result.skipped || (!options.printEvery && !onTerminal);
  double now = secondsSinceStart();
  bool due = options.printEvery ? result.step % *options.printEvery == 0
                                : now - lastLine >= 1;
  if (!always && !due)
    return false;
  lastLine = now;
  return true;
}

/// Returns the text of where the run is in the data, and how long it will go
/// on. Lines without a terminal have what they always had.
std::string Report::progress(uint64_t step, uint64_t samples) const {
  if (!onTerminal && !options.printEvery)
    return "";
  std::string text = " epoch " + format("%.2f", epochs(samples));
  uint64_t left = *options.steps - std::min(*options.steps, step);
  if (left)
    text +=
        " left " + grt::durationText((secondsSinceStart() - stepsBegan) /
                                     double(step - firstStep) * double(left));
  return text;
}

void Report::step(const grt::StepResult &result,
                  std::optional<double> validationLoss,
                  const grt::TrainingState &state) {
  const uint64_t samples = state.samples;
  if (silent)
    return;
  skipped += result.skipped;
  if (steps++ == 0) {
    firstLoss = result.loss;
    startUpSeconds = secondsSinceStart();
  }
  finalLoss = result.loss;
  if (validationLoss) {
    validation = validationLoss;
    bestValidation = state.bestLoss;
    bestStep = state.bestStep;
  }
  milliseconds[result.kind].push_back(result.milliseconds);
  // Who goes on without the others has no norm over all ranks.
  bool hasNorm =
      program.gradientDelay() == 0 && options.onNan != grt::OnNan::Late;
  // The first step that takes samples of a second pass says so, of every source
  // of a mixture.
  if (trainingSamples) {
    std::vector<grt::Dataset::Draws> before = data->draws(lastSamples);
    std::vector<grt::Dataset::Draws> after = data->draws(samples);
    for (size_t i = 0; i < after.size(); ++i)
      if (uint64_t all = after[i].training;
          before[i].drawn <= all && after[i].drawn > all)
        say("epoch 2 " +
            (after.size() > 1
                 ? "of source " + std::to_string(i) + " ('" + after[i].name +
                       "', " + plural(all, "sample", "samples") + ") "
                 : "") +
            "begins in step " + std::to_string(result.step) +
            (after.size() > 1 ? ""
             : all == 1 ? ": the only sample was seen once"
                        : ": all " + grouped(all) + " samples were seen once"));
  }
  lastSamples = samples;
  if (!options.report.empty()) {
    page.losses.add(result.step, result.loss);
    page.milliseconds.add(result.step, result.milliseconds);
    if (hasNorm)
      page.norms.add(result.step, result.gradientNorm);
    page.rates.add(result.step, result.learningRate);
    if (validationLoss)
      page.validations.emplace_back(double(result.step), *validationLoss);
  }

  // 0 for models without tokens.
  double length = double(program.sequenceLength());
  double seconds = result.milliseconds / 1e3;
  double rate = seconds > 0 ? double(stepSamples()) / seconds : 0;
  double peak = program.peakFlops() * double(program.worldSize());
  bool hasMfu = peak > 0 && program.flopsPerSample() > 0;
  double mfu = hasMfu ? rate * program.flopsPerSample() / peak : 0;
  const uint64_t measured = result.peakBytes;
  uint64_t planned = 0;
  for (const grt::Role &role : program.manifest().roles)
    planned = std::max(planned, role.arenaBytes);

  const bool hasZLoss = program.manifest().zLoss > 0;
  if (printed(result, validationLoss.has_value())) {
    enum { All, NoMemory, NoMfu, NoRate };
    auto lineOf = [&](int leftOut) {
      std::string line = "step " + std::to_string(result.step) + " loss " +
                         format("%.4f", result.loss);
      if (hasZLoss)
        line += " z-loss " + format("%.3g", result.zLoss);
      if (hasNorm)
        line += " norm " + format("%.3g", result.gradientNorm);
      if (leftOut < NoRate)
        line += " lr " + scientific(result.learningRate);
      line += " " +
              format(result.milliseconds < 10 ? "%.2f" : "%.0f",
                     result.milliseconds) +
              " ms " +
              (length ? counted(rate * length) + " tok/s"
                      : counted(rate) + " samples/s");
      if (hasMfu && leftOut < NoMfu)
        line += " mfu " + format(mfu < 0.1 ? "%.1f%%" : "%.0f%%", mfu * 100);
      if (leftOut < NoMemory)
        line +=
            " mem " + mebibytes(measured) + "/" + mebibytes(planned) + " MiB";
      if (result.skipped)
        line += " update left out";
      if (validationLoss)
        line += " validation " + format("%.4f", *validationLoss);
      return line + progress(result.step, samples);
    };
    // A narrow terminal does not show the fields that change least.
    int leftOut = All;
    while (leftOut < NoRate && lineOf(leftOut).size() > terminalColumns())
      ++leftOut;
    say(lineOf(leftOut));
  }

  if (!log)
    return;
  Json entry = {{"step", result.step},
                {"loss", result.loss},
                {"grad-norm", hasNorm ? Json(result.gradientNorm) : Json()},
                {"lr", result.learningRate},
                {"ms", result.milliseconds},
                {"tokens-per-second", length ? Json(rate * length) : Json()},
                {"samples-per-second", rate},
                {"mfu", hasMfu ? Json(mfu) : Json()},
                {"peak-bytes", measured},
                {"planned-bytes", planned},
                {"time", timeText()}};
  if (hasZLoss)
    entry["z-loss"] = result.zLoss;
  if (result.skipped)
    entry["skipped"] = true;
  if (validationLoss)
    entry["validation-loss"] = *validationLoss;
  std::string text = entry.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), log) == text.size() &&
      std::fflush(log) == 0)
    return;
  // Space may come back; the run does not end for a line.
  if (lostLogLines++ == 0)
    failure(cannot("write", options.log));
  std::clearerr(log);
}

void Report::validated(double loss) {
  validation = bestValidation = loss;
  bestStep = firstStep;
  say("validation " + format("%.4f", loss));
}

void Report::evaluated(const Validation &found) {
  evaluation = found;
  std::optional<double> accuracy = found.accuracy();
  say("evaluation loss " + format("%.4f", found.loss) + " perplexity " +
      format("%.6g", std::exp(found.loss)) +
      (accuracy ? format(" accuracy %.4f", *accuracy) : "") + " over " +
      (program.sequenceLength() ? plural(found.values, "token", "tokens")
                                : plural(found.values, "value", "values")));
}

void Report::wrote(const std::string &what, const std::string &path) {
  places.emplace_back(what, path);
}

void Report::generated(const std::string &prompt, const std::string &text) {
  if (silent)
    return;
  continuations.push_back(text);
  std::string all = prompt + text;
  // The text that a model of bytes generates may have zeros.
  if (!gone)
    std::fwrite("generated: ", 1, 11, console);
  if (!gone)
    std::fwrite(all.data(), 1, all.size(), console);
  say("");
}

void Report::generationCost(const GenerationCost &cost) {
  if (silent)
    return;
  generation = cost;
  if (!cost.decodePasses)
    return;
  char line[160];
  std::snprintf(line, sizeof line,
                "%llu tokens, %.1f ms a pass behind the prompts",
                static_cast<unsigned long long>(cost.tokens),
                1e3 * cost.decodeSeconds / double(cost.decodePasses));
  say(line);
}

StepKind Report::medianKind() const {
  for (StepKind kind : {StepKind::Graphs, StepKind::Calls})
    if (milliseconds.count(kind))
      return kind;
  return StepKind::Recorded;
}

double Report::medianMilliseconds() const {
  auto found = milliseconds.find(medianKind());
  if (found == milliseconds.end())
    return 0;
  std::vector<double> sorted = found->second;
  std::sort(sorted.begin(), sorted.end());
  size_t half = sorted.size() / 2;
  return sorted.size() % 2 ? sorted[half]
                           : (sorted[half - 1] + sorted[half]) / 2;
}

std::string Report::summaryText(const std::vector<RankMemory> &memory,
                                const std::vector<RankSwaps> &swaps,
                                const std::string &endedBy) const {
  Json ranks = Json::array();
  for (const RankMemory &rank : memory)
    ranks.push_back({{"rank", rank.rank},
                     {"planned-peak-bytes", rank.plannedPeakBytes},
                     {"measured-peak-bytes", rank.measuredPeakBytes},
                     {"outside-arena-bytes", rank.outsideArenaBytes},
                     {"host-bytes", rank.homeBytes},
                     {"host-pageable-bytes", rank.pageableBytes},
                     {"device-peak-bytes",
                      rank.deviceBytes ? Json(rank.deviceBytes) : Json()}});
  auto bytes = [](const RankSwaps::Bytes &moved) {
    return Json{{"in", moved.in}, {"out", moved.out}};
  };
  // Nothing is copied where no state has its home on the host.
  for (const RankSwaps &rank : swaps)
    for (size_t i = 0; i < memory.size(); ++i)
      if (memory[i].rank == rank.rank && memory[i].homeBytes)
        ranks[i]["swapped-bytes"] = {{"parameters", bytes(rank.parameters)},
                                     {"gradients", bytes(rank.gradients)},
                                     {"optimizer", bytes(rank.optimizer)},
                                     {"activations", bytes(rank.activations)}};
  double median = medianMilliseconds();
  double rate = median > 0 ? double(stepSamples()) / median * 1e3 : 0;
  double length = double(program.sequenceLength());
  uint64_t samplesSeen = stepSamples() * steps;
  static const std::map<StepKind, const char *> names = {
      {StepKind::Calls, "calls"},
      {StepKind::Graphs, "graphs"},
      {StepKind::Recorded, "recorded"}};
  auto of = milliseconds.find(medianKind());
  Json timed;
  if (of != milliseconds.end())
    timed = {{"kind", names.at(of->first)}, {"steps", of->second.size()}};
  Json sourceEpochs;
  if (trainingSamples)
    if (std::vector<double> passes = sourcePasses(); passes.size() > 1)
      sourceEpochs = passes;
  Json summary = {
      {"ranks", ranks},
      {"process-peak-bytes", processPeakBytes()},
      {"ended-by", endedBy},
      {"steps", steps},
      {"start-up-seconds", steps ? Json(startUpSeconds) : Json()},
      {"skipped-steps", skipped},
      {"first-loss", steps ? Json(firstLoss) : Json()},
      {"final-loss", steps ? Json(finalLoss) : Json()},
      {"validation-loss", validation ? Json(*validation) : Json()},
      {"best-validation-loss", bestValidation ? Json(*bestValidation) : Json()},
      {"best-validation-step", bestValidation ? Json(bestStep) : Json()},
      {"samples-seen", samplesSeen},
      {"tokens-seen", length ? Json(samplesSeen * uint64_t(length)) : Json()},
      {"epochs", trainingSamples ? Json(epochs(lastSamples)) : Json()},
      {"source-epochs", sourceEpochs},
      {"predicted-step-ms", predictedMilliseconds()},
      {"accumulate", accumulate},
      {"median-step-ms", median},
      {"median-of", timed},
      {"graphs-per-step", graphsPerStep},
      {"collectives", collectives.empty() ? Json() : Json(collectives)},
      {"links", links.empty() ? Json() : Json(links)},
      {"nominal-cluster", program.facts().nominal},
      {"tokens-per-second", length ? Json(rate * length) : Json()},
      {"samples-per-second", rate}};
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
  if (processes) {
    std::optional<grt::Processes::Held> held = processes->heldBytes();
    summary["processes"] = {
        {"count", processes->count()},
        {"transport", processes->transport()},
        {"buffer-bytes", processes->bufferBytes()},
        {"most-held-bytes", held ? Json(held->most) : Json()},
        {"held-limit-bytes", held ? Json(held->limit) : Json()}};
  }
  if (evaluation)
    summary["evaluation"] = {
        {"loss", evaluation->loss},
        {"perplexity", std::exp(evaluation->loss)},
        {"accuracy",
         evaluation->accuracy() ? Json(*evaluation->accuracy()) : Json()},
        {"values", evaluation->values},
        {"tokens", length ? Json(evaluation->values) : Json()}};
  if (lostLogLines)
    summary["lost-log-lines"] = lostLogLines;
  if (continuations.size() == 1)
    summary["generated"] = continuations.front();
  else if (!continuations.empty())
    summary["generated"] = continuations;
  if (generation)
    summary["generation"] = {
        {"passes", generation->passes},
        {"tokens", generation->tokens},
        {"ms-per-pass", generation->decodePasses
                            ? Json(1e3 * generation->decodeSeconds /
                                   double(generation->decodePasses))
                            : Json()}};
  // The text that a byte model generates need not be valid UTF-8.
  return summary.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status Report::shares(const grt::Session &session) {
  // More ranks than that make no page that anybody reads.
  constexpr size_t mostDrawn = 16;
  if (!options.report.empty())
    if (Status status = session.stepPicture(mostDrawn, page.step); !status)
      return status;
  return session.timeShares(measuredShares, predictedShares);
}

void Report::writePage(const std::vector<RankMemory> &memory,
                       const std::string &endedBy) {
  page.title = "Run of " + options.program;
  page.facts.push_back(plural(steps, "step", "steps") + " of " +
                       grouped(stepSamples()) + " samples; " + endedBy);
  page.predictedMs = predictedMilliseconds();
  page.nominal = program.facts().nominal;
  page.measured = measuredShares;
  page.predicted = predictedShares;
  page.memory = memory;
  if (Status status = writeFile(options.report, pageText(page)); !status)
    failure(status);
  else
    wrote("report", options.report);
}

void Report::finish(const std::vector<RankMemory> &memory,
                    const std::vector<RankSwaps> &swaps,
                    const std::string &endedBy) {
  if (silent)
    return;
  uint64_t planned = largest(memory, &RankMemory::plannedPeakBytes);
  uint64_t measured = largest(memory, &RankMemory::measuredPeakBytes);
  if (!memory.empty())
    say("memory, largest rank: planned " + mebibytes(planned) +
        " MiB, measured " + mebibytes(measured) + " MiB (process " +
        mebibytes(processPeakBytes()) + " MiB)");
  if (uint64_t home = largest(memory, &RankMemory::homeBytes))
    say("states on the host, largest rank: " + mebibytes(home) + " MiB");
  if (uint64_t pageable = largest(memory, &RankMemory::pageableBytes))
    say("of what is copied from there and back " + mebibytes(pageable) +
        " MiB cannot be pinned on this machine: these copies are slower");
  if (steps) {
    std::string predicted =
        predictedMilliseconds() > 0
            ? format("predicted %.1f ms", predictedMilliseconds()) +
                  (program.facts().nominal ? " (nominal), " : ", ")
            : "";
    say("step time: " + predicted +
        format("median %.1f ms", medianMilliseconds()));
    uint64_t samples = steps * stepSamples();
    uint64_t length = uint64_t(program.sequenceLength());
    std::string seen = "seen: " +
                       (length ? plural(samples * length, "token", "tokens")
                               : plural(samples, "sample", "samples")) +
                       " in " + plural(steps, "step", "steps");
    if (trainingSamples)
      seen += ", " + passesText() + " since the beginning of the run";
    if (bestValidation)
      seen += "; best validation loss " + format("%.4f", *bestValidation) +
              " after step " + std::to_string(bestStep);
    say(seen);
  }
  if (log && log != stdout && !lostLogLines)
    wrote("log", options.log);
  if (!options.report.empty())
    writePage(memory, endedBy);
  std::string text = summaryText(memory, swaps, endedBy);
  bool onOutput = false;
  for (const std::string &path : {options.summary, options.json}) {
    if (path.empty())
      continue;
    if (path == "-") {
      std::fputs(text.c_str(), stdout);
      onOutput = true;
    } else if (Status status = writeFile(path, text); !status) {
      failure(status);
    } else {
      wrote("summary", path);
    }
  }
  if (onOutput && std::fflush(stdout) != 0)
    failure(storageFails("write standard output"));
  if (places.empty())
    return;
  std::string line = "written:";
  for (const auto &[what, path] : places)
    line += (&what == &places.front().first ? " " : ", ") + what + " '" + path +
            "'";
  say(line);
}
