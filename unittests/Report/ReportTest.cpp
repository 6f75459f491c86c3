//===- ReportTest.cpp - The page about a plan -----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "galvatron/Report/Report.h"
#include "galvatron/Cost/ProfileLayerModel.h"

#include "../PaperOptions.h"

#include "Svg.h"

#include "gtest/gtest.h"

#include <map>
#include <regex>

using namespace galvatron;

namespace {

std::unique_ptr<ProfileLayerModel> deepModel(int64_t layers,
                                             const std::string &name,
                                             int64_t boundaryBytes = 4 << 20) {
  ProfileLayer layer;
  layer.name = "block";
  layer.count = layers;
  layer.forwardFlops = 1e12;
  layer.parameterBytes = 100 << 20;
  layer.boundaryBytes = boundaryBytes;
  layer.intermediateBytes = 64 << 20;
  return llvm::cantFail(ProfileLayerModel::get(name, "f32", {layer}));
}

Plan planOf(LayerModel &model, const std::string &cluster,
            PlannerOptions options) {
  PlannerResult result = llvm::cantFail(
      plan(model, llvm::cantFail(Cluster::builtin(cluster)), options));
  EXPECT_TRUE(result.feasible());
  return result.plan();
}

/// The page about a plan, with its step simulated.
std::string pageOf(LayerModel &model, const std::string &cluster,
                   const Plan &plan, std::vector<ParetoPoint> front = {},
                   const Explanation *explanation = nullptr) {
  SimulationInput tasks = llvm::cantFail(
      simulationInput(model, llvm::cantFail(Cluster::builtin(cluster)), plan));
  Simulation simulation = llvm::cantFail(simulate(tasks));
  return htmlReport({plan, tasks, simulation, std::move(front), explanation});
}

size_t count(const std::string &text, const std::string &part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1))
    ++found;
  return found;
}

/// Every tag is closed by its own, in order: enough of XML to catch a chart
/// that breaks the page.
void expectWellFormed(const std::string &html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos;
       at = html.find('<', at + 1)) {
    size_t end = html.find('>', at);
    ASSERT_NE(end, std::string::npos);
    std::string tag = html.substr(at + 1, end - at - 1);
    if (tag[0] == '!' || tag.back() == '/' || tag.rfind("meta", 0) == 0)
      continue;
    EXPECT_EQ(tag.find('<'), std::string::npos) << tag;
    EXPECT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
    if (tag[0] != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
      continue;
    }
    ASSERT_FALSE(open.empty());
    EXPECT_EQ("/" + open.back(), tag);
    open.pop_back();
  }
  EXPECT_TRUE(open.empty());
}

TEST(Report, page_is_self_contained_and_well_formed) {
  auto model = deepModel(6, "a <b>\"model\"</b> & more");
  PlannerOptions options = paperOptions();
  options.batch = 32;
  options.pipelineDegree = 2;
  Plan chosen = planOf(*model, "8xrtx-titan", options);
  Cluster cluster = llvm::cantFail(Cluster::builtin("8xrtx-titan"));
  Explanation explanation =
      llvm::cantFail(explain(*model, cluster, options, chosen));
  std::vector<ParetoPoint> front = llvm::cantFail(paretoFront(
      cluster, options, chosen,
      [&](const Cluster &some, const PlannerOptions &asked) {
        return plan(*model, some, asked);
      },
      4));
  std::string page = pageOf(*model, "8xrtx-titan", chosen, front, &explanation);
  expectWellFormed(page);
  EXPECT_EQ(page, pageOf(*model, "8xrtx-titan", chosen, front, &explanation));
  for (const char *outside : {"http", "<script", "<link", "src=", "@import"})
    EXPECT_EQ(count(page, outside), 0u) << outside;
  EXPECT_EQ(count(page, "<b>"), 0u);
  EXPECT_GE(count(page, "a &lt;b&gt;&quot;model&quot;&lt;/b&gt; &amp; more"),
            2u);
  // Built-in figures are no measurements, and MFU is of them.
  for (const char *part :
       {"'8xrtx-titan' has nominal figures", "prefers-color-scheme: dark",
        "The plan over the layers", "The schedule of one step",
        "Where the memory goes", "Memory against throughput",
        "Runners-up at batch 32", "(this plan)",
        explanation.runnersUp.front().what.c_str()})
    EXPECT_GE(count(page, part), 1u) << part;
}

TEST(Report, pictures_show_the_plan) {
  auto model = deepModel(8, "model");
  PlannerOptions options = paperOptions();
  options.batch = 16;
  options.microBatches = 4;
  options.pipelineDegree = 4;
  options.strategy = llvm::cantFail(Strategy::parse("sdp2.ckpt"));
  Plan chosen = planOf(*model, "8xrtx-titan", options);
  std::string page = pageOf(*model, "8xrtx-titan", chosen);
  expectWellFormed(page);
  EXPECT_EQ(count(page, "Memory against throughput"), 0u);
  EXPECT_EQ(count(page, ": forward of micro-batch "), 4u * 4u);
  EXPECT_EQ(count(page, ": backward of micro-batch "), 4u * 4u);
  // Three cuts are crossed, and all stages update: too short for shapes of
  // their own.
  EXPECT_EQ(count(page, "between stages, and synchronisation"), 1u);
  EXPECT_GE(count(page, "gradient norm and update"), 2u);
  // One run a stage, hatched for its recomputation.
  EXPECT_EQ(count(page, "class=\"hatch\""), 4u);
  EXPECT_GE(count(page, "sdp2.ckpt x2"), 4u);
  // Two layers of a run are told apart by one line.
  EXPECT_EQ(count(page, "class=\"cut\""), 4u);
  EXPECT_GE(count(page, "class=\"on small\""), 4u * 4u);
  for (const char *part : {"computation ", "exposed communication ",
                           "gradient norm and update ", "bubble "})
    EXPECT_EQ(count(page, std::string("<title>") + part), 4u) << part;
  for (auto [name, bytes] : chosen.stages[0].ledger.entries())
    if (bytes > 0) {
      EXPECT_GE(count(page, "<title>" + name.str() + " "), 4u) << name.str();
    }
}

/// What a shape is drawn as says what its tip says.
TEST(Report, tasks_have_the_colours_of_their_kinds) {
  auto model = deepModel(8, "model", 256 << 20);
  PlannerOptions options;
  options.batch = 64;
  options.microBatches = 2;
  options.pipelineDegree = 2;
  options.strategy = llvm::cantFail(Strategy::parse("dp32"));
  const char *cluster = "8x8xv100-16gb";
  std::string page = pageOf(*model, cluster, planOf(*model, cluster, options));
  std::map<std::string, int> seen;
  std::regex shape("class=\"([a-z]+)\"><title>stage [01]: ([^,]*),");
  for (std::sregex_iterator at(page.begin(), page.end(), shape), end; at != end;
       ++at) {
    std::string name = (*at)[2].str();
    std::string kind = name.starts_with("forward of")    ? "forward"
                       : name.starts_with("backward of") ? "backward"
                       : name == "update" || name == "gradient norm" ? "update"
                                                                     : "sync";
    EXPECT_EQ((*at)[1].str(), kind) << name;
    ++seen[name.substr(0, name.find(" of "))];
  }
  EXPECT_EQ(seen["forward"], 4);
  EXPECT_EQ(seen["backward"], 4);
  EXPECT_GE(seen["gradient synchronisation"], 1);
  for (const char *transfer : {"send-activation mb 0", "send-activation mb 1",
                               "send-gradient mb 0", "send-gradient mb 1"})
    EXPECT_EQ(seen[std::string("transfer ") + transfer], 1) << transfer;
}

TEST(Report, an_axis_without_length_has_one_tick) {
  EXPECT_EQ(report::niceTicks(0, 8), std::vector<double>{0});
  EXPECT_EQ(report::niceTicks(10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
}

/// A plan that was chosen by its simulated time is compared with the formula
/// all the same.
TEST(Report, the_dashed_line_is_the_formula) {
  auto model = deepModel(8, "model");
  PlannerOptions options;
  options.batch = 64;
  options.microBatches = 4;
  // Sums of gradients over a slow network, which Eq. 9 adds up.
  options.strategy = llvm::cantFail(Strategy::parse("dp16"));
  const char *cluster = "8x8xv100-16gb";
  Plan chosen = planOf(*model, cluster, options);
  SimulationInput tasks = llvm::cantFail(simulationInput(
      *model, llvm::cantFail(Cluster::builtin(cluster)), chosen));
  double formula = tasks.predictedSeconds;
  ASSERT_GT(std::abs(chosen.iterationMs / 1e3 - formula), 0.02 * formula);
  std::string page = pageOf(*model, cluster, chosen);
  const std::string says = "(Eq. 9, dashed) says ";
  ASSERT_EQ(count(page, says), 1u);
  std::string told = page.substr(page.find(says) + says.size(), 12);
  double unit = told.find(" ms") != std::string::npos ? 1e-3 : 1;
  EXPECT_NEAR(std::stod(told) * unit, formula, 0.005 * formula) << told;
}

/// Labels in front of charts have room on the page: a character takes at least
/// five units.
TEST(Report, labels_are_on_the_page) {
  auto model = deepModel(8, "model");
  PlannerOptions options = paperOptions();
  options.batch = 16;
  options.microBatches = 4;
  options.pipelineDegree = 4;
  Plan chosen = planOf(*model, "8xrtx-titan", options);
  std::string page = pageOf(*model, "8xrtx-titan", chosen);
  int labels = 0;
  const std::string begin = "<text x=\"";
  for (size_t at = page.find(begin); at != std::string::npos;
       at = page.find(begin, at + 1)) {
    std::string tag = page.substr(at, page.find("</text>", at) - at);
    double x = std::stod(tag.substr(begin.size()));
    EXPECT_GE(x, 0) << tag;
    if (tag.find("text-anchor=\"end\"") == std::string::npos)
      continue;
    ++labels;
    auto characters = static_cast<double>(tag.size() - tag.find('>') - 1);
    EXPECT_GE(x, 5 * characters) << tag;
  }
  EXPECT_GT(labels, 8);
}

/// The middle of a name's letters, which stand 8 units above the line they are
/// written on, is the middle of its bar.
TEST(Report, stages_are_named_beside_their_bars) {
  auto model = deepModel(8, "model");
  PlannerOptions options = paperOptions();
  options.batch = 16;
  options.microBatches = 4;
  options.pipelineDegree = 4;
  Plan chosen = planOf(*model, "8xrtx-titan", options);
  std::string page = pageOf(*model, "8xrtx-titan", chosen);
  auto attribute = [&](size_t tag, const std::string &name) {
    return std::stod(
        page.substr(page.find(" " + name + "=\"", tag) + name.size() + 3));
  };
  std::vector<double> middles;
  for (size_t at = page.find("<rect "); at != std::string::npos;
       at = page.find("<rect ", at + 1))
    middles.push_back(attribute(at, "y") + attribute(at, "height") / 2);
  for (int stage = 0; stage < 4; ++stage) {
    size_t name = page.find(">stage " + std::to_string(stage) + "</text>");
    ASSERT_NE(name, std::string::npos);
    double letters = attribute(page.rfind("<text ", name), "y") - 4;
    EXPECT_TRUE(llvm::any_of(
        middles, [&](double middle) { return std::abs(middle - letters) < 1; }))
        << "stage " << stage;
  }
}

TEST(Report, stages_stand_on_their_nodes) {
  auto model = deepModel(8, "blocks");
  PlannerOptions options;
  options.batch = 16;
  options.pipelineDegree = 4;
  Plan plan = planOf(*model, "2x4xt4", options);
  SimulationInput tasks = llvm::cantFail(simulationInput(
      *model, llvm::cantFail(Cluster::builtin("2x4xt4")), plan));
  Simulation simulation = llvm::cantFail(simulate(tasks));
  Cluster cluster = llvm::cantFail(Cluster::builtin("2x4xt4"));
  std::string page =
      htmlReport({plan, tasks, simulation, {}, nullptr, &cluster});
  expectWellFormed(page);
  EXPECT_EQ(count(page, "device 5, stage 2"), 1u);
  EXPECT_EQ(count(page, ", stage 3<"), 2u);
  EXPECT_EQ(count(page, "node 1: 4 x t4, "), 1u);
  EXPECT_EQ(count(page, " GB/s to others"), 2u);
  // Of a large cluster the first nodes.
  Cluster large = llvm::cantFail(Cluster::builtin("100x4xt4"));
  page = htmlReport({plan, tasks, simulation, {}, nullptr, &large});
  expectWellFormed(page);
  EXPECT_EQ(count(page, ", no stage<"), 64u * 4 - 8);
  EXPECT_EQ(count(page, "36 more nodes are not drawn"), 1u);
  EXPECT_EQ(count(pageOf(*model, "2x4xt4", plan), "to others"), 0u);
}

TEST(Report, large_plans_stay_small_pages) {
  auto model = deepModel(128, "deep");
  PlannerOptions options = paperOptions();
  options.batch = 2048;
  options.pipelineDegree = 64;
  options.microBatches = 2048;
  options.memory = int64_t(1) << 40;
  Plan chosen = planOf(*model, "8x8xa100-40gb", options);
  std::string page = pageOf(*model, "8x8xa100-40gb", chosen);
  expectWellFormed(page);
  EXPECT_GE(count(page, "stage 62"), 4u);
  // 262,144 forwards and backwards.
  EXPECT_LT(page.size(), 1u << 20);

  options.pipelineDegree = 1;
  options.microBatches.reset();
  chosen = planOf(*model, "8x8xa100-40gb", options);
  EXPECT_LT(pageOf(*model, "8x8xa100-40gb", chosen).size(), 200u << 10);
}

} // namespace
