//===- FieldTable.cpp - What fields of configurations say -----------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FieldTable.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace galvatron;
using llvm::StringLiteral;
using llvm::StringRef;
namespace json = llvm::json;

namespace {

/// A meaning, and the fields that say it, separated by spaces; '!' stands in
/// front of one that says the opposite. The name of the meaning is a field too.
struct Spellings {
  StringLiteral meaning, fields;
};
constexpr Spellings kSpellings[] = {
    // Sizes.
    {"hidden_size", "n_embd n_embed d_model dim model_dim"},
    {"num_hidden_layers", "n_layer n_layers num_layers"},
    {"num_attention_heads", "n_head n_heads num_heads attention_heads"},
    {"num_key_value_heads",
     "num_kv_heads n_head_kv n_kv_heads num_query_groups "
     "multi_query_group_num"},
    {"head_dim", "d_kv kv_channels attention_head_dim attention_head_size "
                 "head_size"},
    {"rotary_dim", ""},
    {"intermediate_size", "n_inner d_ff dff ffn_dim ffn_hidden_size "
                          "hidden_dim inner_dim"},
    {"vocab_size", "padded_vocab_size n_vocab"},
    {"max_position_embeddings",
     "n_positions max_seq_len max_sequence_length seq_length max_seq_length"},
    {"embedding_size", "word_embed_proj_dim input_embedding_size"},
    {"type_vocab_size", ""},
    // Kinds of heads.
    {"multi_query", "multi_query_attention use_multi_query"},
    {"num_hidden_groups", ""},
    {"inner_group_num", ""},
    {"num_experts", "num_local_experts n_routed_experts moe_num_experts "
                    "n_shared_experts num_shared_experts"},
    {"num_experts_per_tok", "num_experts_per_token moe_topk num_selected_"
                            "experts moe_intermediate_size decoder_sparse_step "
                            "first_k_dense_replace moe_layer_freq n_group "
                            "topk_group mlp_only_layers"},
    {"kv_lora_rank", "q_lora_rank qk_rope_head_dim qk_nope_head_dim "
                     "qk_head_dim v_head_dim"},
    // Stacks.
    {"is_encoder_decoder", ""},
    {"encoder_layers", "decoder_layers num_decoder_layers encoder_ffn_dim "
                       "decoder_ffn_dim encoder_attention_heads "
                       "decoder_attention_heads"},
    {"add_cross_attention", "use_cross_attention"},
    {"is_decoder", ""},
    {"causal", "is_causal use_causal_mask !bidirectional "
               "!use_bidirectional_attention !is_encoder "
               "!non_causal_attention"},
    {"directionality", ""},
    {"prefix_lm", ""},
    {"pruned_heads", ""},
    {"image_size", "patch_size num_channels depths mlp_ratio "
                   "embed_dim use_absolute_embeddings patch_norm"},
    {"vision_config", "text_config audio_config decoder_config"},
    {"quantization_config", "quantization compression_config"},
    // Norms.
    {"norm_eps", "rms_norm_eps layer_norm_eps layer_norm_epsilon norm_epsilon "
                 "layernorm_epsilon layernorm_eps"},
    {"pre_norm", "do_layer_norm_before normalize_before norm_first "
                 "encoder_normalize_before decoder_normalize_before !post_norm "
                 "!apply_residual_connection_post_layernorm"},
    {"use_post_norm", "use_sandwich_norm use_peri_norm"},
    {"final_norm", "!remove_final_layer_norm add_final_layer_norm "
                   "!remove_final_norm"},
    {"norm_weights", "layer_norm_elementwise_affine elementwise_affine"},
    {"norm_type", "normalization normalization_type norm_class"},
    {"embedding_norm", "layernorm_embedding normalize_embedding "
                       "word_embed_layernorm add_embedding_norm"},
    {"qk_norm", "qk_layernorm use_qk_norm use_qk_layernorm qk_ln"},
    {"clip_qkv", ""},
    // Biases.
    {"attention_bias", "use_attention_bias attn_bias"},
    {"qkv_bias", "use_qkv_bias add_qkv_bias qkv_proj_bias attention_qkv_bias"},
    {"o_bias", "attention_out_bias attention_o_bias out_proj_bias"},
    {"mlp_bias", "use_mlp_bias ffn_bias feed_forward_bias"},
    {"all_biases", "bias use_bias enable_bias add_bias_linear !no_bias"},
    {"lm_head_bias", "use_lm_head_bias head_bias"},
    // Positions.
    {"rope_theta", "rotary_emb_base rope_base rotary_base"},
    {"rope_scaling", "rope_parameters"},
    {"partial_rotary_factor", "rotary_pct rope_pct rotary_percentage"},
    {"rotary", "use_rope use_rotary use_rotary_embedding"},
    {"rope_interleaved", "rotary_interleaved rope_interleave "
                         "interleaved_rotary"},
    {"no_rope_layers", "no_rope_layer_interval"},
    {"rope_local_base_freq", ""},
    {"alibi", "use_alibi"},
    {"learned_positions", "learned_pos_emb use_learned_position_embeddings "
                          "use_absolute_position_embeddings"},
    {"position_embedding_type", "pos_emb pos_embd_type position_encoding"},
    {"relative_attention_num_buckets", "relative_attention_max_distance "
                                       "relative_attention"},
    // Windows.
    {"sliding_window", "attention_window sliding_window_size window "
                       "local_attention window_size"},
    {"use_sliding_window", "use_sliding_windows"},
    {"max_window_layers", ""},
    {"layer_types", "layers_block_type block_types hybrid_override_pattern "
                    "attention_types attention_layers"},
    {"sliding_window_pattern", "global_attn_every_n_layers"},
    {"full_attention_interval", "attn_layer_period attn_layer_offset"},
    // Scales.
    {"attention_multiplier", "softmax_scale attention_scale"},
    {"query_pre_attn_scalar", ""},
    {"attn_logit_softcapping", "final_logit_softcapping logits_soft_cap "
                               "logit_softcapping"},
    {"scale_attn_weights", ""},
    {"scale_attn_by_inverse_layer_idx", ""},
    {"embedding_multiplier", "scale_emb"},
    {"scale_embedding", ""},
    {"residual_multiplier", ""},
    {"logits_scaling", ""},
    {"logit_scale", ""},
    {"scale_depth", "dim_model_base mup_denominator"},
    {"scale_decoder_outputs", ""},
    {"layer_scale", "layerscale_value layer_scale_init_value"},
    // The feed-forward, and where it stands.
    {"hidden_act", "activation_function hidden_activation activation act_fn "
                   "afn mlp_hidden_act"},
    {"feed_forward_proj", "dense_act_fn"},
    {"gated", "is_gated_act use_gated_mlp gated_mlp glu_mlp use_glu"},
    {"parallel_residual", "use_parallel_residual parallel_attn "
                          "use_parallel_block parallel_block"},
    {"num_ln_in_parallel_attn", ""},
    {"new_decoder_architecture", ""},
    {"chunk_size_lm_head", ""},
    {"state_size", "ssm_cfg ssm_state_size conv_dim mamba_d_state "
                   "mamba_expand num_conv_layers"},
    // Ties.
    {"tie_word_embeddings", "tie_embeddings tie_weights tie_lm_head "
                            "!untie_embeddings_and_output_weights"},
    {"tie_encoder_decoder", ""},
    // Training.
    {"attention_dropout", "attn_pdrop attention_probs_dropout_prob "
                          "attn_dropout attn_dropout_prob "
                          "attention_dropout_prob"},
    {"hidden_dropout", "hidden_dropout_prob resid_pdrop residual_dropout "
                       "resid_dropout dropout dropout_rate "
                       "resid_dropout_prob"},
    {"embedding_dropout", "embd_pdrop embd_dropout embed_dropout emb_pdrop "
                          "emb_dropout_prob"},
    {"activation_dropout", "ffn_dropout mlp_dropout"},
    {"layerdrop", "decoder_layerdrop encoder_layerdrop drop_path_rate"},
    {"initializer_range", "init_std"},
    {"initializer_factor", ""},
};

/// A fact of families, by kinds of models. A row with several values has them
/// one behind the other; all of them say it.
struct Fact {
  StringLiteral kind, meaning, values;
};
constexpr Fact kFacts[] = {
    // Nearly all families.
    {"", "is_encoder_decoder", "false"},
    {"", "add_cross_attention", "false"},
    {"", "tie_encoder_decoder", "false"},
    {"", "prefix_lm", "false"},
    {"", "multi_query", "false"},
    {"", "inner_group_num", "1"},
    {"", "num_experts", "0"},
    {"", "parallel_residual", "false"},
    {"", "new_decoder_architecture", "false"},
    {"", "use_post_norm", "false"},
    {"", "embedding_norm", "false"},
    {"", "norm_weights", "true"},
    {"", "qk_norm", "false"},
    {"", "lm_head_bias", "false"},
    {"", "alibi", "false"},
    {"", "rope_interleaved", "false"},
    {"", "use_sliding_window", "false"},
    {"", "scale_attn_weights", "true"},
    {"", "scale_attn_by_inverse_layer_idx", "false"},
    {"", "embedding_multiplier", "1"},
    {"", "scale_embedding", "false"},
    {"", "residual_multiplier", "1"},
    {"", "logits_scaling", "1"},
    {"", "logit_scale", "1"},
    {"", "scale_decoder_outputs", "false"},
    {"", "hidden_dropout", "0"},
    {"", "attention_dropout", "0"},
    {"", "embedding_dropout", "0"},
    {"", "activation_dropout", "0"},
    {"", "layerdrop", "0"},
    {"", "initializer_factor", "1"},
    {"", "relative_attention_num_buckets", "false"},
    {"", "image_size", "false"},
    {"", "layer_scale", "false"},
    // By kinds.
    {"causal", "causal", "true"},
    {"causal", "is_decoder", "false true"},
    {"bidirectional", "causal", "false"},
    {"bidirectional", "directionality", "\"bidi\""},
    {"bidirectional", "is_decoder", "false"},
    {"pre-norm", "pre_norm", "true"},
    {"pre-norm", "final_norm", "true"},
    {"post-norm", "pre_norm", "false"},
    {"post-norm", "embedding_norm", "true"},
    {"norms-behind", "pre_norm", "false"},
    {"norms-behind", "use_post_norm", "true"},
    {"norms-behind", "final_norm", "true"},
    {"norms-around", "use_post_norm", "true"},
    {"parallel", "parallel_residual", "true"},
    {"head-bias", "lm_head_bias", "true"},
    {"rms", "norm_type",
     "\"rms_norm\" \"rmsnorm\" \"rms\" \"RMSNorm\" \"LlamaRMSNorm\""},
    {"layer-norm", "norm_type",
     "\"layer_norm\" \"layernorm\" \"LayerNorm\" \"layer-norm\""},
    {"unweighted", "norm_weights", "false"},
    {"rotary", "rotary", "true"},
    {"rotary", "partial_rotary_factor", "1"},
    {"rotary", "learned_positions", "false"},
    {"rotary", "position_embedding_type", "\"rotary\" \"rope\""},
    {"interleaved", "rope_interleaved", "true"},
    {"alibi", "alibi", "true"},
    {"alibi", "rotary", "false"},
    {"alibi", "learned_positions", "false"},
    {"alibi", "position_embedding_type", "\"alibi\""},
    {"learned", "rotary", "false"},
    {"learned", "learned_positions", "true"},
    {"learned", "position_embedding_type",
     "\"absolute\" \"learned\" \"learned_absolute\""},
    {"sinusoids", "rotary", "false"},
    {"sinusoids", "learned_positions", "false"},
    {"relative", "rotary", "false"},
    {"relative", "learned_positions", "false"},
    {"gated", "gated", "true"},
    {"plain", "gated", "false"},
    {"biases", "attention_bias", "true"},
    {"biases", "o_bias", "true"},
    {"biases", "mlp_bias", "true"},
    {"all-biases", "qkv_bias", "true"},
    {"all-biases", "all_biases", "true"},
    {"no-biases", "attention_bias", "false"},
    {"no-biases", "qkv_bias", "false"},
    {"no-biases", "o_bias", "false"},
    {"no-biases", "mlp_bias", "false"},
    {"no-biases", "all_biases", "false"},
    {"qkv-biases", "qkv_bias", "true"},
    {"qkv-biases", "o_bias", "false"},
    {"qkv-biases", "mlp_bias", "false"},
    {"qk-norm", "qk_norm", "true"},
    {"two-stacks", "is_encoder_decoder", "true"},
    {"two-stacks", "is_decoder", "false"},
    {"unscaled", "scale_attn_weights", "false"},
};

/// The kinds of a family.
struct Kinds {
  StringLiteral modelType, kinds;
};
constexpr Kinds kKinds[] = {
    {"albert", "bidirectional post-norm layer-norm learned plain biases "
               "all-biases"},
    {"bart", "two-stacks post-norm layer-norm learned plain biases all-biases"},
    {"bert", "bidirectional post-norm layer-norm learned plain biases "
             "all-biases"},
    {"gpt2", "causal pre-norm layer-norm learned plain biases all-biases"},
    {"bloom", "causal pre-norm layer-norm alibi plain biases all-biases"},
    {"camembert", "bidirectional post-norm layer-norm learned plain biases "
                  "all-biases"},
    {"cohere", "causal pre-norm rotary interleaved gated parallel"},
    {"cohere2", "causal pre-norm rotary interleaved gated parallel"},
    {"deit", "bidirectional pre-norm layer-norm learned plain biases"},
    {"dinov2", "bidirectional pre-norm layer-norm learned biases"},
    {"distilbert", "bidirectional post-norm layer-norm learned plain biases "
                   "all-biases"},
    {"electra", "bidirectional post-norm layer-norm learned plain biases "
                "all-biases"},
    {"falcon", "causal pre-norm layer-norm rotary plain"},
    {"gemma", "causal pre-norm rms rotary gated"},
    {"gemma2", "causal pre-norm norms-around rms rotary gated"},
    {"gemma3_text", "causal pre-norm norms-around rms rotary gated qk-norm"},
    {"gpt_neox", "causal pre-norm layer-norm rotary plain"},
    {"gptj", "causal pre-norm layer-norm rotary interleaved plain parallel "
             "head-bias"},
    {"glm", "causal pre-norm rms rotary interleaved gated"},
    {"glm4", "causal pre-norm norms-around rms rotary interleaved gated"},
    {"granite", "causal pre-norm rms rotary gated"},
    {"llama", "causal pre-norm rms rotary gated"},
    {"mbart", "two-stacks pre-norm layer-norm learned plain biases all-biases"},
    {"mistral", "causal pre-norm rms rotary gated no-biases"},
    {"modernbert", "bidirectional pre-norm rotary gated"},
    {"mpt", "causal pre-norm alibi plain no-biases"},
    {"mt5", "two-stacks pre-norm rms relative no-biases unscaled"},
    {"olmo", "causal pre-norm layer-norm unweighted rotary gated"},
    {"olmo2", "causal norms-behind rms rotary gated qk-norm"},
    {"olmo3", "causal norms-behind rms rotary gated qk-norm"},
    {"opt", "causal pre-norm layer-norm learned plain"},
    {"pegasus",
     "two-stacks pre-norm layer-norm sinusoids plain biases all-biases"},
    {"phi", "causal pre-norm layer-norm rotary plain parallel head-bias"},
    {"phi3", "causal pre-norm rms rotary gated"},
    {"qwen2", "causal pre-norm rms rotary gated qkv-biases"},
    {"qwen3", "causal pre-norm rms rotary gated qk-norm"},
    {"roberta", "bidirectional post-norm layer-norm learned plain biases "
                "all-biases"},
    {"smollm3", "causal pre-norm rms rotary gated"},
    {"stablelm", "causal pre-norm layer-norm rotary gated"},
    {"starcoder2", "causal pre-norm layer-norm rotary plain"},
    {"swin", "bidirectional pre-norm layer-norm plain biases"},
    {"t5", "two-stacks pre-norm rms relative no-biases unscaled"},
    {"umt5", "two-stacks pre-norm rms relative no-biases unscaled"},
    {"vit", "bidirectional pre-norm layer-norm learned plain biases"},
    {"xlm-roberta", "bidirectional post-norm layer-norm learned plain biases "
                    "all-biases"},
};

/// Fields that the library writes, see isLibraryNote.
constexpr StringLiteral kLibraryNotes =
    "architectures bad_words_ids begin_suppress_tokens bos_token_id "
    "chunk_size_feed_forward cls_token_id diversity_penalty do_sample dtype "
    "early_stopping encoder_no_repeat_ngram_size eos_token_id "
    "exponential_decay_length_penalty finetuning_task forced_bos_token_id "
    "forced_eos_token_id gradient_checkpointing id2label "
    "keys_to_ignore_at_inference label2id length_penalty mask_token_id "
    "max_length min_length model_type n_ctx no_repeat_ngram_size "
    "num_beam_groups num_beams num_labels num_return_sequences "
    "output_attentions output_hidden_states output_scores pretraining_tp "
    "remove_invalid_values repetition_penalty return_dict "
    "return_dict_in_generate sep_token_id suppress_tokens "
    "task_specific_params temperature tf_legacy_loss tokenizer_class top_k "
    "top_p torch_dtype torchscript transformers_version typical_p "
    "use_bfloat16 use_cache decoder_start_token_id pad_token_id prefix "
    "auto_map _name_or_path _attn_implementation_autoset _commit_hash "
    "attn_implementation _attn_implementation _from_model_config";

/// See isQuietWhenOff.
constexpr StringLiteral kQuietWhenOff =
    "add_cross_attention cross_attention_hidden_size is_decoder "
    "is_encoder_decoder problem_type pruned_heads tie_encoder_decoder";

/// Others that say nothing of the model, see isForeignNote.
constexpr StringLiteral kForeignNotes =
    "base_model base_model_name_or_path cache_implementation "
    "classifier_dropout classifier_bias classifier_pooling "
    "checkpoint_version custom_pipelines datasets description "
    "ep_size exllama_config flash_attention framework "
    "generation_config inference is_composition "
    "language languages library_name license max_model_len max_new_tokens "
    "model_max_length model_name model_parallel "
    "model_size name_or_path onnx output_past output_router_logits "
    "padding_side pipeline_tag problem_type "
    "sentence_transformers "
    "special_tokens_map tags tensor_parallel_size tokenizer_model "
    "tokenizer_name transformers.js_config transformers_weights use_auth_token "
    "use_flash_attention use_flash_attention_2 use_flash_attn "
    "use_fused_kernels use_kernels use_memory_efficient_attention use_sdpa "
    "unsloth_fixed unsloth_version unsloth_training_type vocab_file "
    "world_size zero_infinity attention_softmax_in_fp32 "
    "scale_attention_softmax_in_fp32 is_llama_config neftune_noise_alpha";

/// Beginnings and ends of names that say nothing.
constexpr StringLiteral kNotePrefixes[] = {"summary_",    "pooler_",
                                           "unsloth_",    "tokenizer_",
                                           "generation_", "transformers."};
constexpr StringLiteral kNoteSuffixes[] = {"_token_id", "_token_ids",
                                           "_token_index", "_version"};

/// A field that counts only if another one is on.
struct Switch {
  StringLiteral field, by;
};
constexpr Switch kSwitches[] = {{"max_window_layers", "use_sliding_window"},
                                {"sliding_window", "use_sliding_window"},
                                {"mrope_section", "use_mrope"}};

/// The words of a list as a set, made once.
llvm::StringSet<> wordsOf(StringRef list) {
  llvm::StringSet<> words;
  llvm::SmallVector<StringRef> parts;
  list.split(parts, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef part : parts)
    words.insert(part);
  return words;
}

const llvm::StringMap<FieldMeaning> &meanings() {
  static const llvm::StringMap<FieldMeaning> map = [] {
    llvm::StringMap<FieldMeaning> map;
    for (const Spellings &row : kSpellings) {
      map[row.meaning] = {row.meaning, false};
      llvm::SmallVector<StringRef> fields;
      row.fields.split(fields, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
      for (StringRef field : fields) {
        bool negated = field.consume_front("!");
        map[field] = {row.meaning, negated};
      }
    }
    return map;
  }();
  return map;
}

/// The function that a name stands for, up to rounding.
StringRef activationOf(StringRef name) {
  if (name == "swish")
    return "silu";
  if (name == "gelu_pytorch_tanh" || name == "gelu_fast" ||
      name == "gelu_tanh" || name == "gelu_approx")
    return "gelu_new";
  return name;
}

} // namespace

std::optional<FieldMeaning> galvatron::meaningOf(StringRef field) {
  auto it = meanings().find(field.ltrim('_'));
  if (it == meanings().end())
    return std::nullopt;
  return it->second;
}

llvm::SmallVector<StringRef, 8> galvatron::spellingsOf(StringRef meaning) {
  llvm::SmallVector<StringRef, 8> names;
  for (const Spellings &row : kSpellings)
    if (row.meaning == meaning) {
      names.push_back(row.meaning);
      llvm::SmallVector<StringRef> fields;
      row.fields.split(fields, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
      for (StringRef field : fields)
        if (!field.starts_with("!"))
          names.push_back(field);
    }
  return names;
}

llvm::SmallVector<json::Value, 2> galvatron::fixedEffects(StringRef modelType,
                                                          StringRef meaning) {
  llvm::SmallVector<StringRef> kinds;
  for (const Kinds &row : kKinds)
    if (row.modelType == modelType)
      row.kinds.split(kinds, ' ');
  llvm::SmallVector<json::Value, 2> usual, own;
  for (const Fact &fact : kFacts) {
    bool ofKind = llvm::is_contained(kinds, fact.kind);
    if (fact.meaning != meaning || (!fact.kind.empty() && !ofKind))
      continue;
    llvm::SmallVector<StringRef> values;
    fact.values.split(values, ' ');
    for (StringRef text : values)
      (ofKind ? own : usual).push_back(llvm::cantFail(json::parse(text)));
  }
  return own.empty() ? usual : own;
}

bool galvatron::sameValue(const json::Value &a, const json::Value &b) {
  auto numberA = a.getAsNumber(), numberB = b.getAsNumber();
  if (numberA && numberB)
    return *numberA == *numberB;
  auto textA = a.getAsString(), textB = b.getAsString();
  if (textA && textB)
    return activationOf(*textA) == activationOf(*textB);
  return a == b;
}

bool galvatron::isEmptyValue(const json::Value &value) {
  if (value.kind() == json::Value::Null)
    return true;
  if (const json::Object *object = value.getAsObject())
    return object->empty();
  if (const json::Array *array = value.getAsArray())
    return array->empty();
  auto text = value.getAsString();
  return text && text->empty();
}

bool galvatron::isLibraryNote(StringRef field) {
  static const llvm::StringSet<> names = wordsOf(kLibraryNotes);
  return names.contains(field) || field.starts_with("summary_");
}

bool galvatron::isQuietWhenOff(StringRef field) {
  static const llvm::StringSet<> names = wordsOf(kQuietWhenOff);
  return names.contains(field);
}

bool galvatron::isForeignNote(StringRef field, const json::Value &value) {
  static const llvm::StringSet<> names = wordsOf(kForeignNotes);
  if (names.contains(field) || field.starts_with("_"))
    return true;
  return llvm::any_of(
             kNotePrefixes,
             [&](StringRef prefix) { return field.starts_with(prefix); }) ||
         llvm::any_of(kNoteSuffixes, [&](StringRef suffix) {
           return field.ends_with(suffix);
         });
}

bool galvatron::isOffAtZero(StringRef field) {
  return field.contains("dropout") || field.ends_with("pdrop") ||
         field.ends_with("drop_rate") || field.ends_with("layerdrop") ||
         field.contains("coef");
}

bool galvatron::isLayerCount(StringRef field) {
  auto meaning = meaningOf(field);
  return (meaning && meaning->name == "num_hidden_layers") ||
         field == "encoder_layers" || field == "decoder_layers" ||
         field == "num_decoder_layers" || field == "inner_group_num" ||
         field == "depths";
}

StringRef galvatron::switchOf(StringRef field) {
  for (const Switch &entry : kSwitches)
    if (entry.field == field)
      return entry.by;
  return "";
}
