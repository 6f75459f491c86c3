//===- adapters.cpp - Files of low-rank adapters --------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "core/adapters.h"
#include "base/error.h"

#include <nlohmann/json.hpp>

#include <cmath>

namespace grt {

std::string adapterConfigText(const Adapters &adapters) {
  const nlohmann::ordered_json config = {
      {"peft_type", "LORA"},
      {"task_type", nullptr},
      {"base_model_name_or_path", nullptr},
      {"inference_mode", true},
      {"r", adapters.rank},
      {"lora_alpha", adapters.alpha},
      {"lora_dropout", 0.0},
      {"target_modules", adapters.modules},
      {"fan_in_fan_out", adapters.inFirst},
      {"bias", "none"},
      {"use_rslora", false},
      {"use_dora", false},
      {"modules_to_save", nullptr},
      {"rank_pattern", nlohmann::ordered_json::object()},
      {"alpha_pattern", nlohmann::ordered_json::object()}};
  return config.dump(2);
}

void checkAdapterConfig(std::string_view text, const std::string &path,
                        const Adapters &adapters) {
  const nlohmann::json config =
      nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  auto refuse = [&](const std::string &what) {
    invalid("'" + path + "': " + what);
  };
  if (!config.is_object())
    refuse("expected a JSON object");
  auto has = [&](const char *key) {
    return config.contains(key) && !config[key].is_null();
  };
  if (!has("peft_type") || config["peft_type"] != "LORA")
    refuse("expected \"peft_type\": \"LORA\"");
  if (!has("r") || !config["r"].is_number_integer() || !has("lora_alpha") ||
      !config["lora_alpha"].is_number())
    refuse("expected numbers as \"r\" and \"lora_alpha\"");
  for (const char *key : {"use_dora", "use_qalora"})
    if (has(key) && config[key] != false)
      refuse(std::string("expected adapters without \"") + key + "\"");
  for (const char *key : {"rank_pattern", "alpha_pattern", "modules_to_save"})
    if (has(key) && !config[key].empty())
      refuse(std::string("expected one rank and one alpha and nothing but "
                         "adapters, found \"") +
             key + "\"");
  if (has("bias") && config["bias"] != "none")
    refuse("expected \"bias\": \"none\"");
  const auto rank = config["r"].get<int64_t>();
  const auto alpha = config["lora_alpha"].get<double>();
  const bool isRoot = has("use_rslora") && config["use_rslora"] == true;
  const double scale =
      alpha / (isRoot ? std::sqrt(double(rank)) : double(rank));
  if (rank != adapters.rank ||
      std::abs(scale - adapters.scale()) > 1e-12 * std::abs(scale))
    refuse("expected adapters of rank " + std::to_string(adapters.rank) +
           " that are scaled by " + std::to_string(adapters.scale()) +
           ", as the program was compiled for, found rank " +
           std::to_string(rank) + " and " + std::to_string(scale));
}

void mergeLowRank(const Adapters &adapters, std::span<const double> first,
                  std::span<const double> second, std::span<double> weight) {
  const auto rank = size_t(adapters.rank);
  const size_t in = first.size() / rank, out = second.size() / rank;
  std::vector<double> row(in);
  for (size_t o = 0; o < out; ++o) {
    std::fill(row.begin(), row.end(), 0.0);
    for (size_t k = 0; k < rank; ++k) {
      const double factor = adapters.scale() * second[o * rank + k];
      for (size_t i = 0; i < in; ++i)
        row[i] += factor * first[k * in + i];
    }
    for (size_t i = 0; i < in; ++i)
      weight[adapters.inFirst ? i * out + o : o * in + i] += row[i];
  }
}

} // namespace grt
