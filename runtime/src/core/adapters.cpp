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
#include <regex>

namespace grt {

namespace {

/// What modules have of their own, by full names; an object without entries if
/// `values` is empty.
template <typename T>
nlohmann::ordered_json patternOf(const Adapters &adapters,
                                 const std::vector<T> &values) {
  nlohmann::ordered_json pattern = nlohmann::ordered_json::object();
  for (size_t i = 0; i < values.size(); ++i)
    pattern[adapters.modules[i]] = values[i];
  return pattern;
}

/// PEFT's adapter_config.json as it is read.
class AdapterConfig {
public:
  AdapterConfig(std::string_view text, const std::string &path)
      : config(nlohmann::ordered_json::parse(text, nullptr,
                                             /*allow_exceptions=*/false)),
        path(path) {
    if (!config.is_object())
      refuse("expected a JSON object");
    if (!has("peft_type") || config["peft_type"] != "LORA")
      refuse("expected \"peft_type\": \"LORA\"");
    if (!isRank("r") || !isAlpha("lora_alpha"))
      refuse("expected numbers as \"r\" and \"lora_alpha\"");
    for (const char *key : {"use_dora", "use_qalora"})
      if (has(key) && config[key] != false)
        refuse(std::string("expected adapters without \"") + key + "\"");
    if (has("modules_to_save") && !config["modules_to_save"].empty())
      refuse("expected nothing but adapters, found \"modules_to_save\"");
    if (has("bias") && config["bias"] != "none")
      refuse("expected \"bias\": \"none\"");
    readPattern("rank_pattern", ranks, /*isInteger=*/true);
    readPattern("alpha_pattern", alphas, /*isInteger=*/false);
  }

  /// Checks that the file's adapter of a module is scaled as the program's.
  void check(const Adapters &adapters, size_t module) const {
    const std::string &name = adapters.modules[module];
    const double rank = valueOf(name, ranks, "r");
    const double alpha = valueOf(name, alphas, "lora_alpha");
    const bool isRoot = has("use_rslora") && config.at("use_rslora") == true;
    const double scale = alpha / (isRoot ? std::sqrt(rank) : rank);
    const double expected = adapters.scaleOf(module);
    if (rank != double(adapters.rankOf(module)) ||
        std::abs(scale - expected) > 1e-12 * std::abs(scale))
      refuse("expected an adapter of '" + name + "' of rank " +
             std::to_string(adapters.rankOf(module)) + " that is scaled by " +
             std::to_string(expected) +
             ", as the program was compiled for, found rank " +
             std::to_string(int64_t(rank)) + " and " + std::to_string(scale));
  }

private:
  /// A regular expression of the end of a module's name, and what that has.
  using Pattern = std::vector<std::pair<std::regex, double>>;

  [[noreturn]] void refuse(const std::string &what) const {
    invalid("'" + path + "': " + what);
  }
  bool has(const char *key) const {
    return config.contains(key) && !config[key].is_null();
  }
  bool isRank(const char *key) const {
    return has(key) && config[key].is_number_integer() && config[key] > 0;
  }
  bool isAlpha(const char *key) const {
    return has(key) && config[key].is_number();
  }

  void readPattern(const char *key, Pattern &pattern, bool isInteger) {
    if (!has(key))
      return;
    if (!config[key].is_object())
      refuse(std::string("expected an object as \"") + key + "\"");
    for (const auto &[name, value] : config[key].items()) {
      if (isInteger ? !value.is_number_integer() || value <= 0
                    : !value.is_number())
        refuse("expected a number of '" + name + "' in \"" + key +
               "\", found " + value.dump());
      try {
        pattern.emplace_back(std::regex("(.*\\.)?(" + name + ")"),
                             value.template get<double>());
      } catch (const std::regex_error &) {
        refuse("expected a regular expression in \"" + std::string(key) +
               "\", found '" + name + "'");
      }
    }
  }

  /// Of the first expression that is a module's, as PEFT takes it.
  double valueOf(const std::string &module, const Pattern &pattern,
                 const char *key) const {
    for (const auto &[expression, value] : pattern)
      if (std::regex_match(module, expression))
        return value;
    return config.at(key).get<double>();
  }

  nlohmann::ordered_json config; ///< the order of patterns counts
  std::string path;
  Pattern ranks, alphas;
};

} // namespace

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
      {"rank_pattern", patternOf(adapters, adapters.ranks)},
      {"alpha_pattern", patternOf(adapters, adapters.alphas)}};
  return config.dump(2);
}

void checkAdapterConfig(std::string_view text, const std::string &path,
                        const Adapters &adapters) {
  const AdapterConfig config(text, path);
  for (size_t module = 0; module < adapters.modules.size(); ++module)
    config.check(adapters, module);
}

void mergeLowRank(const Adapters &adapters, size_t module,
                  std::span<const double> first, std::span<const double> second,
                  std::span<double> weight) {
  const auto rank = size_t(adapters.rankOf(module));
  const size_t in = first.size() / rank, out = second.size() / rank;
  std::vector<double> row(in);
  for (size_t o = 0; o < out; ++o) {
    std::fill(row.begin(), row.end(), 0.0);
    for (size_t k = 0; k < rank; ++k) {
      const double factor = adapters.scaleOf(module) * second[o * rank + k];
      for (size_t i = 0; i < in; ++i)
        row[i] += factor * first[k * in + i];
    }
    for (size_t i = 0; i < in; ++i)
      weight[adapters.inFirst ? i * out + o : o * in + i] += row[i];
  }
}

} // namespace grt
