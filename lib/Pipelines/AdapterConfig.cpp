//===- AdapterConfig.cpp - PEFT's adapter_config.json ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which modules of a model a file of PEFT gives adapters, and of which rank and
// scale: `target_modules` is a list of names, or of their ends, or one regular
// expression of whole names; `rank_pattern` and `alpha_pattern` have what
// modules have of their own.
//
//===----------------------------------------------------------------------===//

#include "galvatron/Dialect/Galvatron/Transforms/Adapters.h"
#include "galvatron/Pipelines/Compile.h"
#include "galvatron/Pipelines/ToolOptions.h"
#include "galvatron/Support/Json.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

using namespace galvatron;
using llvm::StringRef;
using llvm::Twine;
namespace ir = mlir::galvatron;

namespace {

constexpr StringRef kFileName = "adapter_config.json";
constexpr StringRef kAllProducts = "all-linear";

/// Ways of making the first adapters that change the model itself.
constexpr StringRef kChangesModel[] = {"pissa", "olora", "loftq", "corda",
                                       "lora_ga"};

/// Settings that are taken into account, and such as say nothing of the
/// mathematics. All others must be null, false, empty or absent: later versions
/// of PEFT have more.
constexpr StringRef kKnown[] = {
    "peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "bias",
    "init_lora_weights", "target_modules", "exclude_modules",
    "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern",
    // Notes, and in which order files have weights, which the model says.
    "auto_mapping", "base_model_name_or_path", "revision", "task_type",
    "inference_mode", "peft_version", "runtime_config", "fan_in_fan_out",
    // Without a meaning unless another one is on.
    "megatron_core", "qalora_group_size"};

bool isNothing(const llvm::json::Value &value) {
  if (value.kind() == llvm::json::Value::Null)
    return true;
  if (auto flag = value.getAsBoolean())
    return !*flag;
  if (const auto *list = value.getAsArray())
    return list->empty();
  const auto *object = value.getAsObject();
  return object && object->empty();
}

/// Writes an expression of Python as llvm::Regex takes it; nothing if it has
/// what that does not know.
std::optional<std::string> translate(StringRef expression) {
  std::string text;
  for (size_t i = 0; i < expression.size(); ++i) {
    char next = i + 1 < expression.size() ? expression[i + 1] : '\0';
    bool repeats = StringRef("*+?}").contains(expression[i]);
    if (repeats && (next == '?' || next == '+')) // the shortest, possessive
      return std::nullopt;
    if (expression[i] == '(' && next == '?') {
      if (!expression.substr(i).starts_with("(?:"))
        return std::nullopt;
      text += '(';
      i += 2;
    } else if (expression[i] == '\\') {
      ++i;
      if (next == 'd')
        text += "[0-9]";
      else if (next == 'w')
        text += "[A-Za-z0-9_]";
      else if (next == '\0' || llvm::isAlnum(next))
        return std::nullopt;
      else
        text += {'\\', next};
    } else {
      text += expression[i];
    }
  }
  return text;
}

/// One file and the modules that it is asked about.
class AdapterConfig {
public:
  AdapterConfig(llvm::json::Object config, std::string path)
      : config(std::move(config)), path(std::move(path)) {}

  llvm::Expected<AdapterOptions>
  resolve(llvm::ArrayRef<ir::ProductModule> products,
          llvm::ArrayRef<ir::OtherModule> others, ir::LayerOp last) {
    if (llvm::Error error = read())
      return std::move(error);
    for (const ir::OtherModule &other : others) {
      // "all-linear" is all products but heads.
      llvm::Expected<bool> takes =
          isTarget(other.name, /*isHead=*/!other.isProduct);
      if (!takes)
        return takes.takeError();
      if (*takes)
        return refuse("expected no adapter of '" + other.name + "', " +
                      other.why + ", found it among \"target_modules\"");
    }
    std::string layers;
    for (const ir::ProductModule &product : products) {
      llvm::Expected<bool> takes =
          isTarget(product.name, product.layer == last);
      if (!takes)
        return takes.takeError();
      if (!*takes)
        continue;
      llvm::Expected<double> ownRank =
          valueOf("rank_pattern", product.name, double(options.rank));
      llvm::Expected<double> ownAlpha =
          valueOf("alpha_pattern", product.name, options.alpha);
      if (!ownRank || !ownAlpha)
        return llvm::joinErrors(ownRank.takeError(), ownAlpha.takeError());
      if (*ownRank < 1 || *ownRank != std::floor(*ownRank))
        return refuse("expected whole ranks in \"rank_pattern\", found " +
                      llvm::formatv("{0}", *ownRank).str());
      double scaled =
          isRootScaled ? *ownAlpha * std::sqrt(*ownRank) : *ownAlpha;
      llvm::raw_string_ostream stream(layers);
      stream << (layers.empty() ? "" : ";") << product.name << ':'
             << int64_t(*ownRank) << ':' << llvm::format("%.17g", scaled);
    }
    if (layers.empty())
      return refuse("expected \"target_modules\" to name products of the "
                    "model, found none of it");
    if (isRootScaled)
      options.alpha *= std::sqrt(double(options.rank));
    options.layers = std::move(layers);
    return options;
  }

private:
  llvm::Error refuse(const Twine &what) const {
    return makeError("'" + path + "': " + what);
  }

  const llvm::json::Value *find(StringRef key) const {
    const llvm::json::Value *value = config.get(key);
    return value && value->kind() != llvm::json::Value::Null ? value : nullptr;
  }

  llvm::Error read() {
    if (config.getString("peft_type").value_or("") != "LORA")
      return refuse("expected \"peft_type\": \"LORA\"");
    std::optional<int64_t> rank = config.getInteger("r");
    std::optional<double> alpha = config.getNumber("lora_alpha");
    if (!rank || *rank < 1 || !alpha || !std::isfinite(*alpha))
      return refuse("expected numbers as \"r\" and \"lora_alpha\"");
    options.rank = *rank;
    options.alpha = *alpha;
    isRootScaled = config.getBoolean("use_rslora").value_or(false);
    StringRef unknown; // the first by name: the order of an object is none
    for (const auto &[key, value] : config)
      if (StringRef name = key; !llvm::is_contained(kKnown, name) &&
                                !isNothing(value) &&
                                (unknown.empty() || name < unknown))
        unknown = name;
    if (!unknown.empty())
      return refuse("expected adapters without \"" + unknown + "\"");
    if (const llvm::json::Value *dropout = find("lora_dropout");
        dropout && dropout->getAsNumber() != 0)
      return refuse("expected \"lora_dropout\": 0, as nothing is dropped in "
                    "front of adapters here, found " +
                    llvm::formatv("{0}", *dropout).str());
    if (config.getString("bias").value_or("none") != "none")
      return refuse("expected \"bias\": \"none\"");
    StringRef begins = config.getString("init_lora_weights").value_or("");
    for (StringRef name : kChangesModel)
      if (begins.starts_with(name))
        return refuse("expected adapters that begin beside the model as it "
                      "is, found \"init_lora_weights\": \"" +
                      begins + "\"");
    return llvm::Error::success();
  }

  /// Whether an expression of Python is one of all of `name`, or, if asked, of
  /// an end of it behind a point.
  llvm::Expected<bool> matches(StringRef name, StringRef expression,
                               bool isEnd) const {
    std::optional<std::string> text = translate(expression);
    std::string error;
    if (text) {
      llvm::Regex regex(
          (Twine("^") + (isEnd ? "(.*\\.)?" : "") + "(" + *text + ")$").str());
      if (regex.isValid(error))
        return regex.match(name);
    }
    return refuse("expected a regular expression without lookahead, classes "
                  "but \\d and \\w, and shortest matches, found '" +
                  expression + "'" + (error.empty() ? "" : ": " + error));
  }

  /// Whether a setting, names or their ends, or one expression, names a module.
  llvm::Expected<bool> isNamed(StringRef key, StringRef name,
                               bool isHead) const {
    const llvm::json::Value *value = find(key);
    if (!value)
      return false;
    if (auto text = value->getAsString()) {
      if (key == "target_modules" && *text == kAllProducts)
        return !isHead;
      return matches(name, *text, /*isEnd=*/false);
    }
    const llvm::json::Array *list = value->getAsArray();
    if (!list)
      return refuse("expected names or an expression as \"" + key + "\"");
    for (const llvm::json::Value &entry : *list) {
      std::optional<StringRef> text = entry.getAsString();
      if (!text)
        return refuse("expected names in \"" + key + "\"");
      if (name == *text || name.ends_with(("." + *text).str()))
        return true;
    }
    return false;
  }

  llvm::Expected<bool> isTarget(StringRef name, bool isHead) const {
    llvm::Expected<bool> left = isNamed("exclude_modules", name, isHead);
    if (!left || *left)
      return left ? llvm::Expected<bool>(false) : left.takeError();
    llvm::Expected<bool> named = isNamed("target_modules", name, isHead);
    if (!named || !*named || !find("layers_to_transform"))
      return named;
    return isOfLayers(name);
  }

  /// Whether the layer's number in a module's name is asked for: the last
  /// piece that is one, between two others, behind that of "layers_pattern".
  llvm::Expected<bool> isOfLayers(StringRef name) const {
    llvm::SmallVector<StringRef> before;
    if (const llvm::json::Value *pattern = find("layers_pattern")) {
      if (auto text = pattern->getAsString())
        before.push_back(*text);
      else if (const llvm::json::Array *list = pattern->getAsArray())
        for (const llvm::json::Value &entry : *list)
          before.push_back(entry.getAsString().value_or(""));
    }
    llvm::SmallVector<StringRef> pieces;
    name.split(pieces, '.');
    for (size_t i = pieces.size() - 1; i-- > 2;) {
      int64_t number;
      if (pieces[i].getAsInteger(10, number) ||
          (!before.empty() && !llvm::is_contained(before, pieces[i - 1])))
        continue;
      const llvm::json::Value &wanted = *find("layers_to_transform");
      if (auto one = wanted.getAsInteger())
        return *one == number;
      const llvm::json::Array *list = wanted.getAsArray();
      if (!list)
        return refuse("expected numbers as \"layers_to_transform\"");
      return llvm::any_of(*list, [&](const llvm::json::Value &entry) {
        return entry.getAsInteger() == number;
      });
    }
    return false;
  }

  /// Returns the value of the first expression in an object that matches a
  /// module; `otherwise` if none does.
  llvm::Expected<double> valueOf(StringRef key, StringRef name,
                                 double otherwise) const {
    const llvm::json::Value *value = find(key);
    if (!value)
      return otherwise;
    const llvm::json::Object *pattern = value->getAsObject();
    if (!pattern)
      return refuse("expected an object as \"" + key + "\"");
    std::optional<double> found;
    for (const auto &[expression, entry] : *pattern) {
      llvm::Expected<bool> matched = matches(name, expression, /*isEnd=*/true);
      if (!matched)
        return matched.takeError();
      if (!*matched)
        continue;
      std::optional<double> number = entry.getAsNumber();
      if (!number || !std::isfinite(*number) || (found && *found != *number))
        return refuse("expected one number of '" + name + "' in \"" + key +
                      "\"");
      found = number;
    }
    return found.value_or(otherwise);
  }

  llvm::json::Object config;
  std::string path;
  AdapterOptions options;
  bool isRootScaled = false; ///< rsLoRA: by alpha / sqrt(rank)
};

} // namespace

llvm::Expected<AdapterOptions>
galvatron::readAdapterConfig(StringRef directory, mlir::ModuleOp module) {
  std::string path = (directory + "/" + kFileName).str();
  llvm::Expected<std::string> content = readInput(path);
  if (!content)
    return content.takeError();
  llvm::Expected<llvm::json::Value> value = parseJson(*content, path);
  if (!value)
    return value.takeError();
  const llvm::json::Object *config = value->getAsObject();
  if (!config)
    return makeError("'" + path + "': expected a JSON object");
  ir::ModelOp model = ir::getModel(module);
  if (!model || model.getLayers().empty())
    return makeError("option --adapters: expected a model with layers' bodies");
  return AdapterConfig(*config, path)
      .resolve(ir::getProductModules(model), ir::getOtherModules(model),
               model.getLayers().back());
}
