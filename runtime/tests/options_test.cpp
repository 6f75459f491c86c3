//===- options_test.cpp - One table of options ----------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "options.h"
#include "page.h"
#include "straggler.h"

#include "gtest/gtest.h"

#include <set>
#include <sstream>

namespace {

TEST(Options, HelpHasThoseThatAreParsed) {
  std::vector<std::string> parsed = parsedOptions(), helped = helpedOptions();
  std::set<std::string> expected(parsed.begin(), parsed.end());
  expected.erase("-h");
  EXPECT_EQ(std::set<std::string>(helped.begin(), helped.end()), expected);
  EXPECT_EQ(helped.size(), expected.size()) << "an option stands twice";
}

TEST(Options, HelpFitsATerminal) {
  std::istringstream lines(helpText());
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(line.size(), 79u) << line;
}

TEST(Straggler, IsNamedOnceAfterTwoWindows) {
  StragglerWatch watch;
  auto work = [](double slow) {
    // The others of its stage wait for rank 2; stage 1 has less to do.
    return std::vector<grt::RankWork>{{0, 0, slow}, {1, 0, slow}, {2, 0, 0.1},
                                      {3, 0, slow}, {4, 1, 7},    {5, 1, 7.1}};
  };
  EXPECT_EQ(watch.look(work(0.5), 10, 50), "");
  EXPECT_EQ(watch.look(work(0.5), 10, 50), "");
  EXPECT_EQ(watch.look(work(5), 10, 50), "") << "one window may be chance";
  EXPECT_EQ(watch.look(work(5), 10, 50),
            "straggler: rank 2 works 198 ms a step, the others of its stage "
            "100 ms (median); they wait for it");
  EXPECT_EQ(watch.look(work(5), 10, 50), "") << "once";
  EXPECT_EQ(watch.look(work(0.5), 10, 50), "");
  EXPECT_EQ(watch.look(work(5), 10, 50), "");
  EXPECT_NE(watch.look(work(5), 10, 50), "") << "it is slow again";
}

TEST(Series, KeepsMeansOfManyValues) {
  Series series;
  for (uint64_t step = 1; step <= 100000; ++step)
    series.add(step, double(step));
  auto points = series.points();
  EXPECT_LE(points.size(), 1024u);
  EXPECT_GE(points.size(), 512u);
  double before = 0;
  for (auto [step, value] : points) {
    EXPECT_DOUBLE_EQ(step, value);
    EXPECT_GT(step, before);
    before = step;
  }
}

TEST(Page, EscapesAndTakesWhatIsNotFinite) {
  PageContent content;
  content.title = "<b> & co";
  content.losses.add(1, NAN);
  content.losses.add(2, 3);
  std::string text = pageText(content);
  EXPECT_NE(text.find("&lt;b&gt; &amp; co"), std::string::npos);
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_EQ(text.find("inf"), std::string::npos);
}

/// The labels below the first picture of a page about so many steps.
std::vector<std::string> stepLabels(uint64_t steps) {
  PageContent content;
  for (uint64_t step = 1; step <= steps; ++step)
    content.losses.add(step, 3 / double(step));
  std::string text = pageText(content);
  text.resize(text.find("</svg>"));
  // The picture keeps a size at which it is read, and scrolls alone.
  EXPECT_NE(text.find("<div class='frame'><svg"), std::string::npos);
  std::vector<std::string> labels;
  const std::string begin = "'middle'";
  for (size_t at = text.find(begin); at != std::string::npos;
       at = text.find(begin, at + 1)) {
    size_t open = text.find('>', at) + 1;
    labels.push_back(text.substr(open, text.find('<', open) - open));
  }
  return labels;
}

TEST(Page, StepsAreLabelledByRoundNumbers) {
  using Labels = std::vector<std::string>;
  EXPECT_EQ(stepLabels(1), Labels({"1"}));
  EXPECT_EQ(stepLabels(3), Labels({"1", "2", "3"}));
  EXPECT_EQ(stepLabels(12345),
            Labels({"2000", "4000", "6000", "8000", "10000", "12000"}));
}

/// What is drawn in a colour stands below the picture with its name.
TEST(Page, ColoursOfAStepAreNamed) {
  using Kind = grt::StepPicture::Kind;
  PageContent content;
  content.step.step = 3;
  content.step.measuredMs = 5;
  grt::StepPicture::Rank rank{0, 0, {}, {}, {{0, 10}, {5, 20}}, 40};
  for (int kind = 0; kind < 5; ++kind)
    rank.measured.push_back({Kind(kind), double(kind), kind + 1.0});
  content.step.ranks = {rank};
  std::string text = pageText(content);
  const std::pair<std::string, std::string> colours[] = {
      {"forward", "forward"},           {"backward", "backward"},
      {"update", "norm and update"},    {"communication", "communication"},
      {"bubble", "waiting for others"}, {"live", "live memory"}};
  for (const auto &[colour, name] : colours) {
    EXPECT_NE(text.find("class='" + colour + "'"), std::string::npos)
        << colour << " is not drawn";
    EXPECT_NE(text.find("<span class='key " + colour + "'></span> " + name),
              std::string::npos)
        << colour << " is not named " << name;
    EXPECT_NE(text.find("." + colour + "{"), std::string::npos)
        << colour << " is no colour";
  }
}

} // namespace
