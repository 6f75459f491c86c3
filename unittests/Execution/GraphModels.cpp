//===- GraphModels.cpp - Small models that are no chains ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GraphModels.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ErrorHandling.h"

#include <map>

namespace galvatron::test {
namespace {

/// In the texts ELT is the element type, $iN, $oN and $pN are inputs, outputs
/// and parameters, and $t begins the names of other values.
const char *const kWide = "tensor<?x8x32xELT>";
const char *const kNarrow = "tensor<?x8x16xELT>";

struct Parameter {
  const char *type;
  const char *factors; ///< of the dimensions
};

struct Body {
  std::vector<std::string> inputs, outputs; ///< types
  std::vector<Parameter> parameters;
  const char *text;
};

const std::map<std::string, Body> &bodies() {
  static const std::map<std::string, Body> all = {
      {"embed",
       {{"tensor<?x8xi32>"},
        {kWide},
        {{"61x32", "\"vocab\", \"\""}, {"8x32", "\"\", \"\""}},
        R"(
    $te = nn.embedding $i0, $p0 : (tensor<?x8xi32>, tensor<61x32xELT>) -> tensor<?x8x32xELT>
    $o0 = nn.position_add $te, $p1 : (tensor<?x8x32xELT>, tensor<8x32xELT>) -> tensor<?x8x32xELT>
)"}},
      {"block",
       {{kWide},
        {kWide},
        {{"32x64", "\"\", \"ffn\""}, {"64x32", "\"ffn\", \"\""}},
        R"(
    $ta = nn.linear $i0, $p0 : (tensor<?x8x32xELT>, tensor<32x64xELT>) -> tensor<?x8x64xELT>
    $tg = nn.gelu $ta {approximate} : (tensor<?x8x64xELT>) -> tensor<?x8x64xELT>
    $tb = nn.linear $tg, $p1 : (tensor<?x8x64xELT>, tensor<64x32xELT>) -> tensor<?x8x32xELT>
    $o0 = nn.add $i0, $tb : (tensor<?x8x32xELT>, tensor<?x8x32xELT>) -> tensor<?x8x32xELT>
)"}},
      {"bare",
       {{kWide},
        {kWide},
        {},
        R"(
    $o0 = nn.gelu $i0 {approximate} : (tensor<?x8x32xELT>) -> tensor<?x8x32xELT>
)"}},
      {"join",
       {{kWide, kWide},
        {kWide},
        {{"32x64", "\"\", \"ffn\""}, {"64x32", "\"ffn\", \"\""}},
        R"(
    $ts = nn.add $i0, $i1 : (tensor<?x8x32xELT>, tensor<?x8x32xELT>) -> tensor<?x8x32xELT>
    $ta = nn.linear $ts, $p0 : (tensor<?x8x32xELT>, tensor<32x64xELT>) -> tensor<?x8x64xELT>
    $tg = nn.gelu $ta {approximate} : (tensor<?x8x64xELT>) -> tensor<?x8x64xELT>
    $tb = nn.linear $tg, $p1 : (tensor<?x8x64xELT>, tensor<64x32xELT>) -> tensor<?x8x32xELT>
    $o0 = nn.add $i0, $tb : (tensor<?x8x32xELT>, tensor<?x8x32xELT>) -> tensor<?x8x32xELT>
)"}},
      {"pair",
       {{kWide},
        {kWide, kNarrow},
        {{"32x64", "\"\", \"ffn\""},
         {"64x32", "\"ffn\", \"\""},
         {"32x16", "\"\", \"\""}},
        R"(
    $ta = nn.linear $i0, $p0 : (tensor<?x8x32xELT>, tensor<32x64xELT>) -> tensor<?x8x64xELT>
    $tg = nn.gelu $ta {approximate} : (tensor<?x8x64xELT>) -> tensor<?x8x64xELT>
    $tb = nn.linear $tg, $p1 : (tensor<?x8x64xELT>, tensor<64x32xELT>) -> tensor<?x8x32xELT>
    $o0 = nn.add $i0, $tb : (tensor<?x8x32xELT>, tensor<?x8x32xELT>) -> tensor<?x8x32xELT>
    $o1 = nn.linear $i0, $p2 : (tensor<?x8x32xELT>, tensor<32x16xELT>) -> tensor<?x8x16xELT>
)"}},
      {"mix",
       {{kWide, kNarrow},
        {kWide, kNarrow},
        {{"16x32", "\"\", \"\""}, {"32x16", "\"\", \"\""}},
        R"(
    $tu = nn.linear $i1, $p0 : (tensor<?x8x16xELT>, tensor<16x32xELT>) -> tensor<?x8x32xELT>
    $o0 = nn.add $i0, $tu : (tensor<?x8x32xELT>, tensor<?x8x32xELT>) -> tensor<?x8x32xELT>
    $tg = nn.gelu $o0 {approximate} : (tensor<?x8x32xELT>) -> tensor<?x8x32xELT>
    $tv = nn.linear $tg, $p1 : (tensor<?x8x32xELT>, tensor<32x16xELT>) -> tensor<?x8x16xELT>
    $o1 = nn.add $i1, $tv : (tensor<?x8x16xELT>, tensor<?x8x16xELT>) -> tensor<?x8x16xELT>
)"}},
      {"mixback",
       {{kNarrow, kWide},
        {kNarrow, kWide},
        {{"16x32", "\"\", \"\""}, {"32x16", "\"\", \"\""}},
        R"(
    $tu = nn.linear $i0, $p0 : (tensor<?x8x16xELT>, tensor<16x32xELT>) -> tensor<?x8x32xELT>
    $o1 = nn.add $i1, $tu : (tensor<?x8x32xELT>, tensor<?x8x32xELT>) -> tensor<?x8x32xELT>
    $tv = nn.linear $o1, $p1 : (tensor<?x8x32xELT>, tensor<32x16xELT>) -> tensor<?x8x16xELT>
    $o0 = nn.add $i0, $tv : (tensor<?x8x16xELT>, tensor<?x8x16xELT>) -> tensor<?x8x16xELT>
)"}},
      {"merge",
       {{kWide, kNarrow},
        {kWide},
        {{"16x64", "\"\", \"ffn\""}, {"64x32", "\"ffn\", \"\""}},
        R"(
    $ta = nn.linear $i1, $p0 : (tensor<?x8x16xELT>, tensor<16x64xELT>) -> tensor<?x8x64xELT>
    $tg = nn.gelu $ta {approximate} : (tensor<?x8x64xELT>) -> tensor<?x8x64xELT>
    $tb = nn.linear $tg, $p1 : (tensor<?x8x64xELT>, tensor<64x32xELT>) -> tensor<?x8x32xELT>
    $o0 = nn.add $i0, $tb : (tensor<?x8x32xELT>, tensor<?x8x32xELT>) -> tensor<?x8x32xELT>
)"}},
      {"cross",
       {{kWide, kWide},
        {kWide},
        {{"8x4x32", "\"heads\", \"\", \"\""},
         {"8x4x32", "\"heads\", \"\", \"\""},
         {"8x4x32", "\"heads\", \"\", \"\""},
         {"32x32", "\"\", \"heads\""}},
        R"(
    $tq = nn.linear $i0, $p0 {transpose_weight} : (tensor<?x8x32xELT>, tensor<8x4x32xELT>) -> tensor<?x8x8x4xELT>
    $tk = nn.linear $i1, $p1 {transpose_weight} : (tensor<?x8x32xELT>, tensor<8x4x32xELT>) -> tensor<?x8x8x4xELT>
    $tv = nn.linear $i1, $p2 {transpose_weight} : (tensor<?x8x32xELT>, tensor<8x4x32xELT>) -> tensor<?x8x8x4xELT>
    $to, $tl = nn.grouped_attention $tq, $tk, $tv {scale = 5.000000e-01 : f64} : (tensor<?x8x8x4xELT>, tensor<?x8x8x4xELT>, tensor<?x8x8x4xELT>) -> (tensor<?x8x32xELT>, tensor<?x8x8xSTAT>)
    $tb = nn.linear $to, $p3 {transpose_weight} : (tensor<?x8x32xELT>, tensor<32x32xELT>) -> tensor<?x8x32xELT>
    $o0 = nn.add $i0, $tb : (tensor<?x8x32xELT>, tensor<?x8x32xELT>) -> tensor<?x8x32xELT>
)"}},
      {"head",
       {{kWide, "tensor<?x8xi32>"},
        {"tensor<1xf64>"},
        {{"61x32", "\"vocab\", \"\""}},
        R"(
    $tl = nn.linear $i0, $p0 {transpose_weight} : (tensor<?x8x32xELT>, tensor<61x32xELT>) -> tensor<?x8x61xELT>
    $o0, $td = nn.cross_entropy $tl, $i1 {classes = 61 : i64} : (tensor<?x8x61xELT>, tensor<?x8xi32>) -> (tensor<1xf64>, tensor<?x8x61xELT>)
)"}}};
  return all;
}

const Body &bodyOf(const GraphLayer &layer) { return bodies().at(layer.body); }

std::string parameterName(const GraphLayer &layer, size_t number) {
  return layer.name + ".w" + std::to_string(number);
}

/// `text` with every `from` replaced.
std::string replaceAll(std::string text, const std::string &from,
                       const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// The operations of a body, with values named by `valueOf`.
template <typename ValueOf>
std::string operations(const GraphLayer &layer, size_t firstParameter,
                       ValueOf valueOf) {
  const Body &body = bodyOf(layer);
  std::string text = body.text;
  for (size_t i = 0; i < layer.inputs.size(); ++i)
    text = replaceAll(text, "$i" + std::to_string(i), valueOf(layer.inputs[i]));
  for (size_t i = 0; i < layer.outputs.size(); ++i)
    text =
        replaceAll(text, "$o" + std::to_string(i), valueOf(layer.outputs[i]));
  for (size_t i = 0; i < body.parameters.size(); ++i)
    text = replaceAll(text, "$p" + std::to_string(i),
                      "%p" + std::to_string(firstParameter + i));
  return replaceAll(text, "$t", "%" + layer.name + "_");
}

/// One layer of the module's text: the layers it stands for, and the values
/// that enter and leave.
struct Part {
  std::string name;
  std::vector<GraphLayer> layers;
  std::vector<std::string> inputs, outputs;
};

std::string moduleText(const std::vector<Part> &parts) {
  std::string functions, parameters, calls;
  llvm::raw_string_ostream function(functions), parameter(parameters),
      call(calls);
  std::map<std::string, std::string> types = {{"tokens", "tensor<?x8xi32>"},
                                              {"labels", "tensor<?x8xi32>"}};
  for (const Part &part : parts)
    for (const GraphLayer &layer : part.layers)
      for (size_t i = 0; i < layer.outputs.size(); ++i)
        types[layer.outputs[i]] = bodyOf(layer).outputs[i];
  auto valueOf = [](const std::string &name) { return "%v_" + name; };
  auto typesOf = [&](const std::vector<std::string> &values) {
    std::vector<std::string> list;
    for (const std::string &value : values)
      list.push_back(types.at(value));
    return llvm::join(list, ", ");
  };
  auto valuesOf = [&](const std::vector<std::string> &values) {
    std::vector<std::string> list;
    for (const std::string &value : values)
      list.push_back(valueOf(value));
    return llvm::join(list, ", ");
  };
  for (const Part &part : parts) {
    std::vector<std::string> arguments, symbols;
    for (const std::string &input : part.inputs)
      arguments.push_back(valueOf(input) + ": " + types.at(input));
    size_t number = 0;
    std::string text;
    for (const GraphLayer &layer : part.layers) {
      text += operations(layer, number, valueOf);
      for (auto [i, each] : llvm::enumerate(bodyOf(layer).parameters)) {
        std::string type = std::string("tensor<") + each.type + "xELT>";
        arguments.push_back("%p" + std::to_string(number++) + ": " + type +
                            " {nn.factors = [" + each.factors + "]}");
        symbols.push_back("@" + parameterName(layer, i));
        parameter << "  galvatron.parameter @" << parameterName(layer, i)
                  << " : " << type
                  << " {decay, init = \"normal\", std = 2.000000e-01 : f64}\n";
      }
    }
    function << "  func.func private @" << part.name << ".body("
             << llvm::join(arguments, ", ") << ") -> (" << typesOf(part.outputs)
             << ") attributes {nn.factor_units = {ffn = 64 : i64, heads = 8 : "
                "i64, vocab = 61 : i64}, nn.uneven = [\"vocab\"]} {\n"
             << text << "    return " << valuesOf(part.outputs) << " : "
             << typesOf(part.outputs) << "\n  }\n";
    call << "    " << valuesOf(part.outputs) << " = galvatron.layer \""
         << part.name << "\" @" << part.name << ".body("
         << valuesOf(part.inputs) << ") params [" << llvm::join(symbols, ", ")
         << "] : (" << typesOf(part.inputs) << ") -> (" << typesOf(part.outputs)
         << ")\n";
  }
  return "module {\n" + parameters + functions +
         "  galvatron.model @graph(%v_tokens: tensor<?x8xi32> is <tokens, "
         "below "
         "= 61>, %v_labels: tensor<?x8xi32> is <labels, below = 61>) {\n" +
         calls + "    galvatron.output %v_loss : tensor<1xf64>\n  }\n}\n";
}

TwinModel makeModel(const std::vector<Part> &parts) {
  TwinModel model;
  model.text = moduleText(parts);
  model.layers = int64_t(parts.size()) - 2;
  return model;
}

} // namespace

TwinModel GraphModel::asLayers() const {
  std::vector<Part> parts;
  for (const GraphLayer &layer : layers)
    parts.push_back({layer.name, {layer}, layer.inputs, layer.outputs});
  return makeModel(parts);
}

TwinModel GraphModel::fused() const {
  const GraphLayer &first = layers.front();
  Part rest{"rest", {layers.begin() + 1, layers.end()}, first.outputs, {}};
  rest.inputs.push_back("labels");
  rest.outputs = {"loss"};
  return makeModel({{first.name, {first}, first.inputs, first.outputs}, rest});
}

GraphModel skipGraph() {
  return {"skips",
          {{"wte", "embed", {"tokens"}, {"x"}},
           {"a", "block", {"x"}, {"a"}},
           {"b", "bare", {"a"}, {"b"}},
           {"c", "block", {"b"}, {"c"}},
           {"d", "join", {"c", "x"}, {"d"}},
           {"e", "join", {"a", "d"}, {"e"}},
           {"f", "join", {"e", "a"}, {"f"}},
           {"head", "head", {"f", "labels"}, {"loss"}}}};
}

GraphModel pairGraph() {
  return {"pairs",
          {{"wte", "embed", {"tokens"}, {"x"}},
           {"a", "pair", {"x"}, {"ay", "az"}},
           {"b", "mix", {"ay", "az"}, {"by", "bz"}},
           {"c", "mixback", {"bz", "by"}, {"cz", "cy"}},
           {"d", "mix", {"cy", "cz"}, {"dy", "dz"}},
           {"e", "merge", {"dy", "dz"}, {"e"}},
           {"f", "merge", {"e", "az"}, {"f"}},
           {"head", "head", {"f", "labels"}, {"loss"}}}};
}

GraphModel encoderDecoderGraph() {
  return {"encoder-decoder",
          {{"wte", "embed", {"tokens"}, {"x"}},
           {"enc0", "block", {"x"}, {"e0"}},
           {"enc1", "block", {"e0"}, {"e1"}},
           {"dec0", "cross", {"x", "e1"}, {"d0"}},
           {"dec1", "cross", {"d0", "e1"}, {"d1"}},
           {"dec2", "cross", {"d1", "e1"}, {"d2"}},
           {"dec3", "cross", {"d2", "e1"}, {"d3"}},
           {"head", "head", {"d3", "labels"}, {"loss"}}}};
}

GraphModel randomGraph(std::mt19937 &generator) {
  struct Value {
    std::string name;
    bool wide;
    bool used = false;
  };
  std::vector<Value> values = {{"x", true}};
  GraphModel graph{"random", {{"wte", "embed", {"tokens"}, {"x"}}}};
  auto pick = [&](size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(generator);
  };
  auto unused = [&](bool wide) {
    return llvm::count_if(values, [&](const Value &value) {
      return value.wide == wide && !value.used;
    });
  };
  auto add = [&](const std::string &body, bool newest) {
    std::string name = "l" + std::to_string(graph.layers.size());
    GraphLayer layer{name, body, {}, {}};
    for (const std::string &type : bodies().at(body).inputs) {
      std::vector<size_t> any, fresh;
      for (size_t i = 0; i < values.size(); ++i)
        if (values[i].wide == (type == kWide) &&
            !llvm::is_contained(layer.inputs, values[i].name)) {
          any.push_back(i);
          if (!values[i].used)
            fresh.push_back(i);
        }
      const std::vector<size_t> &from =
          !fresh.empty() && (newest || pick(3) > 0) ? fresh : any;
      if (from.empty())
        return false;
      layer.inputs.push_back(values[from[pick(from.size())]].name);
    }
    for (Value &value : values)
      value.used |= llvm::is_contained(layer.inputs, value.name);
    for (const std::string &type : bodies().at(body).outputs) {
      layer.outputs.push_back(name + "o" +
                              std::to_string(layer.outputs.size()));
      values.push_back({layer.outputs.back(), type == kWide});
    }
    graph.layers.push_back(std::move(layer));
    return true;
  };
  const char *const some[] = {"block", "join",    "pair", "mix",
                              "cross", "mixback", "merge"};
  while (graph.layers.size() < 7)
    add(some[pick(std::size(some))], /*newest=*/false);
  // What is left goes into one value.
  while (unused(false) > 0)
    add("merge", /*newest=*/true);
  while (unused(true) > 1)
    add("join", /*newest=*/true);
  const Value &last =
      *llvm::find_if(values, [](const Value &value) { return !value.used; });
  graph.layers.push_back({"head", "head", {last.name, "labels"}, {"loss"}});
  return graph;
}

} // namespace galvatron::test
