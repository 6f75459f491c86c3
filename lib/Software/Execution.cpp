//===- Execution.cpp - How training software executes a plan --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Software/Execution.h"

#include "galvatron/Support/Suggest.h"
#include "galvatron/Support/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/YAMLTraits.h"

#include <variant>

using namespace llvm;
using namespace galvatron;

namespace {

using Facts = std::map<std::string, std::string>;
using Table = std::map<std::string, double>;

/// An entry of Executions.yaml.
struct ExecutionText {
  std::string name, software, source, like;
  Facts facts;
};

/// The contents of `constants`: numbers, and numbers by device type.
struct ConstantsText {
  Table attention, flash2, products, contextGb;
  std::map<std::string, double> numbers;
};

struct ExecutionsText {
  ConstantsText constants;
  std::vector<ExecutionText> executions;
};

constexpr StringLiteral kNumbers[] = {
    "kernels-fused",       "kernels-unfused",   "unaligned-products",
    "unaligned-attention", "launch-us",         "wait-us",
    "gathered-rank-us",    "allocator-reserve", "tensor-overlap"};

/// The text of lib/Software/Executions.yaml.
const char executionsText[] =
#include "Executions.inc"
    ;

} // namespace

LLVM_YAML_IS_STRING_MAP(double)
LLVM_YAML_IS_STRING_MAP(std::string)

namespace llvm::yaml {

template <> struct MappingTraits<ConstantsText> {
  static void mapping(IO &io, ConstantsText &text) {
    io.mapRequired("attention", text.attention);
    io.mapRequired("flash-2", text.flash2);
    io.mapRequired("products", text.products);
    io.mapRequired("context-gb", text.contextGb);
    for (StringRef name : kNumbers)
      io.mapRequired(name.data(), text.numbers[name.str()]);
  }
};

template <> struct MappingTraits<ExecutionText> {
  static void mapping(IO &io, ExecutionText &text) {
    io.mapRequired("name", text.name);
    io.mapRequired("software", text.software);
    io.mapRequired("source", text.source);
    io.mapOptional("like", text.like);
    io.mapOptional("facts", text.facts);
  }
};

} // namespace llvm::yaml

LLVM_YAML_IS_SEQUENCE_VECTOR(ExecutionText)

namespace llvm::yaml {
template <> struct MappingTraits<ExecutionsText> {
  static void mapping(IO &io, ExecutionsText &text) {
    io.mapRequired("constants", text.constants);
    io.mapRequired("executions", text.executions);
  }
};
} // namespace llvm::yaml

namespace {

/// A fact of an execution and where it is kept.
struct Fact {
  StringLiteral name;
  std::variant<bool Execution::*, int64_t Execution::*, double Execution::*,
               GradientCopies Execution::*, MemoryFigure Execution::*,
               ContextWay Execution::*, Table Execution::*>
      member;
};

const Fact kFacts[] = {
    {"keeps-scores", &Execution::keepsScores},
    {"flash-2", &Execution::flash2},
    {"fuses-norms", &Execution::fusesNorms},
    {"fuses-queries", &Execution::fusesQueries},
    {"launches", &Execution::launches},
    {"waits", &Execution::waits},
    {"overlaps", &Execution::overlaps},
    {"stages-meet", &Execution::stagesMeet},
    {"adds-gradients", &Execution::addsGradients},
    {"half-gradients", &Execution::halfGradients},
    {"gradient-copies", &Execution::gradientCopies},
    {"replica-buckets", &Execution::replicaBuckets},
    {"logit-bytes", &Execution::logitBytes},
    {"keeps-outputs", &Execution::keepsOutputs},
    {"sends-parts", &Execution::sendsParts},
    {"overlaps-tensor", &Execution::overlapsTensor},
    {"sums-everywhere", &Execution::sumsEverywhere},
    {"gathers-ahead", &Execution::gathersAhead},
    {"gathers-matrices", &Execution::gathersMatrices},
    {"gathers-all", &Execution::gathersAll},
    {"sums-every-pass", &Execution::sumsEveryPass},
    {"gathers-every-pass", &Execution::gathersEveryPass},
    {"context-way", &Execution::contextWay},
    {"gathers-logits", &Execution::gathersLogits},
    {"bucket-elements", &Execution::bucketElements},
    {"prefetch-elements", &Execution::prefetchElements},
    {"live-elements", &Execution::liveElements},
    {"update-bytes", &Execution::updateBytes},
    {"cuts-by-work", &Execution::cutsByWork},
    {"figure", &Execution::figure},
    {"unit", &Execution::unit},
    {"attention", &Execution::attention},
    {"products", &Execution::products},
    {"context-gb", &Execution::contextGb},
    {"kernels-fused", &Execution::kernelsFused},
    {"kernels-unfused", &Execution::kernelsUnfused},
    {"unaligned-products", &Execution::unalignedProducts},
    {"unaligned-attention", &Execution::unalignedAttention},
    {"launch-us", &Execution::launchUs},
    {"wait-us", &Execution::waitUs},
    {"gathered-rank-us", &Execution::gatheredRankUs},
    {"allocator-reserve", &Execution::allocatorReserve},
    {"tensor-overlap", &Execution::tensorOverlap},
};

Error expected(StringRef name, const Twine &what, StringRef found) {
  return makeError("fact '" + name + "' of an execution: expected " + what +
                   ", found '" + found + "'");
}

/// Sets one fact from its text.
struct Setter {
  Execution &execution;
  StringRef name, text;

  Error operator()(bool Execution::*member) const {
    if (text != "on" && text != "off" && text != "true" && text != "false")
      return expected(name, "'on' or 'off'", text);
    execution.*member = text == "on" || text == "true";
    return Error::success();
  }
  Error operator()(int64_t Execution::*member) const {
    if (text.getAsInteger(10, execution.*member) || execution.*member < 0)
      return expected(name, "a count of at least 0", text);
    return Error::success();
  }
  Error operator()(double Execution::*member) const {
    double number = 0;
    if (text.getAsDouble(number) || !(number >= 0) || number > 1e15)
      return expected(name, "a number of at least 0", text);
    execution.*member = number;
    return Error::success();
  }
  Error operator()(GradientCopies Execution::*member) const {
    if (text == "none")
      execution.*member = GradientCopies::None;
    else if (text == "pass")
      execution.*member = GradientCopies::Pass;
    else if (text == "stay")
      execution.*member = GradientCopies::Stay;
    else
      return expected(name, "'none', 'pass' or 'stay'", text);
    return Error::success();
  }
  Error operator()(ContextWay Execution::*member) const {
    if (text == "ring")
      execution.*member = ContextWay::Ring;
    else if (text == "gather")
      execution.*member = ContextWay::Gather;
    else if (text == "exchange")
      execution.*member = ContextWay::Exchange;
    else
      return expected(name, "'ring', 'gather' or 'exchange'", text);
    return Error::success();
  }
  Error operator()(MemoryFigure Execution::*member) const {
    if (text == "allocated")
      execution.*member = MemoryFigure::Allocated;
    else if (text == "reserved")
      execution.*member = MemoryFigure::Reserved;
    else if (text == "card")
      execution.*member = MemoryFigure::Card;
    else
      return expected(name, "'allocated', 'reserved' or 'card'", text);
    return Error::success();
  }
  Error operator()(Table Execution::*member) const {
    double number = 0;
    if (text.getAsDouble(number) || !(number > 0) || number > 1e15)
      return expected(name, "a number above 0", text);
    for (auto &[type, value] : execution.*member)
      value = number;
    return Error::success();
  }
};

Error setFact(Execution &execution, StringRef name, StringRef text) {
  for (const Fact &fact : kFacts)
    if (fact.name == name)
      return std::visit(Setter{execution, name, text}, fact.member);
  std::vector<std::string> known;
  for (const Fact &fact : kFacts)
    known.push_back(fact.name.str());
  return makeError("unknown fact '" + name + "' of an execution, expected " +
                   join(known, ", ") + didYouMean(name, known));
}

Execution withConstants(const ConstantsText &constants) {
  Execution execution;
  execution.attention = constants.attention;
  execution.flash = constants.flash2;
  execution.products = constants.products;
  execution.contextGb = constants.contextGb;
  for (const auto &[name, number] : constants.numbers)
    cantFail(setFact(execution, name, std::to_string(number)));
  return execution;
}

/// All executions. The file is part of the program: what cannot be read in it
/// is a mistake of the build.
const std::vector<Execution> &executions() {
  static const std::vector<Execution> all = [] {
    ExecutionsText text;
    yaml::Input input(executionsText);
    input >> text;
    if (input.error())
      report_fatal_error("Executions.yaml cannot be read");
    std::vector<Execution> all;
    for (const ExecutionText &entry : text.executions) {
      Execution execution = withConstants(text.constants);
      if (!entry.like.empty()) {
        auto base = find_if(all, [&](const Execution &other) {
          return other.name == entry.like;
        });
        if (base == all.end())
          report_fatal_error(Twine("Executions.yaml: nothing before '") +
                             entry.name + "' is called '" + entry.like + "'");
        execution = *base;
      }
      execution.name = entry.name;
      execution.software = entry.software;
      execution.source = entry.source;
      for (const auto &[fact, value] : entry.facts)
        if (Error error = setFact(execution, fact, value))
          report_fatal_error(std::move(error));
      all.push_back(std::move(execution));
    }
    return all;
  }();
  return all;
}

/// The entry of a type, else the one of an H100.
double entryOf(const Table &table, StringRef deviceType) {
  auto entry = table.find(deviceType.str());
  return entry == table.end() ? table.at("h100") : entry->second;
}

} // namespace

double Execution::attentionOn(StringRef deviceType) const {
  return entryOf(flash2 ? flash : attention, deviceType);
}

double Execution::productsOn(StringRef deviceType) const {
  auto entry = products.find(deviceType.str());
  return entry == products.end() ? 1 : entry->second;
}

double Execution::contextOn(StringRef deviceType) const {
  auto entry = contextGb.find(deviceType.str());
  return entry == contextGb.end() ? 0 : entry->second * 1e9;
}

std::vector<std::string> Execution::names() {
  std::vector<std::string> names;
  for (const Execution &execution : executions())
    names.push_back(execution.name);
  return names;
}

Expected<Execution> Execution::named(StringRef name) {
  for (const Execution &execution : executions())
    if (execution.name == name)
      return execution;
  return makeError("unknown execution '" + name + "', expected " +
                   join(names(), ", ") + didYouMean(name, names()));
}

Error Execution::set(ArrayRef<std::pair<std::string, std::string>> facts) {
  for (const auto &[name, text] : facts)
    if (Error error = setFact(*this, name, text))
      return error;
  return Error::success();
}
