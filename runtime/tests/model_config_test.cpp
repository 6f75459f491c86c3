//===- model_config_test.cpp - Configurations of two models ---------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "model_config.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace {

TEST(ModelConfig, FieldsThatMakeAnotherModelAreNamedWithBothValues) {
  EXPECT_EQ(differingFields(R"({"num_attention_heads": 4, "rms_norm_eps": 1e-5,
                                "hidden_size": 32, "hidden_act": "silu"})",
                            R"({"num_attention_heads": 8, "rms_norm_eps": 1e-6,
                                "hidden_size": 32, "hidden_act": "gelu"})"),
            "hidden_act of \"silu\", the program's is \"gelu\"; "
            "num_attention_heads of 4, the program's is 8; "
            "rms_norm_eps of 1e-05, the program's is 1e-06");
  EXPECT_EQ(differingFields(R"({"a": {"b": 1, "c": 2}})",
                            R"({"a": {"b": 1, "c": 3}})"),
            "a.c of 2, the program's is 3");
  EXPECT_EQ(differingFields(R"({"sliding_window": null})",
                            R"({"sliding_window": 8})"),
            "sliding_window of null, the program's is 8");
}

TEST(ModelConfig, WhatChangesNothingIsNotCompared) {
  for (const auto &[found, programs] :
       {std::pair(R"({"dtype": "float32"})", R"({"dtype": "bfloat16"})"),
        std::pair(R"({"eos_token_id": 2})", R"({"eos_token_id": [2, 3]})"),
        std::pair(R"({"_name_or_path": "a"})", R"({"_name_or_path": "b"})"),
        std::pair(R"({"initializer_range": 0.02})",
                  R"({"initializer_range": 0.1})"),
        // The library's own value, and a number written in two ways.
        std::pair(R"({"head_dim": null, "b": 1})", R"({"head_dim": 8})"),
        std::pair(R"({"dropout": 0})", R"({"dropout": 0.0})"),
        // Positions of rotations have no table.
        std::pair(R"({"rope_theta": 1e4, "max_position_embeddings": 64})",
                  R"({"rope_theta": 1e4, "max_position_embeddings": 96})"),
        std::pair(R"({"model_type": "qwen2", "sliding_window": 4096,
                      "max_window_layers": 28})",
                  R"({"model_type": "qwen2", "sliding_window": null,
                      "use_sliding_window": false, "max_window_layers": 2})"),
        std::pair("[1]", R"({"a": 1})"), std::pair("", R"({"a": 1})"),
        std::pair(R"({"a": 1})", "null")})
    EXPECT_EQ(differingFields(found, programs), "") << found;
}

TEST(ModelConfig, RotationsAreComparedByTheirMeaning) {
  const char *older = R"({"rope_theta": 10000.0, "rope_scaling": null})",
             *newer = R"({"rope_parameters": {"rope_theta": 10000,
                                              "rope_type": "default"}})";
  EXPECT_EQ(differingFields(older, newer), "");
  EXPECT_EQ(differingFields(R"({"rope_theta": 1e4})", newer), "");
  EXPECT_EQ(differingFields(R"({"rope_theta": 500000.0})", newer),
            "rope_theta of 500000.0, the program's is 10000");
  const char *scaled = R"({"rope_theta": 1e4, "rope_scaling":
                           {"type": "linear", "factor": 2.0}})";
  EXPECT_EQ(differingFields(scaled, R"({"rope_parameters": {"rope_theta": 1e4,
                              "rope_type": "linear", "factor": 2}})"),
            "");
  EXPECT_EQ(differingFields(scaled, newer),
            "rope_scaling of {\"factor\":2.0,\"rope_type\":\"linear\"}, the "
            "program's is null");
}

TEST(ModelConfig, NestedConfigurationsAreComparedByTheirMeaning) {
  EXPECT_EQ(differingFields(
                R"({"text_config": {"torch_dtype": "f16", "hidden_size": 8}})",
                R"({"text_config": {"torch_dtype": "f32", "hidden_size": 9}})"),
            "text_config.hidden_size of 8, the program's is 9");
}

/// Files of anybody: deep ones, and what is no file.
TEST(ModelConfig, OtherFilesAreNoConfigurations) {
  const std::string deep =
      R"({"a": )" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_EQ(differingFields(deep, R"({"a": 1})"), "");
  EXPECT_EQ(differingFields(R"({"a": 1})", deep), "");
  const std::string folder = testing::TempDir() + "model";
  std::filesystem::create_directories(folder + "/config.json");
  EXPECT_EQ(warningOfConfig(folder, R"({"a": 1})"), "");
  std::filesystem::remove_all(folder);
}

} // namespace
