//===- HetuProfiles.cpp - Hetu-Galvatron's arguments and profiles ---------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HetuGalvatron.h"

#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <cmath>

using namespace llvm;

namespace galvatron {
namespace {

/// The least squares of measured points: y = sum of coefficients[i] * x^i.
std::vector<double> fitted(ArrayRef<std::pair<double, double>> points,
                           size_t degree) {
  const size_t size = degree + 1;
  double most = 1;
  for (auto [x, y] : points)
    most = std::max(most, x);
  // Normal equations of x by its largest value, by elimination with pivots.
  std::vector<std::vector<double>> rows(size, std::vector<double>(size + 1));
  for (auto [x, y] : points)
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = 0; j < size; ++j)
        rows[i][j] += std::pow(x / most, double(i + j));
      rows[i][size] += y * std::pow(x / most, double(i));
    }
  for (size_t column = 0; column < size; ++column) {
    size_t pivot = column;
    for (size_t row = column; row < size; ++row)
      if (std::abs(rows[row][column]) > std::abs(rows[pivot][column]))
        pivot = row;
    std::swap(rows[column], rows[pivot]);
    for (size_t row = 0; row < size; ++row) {
      if (row == column || rows[column][column] == 0)
        continue;
      double factor = rows[row][column] / rows[column][column];
      for (size_t j = column; j <= size; ++j)
        rows[row][j] -= factor * rows[column][j];
    }
  }
  std::vector<double> coefficients(size);
  for (size_t i = 0; i < size; ++i)
    coefficients[i] = rows[i][i] == 0 ? 0
                                      : rows[i][size] / rows[i][i] /
                                            std::pow(most, double(i));
  return coefficients;
}

/// Reads one document into a problem.
class Reader {
public:
  Reader(HetuProblem &problem, StringRef path) : problem(problem), path(path) {}

  Error read(const json::Value &value);

private:
  Error readArguments(const json::Value &value);
  Error readSpace(const json::Value &value);
  Error readTypes(const json::Value &value);
  Error readHardware();
  Error readMemory();
  Error readTimes();
  Expected<json::Object> profile(const json::Value *profiles, StringRef key,
                                 const std::string &fileName) const;
  Expected<HetuEnds> ends(StringRef key, int64_t tokens) const;
  Expected<double> number(const json::Object &object, StringRef key,
                          StringRef where) const;
  Error fail(const Twine &message) const {
    return makeError(path + ": " + message);
  }
  /// Points of "layertype_0_bsz1_seq2048": samples and tokens with the time.
  struct Point {
    double samples, tokens, ms;
    std::string tokensText;
  };
  std::vector<Point> pointsOf(StringRef layer) const;
  Expected<HetuTime> timeOf(StringRef layer, const HetuLayers &type,
                            bool quadratic) const;

  HetuProblem &problem;
  StringRef path;
  std::string timeMode = "static", memoryMode = "static";
  json::Object computation, memory, bandwidth, p2p, overlap, latency;
};

Expected<double> Reader::number(const json::Object &object, StringRef key,
                                StringRef where) const {
  std::optional<double> found = object.getNumber(key);
  if (!found || !(*found > 0))
    return fail("'" + where + "." + key + "': expected a number" +
                (found ? " above 0" : ""));
  return *found;
}

/// A profile that stands in the document, or in a file beside it; `profiles` is
/// the folder of all of them where it is text.
Expected<json::Object> Reader::profile(const json::Value *profiles,
                                       StringRef key,
                                       const std::string &fileName) const {
  SmallString<128> file(sys::path::parent_path(path));
  if (std::optional<StringRef> folder = profiles->getAsString()) {
    sys::path::append(file, *folder, fileName);
  } else {
    const json::Object *all = profiles->getAsObject();
    const json::Value *own = all ? all->get(key) : nullptr;
    if (!own)
      return fail("'profiles." + key + "': missing");
    if (const json::Object *object = own->getAsObject())
      return *object;
    std::optional<StringRef> name = own->getAsString();
    if (!name)
      return fail("'profiles." + key + "': expected an object or a file");
    sys::path::append(file, *name);
  }
  auto buffer = MemoryBuffer::getFile(file);
  if (!buffer)
    return makeError("'" + file + "': " + buffer.getError().message());
  Expected<json::Value> value = parseJson((*buffer)->getBuffer(), file);
  if (!value)
    return value.takeError();
  if (json::Object *object = value->getAsObject())
    return std::move(*object);
  return makeError("'" + file + "': expected an object");
}

Error Reader::readSpace(const json::Value &value) {
  ObjectReader space(value, "search_args.search_space_info");
  std::pair<StringRef, bool *> switches[] = {
      {"disable_dp", &problem.dp},
      {"disable_tp", &problem.tp},
      {"disable_sp", &problem.sp},
      {"disable_pp", &problem.pp},
      {"disable_ckpt", &problem.ckpt},
      {"disable_fsdp", &problem.fsdp},
      {"disable_embedding_lmhead_tp", &problem.vocabularyTp},
      {"disable_embedding_lmhead_sp", &problem.vocabularySp}};
  for (auto [key, member] : switches)
    *member = space.integerOr(key, 0) == 0;
  if (space.integerOr("disable_cp", 1) == 0)
    space.fail("'search_args.search_space_info.disable_cp': expected 1: its "
               "formulas have no context parallelism");
  problem.mostTensor = space.integerOr("max_tp_deg", 8);
  problem.mostPipeline = space.integerOr("max_pp_deg", 8);
  problem.mostUlysses = space.integerOr("max_sp_deg", 8);
  return space.finish(/*rejectUnknown=*/false);
}

Error Reader::readArguments(const json::Value &value) {
  ObjectReader arguments(value, "search_args");
  json::Value none = json::Object();
  auto section = [&](StringRef key) {
    const json::Value *found =
        arguments.has(key) ? arguments.value(key) : nullptr;
    return ObjectReader(found && found->getAsObject() ? *found : none,
                        ("search_args." + key).str());
  };
  ObjectReader run = section("parallelism_info");
  problem.defaultDp = run.stringOr("default_dp_type", "ddp");
  problem.schedule = run.stringOr("pipeline_type", "gpipe");
  problem.precision = run.stringOr("mixed_precision", "bf16");
  problem.asyncReduce = run.booleanOr("async_grad_reduce", true);
  if (problem.defaultDp != "ddp" && problem.defaultDp != "zero2")
    run.fail("'" + run.pathOf("default_dp_type") +
             "': expected 'ddp' or 'zero2', found '" + problem.defaultDp + "'");
  if (problem.schedule != "gpipe" && problem.schedule != "pipedream_flush")
    run.fail("'" + run.pathOf("pipeline_type") +
             "': expected 'gpipe' or 'pipedream_flush', found '" +
             problem.schedule + "'");
  ObjectReader train = section("common_train_info");
  problem.sequenceParallel = train.booleanOr("sequence_parallel", false);
  problem.globalBuffer = train.booleanOr("global_memory_buffer", false);
  ObjectReader machine = section("hardware_info");
  problem.nodes = machine.integerOr("num_nodes", 1);
  problem.perNode = machine.integerOr("num_gpus_per_node", 8);
  problem.memoryGb = machine.integerOr("memory_constraint", 24);
  const int64_t devices = problem.nodes * problem.perNode;
  if (devices < 1 || devices > 65536 || !isPowerOf2_64(uint64_t(devices)))
    machine.fail("'search_args.hardware_info': expected devices that are a "
                 "power of two, found " +
                 Twine(devices));
  if (problem.memoryGb < 1 || problem.memoryGb > (1 << 20))
    machine.fail("'" + machine.pathOf("memory_constraint") +
                 "': expected gigabytes, found " + Twine(problem.memoryGb));
  ObjectReader sizes = section("batch_size_info");
  int64_t settled = sizes.integerOr("settle_bsz", -1);
  problem.chunks = std::max<int64_t>(sizes.integerOr("settle_chunk", -1), 0);
  const int64_t step = sizes.integerOr("bsz_scale", 8);
  const int64_t most = sizes.integerOr("max_bsz", 8);
  int64_t first = std::max(sizes.integerOr("min_bsz", 8), step);
  if (settled > 0)
    problem.batches = {settled};
  else if (step < 1 || most < first || (most - first) / step > 4096)
    sizes.fail("'search_args.batch_size_info': expected settle_bsz, or min_bsz "
               "to max_bsz by bsz_scale");
  else
    for (; first <= most; first += step)
      problem.batches.push_back(first);
  ObjectReader measured = section("profiling_info");
  timeMode = measured.stringOr("time_profile_mode", "static");
  memoryMode = measured.stringOr("memory_profile_mode", "static");
  if (!is_contained({"static", "batch", "sequence"}, timeMode))
    measured.fail("'" + measured.pathOf("time_profile_mode") +
                  "': expected static, batch or sequence, found '" + timeMode +
                  "'");
  if (!is_contained({"static", "sequence"}, memoryMode))
    measured.fail("'" + measured.pathOf("memory_profile_mode") +
                  "': expected static or sequence, found '" + memoryMode + "'");
  ObjectReader options = section("options_info");
  problem.fine = options.integerOr("fine_grained_mode", 1) != 0;
  for (ObjectReader *reader :
       {&run, &train, &machine, &sizes, &measured, &options, &arguments})
    if (Error error = reader->finish(/*rejectUnknown=*/false))
      return error;
  const json::Value *space = value.getAsObject()->get("search_space_info");
  return space && space->getAsObject() ? readSpace(*space) : readSpace(none);
}

Error Reader::readTypes(const json::Value &value) {
  ObjectReader model(value, "model");
  problem.model = model.stringOr("name", "model");
  const json::Array *types = model.array("layer_types");
  for (size_t i = 0; types && i < types->size(); ++i) {
    ObjectReader type((*types)[i], formatv("model.layer_types[{0}]", i).str());
    HetuLayers layers;
    layers.hidden = type.integer("hidden_size");
    layers.tokens = type.integer("seq_len");
    layers.count = type.integer("layer_num");
    if (Error error = type.finish())
      return error;
    for (int64_t size : {layers.hidden, layers.tokens, layers.count})
      if (size < 1 || size > (int64_t(1) << 24))
        return makeError("'model.layer_types': expected sizes of at least 1, "
                         "found " +
                         Twine(size));
    problem.types.push_back(layers);
  }
  if (types && types->empty())
    model.fail("'model.layer_types': expected at least one");
  return model.finish(/*rejectUnknown=*/false);
}

Error Reader::readHardware() {
  const int64_t devices = problem.devices();
  for (bool consecutive : {false, true})
    problem.allReduce[{1, consecutive}] = 0;
  for (int64_t ranks = devices; ranks > 1; ranks /= 2)
    for (bool consecutive : {false, true}) {
      // All devices are consecutive, however they are counted.
      bool asOne = consecutive || ranks == devices;
      std::string key =
          formatv("allreduce_size_{0}_consec_{1}", ranks, int(asOne));
      Expected<double> rate = number(bandwidth, key, "allreduce_bandwidth");
      if (!rate)
        return rate.takeError();
      problem.allReduce[{ranks, consecutive}] = 1 / *rate;
    }
  for (const auto &[key, value] : p2p) {
    StringRef name = key;
    int64_t stages = 0;
    if (!name.consume_front("pp_size_") || name.getAsInteger(10, stages))
      continue;
    Expected<double> rate = number(p2p, key, "p2p_bandwidth");
    if (!rate)
      return rate.takeError();
    problem.p2p[stages] = 1 / *rate;
  }
  Expected<double> slowdown =
      number(overlap, "overlap_coe", "overlap_coefficient");
  if (!slowdown)
    return slowdown.takeError();
  problem.overlap = *slowdown;
  // "allreduce_size_8_16MB_time"; a gather is half an all-reduce.
  for (const auto &[key, value] : latency) {
    StringRef name = key;
    bool gathers = name.consume_front("allreduce_size_");
    if (!gathers && !name.consume_front("all2all_size_"))
      continue;
    auto [ranksText, rest] = name.split('_');
    int64_t ranks = 0, megabytes = 0;
    std::optional<double> ms = value.getAsNumber();
    if (ranksText.getAsInteger(10, ranks) ||
        rest.split("MB").first.getAsInteger(10, megabytes) || !ms || !(*ms > 0))
      return fail("'sp_time." + Twine(StringRef(key)) +
                  "': expected allreduce_size_8_16MB_time with milliseconds");
    (gathers ? problem.allGather : problem.allToAll)[ranks]
        .measured[double(megabytes)] = *ms * (gathers ? 0.5 : 1);
  }
  for (auto *table : {&problem.allGather, &problem.allToAll})
    for (auto &[ranks, entry] : *table) {
      std::vector<std::pair<double, double>> points(entry.measured.begin(),
                                                    entry.measured.end());
      std::vector<double> line = fitted(points, 1);
      entry.fitted = {line[1], line[0]};
    }
  return Error::success();
}

/// Numbers by degree: {"1": .., "2": .., "checkpoint": ..}.
std::map<int64_t, double> byDegree(const json::Object *object, double scale) {
  std::map<int64_t, double> numbers;
  if (object)
    for (const auto &[key, value] : *object) {
      int64_t degree = 0;
      std::optional<double> found = value.getAsNumber();
      if (found && *found >= 0 && !StringRef(key).getAsInteger(10, degree))
        numbers[degree] = *found * scale;
    }
  return numbers;
}

/// The largest or smallest of the lengths that were measured.
std::optional<int64_t> lengthOf(const json::Object &object, bool largest) {
  std::optional<int64_t> best;
  for (const auto &[key, value] : object) {
    int64_t tokens = 0;
    if (!StringRef(key).getAsInteger(10, tokens) &&
        (!best || (largest ? tokens > *best : tokens < *best)))
      best = tokens;
  }
  return best;
}

Expected<HetuEnds> Reader::ends(StringRef key, int64_t measuredTokens) const {
  std::string name = key.str() + (problem.sequenceParallel ? "_sp" : "");
  const json::Object *all = memory.getObject(name);
  if (!all)
    return fail("'memory." + name + "': missing");
  const json::Object *found = nullptr;
  double scale = 1;
  if (measuredTokens) {
    found = all->getObject(std::to_string(measuredTokens));
    scale = double(problem.types.front().tokens) / double(measuredTokens);
  } else {
    // Lengths of several types are joined, with and without a line between.
    std::vector<std::string> lengths;
    for (const HetuLayers &type : problem.types)
      lengths.push_back(std::to_string(type.tokens));
    for (StringRef between : {"_", ""})
      if (!found)
        found = all->getObject(join(lengths, between));
  }
  if (!found)
    return fail("'memory." + name + "': expected the tokens of the layers");
  HetuEnds result{byDegree(found->getObject("model_states"), 1),
                  byDegree(found->getObject("activation"), scale)};
  if (result.states.empty() || result.activations.empty())
    return fail("'memory." + name +
                "': expected model_states and activation by degree");
  return result;
}

Error Reader::readMemory() {
  int64_t largest = 0;
  bool bySequence = memoryMode == "sequence";
  if (bySequence && (problem.types.size() > 1 || !problem.sequenceParallel))
    return fail("'memory_profile_mode': sequence is for one type of layers, "
                "with sequence_parallel");
  for (auto [index, type] : enumerate(problem.types)) {
    std::string name = formatv("layertype_{0}{1}", index,
                               problem.sequenceParallel ? "_sp" : "");
    const json::Object *all = memory.getObject(name);
    if (!all)
      return fail("'memory." + name + "': missing");
    int64_t smallest = type.tokens, used = type.tokens;
    if (bySequence) {
      smallest = lengthOf(*all, false).value_or(0);
      used = largest = lengthOf(*all, true).value_or(0);
    }
    const json::Object *sized = all->getObject(std::to_string(used));
    const json::Object *states = all->getObject(std::to_string(smallest));
    const json::Object *kept =
        sized ? sized->getObject("tp_activation_per_bsz_dict") : nullptr;
    if (!kept || !states)
      return fail("'memory." + name + "': expected " + Twine(used) +
                  " tokens with tp_activation_per_bsz_dict");
    const double scale = double(type.tokens) / double(used);
    Expected<double> parameters =
        number(*states, "parameter_size", "memory." + name);
    if (!parameters)
      return parameters.takeError();
    Expected<double> checkpoint = number(*kept, "checkpoint", "memory." + name);
    if (!checkpoint)
      return checkpoint.takeError();
    type.parameterMb = *parameters;
    type.checkpointMb = *checkpoint * scale;
    type.activationMb = byDegree(kept, scale);
  }
  for (auto [key, member] :
       {std::pair("other_memory_pp_off", &HetuProblem::whole),
        {"other_memory_pp_on_first", &HetuProblem::first},
        {"other_memory_pp_on_last", &HetuProblem::last}}) {
    Expected<HetuEnds> found = ends(key, largest);
    if (!found)
      return found.takeError();
    problem.*member = std::move(*found);
  }
  return Error::success();
}

std::vector<Reader::Point> Reader::pointsOf(StringRef layer) const {
  std::vector<Point> points;
  for (const auto &[key, value] : computation) {
    StringRef name = key;
    std::optional<double> ms = value.getAsNumber();
    int64_t samples = 0;
    if (!ms || !(*ms > 0) || !name.consume_front(layer) ||
        !name.consume_front("_bsz"))
      continue;
    auto [samplesText, tokensText] = name.split("_seq");
    double tokens = 0;
    if (samplesText.getAsInteger(10, samples))
      continue;
    if (tokensText.getAsDouble(tokens))
      tokens = 0; // a list of lengths
    points.push_back({double(samples), tokens, *ms, tokensText.str()});
  }
  return points;
}

Expected<HetuTime> Reader::timeOf(StringRef layer, const HetuLayers &type,
                                  bool quadratic) const {
  std::vector<Point> points = pointsOf(layer);
  if (points.empty())
    return fail("'computation." + layer + "_bsz.._seq..': missing");
  std::vector<std::pair<double, double>> line;
  if (timeMode == "static") {
    if (points.size() > 1)
      return fail("'computation." + layer +
                  "..': expected one time beside time_profile_mode static, "
                  "found " +
                  Twine(points.size()));
    return HetuTime{points.front().ms, 0};
  }
  if (timeMode == "batch") {
    std::string tokens = std::to_string(type.tokens);
    for (const Point &point : points)
      if (StringRef(point.tokensText).starts_with(tokens))
        line.push_back({point.samples, point.ms * point.samples});
    if (line.size() < 8)
      return fail("'computation." + layer + "_bsz.._seq" + tokens +
                  "': expected at least 8 batch sizes, found " +
                  Twine(line.size()));
    std::vector<double> coefficients = fitted(line, 1);
    return HetuTime{coefficients[1], coefficients[0]};
  }
  for (const Point &point : points)
    if (point.samples == 1)
      line.push_back({point.tokens, point.ms});
  size_t degree = quadratic ? 2 : 1;
  if (line.size() <= degree)
    return fail("'computation." + layer + "_bsz1_seq..': expected more than " +
                Twine(degree) + " lengths, found " + Twine(line.size()));
  double time = 0, power = 1;
  for (double coefficient : fitted(line, degree)) {
    time += coefficient * power;
    power *= double(type.tokens);
  }
  return HetuTime{time, 0};
}

Error Reader::readTimes() {
  for (auto [index, type] : enumerate(problem.types)) {
    Expected<HetuTime> time =
        timeOf(formatv("layertype_{0}", index).str(), type, true);
    if (!time)
      return time.takeError();
    type.forward = *time;
  }
  Expected<HetuTime> other =
      timeOf("layertype_other", problem.types.front(), false);
  if (!other)
    return other.takeError();
  problem.other = *other;
  return Error::success();
}

Error Reader::read(const json::Value &value) {
  ObjectReader document(value, "");
  const json::Value *model = document.value("model"),
                    *arguments = document.value("search_args"),
                    *profiles = document.value("profiles");
  if (Error error = document.finish(/*rejectUnknown=*/false))
    return error;
  if (Error error = readTypes(*model))
    return error;
  if (Error error = readArguments(*arguments))
    return error;
  std::string machine = formatv("_{0}nodes_{1}gpus_per_node.json",
                                problem.nodes, problem.perNode);
  std::string trained =
      formatv("_{0}_{1}_all.json", problem.precision, problem.model);
  std::tuple<json::Object *, StringRef, std::string> files[] = {
      {&computation, "computation", "computation_profiling" + trained},
      {&memory, "memory", "memory_profiling" + trained},
      {&bandwidth, "allreduce_bandwidth", "allreduce_bandwidth" + machine},
      {&p2p, "p2p_bandwidth", "p2p_bandwidth" + machine},
      {&overlap, "overlap_coefficient", "overlap_coefficient.json"},
      {&latency, "sp_time", "sp_time" + machine}};
  for (auto &[object, key, fileName] : files) {
    Expected<json::Object> found = profile(profiles, key, fileName);
    if (!found)
      return found.takeError();
    *object = std::move(*found);
  }
  if (Error error = readHardware())
    return error;
  if (Error error = readMemory())
    return error;
  return readTimes();
}

} // namespace

Expected<HetuProblem> HetuProblem::fromJson(const json::Value &value,
                                            StringRef path) {
  HetuProblem problem;
  if (Error error = Reader(problem, path).read(value)) {
    std::string message = toString(std::move(error));
    bool named = StringRef(message).contains(path);
    return makeError(named ? message : (path + ": " + message).str());
  }
  return problem;
}

} // namespace galvatron
