//===- HetuGalvatron.cpp - Hetu-Galvatron ---------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Its users have measured their model and machine, so a plan is made from these
// profiles by its own formulas, a strategy a layer. The written configuration
// is for the runtimes of 2.x and 3.0: the former reads `embed_sdp`, the latter
// `vocab_sdp`.
//
//===----------------------------------------------------------------------===//

#include "HetuGalvatron.h"
#include "Targets.h"

#include "galvatron/Support/Json.h"
#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"

#include <numeric>

using namespace llvm;

namespace galvatron {
namespace {

/// "1,1,0": a number of each element.
template <typename Range, typename Number>
std::string listOf(const Range &range, Number number) {
  std::string text;
  for (const auto &element : range)
    text += (text.empty() ? "" : ",") + std::to_string(number(element));
  return text;
}

/// A key of a configuration that is such a list, of `absent` where it is
/// missing. Errors name the key and the length.
std::vector<int64_t> listAt(ObjectReader &reader, StringRef key, size_t length,
                            std::optional<int64_t> absent) {
  if (absent && !reader.has(key))
    return std::vector<int64_t>(length, *absent);
  std::string text = reader.string(key);
  std::vector<int64_t> numbers;
  SmallVector<StringRef, 64> parts;
  StringRef(text).split(parts, ',');
  for (StringRef part : parts) {
    int64_t number = 0;
    if (part.trim().getAsInteger(10, number))
      reader.fail("'" + key +
                  "': expected numbers with commas between, found '" + part +
                  "'");
    numbers.push_back(number);
  }
  if (!reader.failed() && numbers.size() != length)
    reader.fail("'" + key + "': expected " + Twine(length) +
                " numbers, found " + Twine(numbers.size()));
  numbers.resize(length, absent.value_or(1));
  return numbers;
}

/// Strategy of a layer from its numbers. Errors: a degree that does not divide.
HetuStrategy strategyAt(ObjectReader &reader, StringRef key, int64_t ranks,
                        int64_t shared, bool ulysses, bool zero3,
                        bool checkpoint) {
  HetuStrategy strategy;
  if (shared < 1 || ranks % shared) {
    reader.fail("'" + key + "': expected a divisor of a stage's " +
                Twine(ranks) + " devices, found " + Twine(shared));
    shared = 1;
  }
  (ulysses ? strategy.ulysses : strategy.tensor) = shared;
  strategy.data = ranks / shared;
  strategy.zero3 = zero3 && strategy.data > 1;
  strategy.checkpoint = checkpoint;
  return strategy;
}

class HetuGalvatron final : public Target {
public:
  StringRef name() const override { return "hetu-galvatron"; }
  std::string description() const override {
    return "Hetu-Galvatron 2.4 and 3.0, from its profiles";
  }
  Error setOption(StringRef option, StringRef value) override {
    if (option == "configuration") {
      configuration = value.str();
      return Error::success();
    }
    std::vector<std::string> known = {"configuration"};
    return makeError("unknown option '" + option +
                     "' of hetu-galvatron, expected configuration" +
                     didYouMean(option, known));
  }
  bool takesProfiles() const override { return true; }
  Expected<ProfiledAnswer>
  planFromProfiles(const json::Value &document, StringRef path,
                   std::optional<int64_t> batch) const override;

  Execution execution() const override {
    return cantFail(Execution::named("fused"));
  }
  ModelShape asTrained(const ModelShape &shape,
                       const Configuration &) const override {
    return shape;
  }
  Error visit(const ModelShape &, const Cluster &, int64_t,
              function_ref<void(const Configuration &)>) const override {
    return makeError("hetu-galvatron plans from its own profiles");
  }
  std::vector<LaunchFile> write(const ModelShape &, const Configuration &,
                                const Cluster &) const override {
    return {};
  }
  Expected<SoftwareReading> read(StringRef, StringRef fileName) const override {
    return makeError(
        fileName +
        ": a configuration of Hetu-Galvatron has a strategy a layer, which its "
        "profiles price: galvatron-plan PROFILES.json "
        "--for=hetu-galvatron,configuration=" +
        fileName);
  }

private:
  std::string configuration; ///< a file that is priced beside the best plan
};

/// "20 x 1-8f-c, 12 x 1-8f" of neighbours.
std::string layersText(const HetuPlan &plan) {
  std::string text;
  size_t first = 0, stage = 0, end = size_t(plan.division[0]);
  for (size_t i = 1; i <= plan.layers.size(); ++i) {
    bool ends = i == end;
    if (i < plan.layers.size() && !ends && plan.layers[i] == plan.layers[first])
      continue;
    text += formatv("{0}{1} x {2}", text.empty() ? "" : ", ", i - first,
                    plan.layers[first].str());
    first = i;
    if (ends && i < plan.layers.size()) {
      text += " |";
      end += size_t(plan.division[++stage]);
    }
  }
  return text;
}

std::string describe(const HetuPlan &plan) {
  std::string memory = listOf(plan.memoryMb, [](int64_t mb) { return mb; });
  return formatv("pp{0}, {1} samples in {2} micro-batch{9}; {3:f1} ms a step, "
                 "{4:f2} samples a second, {5} MB{6}\n"
                 "    layers: {7}; embedding and head: {8}\n",
                 plan.pipeline, plan.batch, plan.chunks, plan.seconds * 1e3,
                 double(plan.batch) / plan.seconds, memory,
                 plan.fits ? "" : ", which does not fit", layersText(plan),
                 plan.ends.str(), plan.chunks == 1 ? "" : "es");
}

json::Object planJson(const HetuProblem &problem, const HetuPlan &plan) {
  return json::Object{{"step-ms", plan.seconds * 1e3},
                      {"samples-per-second", double(plan.batch) / plan.seconds},
                      {"memory-mb", json::Array(plan.memoryMb)},
                      {"fits", plan.fits},
                      {"configuration", hetuConfiguration(problem, plan)}};
}

Expected<ProfiledAnswer>
HetuGalvatron::planFromProfiles(const json::Value &document, StringRef path,
                                std::optional<int64_t> batch) const {
  Expected<HetuProblem> problem = HetuProblem::fromJson(document, path);
  if (!problem)
    return problem.takeError();
  if (batch)
    problem->batches = {*batch};
  Expected<HetuPlan> plan = searchHetuPlan(*problem);
  ProfiledAnswer answer;
  if (!plan) {
    answer.infeasible = (path + ": " + toString(plan.takeError())).str();
    return answer;
  }
  const double gap = 100 * (1 - plan->leastSeconds / plan->seconds);
  answer.json = planJson(*problem, *plan);
  answer.json["gap-percent"] = gap;
  answer.text =
      "  by Hetu-Galvatron's formulas: " + describe(*plan) +
      (gap < 5e-4 ? std::string("    no plan of its space is faster\n")
                  : formatv("    no plan of its space is faster by more than "
                            "{0:f3}%\n",
                            gap)
                        .str());
  if (!configuration.empty()) {
    auto buffer = MemoryBuffer::getFile(configuration);
    if (!buffer)
      return makeError("option 'configuration' of hetu-galvatron: '" +
                       configuration + "': " + buffer.getError().message());
    Expected<json::Value> given =
        parseJson((*buffer)->getBuffer(), configuration);
    if (!given)
      return given.takeError();
    Expected<HetuPlan> present =
        readHetuConfiguration(*problem, *given, configuration);
    if (!present)
      return present.takeError();
    answer.text += "  " + configuration + ": " + describe(*present);
    answer.json["present"] = planJson(*problem, *present);
  }
  std::string name = formatv(
      "galvatron_config_{0}_{1}nodes_{2}gpus_per_node_{3}GB_{4}_bsz{5}.json",
      problem->model, problem->nodes, problem->perNode, problem->memoryGb,
      problem->precision, plan->batch);
  answer.files.push_back(
      {std::move(name),
       formatv("{0:4}\n", json::Value(hetuConfiguration(*problem, *plan)))
           .str(),
       false});
  return answer;
}

} // namespace

json::Object hetuConfiguration(const HetuProblem &problem,
                               const HetuPlan &plan) {
  auto list = [&](auto number) { return listOf(plan.layers, number); };
  const int64_t sharded = plan.ends.zero3;
  return json::Object{
      {"pp_deg", plan.pipeline},
      {"tp_sizes_enc", list([](const HetuStrategy &s) { return s.shared(); })},
      {"tp_consecutive_flags", list([](const HetuStrategy &) { return 1; })},
      {"dp_types_enc",
       list([](const HetuStrategy &s) { return int(s.zero3); })},
      {"use_sp", list([](const HetuStrategy &s) { return s.ulysses > 1; })},
      {"checkpoint",
       list([](const HetuStrategy &s) { return int(s.checkpoint); })},
      {"world_size", problem.devices()},
      {"global_bsz", plan.batch},
      {"chunks", plan.chunks},
      {"pp_division",
       listOf(plan.division, [](int64_t layers) { return layers; })},
      {"pipeline_type", problem.schedule},
      {"default_dp_type", problem.defaultDp},
      {"vtp", plan.ends.shared()},
      {"vsp", int64_t(plan.ends.ulysses > 1)},
      {"vcp", 1},
      {"embed_sdp", sharded},
      {"vocab_sdp", sharded}};
}

/// Checks the assertions of the runtime, and values that it accepts and runs
/// otherwise.
static void checkDegrees(ObjectReader &reader, const HetuProblem &problem,
                         const HetuPlan &plan) {
  int64_t least = plan.ends.shared();
  for (const HetuStrategy &strategy : plan.layers)
    least = std::min(least, strategy.shared());
  const int64_t replicas = problem.devices() / plan.pipeline / least;
  if (plan.batch % replicas)
    reader.fail("'global_bsz': expected a multiple of the replicas, " +
                Twine(replicas) + ", found " + Twine(plan.batch));
  if (std::accumulate(plan.division.begin(), plan.division.end(), int64_t(0)) !=
      problem.layerCount())
    reader.fail("'pp_division': expected " + Twine(problem.layerCount()) +
                " layers in all");
  if (plan.chunks < plan.pipeline || plan.batch % plan.chunks)
    reader.fail("'chunks': expected a divisor of the batch, at least pp_deg, "
                "found " +
                Twine(plan.chunks));
  for (const HetuStrategy &strategy : plan.layers)
    if (!reader.failed() &&
        !hetuHas(problem, strategy, plan.batch, plan.chunks))
      reader.fail("'tp_sizes_enc': no profile has " + strategy.str() +
                  ", or micro-batches do not divide by its replicas");
  if (!reader.failed() && !hetuHas(problem, plan.ends, plan.batch, plan.chunks))
    reader.fail("'vtp': no profile has " + plan.ends.str());
}

Expected<HetuPlan> readHetuConfiguration(const HetuProblem &problem,
                                         const json::Value &value,
                                         StringRef name) {
  ObjectReader reader(value, "");
  HetuPlan plan;
  auto positive = [&](StringRef key, int64_t found) {
    if (!reader.failed() && found < 1)
      reader.fail("'" + key + "': expected at least 1, found " + Twine(found));
    return std::max<int64_t>(found, 1);
  };
  auto flag = [&](StringRef key, int64_t found) {
    if (found != 0 && found != 1)
      reader.fail("'" + key + "': expected 0 or 1, found " + Twine(found));
    return found == 1;
  };
  plan.pipeline = positive("pp_deg", reader.integer("pp_deg"));
  plan.batch = positive("global_bsz", reader.integer("global_bsz"));
  plan.chunks = positive("chunks", reader.integer("chunks"));
  const int64_t world = reader.integerOr("world_size", problem.devices());
  if (world != problem.devices() || world % plan.pipeline ||
      plan.pipeline > problem.layerCount())
    reader.fail("'world_size': expected the profiles' " +
                Twine(problem.devices()) + " devices, which pp_deg divides");
  const size_t layers = size_t(problem.layerCount());
  std::vector<int64_t> shared =
      listAt(reader, "tp_sizes_enc", layers, std::nullopt);
  std::vector<int64_t> consecutive =
      listAt(reader, "tp_consecutive_flags", layers, std::nullopt);
  std::vector<int64_t> types =
      listAt(reader, "dp_types_enc", layers, std::nullopt);
  std::vector<int64_t> ulysses = listAt(reader, "use_sp", layers, 0);
  std::vector<int64_t> checkpoint = listAt(reader, "checkpoint", layers, 0);
  std::vector<int64_t> context = listAt(reader, "cp_sizes_enc", layers, 1);
  if (any_of(consecutive, [](int64_t one) { return one != 1; }))
    reader.fail(
        "'tp_consecutive_flags': expected 1, as the engine writes them");
  if (any_of(context, [](int64_t degree) { return degree != 1; }) ||
      reader.integerOr("vcp", 1) != 1)
    reader.fail("'cp_sizes_enc': expected 1: its formulas have no context "
                "parallelism");
  const int64_t ranks = std::max<int64_t>(problem.devices() / plan.pipeline, 1);
  for (size_t i = 0; i < layers; ++i)
    plan.layers.push_back(strategyAt(
        reader, "tp_sizes_enc", ranks, shared[i], flag("use_sp", ulysses[i]),
        flag("dp_types_enc", types[i]), flag("checkpoint", checkpoint[i])));
  // The runtime of 3.0 reads vocab_sdp, that of 2.x embed_sdp.
  const int64_t old = reader.integerOr("embed_sdp", 0),
                present = reader.integerOr("vocab_sdp", old);
  if (reader.has("embed_sdp") && old != present)
    reader.fail("'vocab_sdp': expected it to equal 'embed_sdp', which runtimes "
                "of 2.x read instead");
  plan.ends = strategyAt(reader, "vtp", ranks, reader.integerOr("vtp", 1),
                         flag("vsp", reader.integerOr("vsp", 0)),
                         flag("vocab_sdp", present), false);
  const int64_t each = problem.layerCount() / plan.pipeline;
  plan.division.assign(size_t(plan.pipeline), each);
  plan.division.back() = problem.layerCount() - each * (plan.pipeline - 1);
  if (reader.has("pp_division"))
    plan.division =
        listAt(reader, "pp_division", size_t(plan.pipeline), std::nullopt);
  for (auto [key, expected] :
       {std::pair<StringRef, StringRef>("pipeline_type", problem.schedule),
        {"default_dp_type", problem.defaultDp}})
    if (std::string found = reader.stringOr(key, expected); found != expected)
      reader.fail("'" + key + "': expected the profiles' '" + expected +
                  "', found '" + found + "'");
  for (StringRef key : {"ep_sizes_enc", "tp_of_ep_sizes_enc"})
    if (reader.has(key))
      reader.fail("'" + key + "': experts are not priced");
  if (!reader.failed())
    checkDegrees(reader, problem, plan);
  if (Error error = reader.finish())
    return makeError(name + ": " + toString(std::move(error)));
  priceHetuPlan(problem, plan);
  plan.leastSeconds = plan.seconds;
  return plan;
}

std::unique_ptr<Target> makeHetuGalvatronTarget() {
  return std::make_unique<HetuGalvatron>();
}

} // namespace galvatron
