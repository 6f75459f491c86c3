//===- state.cpp - What a checkpoint says of itself -----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checkpoint/state.h"
#include "base/error.h"
#include "base/files.h"
#include "grt/parameter_groups.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

namespace grt {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char *formatName = "galvatron-checkpoint";
constexpr uint64_t formatVersion = 1;
/// More than any model's list of tensors needs.
constexpr uint64_t largestText = uint64_t(1) << 30;

std::string sumText(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", (unsigned long long)value);
  return text;
}

/// A value of the document and its name, for messages.
class Field {
public:
  Field(const Json &value, std::string path)
      : value(value), path(std::move(path)) {}

  [[noreturn]] void error(const std::string &what) const {
    invalid(path + ": " + what);
  }
  Field at(const char *key) const {
    if (!value.is_object())
      error("expected an object");
    auto it = value.find(key);
    if (it == value.end())
      error(std::string("missing key '") + key + "'");
    return Field(*it, path + ", " + key);
  }
  /// True if there is such a key; older checkpoints have fewer.
  bool has(const char *key) const {
    return value.is_object() && value.contains(key);
  }
  std::vector<Field> list() const {
    if (!value.is_array())
      error("expected a list");
    std::vector<Field> fields;
    for (size_t i = 0; i < value.size(); ++i)
      fields.emplace_back(value[i], path + "[" + std::to_string(i) + "]");
    return fields;
  }
  uint64_t natural() const {
    if (!value.is_number_unsigned())
      error("expected a natural number");
    return value.get<uint64_t>();
  }
  double number() const {
    if (!value.is_number())
      error("expected a number");
    double number = value.get<double>();
    if (!std::isfinite(number))
      error("expected a finite number");
    return number;
  }
  bool boolean() const {
    if (!value.is_boolean())
      error("expected true or false");
    return value.get<bool>();
  }
  std::string string() const {
    if (!value.is_string())
      error("expected a string");
    return value.get<std::string>();
  }
  /// Sixteen hexadecimal digits.
  uint64_t sum() const {
    std::string text = string();
    if (text.size() != 16 ||
        text.find_first_not_of("0123456789abcdef") != std::string::npos)
      error("expected 16 hexadecimal digits, found '" + text + "'");
    return std::stoull(text, nullptr, 16);
  }
  /// The name of a file in the same folder.
  std::string fileName() const {
    std::string text = string();
    if (text.empty() || text.find('/') != std::string::npos || text == "." ||
        text == "..")
      error("expected the name of a file, found '" + text + "'");
    return text;
  }
  const Json &json() const { return value; }

private:
  const Json &value;
  std::string path;
};

Json dataJson(const std::vector<DataIdentity> &files) {
  Json data = Json::array();
  for (const DataIdentity &file : files)
    data.push_back({{"format", file.format},
                    {"tokens", file.tokens},
                    {"hash", sumText(file.hash)}});
  return data;
}

std::vector<DataIdentity> parseDataFiles(const Field &field) {
  std::vector<DataIdentity> files;
  for (const Field &file : field.list())
    files.push_back({file.at("format").string(), file.at("tokens").natural(),
                     file.at("hash").sum()});
  return files;
}

Json trainingJson(const TrainingState &state) {
  const Hyperparameters &h = state.hyperparameters;
  Json json = {{"step", state.step},
               {"samples", state.samples},
               {"seed", state.seed},
               {"decay-all", state.decayAll},
               {"betas", {h.beta1, h.beta2}},
               {"eps", h.eps},
               {"weight-decay", h.weightDecay},
               {"momentum", h.momentum},
               {"clip-norm", h.clipNorm},
               {"lr", state.schedule.peak},
               {"min-lr", state.schedule.least},
               {"warmup-steps", state.schedule.warmupSteps},
               {"steps", state.schedule.steps},
               {"lr-schedule", nameOf(state.schedule.decay)},
               {"decay-steps", state.schedule.decaySteps},
               {"skip-norm", h.skipNorm},
               {"accumulate", state.accumulate},
               {"parameter-groups", printParameterGroups(state.groups)},
               {"data", dataJson(state.data)},
               {"seq-len", state.sequenceLength},
               {"validation-fraction", state.validationFraction}};
  if (!state.validationData.empty())
    json["validation-data"] = dataJson(state.validationData);
  if (state.bestLoss)
    json["best-validation"] = {{"loss", *state.bestLoss},
                               {"step", state.bestStep},
                               {"since", state.validationsSince}};
  if (state.normBefore >= 0)
    json["norm-before"] = state.normBefore;
  if (!state.kernelChoices.empty())
    json["kernel-choices"] = state.kernelChoices;
  return json;
}

TrainingState parseTraining(const Field &field) {
  TrainingState state;
  Hyperparameters &h = state.hyperparameters;
  state.step = field.at("step").natural();
  state.samples = field.at("samples").natural();
  state.seed = field.at("seed").natural();
  state.decayAll = field.at("decay-all").boolean();
  std::vector<Field> betas = field.at("betas").list();
  if (betas.size() != 2)
    field.at("betas").error("expected two numbers");
  h.beta1 = betas[0].number();
  h.beta2 = betas[1].number();
  h.eps = field.at("eps").number();
  h.weightDecay = field.at("weight-decay").number();
  h.momentum = field.at("momentum").number();
  h.clipNorm = field.at("clip-norm").number();
  if (field.has("norm-before"))
    state.normBefore = field.at("norm-before").number();
  if (field.has("kernel-choices"))
    state.kernelChoices = field.at("kernel-choices").string();
  state.schedule.peak = field.at("lr").number();
  state.schedule.least = field.at("min-lr").number();
  state.schedule.warmupSteps = field.at("warmup-steps").natural();
  state.schedule.steps = field.at("steps").natural();
  if (field.has("lr-schedule")) {
    Field name = field.at("lr-schedule");
    std::optional<Decay> decay = parseDecay(name.string());
    if (!decay)
      name.error("expected constant, linear, cosine or wsd, found '" +
                 name.string() + "'");
    state.schedule.decay = *decay;
    state.schedule.decaySteps = field.at("decay-steps").natural();
    h.skipNorm = field.at("skip-norm").number();
    state.accumulate = field.at("accumulate").natural();
    if (!state.accumulate)
      field.at("accumulate").error("expected at least 1");
    std::string groups = field.at("parameter-groups").string();
    if (!groups.empty())
      if (Status status = parseParameterGroups(groups, state.groups); !status)
        field.at("parameter-groups").error(status.message());
  }
  state.data = parseDataFiles(field.at("data"));
  if (field.has("validation-data"))
    state.validationData = parseDataFiles(field.at("validation-data"));
  if (field.has("best-validation")) {
    Field best = field.at("best-validation");
    state.bestLoss = best.at("loss").number();
    state.bestStep = best.at("step").natural();
    state.validationsSince = best.at("since").natural();
  }
  uint64_t length = field.at("seq-len").natural();
  if (length > uint64_t(std::numeric_limits<int64_t>::max()))
    field.at("seq-len").error("number too large");
  state.sequenceLength = int64_t(length);
  state.validationFraction = field.at("validation-fraction").number();
  return state;
}

} // namespace

std::string writeCheckpointManifest(const CheckpointManifest &manifest) {
  Json files = Json::array(), sums = Json::object();
  for (const TensorFile &file : manifest.files)
    files.push_back({{"name", file.name},
                     {"bytes", file.bytes},
                     {"header-sha256", file.headerHash}});
  for (const auto &[name, sum] : manifest.sums)
    sums[name] = sumText(sum);
  Json document = {{"format", formatName},
                   {"version", formatVersion},
                   {"tool-version", version()},
                   {"training", trainingJson(manifest.training)},
                   {"dtype", manifest.dtype},
                   {"optimizer", manifest.optimizer},
                   {"files", files},
                   {"tensors", sums}};
  if (!manifest.adapters.empty())
    document["adapters"] = Json::parse(manifest.adapters, nullptr,
                                       /*allow_exceptions=*/false);
  return document.dump(2) + "\n";
}

CheckpointManifest parseCheckpointManifest(std::string_view text,
                                           const std::string &name) {
  Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded())
    invalid("'" + name + "': not valid JSON");
  Field root(document, "'" + name + "'");
  std::string format = root.at("format").string();
  if (format != formatName)
    root.at("format").error(std::string("expected '") + formatName +
                            "', found '" + format + "'");
  uint64_t number = root.at("version").natural();
  if (number != formatVersion)
    root.at("version").error("expected " + std::to_string(formatVersion) +
                             ", found " + std::to_string(number));
  CheckpointManifest manifest;
  manifest.training = parseTraining(root.at("training"));
  manifest.dtype = root.at("dtype").string();
  manifest.optimizer = root.at("optimizer").string();
  if (root.has("adapters"))
    manifest.adapters = root.at("adapters").json().dump(2);
  for (const Field &file : root.at("files").list())
    manifest.files.push_back({file.at("name").fileName(),
                              file.at("bytes").natural(),
                              file.at("header-sha256").string()});
  Field tensors = root.at("tensors");
  if (!tensors.json().is_object())
    tensors.error("expected an object");
  for (const auto &[tensor, sum] : tensors.json().items())
    manifest.sums[tensor] =
        Field(sum, "'" + name + "', tensor '" + tensor + "'").sum();
  return manifest;
}

std::string writeSums(const std::map<std::string, std::string> &contents) {
  std::string text;
  for (const auto &[name, content] : contents)
    text += hashText(content) + "  " + name + "\n";
  return text;
}

CheckpointManifest readCheckpointManifest(const std::string &checkpoint) {
  std::string sumsPath = checkpoint + "/" + sumsFileName;
  std::string path = checkpoint + "/" + stateFileName;
  std::string sums = readWholeFile(sumsPath, 1 << 20);
  std::string text;
  size_t at = 0;
  while (at < sums.size()) {
    size_t end = std::min(sums.find('\n', at), sums.size());
    std::string line = sums.substr(at, end - at);
    at = end + 1;
    if (line.size() < 67 || line.substr(64, 2) != "  " ||
        line.find('/') != std::string::npos)
      invalid("'" + sumsPath +
              "': expected lines of a SHA-256 and the name of "
              "a file, found '" +
              line + "'");
    std::string name = line.substr(66);
    std::string content = readWholeFile(checkpoint + "/" + name, largestText);
    if (hashText(content) != line.substr(0, 64))
      invalid("'" + checkpoint + "/" + name +
              "' is damaged: its SHA-256 differs from the one in " +
              sumsFileName);
    if (name == stateFileName)
      text = std::move(content);
  }
  if (text.empty())
    invalid("'" + sumsPath + "': does not name " + stateFileName);
  return parseCheckpointManifest(text, path);
}

Status readTrainingState(const std::string &checkpoint, TrainingState &state) {
  return guarded([&] { state = readCheckpointManifest(checkpoint).training; });
}

} // namespace grt
