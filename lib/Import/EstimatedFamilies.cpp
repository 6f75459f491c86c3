//===- EstimatedFamilies.cpp - Families that are only planned -------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "EstimatedFamilies.h"

#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ErrorHandling.h"

using namespace galvatron;
using llvm::StringLiteral;
using llvm::StringRef;

namespace {

/// A family in words:
///   gated, tied, bidirectional, embed-norm, no-final-norm, head-bias,
///   masked-head, project-in, project-out   what it has
///   norm=rms|layer|scale|none   norms with a weight, weight and bias, weight
///                               alone though it subtracts the mean, neither
///   norms=N                     in a block, usually 2
///   qkv, o, mlp, all            biases; `qkv=FIELD:yes` as FIELD says, yes
///                               where it is absent
///   qk-norm=head|width[,FIELD:no]
///   positions=N                 learned, N rows more than positions
///   types=N, kv=N, head=N, inner=N[,FIELD]   values of absent fields
///   shared-keys=FIELD:yes       one key head for all queries
///   windows=N                   see windowPattern
///   fixed=A:1,B:true            fields that have one value
///   nested=FIELD                an object whose fields change nothing, its
///                               'attn_type' being "multihead_attention"
///   ok=A,B                      fields that change nothing that is counted
struct Row {
  StringLiteral modelType, words;
};
constexpr Row kRows[] = {
    // Families that are imported, for what asks for their sizes alone.
    {"gpt2", "tied norm=layer all positions=0 inner=4 "
             "ok=reorder_and_upcast_attn,scale_attn_by_inverse_layer_idx,"
             "scale_attn_weights"},
    {"llama", "gated norm=rms qkv=attention_bias:no o=attention_bias:no "
              "mlp=mlp_bias:no"},
    {"mistral", "gated norm=rms kv=8"},
    {"qwen2", "gated norm=rms kv=32 qkv"},
    {"qwen3", "gated norm=rms kv=32 head=128 qk-norm=head "
              "qkv=attention_bias:no o=attention_bias:no"},
    // Decoders with RMS norms and gates.
    {"cwm", "gated norm=rms kv=8 head=128 mlp=mlp_bias:no"},
    {"diffllama", "gated norm=rms qkv=attention_bias:no o=attention_bias:no "
                  "ok=lambda_std_dev"},
    {"ernie4_5", "gated tied norm=rms kv=2 head=128 all=use_bias:no"},
    {"exaone4", "gated norm=rms kv=32 qk-norm=head windows=4"},
    {"gemma", "gated tied norm=rms kv=16 head=256 qkv=attention_bias:no "
              "o=attention_bias:no ok=use_bidirectional_attention"},
    {"gemma2", "gated tied norm=rms norms=4 kv=4 head=256 windows=2 "
               "qkv=attention_bias:no o=attention_bias:no "
               "ok=use_bidirectional_attention"},
    {"gemma3_text", "gated tied norm=rms norms=4 kv=4 head=256 qk-norm=head "
                    "windows=6 "
                    "qkv=attention_bias:no o=attention_bias:no"},
    {"glm", "gated norm=rms kv=2 head=128 qkv=attention_bias:yes"},
    {"glm4", "gated norm=rms norms=4 kv=2 head=128 qkv=attention_bias:yes"},
    {"granite", "gated norm=rms qkv=attention_bias:no o=attention_bias:no "
                "mlp=mlp_bias:no"},
    {"granite_swa", "gated tied norm=rms kv=4 qkv=attention_bias:no "
                    "o=attention_bias:no mlp=mlp_bias:no"},
    {"helium", "gated norm=rms kv=20 head=128 qkv=attention_bias:no "
               "mlp=mlp_bias:no"},
    {"hunyuan_v1_dense", "gated norm=rms qk-norm=head qkv=attention_bias:no "
                         "o=attention_bias:no"},
    {"hyperclovax", "gated norm=rms norms=4 qkv=attention_bias:no "
                    "o=attention_bias:no mlp=mlp_bias:no"},
    {"internlm3", "gated norm=rms kv=2 head=128 qkv=attention_bias:no "
                  "o=mlp_bias:no mlp=mlp_bias:no"},
    {"iquestcoder", "gated norm=rms kv=8 head=128 qkv=attention_bias:no "
                    "o=attention_bias:no mlp=mlp_bias:no"},
    {"ministral", "gated norm=rms kv=8"},
    {"ministral3", "gated norm=rms kv=8 head=128"},
    {"olmo", "gated norm=none qkv=attention_bias:no o=attention_bias:no"},
    {"olmo2", "gated norm=rms qk-norm=width qkv=attention_bias:no "
              "o=attention_bias:no"},
    {"olmo3", "gated norm=rms qk-norm=width windows=4 qkv=attention_bias:no "
              "o=attention_bias:no"},
    {"phi3", "gated norm=rms ok=original_max_position_embeddings"},
    {"seed_oss", "gated norm=rms kv=8 head=128 qkv=attention_bias:yes "
                 "o=attention_out_bias:no mlp=mlp_bias:no"},
    {"smollm3", "gated tied norm=rms kv=4 qkv=attention_bias:no "
                "o=attention_bias:no mlp=mlp_bias:no"},
    {"vaultgemma", "gated tied norm=rms kv=4 head=256 qkv=attention_bias:no "
                   "o=attention_bias:no"},
    // Other gates.
    {"bitnet", "gated norm=rms kv=5 qkv=attention_bias:no o=attention_bias:no"},
    {"cohere", "gated tied norm=scale norms=1 qkv=attention_bias:no "
               "o=attention_bias:no"},
    {"cohere2", "gated tied norm=scale norms=1 windows=4 "
                "qkv=attention_bias:no "
                "o=attention_bias:no"},
    {"cohere_compass_text", "gated tied norm=scale norms=1 windows=4 "
                            "qkv=attention_bias:no o=attention_bias:no"},
    {"modernbert-decoder", "gated tied norm=scale embed-norm masked-head "
                           "head-bias qkv=attention_bias:no "
                           "o=attention_bias:no mlp=mlp_bias:no "
                           "windows=3 ok=decoder_bias,norm_bias,"
                           "classifier_activation,initializer_cutoff_factor"},
    {"stablelm", "gated norm=layer kv=32 qkv=use_qkv_bias:no"},
    // Decoders without gates.
    {"apertus", "norm=rms qk-norm=head qkv=attention_bias:no "
                "o=attention_bias:no"},
    {"arcee", "norm=rms qkv=attention_bias:no o=attention_bias:no "
              "mlp=mlp_bias:no"},
    {"biogpt", "tied norm=layer all positions=2"},
    {"bloom", "tied norm=layer embed-norm all inner=4 "
              "ok=slow_but_exact,unk_token_id"},
    {"codegen", "norm=layer norms=1 mlp head-bias inner=4"},
    {"ctrl", "tied norm=layer all head-bias"},
    {"falcon", "tied norm=layer norms=1 all=bias:no inner=4 "
               "shared-keys=multi_query:yes "
               "ok=new_decoder_architecture,alibi,num_ln_in_parallel_attn"},
    {"gpt-sw3", "tied norm=layer all positions=0 inner=4 "
                "ok=reorder_and_upcast_attn"},
    {"gpt_bigcode", "tied norm=layer all positions=0 inner=4 "
                    "shared-keys=multi_query:yes "
                    "ok=attention_softmax_in_fp32,"
                    "scale_attention_softmax_in_fp32"},
    {"gpt_neo", "tied norm=layer o mlp positions=0 inner=4 windows=2"},
    {"gpt_neox", "norm=layer qkv=attention_bias:yes o=attention_bias:yes mlp"},
    {"gpt_neox_japanese", "tied norm=layer inner=4,intermediate_multiple_size"},
    {"gptj", "norm=layer norms=1 mlp head-bias inner=4"},
    {"jais2", "norm=layer qkv=attention_bias:yes o=attention_bias:yes "
              "mlp=mlp_bias:yes"},
    {"mpt", "tied norm=scale inner=4 fixed=expansion_ratio:4,no_bias:true "
            "nested=attn_config "
            "ok=init_device,verbose,embedding_fraction,norm_type,"
            "learned_pos_emb"},
    {"nanochat", "norm=none qkv=attention_bias:no o=attention_bias:no"},
    {"nemotron", "norm=layer qkv=attention_bias:no o=attention_bias:no "
                 "mlp=mlp_bias:no"},
    {"openai-gpt", "tied norm=layer all positions=0 inner=4 no-final-norm"},
    {"opt", "tied norm=layer all=enable_bias:yes positions=2 project-in "
            "project-out ok=layer_norm_elementwise_affine"},
    {"persimmon", "norm=layer all qk-norm=head,qk_layernorm:yes"},
    {"phi", "norm=layer norms=1 all head-bias"},
    {"starcoder2", "tied norm=layer kv=2 all=use_bias:yes ok=mlp_type"},
    {"xglm", "tied norm=layer all"},
    // Encoders with the head of masked words.
    {"bert-generation", "tied bidirectional norm=layer all positions=0 "
                        "embed-norm no-final-norm head-bias"},
    {"camembert", "tied bidirectional norm=layer all positions=0 types=2 "
                  "embed-norm no-final-norm masked-head head-bias"},
    {"data2vec-text", "tied bidirectional norm=layer all positions=0 types=2 "
                      "embed-norm no-final-norm masked-head head-bias"},
    {"distilbert", "tied bidirectional norm=layer all positions=0 embed-norm "
                   "no-final-norm masked-head head-bias "
                   "ok=sinusoidal_pos_embds,qa_dropout,seq_classif_dropout"},
    {"electra", "tied bidirectional norm=layer all positions=0 types=2 "
                "embed-norm no-final-norm masked-head head-bias project-in "
                "project-out"},
    {"ernie", "tied bidirectional norm=layer all positions=0 types=2 "
              "embed-norm no-final-norm masked-head head-bias "
              "ok=task_type_vocab_size"},
    {"megatron-bert", "tied bidirectional norm=layer all positions=0 types=2 "
                      "masked-head head-bias"},
    {"roberta", "tied bidirectional norm=layer all positions=0 types=2 "
                "embed-norm no-final-norm masked-head head-bias"},
    {"roberta-prelayernorm",
     "tied bidirectional norm=layer all positions=0 types=2 embed-norm "
     "masked-head head-bias"},
    {"xlm-roberta", "tied bidirectional norm=layer all positions=0 types=2 "
                    "embed-norm no-final-norm masked-head head-bias"},
    {"xlm-roberta-xl", "tied bidirectional norm=layer all positions=0 types=1 "
                       "masked-head head-bias"},
};

/// Types that are something else or have what is not there, in words for the
/// user.
struct Foreign {
  StringLiteral kind, types;
};
constexpr Foreign kForeign[] = {
    {"it has experts",
     "afmoe aria_text axk1 axk2 beam cohere2_moe dbrx deepseek deepseek_v2 "
     "deepseek_v3 deepseek_v32 deepseek_v4 dots1 dots3_note_text ernie4_5_moe "
     "exaone_moe flex_olmo flint glm4_moe glm4_moe_lite glm_moe_dsa gpt_oss "
     "granitemoe granitemoe_swa granitemoeshared hunyuan_v1_moe hy_v3 hy_v4 "
     "inkling2_text inkling_text jetmoe kolibri1 laguna llama4_text "
     "longcat_flash mellum mimo_v2_flash minimax minimax_m2 "
     "minimax_m3_vl_text mixtral olmoe phimoe qwen2_moe qwen3_5_moe_text "
     "qwen3_moe solar_open"},
    {"it has layers of other kinds than attention",
     "bailing_hybrid bamba blt doge falcon_h1 falcon_mamba granitemoehybrid "
     "hrm_text jamba kimi_linear lfm2 lfm2_moe lfm3 mamba mamba2 nemotron_h "
     "olmo_hybrid qwen3_5_text qwen3_next qwen4_exp_text recurrent_gemma "
     "reformer rwkv xlstm zamba zamba2 zaya"},
    {"it has an encoder and a decoder",
     "bigbird_pegasus blenderbot blenderbot-small m2m_100 marian "
     "musicgen musicgen_melody mvp pegasus_x plbart prophetnet "
     "trocr"},
    {"it has parts for images or sound",
     "dots3_note emu3 fuyu gemma3 gemma3n gemma4 gemma4_unified git got_ocr2 "
     "llama4 mllama moshi moss_transcribe_diarize phi4_multimodal qwen3_5 "
     "qwen3_5_moe qwen4_exp"},
    {"its queries and keys are of low rank", "minicpm3 youtu"},
    {"its register tokens are not there", "dinov2_with_registers"},
    {"its attention by cosines with a learnt scale, and its biases that a "
     "network makes of distances, are not there",
     "swinv2"},
    {"its encoder of spectrograms, convolutions over time in front of a stored "
     "table of positions, is not there",
     "whisper"},
    {"its attention to relative positions by their contents is not there",
     "deberta deberta-v2"},
    {"its convolutions over neighbours are not there",
     "convnext convnextv2 resnet"},
    {"its blocks differ or share weights",
     "big_bird cpmant gemma3n_text gemma4_assistant gemma4_text "
     "gemma4_unified_assistant gemma4_unified_text openelm rembert roc_bert "
     "roformer xlm xlnet xmod"},
    {"its sizes mean other things than their names say", "chatglm qwen"},
};

/// "FIELD:yes", "FIELD:no"; "" is always.
FamilyChoice choiceOf(StringRef text) {
  if (text.empty())
    return {"", true};
  auto [field, usual] = text.split(':');
  return {field, usual == "yes"};
}

int64_t numberOf(StringRef text) {
  int64_t number = 0;
  if (text.getAsInteger(10, number))
    llvm_unreachable("the table has a number here");
  return number;
}

void readWord(StringRef word, EstimatedFamily &family) {
  auto [name, value] = word.split('=');
  auto is = [&, name = name](StringRef other) { return name == other; };
  if (is("gated"))
    family.gated = true;
  else if (is("tied"))
    family.tied = true;
  else if (is("bidirectional"))
    family.causal = false;
  else if (is("embed-norm"))
    family.embeddingNorm = true;
  else if (is("no-final-norm"))
    family.finalNorm = false;
  else if (is("head-bias"))
    family.headBias = true;
  else if (is("masked-head"))
    family.maskedHead = true;
  else if (is("project-in"))
    family.projectsIn = true;
  else if (is("project-out"))
    family.projectsOut = true;
  else if (is("norm"))
    family.normVectors = value == "layer" ? 2 : value == "none" ? 0 : 1;
  else if (is("norms"))
    family.blockNorms = numberOf(value);
  else if (is("qkv"))
    family.queryBias = choiceOf(value);
  else if (is("o"))
    family.outputBias = choiceOf(value);
  else if (is("mlp"))
    family.innerBias = choiceOf(value);
  else if (is("all"))
    family.queryBias = family.outputBias = family.innerBias = choiceOf(value);
  else if (is("positions"))
    family.positionRows = numberOf(value);
  else if (is("types"))
    family.tokenTypes = numberOf(value);
  else if (is("kv"))
    family.keyHeads = numberOf(value);
  else if (is("head"))
    family.headSize = numberOf(value);
  else if (is("shared-keys"))
    family.sharedKeys = choiceOf(value);
  else if (is("windows"))
    family.windowPattern = numberOf(value);
  else if (is("nested"))
    family.nested = value;
  else if (is("ok"))
    value.split(family.others, ',');
  else if (is("fixed"))
    for (StringRef entry : llvm::split(value, ','))
      family.fixed.push_back(entry.split(':'));
  else if (is("qk-norm")) {
    auto [width, choice] = value.split(',');
    family.wholeWidthNorm = width == "width";
    family.queryNorm = choiceOf(choice);
  } else if (is("inner")) {
    auto [number, field] = value.split(',');
    family.innerMultiple = numberOf(number);
    family.multiplier = field;
  } else {
    llvm_unreachable("the table has known words alone");
  }
}

} // namespace

llvm::Error galvatron::refuseForeign(StringRef modelType, StringRef fileName) {
  for (const Foreign &row : kForeign) {
    llvm::SmallVector<StringRef> types;
    row.types.split(types, ' ');
    if (llvm::is_contained(types, modelType))
      return makeError(fileName + ": field 'model_type': '" + modelType +
                       "' can neither be executed nor estimated: " + row.kind);
  }
  return llvm::Error::success();
}

std::optional<EstimatedFamily> galvatron::estimatedFamily(StringRef modelType) {
  for (const Row &row : kRows) {
    if (row.modelType != modelType)
      continue;
    EstimatedFamily family;
    family.modelType = row.modelType;
    llvm::SmallVector<StringRef> words;
    row.words.split(words, ' ');
    for (StringRef word : words)
      readWord(word, family);
    return family;
  }
  return std::nullopt;
}
