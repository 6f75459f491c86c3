//===- galvatron-solve.cpp - The solvers without a model ------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads a problem in JSON (layer-strategies, pipeline-partition, harmony, 2bw)
// and prints the best answer in JSON. Exit codes: 0 solved, 1 infeasible, 2
// invalid input.
//
//===----------------------------------------------------------------------===//

#include "Solve.h"

#include "galvatron/Search/PipelinePartition.h"
#include "galvatron/Search/PipelineSearch.h"
#include "galvatron/Support/CommandLine.h"
#include "galvatron/Support/OutputFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <csignal>

using namespace llvm;
using namespace galvatron;
using namespace galvatron::solve;

namespace {

cl::OptionCategory category("galvatron-solve options");
cl::opt<std::string> inputPath(cl::Positional, cl::desc("PROBLEM.json"),
                               cl::init("-"), cl::cat(category));
cl::opt<std::string> jsonPath("json", cl::ValueOptional, cl::init("-"),
                              cl::desc("write the answer to FILE instead of "
                                       "standard output"),
                              cl::value_desc("FILE"), cl::cat(category));

/// Milliseconds become whole picoseconds, so that equal sums are equal.
Picoseconds readMilliseconds(ObjectReader &reader, const std::string &where,
                             const json::Value *value) {
  std::optional<double> number =
      value ? value->getAsNumber() : std::optional<double>();
  if (!number || !(*number >= 0) || *number > 8e9) {
    reader.fail("'" + where +
                "': expected milliseconds between 0 and 8e9, found " +
                (value ? formatv("{0}", *value).str() : "nothing"));
    return 0;
  }
  return std::llround(*number * 1e9);
}

double milliseconds(Picoseconds time) { return toMilliseconds(time); }

/// The layers of one stage: a pipeline that is not cut.
Outcome solveLayers(ObjectReader &reader) {
  PipelineProblem problem;
  PipelineStage &stage = problem.stages.emplace_back();
  std::vector<size_t> &sets = problem.layers.emplace_back();
  stage.memory = reader.natural("memory-bytes");
  stage.inFlight = reader.integerOr("in-flight", 1);
  std::vector<std::string> names;
  StringMap<size_t> indexOf;
  if (const json::Array *array = reader.array("strategies"))
    for (const json::Value &value : *array) {
      std::optional<StringRef> name = value.getAsString();
      if (!name)
        reader.fail("'strategies': expected names");
      else if (!indexOf.try_emplace(*name, names.size()).second)
        reader.fail("'strategies': '" + *name + "' is listed twice");
      else
        names.push_back(name->str());
    }
  problem.classes = std::max<size_t>(names.size(), 1);

  // The options of a layer, in the order of `strategies`: ties go to the first.
  std::vector<std::vector<size_t>> strategyOf;
  if (const json::Array *layers = reader.array("layers")) {
    for (size_t i = 0; i < layers->size(); ++i) {
      std::string path = "layers[" + std::to_string(i) + "]";
      ObjectReader layer((*layers)[i], path);
      int64_t count = layer.integerOr("count", 1);
      if (count < 1 || count > 100000)
        layer.fail("'" + path + ".count': expected 1 to 100000, found " +
                   Twine(count));
      std::vector<std::pair<size_t, PipelineOption>> options;
      if (const json::Array *array = layer.array("options"))
        for (size_t o = 0; o < array->size(); ++o) {
          std::string at = path + ".options[" + std::to_string(o) + "]";
          ObjectReader item((*array)[o], at);
          std::string name = item.string("strategy");
          PipelineOption option;
          option.nosync = option.time =
              readMilliseconds(item, at + ".time-ms", item.value("time-ms"));
          option.kept = item.naturalOr("forward-bytes", 0);
          option.transient = item.naturalOr("backward-bytes", 0);
          option.state = item.naturalOr("state-bytes", 0);
          auto it = indexOf.find(name);
          if (it == indexOf.end())
            item.fail("'" + at + ".strategy': '" + name +
                      "' is not among 'strategies'");
          else
            option.layoutClass = it->second;
          if (Error error = item.finish())
            layer.fail(toString(std::move(error)));
          options.push_back({option.layoutClass, option});
        }
      stable_sort(options, [](const auto &a, const auto &b) {
        return a.first < b.first;
      });
      for (size_t o = 1; o < options.size(); ++o)
        if (options[o].first == options[o - 1].first && !layer.failed())
          layer.fail("'" + path + ".options': strategy '" +
                     names[options[o].first] + "' is listed twice");
      if (options.empty())
        layer.fail("'" + path + ".options': expected at least one option");
      layer.stringOr("name", "");
      if (Error error = layer.finish())
        reader.fail(toString(std::move(error)));
      if (reader.failed())
        break;
      problem.optionSets.emplace_back();
      strategyOf.emplace_back();
      for (const auto &[strategy, option] : options) {
        problem.optionSets.back().push_back(option);
        strategyOf.back().push_back(strategy);
      }
      sets.insert(sets.end(), count, i);
    }
  }
  size_t classes = problem.classes;
  std::vector<Picoseconds> matrix(classes * classes, 0);
  if (reader.has("transform-ms"))
    if (const json::Array *rows = reader.array("transform-ms")) {
      if (rows->size() != names.size())
        reader.fail("'transform-ms': expected " + Twine(names.size()) +
                    " rows, one per strategy, found " + Twine(rows->size()));
      for (size_t i = 0; i < rows->size() && !reader.failed(); ++i) {
        const json::Array *row = (*rows)[i].getAsArray();
        std::string at = "transform-ms[" + std::to_string(i) + "]";
        if (!row || row->size() != names.size()) {
          reader.fail("'" + at + "': expected " + Twine(names.size()) +
                      " numbers");
          break;
        }
        for (size_t j = 0; j < row->size(); ++j)
          matrix[i * classes + j] = readMilliseconds(
              reader, at + "[" + std::to_string(j) + "]", &(*row)[j]);
      }
    }
  problem.matrices.push_back(std::move(matrix));
  problem.transforms.emplace_back(sets.empty() ? 0 : sets.size() - 1, 0);
  if (Error error = reader.finish())
    return invalid(std::move(error));
  if (Error error = problem.check())
    return invalid(std::move(error));

  Stopwatch watch;
  std::optional<PipelineSolution> solution = PipelineSearch(problem).solve();
  double elapsed = watch.milliseconds();
  if (!solution) {
    int64_t needed = stage.memory + leastNeed(problem).excess;
    Outcome outcome = infeasible("no choice fits: the least possible peak is " +
                                 Twine(needed) + " bytes, available are " +
                                 Twine(stage.memory));
    json::Object *details = outcome.answer.getObject("infeasible");
    (*details)["needed-bytes"] = needed;
    (*details)["available-bytes"] = stage.memory;
    return outcome;
  }
  PipelineValue value =
      evaluatePipeline(problem, solution->partition, solution->choice);
  json::Array choice;
  for (auto [set, option] : zip_equal(sets, solution->choice))
    choice.push_back(names[strategyOf[set][option]]);
  return {exitDone,
          json::Object{{"cost-ms", milliseconds(solution->cost)},
                       {"choice", std::move(choice)},
                       {"peak-bytes", value.memory.front()},
                       {"search-ms", elapsed}},
          ""};
}

/// A table of milliseconds.
std::vector<std::vector<Picoseconds>> readTable(ObjectReader &reader,
                                                StringRef key) {
  std::vector<std::vector<Picoseconds>> table;
  const json::Array *rows = reader.has(key) ? reader.array(key) : nullptr;
  if (!rows)
    return table;
  for (size_t i = 0; i < rows->size(); ++i) {
    std::string at = (key + "[" + Twine(i) + "]").str();
    const json::Array *row = (*rows)[i].getAsArray();
    if (!row) {
      reader.fail("'" + at + "': expected an array");
      break;
    }
    table.emplace_back();
    for (size_t j = 0; j < row->size(); ++j)
      table.back().push_back(readMilliseconds(
          reader, at + "[" + std::to_string(j) + "]", &(*row)[j]));
  }
  return table;
}

Outcome solvePartition(ObjectReader &reader) {
  PartitionProblem problem;
  problem.stages = reader.integer("stages");
  problem.microBatches = reader.integerOr("micro-batches", 1);
  problem.stageLayers = readTable(reader, "stage-ms");
  // Times by stage replace those for all stages.
  bool byStage = reader.has("stage-ms");
  if (!byStage || reader.has("layer-ms"))
    if (const json::Array *array = reader.array("layer-ms"))
      for (size_t i = 0; i < array->size(); ++i)
        problem.layers.push_back(readMilliseconds(
            reader, "layer-ms[" + std::to_string(i) + "]", &(*array)[i]));
  if (byStage && reader.has("layer-ms") &&
      problem.layers.size() != problem.stageLayers.size())
    reader.fail("'stage-ms': expected " + Twine(problem.layers.size()) +
                " rows, one per entry of 'layer-ms', found " +
                Twine(problem.stageLayers.size()));
  for (size_t i = 0; i < problem.stageLayers.size(); ++i)
    if (static_cast<int64_t>(problem.stageLayers[i].size()) != problem.stages)
      reader.fail("'stage-ms[" + Twine(i) + "]': expected " +
                  Twine(problem.stages) + " entries, one per stage, found " +
                  Twine(problem.stageLayers[i].size()));
  if (byStage)
    problem.layers.clear();
  problem.cuts = readTable(reader, "cut-ms");
  if (Error error = reader.finish())
    return invalid(std::move(error));
  if (Error error = problem.check())
    return invalid(std::move(error));
  Stopwatch watch;
  std::optional<PartitionSolution> solution =
      galvatron::solvePartition(problem);
  double elapsed = watch.milliseconds();
  if (!solution)
    return infeasible(Twine(problem.layerCount()) + " layers do not fill " +
                      Twine(problem.stages) + " stages");
  return {
      exitDone,
      json::Object{{"cost-ms", milliseconds(solution->cost)},
                   {"layers-per-stage", json::Array(solution->layersPerStage)},
                   {"search-ms", elapsed}},
      ""};
}

/// `name` is that of the file.
Outcome solveProblem(const json::Value &value, StringRef name) {
  ObjectReader reader(value, "");
  std::string problem = reader.string("problem");
  if (!reader.failed()) {
    if (problem == "layer-strategies")
      return solveLayers(reader);
    if (problem == "pipeline-partition")
      return solvePartition(reader);
    if (problem == "harmony")
      return solveHarmony(reader, name);
    if (problem == "2bw")
      return solveTwoBuffers(reader);
    reader.fail("'problem': expected 'layer-strategies', 'pipeline-partition', "
                "'harmony' or '2bw', found '" +
                problem + "'");
  }
  return invalid(reader.finish(/*rejectUnknown=*/false));
}

} // namespace

Outcome galvatron::solve::invalid(Error error) {
  return {exitInvalid, {}, toString(std::move(error))};
}

Outcome galvatron::solve::infeasible(const Twine &reason) {
  return {exitInfeasible,
          json::Object{{"infeasible", json::Object{{"reason", reason.str()}}}},
          reason.str()};
}

int main(int argc, char **argv) {
  InitLLVM init(argc, argv);
  ToolText tool{"galvatron-solve", "PROBLEM.json [options]",
                "Solves a problem of the planner from JSON: layer-strategies, "
                "pipeline-partition, harmony or 2bw",
                "0 done, 1 infeasible, 2 wrong usage or invalid input"};
  if (std::optional<int> code = parseCommandLine(tool, category, argc, argv))
    return *code;
  if (!inputPath.getNumOccurrences() && sys::Process::StandardInIsUserInput()) {
    errs() << "galvatron-solve: error: expected a problem: a JSON file, or '-' "
              "for standard input\n";
    return exitInvalid;
  }
  if (isSameFile(inputPath, jsonPath)) {
    errs() << "galvatron-solve: error: --json='" << jsonPath
           << "': expected a file of its own, found that of the problem\n";
    return exitInvalid;
  }
  std::string path = jsonPath.empty() ? "-" : jsonPath.getValue();
  auto cannotWrite = [&](std::error_code code) {
    if (path == "-" && code == std::errc::broken_pipe)
      return 128 + SIGPIPE;
    errs() << "galvatron-solve: error: cannot write "
           << (path == "-" ? "standard output" : "'" + path + "'") << ": "
           << code.message() << "\n";
    return isWrongPath(code) ? exitInvalid : exitInfeasible;
  };
  if (std::error_code code = tryOutput(path))
    return cannotWrite(code);
  ErrorOr<std::unique_ptr<MemoryBuffer>> buffer =
      MemoryBuffer::getFileOrSTDIN(inputPath, /*IsText=*/true);
  if (!buffer) {
    errs() << "galvatron-solve: error: cannot read '" << inputPath
           << "': " << buffer.getError().message() << "\n";
    return exitInvalid;
  }
  Expected<json::Value> problem = parseJson((*buffer)->getBuffer(), inputPath);
  if (!problem) {
    errs() << "galvatron-solve: error: " << toString(problem.takeError())
           << "\n";
    return exitInvalid;
  }
  Outcome outcome = solveProblem(*problem, inputPath);
  if (!outcome.message.empty())
    errs() << "galvatron-solve: error: " << inputPath << ": " << outcome.message
           << "\n";
  if (outcome.code == exitInvalid)
    return outcome.code;
  std::string answer =
      formatv("{0:2}\n", json::Value(std::move(outcome.answer))).str();
  std::error_code code = writeWhole(path, answer);
  return code ? cannotWrite(code) : outcome.code;
}
