//===- Megatron.cpp - Megatron-LM with Megatron-Core ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Flags of pretrain_gpt.py as megatron/training/arguments.py and the
// configurations of megatron/core have them in August 2026, and what they do
// when they are absent. One strategy holds for all blocks; stages are even, or
// embedding and head count as a block each.
//
//===----------------------------------------------------------------------===//

#include "Arguments.h"
#include "MegatronFlags.h"
#include "MegatronLayout.h"
#include "Targets.h"

#include "galvatron/Strategy/DecisionTree.h"
#include "galvatron/Strategy/KeptValues.h"
#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <set>

using namespace llvm;

namespace galvatron {
namespace {

/// --make-vocab-size-divisible-by, times tensor parallelism.
constexpr int64_t kVocabularyMultiple = 128;

using namespace megatron;

std::vector<FlagName> flagNames() {
  std::vector<FlagName> names;
  for (const Flag &flag : kFlags)
    names.push_back(
        {flag.name.str(), flag.takesValue, flag.name == "recompute-modules"});
  return names;
}

/// Ways of context parallelism by their names, the default first.
constexpr std::pair<StringLiteral, ContextWay> kContextWays[] = {
    {"p2p", ContextWay::Ring},
    {"all_gather", ContextWay::Gather},
    {"a2a", ContextWay::Exchange}};

class Megatron final : public Target {
public:
  StringRef name() const override { return "megatron"; }
  std::string description() const override {
    return "Megatron-LM, pretrain_gpt.py of August 2026";
  }

  Error setOption(StringRef option, StringRef value) override {
    if (option == "version") {
      if (value == "2026")
        return Error::success();
      return makeError(
          "option 'version' of megatron: expected '2026', found '" + value +
          "'");
    }
    if (option == "attention") {
      if (value != "fused" && value != "unfused")
        return makeError("option 'attention' of megatron: expected 'fused' or "
                         "'unfused', found '" +
                         value + "'");
      unfused = value == "unfused";
      return Error::success();
    }
    if (option == "cp-comm-type") {
      auto way = find_if(kContextWays, [&](const auto &entry) {
        return entry.first == value;
      });
      if (way == std::end(kContextWays))
        return makeError("option 'cp-comm-type' of megatron: expected 'p2p', "
                         "'all_gather' or 'a2a', found '" +
                         value + "'");
      contextWay = way->second;
      return Error::success();
    }
    bool *switches[] = {&sequenceParallel,  &contextParallel,
                        &overlapGradReduce, &distributedOptimizer,
                        &overlapTensor,     &searchesModules,
                        &searchesInstances, &sumsInHalf};
    constexpr StringLiteral names[] = {
        "sequence-parallel",     "context-parallel",   "overlap-grad-reduce",
        "distributed-optimizer", "tp-comm-overlap",    "recompute-modules",
        "optimizer-instances",   "grad-reduce-in-bf16"};
    for (auto [member, known] : zip(switches, names)) {
      if (option != known)
        continue;
      if (value != "on" && value != "off")
        return makeError("option '" + option +
                         "' of megatron: expected 'on' or 'off', found '" +
                         value + "'");
      *member = value == "on";
      return Error::success();
    }
    std::vector<std::string> known = {"version", "attention", "cp-comm-type"};
    known.insert(known.end(), std::begin(names), std::end(names));
    return makeError("unknown option '" + option + "' of megatron, expected " +
                     join(known, ", ") + didYouMean(option, known));
  }

  Execution execution() const override {
    Execution execution = cantFail(Execution::named("megatron-core"));
    execution.overlaps = overlapGradReduce;
    execution.overlapsTensor = overlapTensor;
    execution.keepsScores = unfused;
    execution.halfGradients = sumsInHalf;
    execution.contextWay = contextWay;
    return execution;
  }
  /// Fused attention wants cards that have bf16.
  Execution executionOn(const Cluster &cluster) const override {
    Execution execution = this->execution();
    execution.keepsScores |= hasHalfAlone(cluster);
    execution.halfGradients &= !hasHalfAlone(cluster);
    return execution;
  }

  ModelShape asTrained(const ModelShape &shape,
                       const Configuration &degrees) const override {
    ModelShape padded = shape;
    int64_t multiple = kVocabularyMultiple * degrees.tensor;
    padded.vocabulary = (shape.vocabulary + multiple - 1) / multiple * multiple;
    return padded;
  }

  Error visit(const ModelShape &shape, const Cluster &cluster, int64_t batch,
              function_ref<void(const Configuration &)> visit) const override {
    // A ring of tensor parallelism over the network is never chosen by its
    // users, and is legal: bounds rule it out where it is slow.
    DegreeLimits limits;
    // The ring of positions is one of fused attention.
    const bool keepsScores = executionOn(cluster).keepsScores;
    if (contextParallel && !keepsScores)
      limits.context = [&](int64_t context, int64_t tensor) {
        // Heads are cut among the ranks of both under all-to-alls.
        return canCutPositions(shape, context, tensor) &&
               (contextWay != ContextWay::Exchange ||
                shape.keyHeads % (context * tensor) == 0);
      };
    visitDegrees(shape, cluster.deviceCount(), batch, limits,
                 [&](Configuration degrees) {
                   degrees.sequenceParallel =
                       sequenceParallel && degrees.tensor > 1 &&
                       shape.tokens / degrees.context % degrees.tensor == 0;
                   visitStages(shape, degrees, visit);
                   degrees.recompute = Recompute::Attention;
                   if (keepsScores)
                     visitStages(shape, degrees, visit);
                 });
    return Error::success();
  }

  std::vector<LaunchFile> write(const ModelShape &shape,
                                const Configuration &configuration,
                                const Cluster &cluster) const override;
  Expected<SoftwareReading> read(StringRef text,
                                 StringRef fileName) const override;

  FileKind fileKind() const override { return FileKind::Flags; }
  std::vector<PlanKey> planKeys() const override {
    return {{"nproc-per-node", "1"},
            {"nnodes", "1"},
            {"tensor-model-parallel-size", "1"},
            {"pipeline-model-parallel-size", "1"},
            {"context-parallel-size", "1"},
            {"cp-comm-type", ""},
            {"sequence-parallel", "", true},
            {"tp-comm-overlap", "", true},
            {"num-virtual-stages-per-pipeline-rank", ""},
            {"num-layers-per-virtual-pipeline-stage", ""},
            {"account-for-embedding-in-pipeline-split", "", true},
            {"account-for-loss-in-pipeline-split", "", true},
            {"pipeline-model-parallel-layout", ""},
            {"decoder-first-pipeline-num-layers", ""},
            {"decoder-last-pipeline-num-layers", ""},
            {"use-distributed-optimizer", "", true},
            {"num-distributed-optimizer-instances", "1"},
            {"overlap-grad-reduce", "", true},
            {"overlap-param-gather", "", true},
            {"micro-batch-size", ""},
            {"global-batch-size", ""},
            {"recompute-granularity", ""},
            {"recompute-method", ""},
            {"recompute-num-layers", ""},
            {"recompute-modules", ""},
            {"recompute-activations", "", true},
            {"bf16", "", true},
            {"fp16", "", true},
            {"accumulate-allreduce-grads-in-fp32", "", true},
            {"grad-reduce-in-bf16", "", true},
            {"attention-backend", "auto"}};
  }

private:
  static bool hasHalfAlone(const Cluster &cluster) {
    Expected<std::string> dtype = halfTypeOf(cluster);
    bool alone = dtype && *dtype == "f16";
    consumeError(dtype.takeError());
    return alone;
  }
  void readModel(Arguments &flags, ModelShape &shape) const;
  void readType(Arguments &flags) const;
  void visitStages(const ModelShape &shape, const Configuration &base,
                   function_ref<void(const Configuration &)> visit) const {
    for (int64_t chunks : divisors(shape.layers / base.pipeline)) {
      Configuration configuration = base;
      configuration.chunks = chunks;
      if (chunks > 1) {
        // Interleaving wants two stages, and whole rounds of micro-batches.
        if (base.pipeline < 2 || base.microBatches() % base.pipeline)
          continue;
        configuration.schedule = cantFail(parseSchedule("interleaved"));
      }
      std::set<std::vector<int64_t>> seen;
      auto visitOnce = [&](const Configuration &divided) {
        if (seen.insert(divided.blocks).second)
          visitStates(divided, visit);
      };
      configuration.visitDivisions(shape, visitOnce);
      visitLayouts(shape, configuration, visitOnce);
    }
  }

  /// Divisions that only a layout says: the first and the last chunk have up to
  /// so many blocks less than the others. The first stage keeps most, the last
  /// has the head.
  static void visitLayouts(const ModelShape &shape, Configuration configuration,
                           function_ref<void(const Configuration &)> visit) {
    constexpr int64_t kMostLess = 3;
    const int64_t chunks = configuration.pipeline * configuration.chunks;
    if (configuration.pipeline == 1)
      return;
    for (int64_t first = 0; first <= kMostLess; ++first)
      for (int64_t last = 0; last <= kMostLess; ++last) {
        configuration.blocks =
            Configuration::evenBlocks(shape.layers + first + last, chunks);
        if (configuration.blocks.empty())
          continue;
        configuration.blocks.front() -= first;
        configuration.blocks.back() -= last;
        if (configuration.blocks.front() > 0 && configuration.blocks.back() > 0)
          visit(configuration);
      }
  }

  /// Norms, feed-forwards or both, with attention's scores if they are dropped.
  static void visitModules(Configuration configuration,
                           function_ref<void(const Configuration &)> visit) {
    configuration.modules.scores =
        configuration.recompute == Recompute::Attention;
    configuration.recompute = Recompute::Modules;
    for (auto [norms, mlp] :
         {std::pair(true, false), {false, true}, {true, true}}) {
      configuration.modules.norms = norms;
      configuration.modules.mlp = mlp;
      visit(configuration);
    }
  }

  void visitStates(const Configuration &base,
                   function_ref<void(const Configuration &)> visit) const {
    Configuration configuration = base;
    configuration.sharding = distributedOptimizer && base.sharing() > 1
                                 ? Sharding::Optimizer
                                 : Sharding::None;
    visitRecomputation(configuration, visit);
    if (!searchesInstances || configuration.sharding == Sharding::None)
      return;
    for (int64_t group : divisors(base.data)) {
      configuration.shardGroup = group;
      if (configuration.groupsStates() && configuration.stateShards() > 1)
        visitRecomputation(configuration, visit);
    }
  }

  void
  visitRecomputation(const Configuration &base,
                     function_ref<void(const Configuration &)> visit) const {
    Configuration configuration = base;
    visit(configuration);
    if (searchesModules)
      visitModules(configuration, visit);
    if (base.recompute == Recompute::Attention)
      return;
    // All, or so many of each chunk.
    configuration.recompute = Recompute::Full;
    visit(configuration);
    int64_t most = *max_element(base.blocks);
    for (int64_t count = 1; count < most; ++count) {
      configuration.recomputedBlocks = count;
      visit(configuration);
    }
  }

  bool sequenceParallel = true, contextParallel = true;
  bool overlapGradReduce = true;
  bool distributedOptimizer = true, overlapTensor = false;
  bool searchesModules = false;   ///< selective recomputation of norms and MLPs
  bool searchesInstances = false; ///< of the distributed optimizer, several
  bool sumsInHalf = false;        ///< gradients are kept and summed in bf16
  bool unfused = false;           ///< attention keeps its scores
  ContextWay contextWay = ContextWay::Ring;

  /// The way's name.
  StringRef contextType() const {
    return find_if(
               kContextWays,
               [&](const auto &entry) { return entry.second == contextWay; })
        ->first;
  }
};

std::vector<LaunchFile> Megatron::write(const ModelShape &shape,
                                        const Configuration &configuration,
                                        const Cluster &cluster) const {
  std::vector<std::string> lines;
  auto add = [&](const Twine &line) { lines.push_back(line.str()); };
  add("--use-mcore-models");
  add("--num-layers " + Twine(shape.layers));
  add("--hidden-size " + Twine(shape.hidden));
  add("--ffn-hidden-size " + Twine(shape.inner));
  add("--num-attention-heads " + Twine(shape.heads));
  if (shape.keyHeads != shape.heads)
    add("--group-query-attention --num-query-groups " + Twine(shape.keyHeads));
  if (shape.headWidth * shape.heads != shape.hidden)
    add("--kv-channels " + Twine(shape.headWidth));
  add("--seq-length " + Twine(shape.tokens));
  add("--max-position-embeddings " +
      Twine(std::max(shape.positions, shape.tokens)));
  add("--vocab-size " + Twine(shape.vocabulary));
  if (shape.gated)
    add("--swiglu");
  if (shape.rmsNorm)
    add("--normalization RMSNorm");
  if (!shape.tied)
    add("--untie-embeddings-and-output-weights");
  if (!shape.biases)
    add("--disable-bias-linear");
  if (shape.rotary)
    add("--position-embedding-type rope --rotary-base " +
        Twine(int64_t(shape.rotaryBase)));
  add("--attention-dropout 0 --hidden-dropout 0");
  // Gradients are summed in f32 beside either type, which bf16 does by itself.
  const bool half = hasHalfAlone(cluster);
  add(half         ? "--fp16 --accumulate-allreduce-grads-in-fp32"
      : sumsInHalf ? "--bf16 --grad-reduce-in-bf16"
                   : "--bf16");
  add(Twine("--attention-backend ") + (half || unfused ? "unfused" : "auto"));
  add("--tensor-model-parallel-size " + Twine(configuration.tensor));
  if (configuration.sequenceParallel)
    add("--sequence-parallel");
  if (overlapTensor && configuration.sequenceParallel)
    add("--tp-comm-overlap");
  add("--pipeline-model-parallel-size " + Twine(configuration.pipeline));
  if (configuration.context > 1)
    add("--context-parallel-size " + Twine(configuration.context) +
        " --cp-comm-type " + contextType());
  auto [embedding, loss] = configuration.countedEnds();
  if (configuration.blocks != Configuration::blocksCounting(
                                  shape.layers,
                                  configuration.pipeline * configuration.chunks,
                                  embedding, loss)) {
    add("--pipeline-model-parallel-layout '" + layoutOf(configuration.blocks) +
        "'");
  } else {
    if (configuration.chunks > 1)
      add("--num-virtual-stages-per-pipeline-rank " +
          Twine(configuration.chunks));
    if (embedding)
      add("--account-for-embedding-in-pipeline-split");
    if (loss)
      add("--account-for-loss-in-pipeline-split");
  }
  if (configuration.sharding == Sharding::Optimizer)
    add("--use-distributed-optimizer");
  if (configuration.groupsStates())
    add("--num-distributed-optimizer-instances " +
        Twine(configuration.data / configuration.shardGroup));
  if (overlapGradReduce)
    add(configuration.sharding == Sharding::Optimizer
            ? "--overlap-grad-reduce --overlap-param-gather"
            : "--overlap-grad-reduce");
  add("--micro-batch-size " + Twine(configuration.microBatch));
  add("--global-batch-size " + Twine(configuration.batch));
  if (configuration.recompute == Recompute::Attention)
    add("--recompute-granularity selective");
  if (configuration.recompute == Recompute::Modules)
    add("--recompute-granularity selective --recompute-modules " +
        configuration.modules.str());
  if (configuration.recompute == Recompute::Full) {
    bool some = configuration.recomputedBlocks > 0;
    add("--recompute-granularity full --recompute-method " +
        Twine(some ? "block" : "uniform") + " --recompute-num-layers " +
        Twine(some ? configuration.recomputedBlocks : 1));
  }
  std::string script = formatv(
      R"(#!/usr/bin/env bash
# {0}: {1}
# on {2}. Run it on every node, in Megatron-LM's folder.
#
# To be set: DATA (the prefix of --data-path), TOKENIZER (a folder or name of the
# Hugging Face tokenizer), on several nodes HEAD_NODE (host:port of the first).
# The optimizer is Adam with f32 master weights and moments; gradients are summed
# in {3}.
set -euo pipefail

ARGUMENTS=(
)",
      description(), configuration.str(), cluster.name().str(),
      sumsInHalf && !half ? "bf16" : "f32");
  for (const std::string &line : lines)
    script += "  " + line + "\n";
  int64_t nodes = cluster.nodeCount();
  script += formatv(R"(  --tokenizer-type HuggingFaceTokenizer
  --tokenizer-model "${{TOKENIZER:?}"
  --data-path "${{DATA:?}"
)
exec torchrun --nproc-per-node {0} --nnodes {1} {2}\
  pretrain_gpt.py "${{ARGUMENTS[@]}" "$@"
)",
                    cluster.deviceCount() / nodes, nodes,
                    nodes > 1 ? "--rdzv-backend c10d --rdzv-endpoint "
                                "\"${HEAD_NODE:?}\" "
                              : "");
  return {{"megatron.sh", std::move(script), true}};
}

/// The sizes of a model. A file that was filled with a plan may have them
/// elsewhere.
void Megatron::readModel(Arguments &flags, ModelShape &shape) const {
  auto size = [&](StringRef flag, int64_t ModelShape::*member) {
    return priced ? flags.count(flag, (*priced).shape.*member)
                  : flags.required(flag);
  };
  if (priced && none_of(ArrayRef<StringRef>{"num-layers", "hidden-size",
                                            "num-attention-heads"},
                        [&](StringRef flag) { return flags.has(flag); })) {
    shape = priced->shape;
    shape.tokens = size("seq-length", &ModelShape::tokens);
    return;
  }
  shape.layers = size("num-layers", &ModelShape::layers);
  shape.hidden = size("hidden-size", &ModelShape::hidden);
  shape.heads = size("num-attention-heads", &ModelShape::heads);
  shape.gated = flags.has("swiglu");
  // With a gate the default keeps the parameters of 4 h.
  shape.inner = flags.count("ffn-hidden-size",
                            shape.gated ? (4 * shape.hidden * 2 / 3) / 64 * 64
                                        : 4 * shape.hidden);
  shape.keyHeads = flags.has("group-query-attention")
                       ? flags.count("num-query-groups", 1)
                       : shape.heads;
  shape.headWidth = flags.count(
      "kv-channels", shape.heads > 0 ? shape.hidden / shape.heads : 0);
  shape.tokens = size("seq-length", &ModelShape::tokens);
  shape.positions = flags.count("max-position-embeddings", shape.tokens);
  shape.vocabulary = size("vocab-size", &ModelShape::vocabulary);
  shape.tied = !flags.has("untie-embeddings-and-output-weights");
  shape.biases = !flags.has("disable-bias-linear");
  shape.rmsNorm = flags.oneOf("normalization", {"LayerNorm", "RMSNorm"}) == 1;
  shape.rotary = flags.oneOf("position-embedding-type",
                             {"learned_absolute", "rope"}) == 1 ||
                 flags.has("use-rotary-position-embeddings");
  shape.rotaryBase = double(flags.count("rotary-base", 10000));
}

/// The type of products and what keeps it company.
void Megatron::readType(Arguments &flags) const {
  if (!flags.has("bf16") && !flags.has("fp16"))
    flags.fail("bf16", "expected it or --fp16: without them products are in "
                       "f32, not priced for megatron");
  if (flags.has("fp16") && !flags.has("accumulate-allreduce-grads-in-fp32"))
    flags.fail("fp16", "expected --accumulate-allreduce-grads-in-fp32 beside "
                       "it: sums in f16 are not priced");
  constexpr StringLiteral halfSums = "grad-reduce-in-bf16";
  if (flags.has(halfSums) &&
      (flags.has("accumulate-allreduce-grads-in-fp32") || !flags.has("bf16")))
    flags.fail(halfSums, "expected --bf16 beside it, and no "
                         "--accumulate-allreduce-grads-in-fp32");
  else if (flags.has("bf16") && flags.has(halfSums) != sumsInHalf)
    flags.fail(halfSums, sumsInHalf ? "missing beside grad-reduce-in-bf16=on"
                                    : "gradients are kept and summed in bf16 "
                                      "then, which "
                                      "megatron,grad-reduce-in-bf16=on prices");
  size_t backend = flags.oneOf("attention-backend",
                               {"auto", "flash", "fused", "unfused", "local"});
  bool half = priced && priced->dtype == "f16";
  if ((backend > 2) != (unfused || half))
    flags.fail("attention-backend",
               backend > 2 ? "scores are kept then, which "
                             "megatron,attention=unfused prices"
                           : "expected unfused beside attention=unfused");
}

/// Takes note of flags that change nothing; refuses those that are not priced
/// and, unless `takesUnknown`, those that nobody knows.
Error readEffects(const Arguments &arguments, StringRef fileName,
                  bool takesUnknown, SoftwareReading &reading) {
  for (const Flag &flag : kFlags) {
    if (!arguments.has(flag.name))
      continue;
    const bool neutral =
        !flag.neutral.empty() && arguments.text(flag.name) == flag.neutral;
    if (flag.effect == Effect::Refused && !neutral)
      return makeError(
          fileName + ": flag --" + flag.name +
          " changes time or memory and is not priced" +
          (flag.neutral.empty() ? "" : ", unless it is " + flag.neutral));
    if (flag.effect != Effect::Read)
      reading.passed.push_back(("--" + flag.name).str());
  }
  for (const std::string &flag : arguments.unread())
    for (auto [beginning, what] : kRefusedFamilies)
      if (StringRef(flag).starts_with(beginning))
        return makeError(fileName + ": flag " + flag + ": " + what +
                         " are not priced");
  std::vector<std::string> names, unknown;
  for (const Flag &flag : kFlags)
    names.push_back(flag.name.str());
  for (StringRef flag : arguments.unread())
    if (flag.consume_front("--"))
      unknown.push_back(flag.str());
  if (takesUnknown || unknown.empty())
    return Error::success();
  // Of several those are asked about that differ in a letter or two.
  constexpr unsigned kNear = 2;
  for (std::string &flag : unknown)
    for (const std::string &name : names)
      if (unknown.size() > 1 &&
          StringRef(flag).edit_distance(name, true, kNear) <= kNear) {
        flag += " (--" + name + "?)";
        break;
      }
  if (unknown.size() == 1)
    return makeError(fileName + ": flag --" + unknown.front() +
                     " is not known: whether it changes time or memory "
                     "cannot be told" +
                     didYouMean(unknown.front(), names));
  return makeError(fileName + ": flags --" + join(unknown, ", --") +
                   " are not known: whether they change time or memory cannot "
                   "be told");
}

/// Modules of all blocks: by default attention's scores.
void readModules(Arguments &flags, StringRef flag,
                 Configuration &configuration) {
  configuration.recompute = Recompute::Attention;
  SmallVector<StringRef> names;
  flags.text(flag).split(names, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  std::vector<std::string> all;
  for (const RecomputeModule &module : recomputeModules())
    all.push_back(module.name.str());
  for (StringRef name : names) {
    auto module = find_if(recomputeModules(), [&](const auto &known) {
      return known.name == name;
    });
    if (module == recomputeModules().end())
      flags.fail(flag, "unknown module '" + name + "', expected some of " +
                           join(all, ", ") + didYouMean(name, all));
    else if (!configuration.modules.set(name))
      flags.fail(flag,
                 "expected core_attn, layernorm and mlp, as no block that "
                 "is priced has " +
                     module->text + ", found '" + name + "'");
  }
  if (configuration.modules.norms || configuration.modules.mlp)
    configuration.recompute = Recompute::Modules;
  else
    configuration.modules = {};
}

/// Blocks, or modules: attention's scores are what fused kernels do not keep
/// anyway.
void readRecompute(Arguments &flags, Configuration &configuration) {
  constexpr StringLiteral granularity = "recompute-granularity",
                          method = "recompute-method",
                          number = "recompute-num-layers",
                          modules = "recompute-modules",
                          activations = "recompute-activations";
  if (flags.has(activations) && flags.has(granularity))
    flags.fail(activations, "expected none beside --" + granularity);
  if (!flags.has(activations) && !flags.has(granularity))
    return;
  if (flags.has(activations) ||
      flags.oneOf(granularity, {"full", "selective"}) == 1) {
    for (StringRef flag : {method, number})
      if (flags.has(flag))
        flags.fail(flag, "expected none beside selective recomputation");
    readModules(flags, modules, configuration);
    return;
  }
  // Units of blocks, or so many of each chunk.
  bool some = flags.oneOf(method, {"uniform", "block"}) == 1;
  int64_t count = flags.count(number, 1);
  if (!some && count != 1)
    flags.fail(number, "expected units of 1 block, found " + Twine(count));
  configuration.recompute = Recompute::Full;
  if (some)
    configuration.recomputedBlocks = count;
}

Expected<SoftwareReading> Megatron::read(StringRef text,
                                         StringRef fileName) const {
  Expected<Arguments> arguments = Arguments::parse(text, fileName, flagNames());
  if (!arguments)
    return arguments.takeError();
  SoftwareReading reading;
  if (Error error =
          readEffects(*arguments, fileName, priced.has_value(), reading))
    return error;
  Arguments &flags = *arguments;
  reading.unread = flags.unread();
  reading.shape.name = fileName.str();
  readModel(flags, reading.shape);
  readType(flags);
  const ModelShape &shape = reading.shape;
  flags.oneOf("optimizer", {"adam"});
  if (int64_t degree = flags.count("expert-model-parallel-size", 1);
      degree != 1)
    flags.fail("expert-model-parallel-size",
               "expected 1, as experts are not priced, found " + Twine(degree));
  constexpr StringLiteral contextFlag = "cp-comm-type";
  size_t way =
      flags.oneOf(contextFlag, {kContextWays[0].first, kContextWays[1].first,
                                kContextWays[2].first});
  if (flags.count("context-parallel-size", 1) > 1 &&
      kContextWays[way].second != contextWay)
    flags.fail(contextFlag, "megatron,cp-comm-type=" + kContextWays[way].first +
                                " prices it");
  if (flags.count("make-vocab-size-divisible-by", kVocabularyMultiple) !=
      kVocabularyMultiple)
    flags.fail("make-vocab-size-divisible-by",
               "expected " + Twine(kVocabularyMultiple));

  Configuration &configuration = reading.configuration;
  configuration.tensor = flags.count("tensor-model-parallel-size", 1);
  configuration.pipeline = flags.count("pipeline-model-parallel-size", 1);
  // It is turned off, with a warning, where there is nothing to cut.
  configuration.sequenceParallel =
      flags.has("sequence-parallel") && configuration.tensor > 1;
  configuration.microBatch = flags.required("micro-batch-size");
  int64_t perNode = flags.count("nproc-per-node", 1);
  int64_t nodes = flags.count("nnodes", 1);
  reading.devices = perNode * nodes;
  configuration.context = flags.count("context-parallel-size", 1);
  if (configuration.context > 1 && unfused)
    flags.fail("context-parallel-size", "expected 1 beside attention=unfused, "
                                        "which has no ring");
  int64_t model =
      configuration.tensor * configuration.pipeline * configuration.context;
  if (reading.devices % std::max<int64_t>(model, 1))
    flags.fail("tensor-model-parallel-size",
               "expected a product with --pipeline-model-parallel-size and "
               "--context-parallel-size that divides the " +
                   Twine(reading.devices) + " devices, found " + Twine(model));
  configuration.data =
      std::max<int64_t>(reading.devices / std::max<int64_t>(model, 1), 1);
  configuration.batch = flags.count(
      "global-batch-size", configuration.microBatch * configuration.data);
  if (flags.has("use-distributed-optimizer") && configuration.sharing() > 1)
    configuration.sharding = Sharding::Optimizer;
  constexpr StringLiteral instancesFlag = "num-distributed-optimizer-instances";
  const int64_t instances = flags.count(instancesFlag, 1);
  if (instances > 1 && !flags.has("use-distributed-optimizer"))
    flags.fail(instancesFlag, "expected --use-distributed-optimizer beside it");
  else if (instances < 1 || configuration.data % instances)
    flags.fail(instancesFlag, "expected a divisor of the " +
                                  Twine(configuration.data) +
                                  " replicas, found " + Twine(instances));
  else if (instances > 1)
    configuration.shardGroup = configuration.data / instances;
  if (flags.has("overlap-param-gather") &&
      !(flags.has("use-distributed-optimizer") &&
        flags.has("overlap-grad-reduce")))
    flags.fail("overlap-param-gather", "expected --use-distributed-optimizer "
                                       "and --overlap-grad-reduce beside it");
  if (flags.has("overlap-grad-reduce") != overlapGradReduce)
    flags.fail("overlap-grad-reduce",
               overlapGradReduce
                   ? "missing: without it gradients are summed behind a step; "
                     "megatron,overlap-grad-reduce=off prices that"
                   : "expected none beside overlap-grad-reduce=off");
  if (flags.has("tp-comm-overlap") && !configuration.sequenceParallel)
    flags.fail("tp-comm-overlap", "expected --sequence-parallel beside it, and "
                                  "tensor parallelism");
  if (configuration.sequenceParallel &&
      flags.has("tp-comm-overlap") != overlapTensor)
    flags.fail("tp-comm-overlap",
               overlapTensor ? "missing beside tp-comm-overlap=on"
                             : "megatron,tp-comm-overlap=on prices it");
  readRecompute(flags, configuration);
  if (flags.has("num-virtual-stages-per-pipeline-rank")) {
    configuration.chunks =
        flags.required("num-virtual-stages-per-pipeline-rank");
  } else if (flags.has("num-layers-per-virtual-pipeline-stage")) {
    int64_t each = flags.required("num-layers-per-virtual-pipeline-stage");
    int64_t stage = shape.layers / std::max<int64_t>(configuration.pipeline, 1);
    if (each < 1 || stage % each)
      flags.fail("num-layers-per-virtual-pipeline-stage",
                 "expected a divisor of a stage's " + Twine(stage) +
                     " blocks, found " + Twine(each));
    else
      configuration.chunks = stage / each;
  }
  for (StringRef flag : kEndFlags)
    flags.count(flag, 1);
  if (Error error = flags.finish())
    return error;
  if (Error error = shape.check())
    return makeError(fileName + ": " + toString(std::move(error)));
  Expected<std::vector<int64_t>> blocks = blocksOfFlags(
      flags, shape.layers, configuration.pipeline, configuration.chunks);
  if (!blocks)
    return makeError(fileName + ": " + toString(blocks.takeError()));
  configuration.blocks = std::move(*blocks);
  configuration.chunks =
      int64_t(configuration.blocks.size()) / configuration.pipeline;
  if (configuration.chunks > 1)
    configuration.schedule = cantFail(parseSchedule("interleaved"));
  if (Error error = configuration.check(shape))
    return makeError(fileName + ": " + toString(std::move(error)));
  return reading;
}

} // namespace

std::unique_ptr<Target> makeMegatronTarget() {
  return std::make_unique<Megatron>();
}

} // namespace galvatron
