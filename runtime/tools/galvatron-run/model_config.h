//===- model_config.h - Configurations of two models ------------*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Weights fit a program by their shapes. What else makes a model, as the base
// of its rotations or its number of heads, is in the config.json beside them.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_RUN_MODEL_CONFIG_H
#define GALVATRON_RUN_MODEL_CONFIG_H

#include <string>

/// The fields of two config.json that both have and in which they differ, each
/// with both values: "rope_theta of 10000, the program's is 20000". Fields that
/// change nothing of a model whose weights are given are left out, and what is
/// written in two ways is compared by its meaning. Empty where they agree, or
/// where one is no JSON object.
std::string differingFields(const std::string &found,
                            const std::string &programs);

/// The warning about weights that `weights`, a folder or a file
/// model*.safetensors of one, has beside a config.json of another model than
/// the program's; empty if it has none, or none that differs.
std::string warningOfConfig(const std::string &weights,
                            const std::string &programs);

#endif // GALVATRON_RUN_MODEL_CONFIG_H
