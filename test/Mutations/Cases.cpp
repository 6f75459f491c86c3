//===- Cases.cpp - Models and plans whose IR is changed -------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cases.h"

#include "galvatron/Pipelines/Compile.h"
#include "galvatron/Schedule/Schedule.h"
#include "galvatron/Support/Units.h"

#include "llvm/Support/Error.h"

namespace galvatron::test {

static const char *const kGpt2 =
    R"({"model_type": "gpt2", "vocab_size": 64, "n_positions": 16,)"
    R"( "n_embd": 32, "n_layer": 2, "n_head": 4})";
static const char *const kLlama =
    R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 32,)"
    R"( "max_position_embeddings": 16, "intermediate_size": 48,)"
    R"( "num_hidden_layers": 2, "num_attention_heads": 4,)"
    R"( "num_key_value_heads": 2, "tie_word_embeddings": true})";
static const char *const kQwen =
    R"({"model_type": "qwen2", "vocab_size": 60, "hidden_size": 32,)"
    R"( "max_position_embeddings": 16, "intermediate_size": 48,)"
    R"( "num_hidden_layers": 4, "num_attention_heads": 4,)"
    R"( "num_key_value_heads": 4, "use_sliding_window": true,)"
    R"( "sliding_window": 5, "max_window_layers": 2,)"
    R"( "tie_word_embeddings": false})";
static const char *const kT5 =
    R"({"model_type": "t5", "vocab_size": 65, "d_model": 32, "d_kv": 8,)"
    R"( "d_ff": 48, "num_layers": 2, "num_heads": 4, "n_positions": 16})";
static const char *const kBert =
    R"({"model_type": "bert", "architectures": ["BertForMaskedLM"],)"
    R"( "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2,)"
    R"( "num_attention_heads": 4, "intermediate_size": 48,)"
    R"( "max_position_embeddings": 16, "pad_token_id": 0})";
static const char *const kOpt =
    R"({"model_type": "opt", "vocab_size": 64, "hidden_size": 32,)"
    R"( "max_position_embeddings": 16, "ffn_dim": 48,)"
    R"( "num_hidden_layers": 2, "num_attention_heads": 4})";
static const char *const kBloom =
    R"({"model_type": "bloom", "vocab_size": 64, "n_embed": 32,)"
    R"( "seq_length": 16, "n_layer": 2, "n_head": 4})";
static const char *const kVit =
    R"({"model_type": "vit", "image_size": 16, "patch_size": 8,)"
    R"( "num_channels": 3, "hidden_size": 32, "num_hidden_layers": 2,)"
    R"( "num_attention_heads": 4, "intermediate_size": 48,)"
    R"( "id2label": {"0": "a", "1": "b", "2": "c"}})";

const std::vector<Case> &allCases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> list;
    list.push_back({"gpt2", kGpt2, "tp2.sdp2"});
    list.push_back({"llama", kLlama, "tp2.ckpt", 2, 2});
    list.push_back({"t5", kT5, "dp2", 2, 4, "zb-h1"});
    list.push_back({"bert", kBert, "sdp2", 2, 2, "gpipe"});
    list.push_back({"gpt2-mixed", kGpt2, "tp2.sdp2", 1, 1, "1f1b",
                    "h.0:dp4;h.1:sdp2.tp2.ckpt"});
    list.push_back({"vit", kVit, "dp2.tp2"});
    list.push_back({"qwen", kQwen, "tp2", 2, 4, "interleaved", "", 2});
    list.push_back({"gpt2-dp", kGpt2, "dp2", 2, 2, "1f1b"});
    list.push_back({"gpt2-late", kGpt2, "dp2", 2, 4, "2bw"});
    list.push_back(
        {"llama-home", kLlama, "sdp2", 2, 2, "1f1b", "", 0, Offload::All});
    list.push_back({"gpt2-streams", kGpt2, "tp2.sdp2"});
    list.push_back({"llama-streams", kLlama, "dp2", 2, 2});
    for (size_t i = list.size() - 2; i < list.size(); ++i)
      list[i].cluster = "4xh100";
    for (size_t i = 5; i < list.size(); ++i)
      list[i].isShort = false;
    list.push_back({"llama-generates", kLlama, "tp2", 2});
    list.push_back({"gpt2-generates", kGpt2, "tp4"});
    list.push_back({"opt-generates", kOpt, "tp2", 2});
    list.push_back({"bloom-generates", kBloom, "tp4"});
    list.push_back({"t5-generates", kT5, "tp2", 2});
    for (size_t i = list.size() - 5; i < list.size(); ++i) {
      list[i].batch = 3;
      list[i].keptTexts = 2;
      list[i].isShort = list[i].name == "llama-generates";
    }
    return list;
  }();
  return cases;
}

/// What the planner is asked for.
static PlannerOptions plannerOptions(const Case &given) {
  PlannerOptions options;
  options.batch = given.batch;
  options.strategy = llvm::cantFail(Strategy::parse(given.strategy));
  options.pipelineDegree = given.pipelineDegree;
  options.microBatches = given.microBatches;
  options.schedule = llvm::cantFail(parseSchedule(given.schedule));
  if (!given.pins.empty())
    options.pins = llvm::cantFail(parsePins(given.pins));
  options.chunks = given.chunks;
  options.offload = given.offload;
  return options;
}

mlir::OwningOpRef<mlir::ModuleOp> trainedModule(const Case &given,
                                                mlir::MLIRContext &context,
                                                const std::string &dtype) {
  llvm::ExitOnError check("case '" + given.name + "': ");
  ImportOptions import;
  import.dtype = dtype;
  auto module = check(loadModel(given.config, "config.json", import, context));
  TrainingOptions training;
  training.dtype = dtype;
  training.clip = given.schedule != "2bw";
  check(applyTraining(*module, training));
  if (given.keptTexts > 0)
    check(keepKeys(*module, given.keptTexts, kKeptLength));
  return module;
}

void planCase(mlir::ModuleOp module, const Case &given) {
  llvm::ExitOnError check("case '" + given.name + "': ");
  PlanRequest request;
  request.planner = plannerOptions(given);
  Cluster cluster = check(Cluster::load(given.cluster));
  PlannerResult planned = check(planModule(module, cluster, request));
  if (!planned.feasible())
    check(makeError(planned.infeasible().str()));
}

mlir::OwningOpRef<mlir::ModuleOp> plannedModule(const Case &given,
                                                mlir::MLIRContext &context) {
  auto module = trainedModule(given, context, "f64");
  planCase(*module, given);
  return module;
}

} // namespace galvatron::test
