//===- TwinModel.cpp - Configurations of small models of all families -----===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Twin.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/raw_ostream.h"

namespace galvatron::test {

/// The fields that a decoder's family adds to its configuration: windows,
/// biases, another width of heads, ties.
static llvm::StringRef decoderFields(llvm::StringRef family) {
  return llvm::StringSwitch<llvm::StringRef>(family)
      .Case("llama", R"(,"attention_bias":true,"mlp_bias":true,"rope_scaling":)"
                     R"({"rope_type":"linear","factor":2.0})")
      .Case("mistral", R"(,"sliding_window":3)")
      .Case("qwen2", R"(,"use_sliding_window":true,"sliding_window":5,)"
                     R"("max_window_layers":3,"tie_word_embeddings":true)")
      .Case("cohere", R"(,"attention_bias":true,"logit_scale":0.5,)"
                      R"("use_qk_norm":true)")
      .Case("cohere2", R"(,"sliding_window":5,"sliding_window_pattern":2,)"
                       R"("logit_scale":0.5)")
      .Case("gemma2", R"(,"sliding_window":5,"attn_logit_softcapping":2,)"
                      R"("final_logit_softcapping":3,"rms_norm_eps":1e-5)")
      .Case("gemma3_text", R"(,"sliding_window":5,)"
                           R"("sliding_window_pattern":2)")
      .Case("glm", R"(,"pad_token_id":null)")
      // Norms behind the halves divide what is small at first: their own eps
      // would magnify rounding in f32.
      .Case("glm4", R"(,"pad_token_id":null,"rms_norm_eps":1e-5)")
      .Case("granite", R"(,"embedding_multiplier":1.5,"logits_scaling":4,)"
                       R"("attention_multiplier":0.4,)"
                       R"("residual_multiplier":0.75)")
      .Case("olmo", R"(,"clip_qkv":0.3)")
      .Case("phi3", R"(,"sliding_window":5,"resid_pdrop":0.1,)"
                    R"("pad_token_id":null)")
      .Case("phi", R"(,"resid_pdrop":0.1,"embd_pdrop":0.1)")
      .Case("smollm3", R"(,"no_rope_layer_interval":2,"sliding_window":5,)"
                       R"("use_sliding_window":true,"pad_token_id":null)")
      .Case("stablelm", R"(,"use_parallel_residual":true,"hidden_dropout":0.1,)"
                        R"("partial_rotary_factor":1)")
      .Case("starcoder2", R"(,"sliding_window":6,"residual_dropout":0.1,)"
                          R"("embedding_dropout":0.1)")
      .Default(R"(,"tie_word_embeddings":true)");
}

std::string TwinModel::config() const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  if (family == "opt") {
    stream << "{\"model_type\":\"opt\",\"vocab_size\":" << vocabulary
           << ",\"max_position_embeddings\":" << positions
           << ",\"hidden_size\":" << width
           << ",\"num_hidden_layers\":" << layers
           << ",\"num_attention_heads\":" << heads
           << ",\"ffn_dim\":40"
           // Rounded to bf16 a ReLU passes what it stops in f32.
           << ",\"activation_function\":\"gelu\",\"dropout\":" << dropout
           << ",\"attention_dropout\":" << dropout << "}";
    return text;
  }
  if (family == "distilbert") {
    stream << R"({"model_type":"distilbert","vocab_size":)" << vocabulary
           << ",\"max_position_embeddings\":" << positions
           << ",\"dim\":" << width << ",\"n_layers\":" << layers
           << ",\"n_heads\":" << heads
           << ",\"hidden_dim\":40,\"dropout\":" << dropout
           << ",\"attention_dropout\":" << dropout << "}";
    return text;
  }
  if (family == "albert" || family == "bert" || family == "electra" ||
      family == "roberta" || family == "vit" || family == "deit") {
    stream << "{\"model_type\":\"" << family << "\",\"hidden_size\":" << width
           << ",\"num_hidden_layers\":" << layers
           << ",\"num_attention_heads\":" << heads
           << ",\"intermediate_size\":40,\"hidden_dropout_prob\":" << dropout
           << ",\"attention_probs_dropout_prob\":" << dropout;
    if (family == "electra" || family == "albert")
      stream << ",\"embedding_size\":" << width / 2;
    if (family != "vit" && family != "deit")
      stream << ",\"vocab_size\":" << vocabulary
             << ",\"max_position_embeddings\":"
             << positions + (family == "roberta" ? 2 : 0) << "}";
    else
      stream << ",\"num_labels\":" << vocabulary
             << ",\"image_size\":[6,7],\"patch_size\":[3,2]"
             << ",\"num_channels\":2}";
    return text;
  }
  if (family == "dinov2") {
    stream << R"({"model_type":"dinov2","hidden_size":)" << width
           << ",\"num_hidden_layers\":" << layers
           << ",\"num_attention_heads\":" << heads
           << R"(,"mlp_ratio":2,"use_swiglu_ffn":true,"hidden_dropout_prob":)"
           << dropout << ",\"attention_probs_dropout_prob\":" << dropout
           << ",\"num_labels\":" << vocabulary
           << R"(,"image_size":6,"patch_size":[3,2],"num_channels":2})";
    return text;
  }
  if (family == "swin") {
    // Patches, windows and the merge need padding; blocks of both stages turn.
    int64_t first = (layers - 1) / 2;
    stream << "{\"model_type\":\"swin\",\"embed_dim\":" << width
           << ",\"depths\":[" << first << "," << layers - 1 - first
           << "],\"num_heads\":[" << heads << "," << heads
           << "],\"mlp_ratio\":1.25,\"hidden_dropout_prob\":" << dropout
           << ",\"attention_probs_dropout_prob\":" << dropout
           << ",\"drop_path_rate\":" << 2 * dropout
           << ",\"num_labels\":" << vocabulary
           << ",\"image_size\":[9,11],\"patch_size\":2,\"window_size\":2"
           << ",\"num_channels\":2}";
    return text;
  }
  if (family == "bart" || family == "mbart" || family == "pegasus") {
    // Stacks of other sizes, and mBART's embeddings are scaled.
    stream << "{\"model_type\":\"" << family
           << "\",\"vocab_size\":" << vocabulary
           << ",\"max_position_embeddings\":" << positions
           << ",\"d_model\":" << width << ",\"encoder_layers\":" << layers / 2
           << ",\"decoder_layers\":" << layers - layers / 2
           << ",\"encoder_attention_heads\":" << heads
           << ",\"decoder_attention_heads\":" << heads
           << ",\"encoder_ffn_dim\":48,\"decoder_ffn_dim\":40,\"dropout\":"
           << dropout << ",\"attention_dropout\":" << dropout
           << ",\"activation_dropout\":" << dropout << ",\"scale_embedding\":"
           << (family == "mbart" ? "true}" : "false}");
    return text;
  }
  if (hasDecoder()) {
    // Odd numbers of stacks, buckets of several distances, and in v1.1 heads
    // that do not add up to the width.
    stream << "{\"model_type\":\"" << (family == "umt5" ? "umt5" : "t5")
           << "\",\"vocab_size\":" << vocabulary
           << ",\"n_positions\":" << positions << ",\"d_model\":" << width
           << ",\"num_layers\":" << layers / 2
           << ",\"num_decoder_layers\":" << layers - layers / 2
           << ",\"num_heads\":" << heads
           << ",\"d_ff\":40,\"dropout_rate\":" << dropout
           << ",\"relative_attention_max_distance\":7"
           << (family == "t5"
                   ? R"(,"relative_attention_num_buckets":6,"d_kv":4})"
                   : R"(,"relative_attention_num_buckets":9,"d_kv":3,)"
                     R"("feed_forward_proj":"gated-gelu",)"
                     R"("tie_word_embeddings":false})");
    return text;
  }
  if (family == "modernbert") {
    // Two layers of windows, and one that sees all, in turn.
    stream << R"({"model_type":"modernbert","vocab_size":)" << vocabulary
           << ",\"max_position_embeddings\":" << positions
           << ",\"hidden_size\":" << width
           << ",\"num_hidden_layers\":" << layers
           << ",\"num_attention_heads\":" << heads
           << R"(,"intermediate_size":40,"local_attention":4,"pad_token_id":3)"
           << R"(,"classifier_bias":true,"attention_dropout":)" << dropout
           << ",\"embedding_dropout\":" << dropout
           << ",\"mlp_dropout\":" << dropout << "}";
    return text;
  }
  if (family == "falcon" || family == "gpt_neox") {
    // Their heads have the width divided by their number.
    bool isFalcon = family == "falcon";
    stream << "{\"model_type\":\"" << family
           << "\",\"vocab_size\":" << vocabulary
           << ",\"max_position_embeddings\":" << positions
           << ",\"hidden_size\":" << width
           << ",\"num_hidden_layers\":" << layers
           << ",\"num_attention_heads\":" << 2 * heads << ",\""
           << (isFalcon ? "ffn_hidden_size" : "intermediate_size")
           << "\":40,\"attention_dropout\":" << dropout;
    if (isFalcon)
      stream << ",\"new_decoder_architecture\":true,\"bias\":true"
             << ",\"num_kv_heads\":" << (keyHeads ? keyHeads : heads);
    else
      stream << ",\"rotary_pct\":1,\"hidden_dropout\":" << dropout;
    stream << "}";
    return text;
  }
  if (family == "bloom" || family == "gptj" || family == "mpt") {
    // As the last two, and the feed-forward has four times the width.
    bool isBloom = family == "bloom", isMpt = family == "mpt";
    stream << "{\"model_type\":\"" << family
           << "\",\"vocab_size\":" << vocabulary << ",\""
           << (isBloom ? "n_embed"
               : isMpt ? "d_model"
                       : "n_embd")
           << "\":" << width << ",\"" << (isMpt ? "n_layers" : "n_layer")
           << "\":" << layers << ",\"" << (isMpt ? "n_heads" : "n_head")
           << "\":" << 2 * heads << ",\""
           << (isBloom ? "seq_length"
               : isMpt ? "max_seq_len"
                       : "n_positions")
           << "\":" << positions;
    if (isBloom)
      stream << ",\"hidden_dropout\":" << dropout
             << ",\"attention_dropout\":" << dropout;
    else if (isMpt)
      stream << ",\"attn_config\":{\"attn_pdrop\":" << dropout << "}";
    else
      stream << ",\"rotary_dim\":2,\"resid_pdrop\":" << dropout
             << ",\"attn_pdrop\":" << dropout;
    stream << "}";
    return text;
  }
  if (family != "gpt2") {
    stream << "{\"model_type\":\"" << family
           << "\",\"vocab_size\":" << vocabulary
           << ",\"max_position_embeddings\":" << positions
           << ",\"hidden_size\":" << width
           << ",\"num_hidden_layers\":" << layers
           << ",\"num_attention_heads\":" << 2 * heads
           << ",\"num_key_value_heads\":" << (keyHeads ? keyHeads : heads)
           << ",\"head_dim\":"
           << (family == "stablelm" ? width / (2 * heads) : 4)
           << ",\"intermediate_size\":40"
           // Ranks that all have whole attention cannot drop scores.
           << ",\"attention_dropout\":" << (family == "olmo2" ? 0 : dropout)
           << decoderFields(family) << "}";
    return text;
  }
  stream << "{\"model_type\":\"gpt2\",\"vocab_size\":" << vocabulary
         << ",\"n_positions\":" << positions << ",\"n_embd\":" << width
         << ",\"n_layer\":" << layers << ",\"n_head\":" << heads
         << ",\"activation_function\":\"gelu_new\""
         << ",\"layer_norm_epsilon\":1e-5,\"initializer_range\":0.02"
         << ",\"resid_pdrop\":" << dropout << ",\"embd_pdrop\":" << dropout
         << ",\"attn_pdrop\":" << dropout << "}";
  return text;
}

} // namespace galvatron::test
