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

#include <optional>
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

grt::Status parseAll(std::vector<std::string> arguments, Options &options) {
  std::vector<char *> pointers;
  for (std::string &argument : arguments)
    pointers.push_back(argument.data());
  return parseOptions(int(pointers.size()), pointers.data(), options);
}

Options parsed(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {"p.gvx", "--steps=5", "--data=/dev/null"});
  Options options;
  grt::Status status = parseAll(arguments, options);
  EXPECT_TRUE(status) << status.message();
  return options;
}

/// Wrong options behind a program's name, and the nearest right ones.
TEST(Options, CombinationsAreRefused) {
  using Arguments = std::vector<std::string>;
  auto refusal = [](Arguments arguments) {
    Options options;
    grt::Status status = parseAll(std::move(arguments), options);
    EXPECT_EQ(status.exitCode(), status ? 0 : 2);
    return status.message();
  };
  const std::string data = "--data=d", steps = "--steps=2";
  const std::pair<Arguments, const char *> rows[] = {
      {{"p", "q"}, "expected one program, found 'p' and 'q'"},
      {{"--measure"}, "--measure: expected a folder with programs"},
      {{}, "expected a program (.gvx); see --help"},
      {{"p", "--describe", "--json", "--seed=1"},
       "--describe runs nothing: leave --seed out"},
      {{"p", "--describe", "--json"}, ""},
      {{"p", "--describe=whole", "--json"}, ""},
      {{"p", "--describe=manifest"}, ""},
      {{"p", "--describe=all"},
       "option '--describe': expected whole or manifest, found 'all'"},
      {{"p", "--measure", "--steps=0"},
       "option '--steps': expected an integer of at least 1, found '0'"},
      {{"p", "--threads-per-rank=4294967296"},
       "option '--threads-per-rank': expected an integer from 1 to 65536, "
       "found '4294967296'"},
      {{"p", "--ranks=4294967298"},
       "option '--ranks': expected an integer from 1 to 1048576, found "
       "'4294967298'"},
      {{"p", "--measure", "--steps=1"}, ""},
      {{"p", "--measure", data}, "--measure trains nothing: leave --data out"},
      {{"p", "--evaluate", data, "--validate-every=3"},
       "--evaluate and --validate-every: expected one of them"},
      {{"p", "--evaluate"}, "expected --data=FILE, or --evaluate=FILE"},
      {{"p", "--evaluate", data}, ""},
      {{"p", "--evaluate=d", data},
       "--evaluate=FILE names the data: leave --data out"},
      {{"p"},
       "expected --steps=N or --evaluate, or "
       "--generate=TEXT or --prompts=FILE of a program that generates"},
      {{"p", "--steps=0"}, ""},
      {{"p", "--steps=1"}, "expected --data=FILE"},
      {{"p", steps, data, "--validate-every=3"},
       "--validate-every needs --validation-fraction above 0, or "
       "--validation-data=FILE"},
      {{"p", steps, data, "--validate-every=3", "--validation-data=v"}, ""},
      {{"p", steps, data, "--validate-every=3", "--validation-data=v",
        "--validation-fraction=0.1"},
       "--validation-data and --validation-fraction: expected one of them"},
      {{"p", steps, data, "--validation-data=v"},
       "--validation-data needs --validate-every=N"},
      {{"p", steps, data, "--patience=2"},
       "--patience needs --validate-every=N"},
      {{"p", steps, data, "--save-best=b"},
       "--save-best needs --validate-every=N"},
      {{"p", steps, data, "--validate-every=3", "--validation-fraction=0.1"},
       ""},
      {{"p", steps, data, "--validate-every=3", "--resume", "--checkpoint=c"},
       ""},
      {{"p", "--generate=a", "--checkpoint=c"},
       "--checkpoint: a run without steps writes none; expected --resume, "
       "which reads the newest of the folder, or --init=c for the weights of a "
       "folder"},
      {{"p", "--generate=a", "--checkpoint=c", "--resume"}, ""},
      {{"p", "--steps=0", "--dump-gradients=g"},
       "--dump-gradients needs at least one step"},
      {{"p", steps, data, "--dump-gradients=g"}, ""},
      {{"p", steps, data, "--warmup-steps=2"}, ""},
      {{"p", steps, data, "--warmup-steps=3"},
       "expected at most 2 warm-up steps, found 3"},
      {{"p", steps, data, "--trace=t", "--trace-steps=0"},
       "--trace needs at least one step, found --trace-steps=0"},
      {{"p", steps, data, "--trace=t", "--trace-steps=1"}, ""},
      {{"p", steps, data, "--elastic=e"},
       "--elastic goes on with fewer ranks after a failure: it needs "
       "--restarts=N"},
      {{"p", steps, data, "--restarts=1"}, "--restarts needs --checkpoint=DIR"},
      {{"p", steps, data, "--seed"},
       "option '--seed' needs a value: "
       "--seed=..."},
      {{"p", steps, data, "--resume=c"}, "option '--resume' takes no value"}};
  for (const auto &[arguments, message] : rows)
    EXPECT_EQ(refusal(arguments), message)
        << (arguments.empty() ? "" : arguments.back());
}

/// Sizes go from one byte as far as numbers of 63 bits.
TEST(Options, SizesHaveBounds) {
  auto size = [](const std::string &text) -> std::optional<uint64_t> {
    Options options;
    grt::Status status =
        parseAll({"p", "--steps=0", "--host-memory=" + text}, options);
    if (status)
      return options.hostMemory;
    EXPECT_EQ(status.message(),
              "option '--host-memory': expected a size above 0 in KiB, MiB, "
              "GiB or TiB, found '" +
                  text + "'");
    return std::nullopt;
  };
  EXPECT_EQ(size("0.0009765625KiB"), 1u);
  EXPECT_EQ(size("0.0009765KiB"), std::nullopt);
  EXPECT_EQ(size("8388607TiB"), uint64_t(8388607) << 40);
  EXPECT_EQ(size("8388608TiB"), std::nullopt);
  EXPECT_EQ(size("9999999999999999999999TiB"), std::nullopt);
  EXPECT_EQ(size("1KB"), std::nullopt);
  EXPECT_EQ(size("1.5.1KiB"), std::nullopt);
}

TEST(Options, ValuesReachTheirPlaces) {
  Options o = parsed({"--data-format=u16",
                      "--corrupt=spans",
                      "--corrupt-rate=0.25",
                      "--span-length=2.5",
                      "--first-sentinel=<x>",
                      "--tokenizer=t.json",
                      "--documents=line",
                      "--text-key=body",
                      "--end-token=</s>",
                      "--max-seconds=7",
                      "--print-every=3",
                      "--host-memory=1.5GiB",
                      "--ranks=4",
                      "--threads-per-rank=2",
                      "--timeout=9",
                      "--on-nan=late",
                      "--save=model",
                      "--checkpoint=kept",
                      "--checkpoint-every=11",
                      "--keep-checkpoints=6",
                      "--check-replicas=12",
                      "--restarts=13",
                      "--elastic=fewer",
                      "--init=from"});
  EXPECT_EQ(o.program, "p.gvx");
  EXPECT_EQ(o.steps, 5u);
  EXPECT_EQ(o.data.format, "u16");
  EXPECT_EQ(o.data.corruption.kind, grt::Corruption::Kind::Spans);
  EXPECT_EQ(o.data.corruption.rate, 0.25);
  EXPECT_EQ(o.data.corruption.spanLength, 2.5);
  EXPECT_EQ(o.firstSentinel, "<x>");
  EXPECT_EQ(o.tokenizer, "t.json");
  EXPECT_EQ(o.documents, "line");
  EXPECT_EQ(o.textKey, "body");
  EXPECT_EQ(o.endToken, "</s>");
  EXPECT_EQ(o.maxSeconds, 7);
  EXPECT_EQ(o.printEvery, 3u);
  EXPECT_EQ(o.hostMemory, uint64_t(3) << 29);
  EXPECT_EQ(o.ranks, 4);
  EXPECT_EQ(o.threadsPerRank, 2);
  EXPECT_EQ(o.timeout, 9);
  EXPECT_EQ(o.onNan, grt::OnNan::Late);
  EXPECT_EQ(o.save, "model");
  EXPECT_EQ(o.checkpoint, "kept");
  EXPECT_EQ(o.checkpointEvery, 11u);
  EXPECT_EQ(o.checkpoints.keep, 6u);
  EXPECT_EQ(o.checkReplicas, 12u);
  EXPECT_EQ(o.restarts, 13u);
  EXPECT_EQ(o.elastic, "fewer");
  EXPECT_EQ(o.init, "from");
  o = parsed({"--corrupt=tokens",    "--mask-token=[M]",
              "--dump-gradients=g",  "--launch-secret=s",
              "--listen=any",        "--flight-recorder=f",
              "--report=r",          "--trace=t",
              "--trace-steps=2",     "--log=l",
              "--summary=u",         "--lr=0.5",
              "--min-lr=0.25",       "--warmup-steps=1",
              "--lr-schedule=wsd",   "--decay-steps=2",
              "--accumulate=3",      "--skip-norm=4",
              "--skip-limit=5",      "--betas=0.5,0.75",
              "--eps=0.125",         "--weight-decay=0.0625",
              "--momentum=0.375",    "--clip-norm=8",
              "--seed=14",           "--validation-fraction=0.5",
              "--validate-every=15", "--validation-batches=16",
              "--save-best=b",       "--patience=20",
              "--generate=a b",      "--tokens=17",
              "--temperature=0.75",  "--top-k=18",
              "--top-p=0.875",       "--sampling-seed=19"});
  EXPECT_EQ(o.data.corruption.kind, grt::Corruption::Kind::Tokens);
  EXPECT_EQ(o.maskToken, "[M]");
  EXPECT_EQ(o.dumpGradients, "g");
  EXPECT_EQ(o.launchSecret, "s");
  EXPECT_EQ(o.listen, "any");
  EXPECT_EQ(o.flight, "f");
  EXPECT_TRUE(o.flightGiven);
  EXPECT_EQ(o.report, "r");
  EXPECT_EQ(o.trace, "t");
  EXPECT_EQ(o.traceSteps, 2u);
  EXPECT_EQ(o.log, "l");
  EXPECT_EQ(o.summary, "u");
  EXPECT_EQ(o.lr, 0.5);
  EXPECT_EQ(o.minLr, 0.25);
  EXPECT_EQ(o.warmupSteps, 1u);
  EXPECT_EQ(o.decay, grt::parseDecay("wsd"));
  EXPECT_EQ(o.decaySteps, 2u);
  EXPECT_EQ(o.accumulate, 3u);
  EXPECT_EQ(o.skipNorm, 4);
  EXPECT_EQ(o.skipLimit, 5u);
  EXPECT_EQ(o.betas, std::pair(0.5, 0.75));
  EXPECT_EQ(o.eps, 0.125);
  EXPECT_EQ(o.weightDecay, 0.0625);
  EXPECT_EQ(o.momentum, 0.375);
  EXPECT_EQ(o.clipNorm, 8);
  EXPECT_EQ(o.seed, 14u);
  EXPECT_EQ(o.data.validationFraction, 0.5);
  EXPECT_EQ(o.validateEvery, 15u);
  EXPECT_EQ(o.validationBatches, 16u);
  EXPECT_EQ(o.saveBest, "b");
  EXPECT_EQ(o.patience, 20u);
  EXPECT_EQ(o.generate, "a b");
  EXPECT_EQ(o.tokens, 17u);
  EXPECT_EQ(o.sampling.temperature, 0.75);
  EXPECT_EQ(o.sampling.topK, 18u);
  EXPECT_EQ(o.sampling.topP, 0.875);
  EXPECT_EQ(o.sampling.seed, 19u);
  EXPECT_EQ(parsed({"--flight-recorder=none"}).flight, "");
}

/// The least value of each option is taken, the next one below is refused.
TEST(Options, BoundsAreTold) {
  const std::pair<const char *, std::vector<const char *>> kinds[] = {
      {"0",
       {"--timeout", "--lr", "--min-lr", "--skip-norm", "--eps",
        "--weight-decay", "--momentum", "--temperature", "--steps",
        "--trace-steps", "--warmup-steps", "--seed", "--sampling-seed"}},
      {"1",
       {"--print-every", "--ranks", "--threads-per-rank", "--checkpoint-every",
        "--keep-checkpoints", "--check-replicas", "--restarts", "--decay-steps",
        "--accumulate", "--skip-limit", "--validate-every",
        "--validation-batches", "--patience", "--tokens", "--top-k"}},
      {"1e-9", {"--max-seconds", "--clip-norm"}}};
  auto refused = [](const std::string &option, const std::string &value) {
    std::string given = option + "=" + value, program = "p.gvx",
                steps = "--steps=5", data = "--data=/dev/null";
    char *arguments[] = {program.data(), steps.data(), data.data(),
                         given.data()};
    Options options;
    grt::Status status = parseOptions(4, arguments, options);
    bool isRefused =
        status.message().find("option '" + option + "': expected ") == 0;
    EXPECT_EQ(isRefused, status.message().find("found '" + value + "'") !=
                             std::string::npos)
        << status.message();
    return isRefused;
  };
  for (const auto &[least, options] : kinds)
    for (const char *option : options) {
      EXPECT_FALSE(refused(option, least)) << option;
      EXPECT_TRUE(refused(option, least == std::string("0") ? "-1" : "0"))
          << option;
      EXPECT_TRUE(refused(option, "x")) << option;
    }
}

TEST(Options, FlagsReachTheirPlaces) {
  auto flagsOf = [](const Options &o) {
    return std::vector<bool>{
        o.data.maskDocuments, o.decayAll,   o.checkStreams, !o.graphs,
        !o.writeBehind,       o.timestamps, o.resume,       o.coreDumps,
        o.json == "-"};
  };
  const char *const names[] = {
      "--mask-documents", "--decay-all",       "--check-streams",
      "--no-cuda-graph",  "--no-write-behind", "--timestamps",
      "--resume",         "--core-dumps",      "--json"};
  for (size_t i = 0; i < std::size(names); ++i) {
    std::vector<bool> expected(std::size(names));
    expected[i] = true;
    EXPECT_EQ(flagsOf(parsed({names[i], "--checkpoint=kept"})), expected)
        << names[i];
  }
  EXPECT_TRUE(parsed({"--frame-samples", "--corrupt=tokens"}).frameSamples);
  for (const char *help : {"--help", "-h"})
    EXPECT_TRUE(parsed({help}).help);
  EXPECT_TRUE(parsed({"--version"}).version);
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

TEST(Straggler, OfDevicesIsToldWithWhatItsClockSays) {
  StragglerWatch watch;
  // One step in which the others wait for rank 1 on their devices.
  const std::vector<grt::RankWork> work = {{0, 0, 0.05, {1965, 0}},
                                           {1, 0, 0.01, {1200, 64}},
                                           {2, 0, 0.05, {1965, 0}}};
  auto why = [](uint64_t bits) -> std::string {
    return bits == 64 ? "it is too hot" : "";
  };
  EXPECT_EQ(watch.look(work, 0.1, 1, why), "");
  EXPECT_EQ(watch.look(work, 0.1, 1, why),
            "straggler: rank 1 works 90 ms a step, the others of its stage 50 "
            "ms (median); they wait for it: it is too hot");
}

TEST(Straggler, OfDevicesIsTheOneWithALowClock) {
  StragglerWatch watch;
  auto work = [](double clock, uint64_t slowdowns = 0) {
    return std::vector<grt::RankWork>{{0, 0, 5, {1980, 0}},
                                      {1, 0, 5, {1965, 0}},
                                      {2, 0, 5, {clock, slowdowns}},
                                      {3, 0, 5, {0, 0}}};
  };
  auto why = [](uint64_t bits) -> std::string {
    return bits ? "it is too hot" : "";
  };
  EXPECT_EQ(watch.lookAtClocks(work(1800), why), "");
  EXPECT_EQ(watch.lookAtClocks(work(1200, 64), why), "");
  EXPECT_EQ(
      watch.lookAtClocks(work(1200, 64), why),
      "straggler: the GPU of rank 2 runs at 1200 MHz, the others' at 1965 "
      "MHz (median); they wait for it: it is too hot");
  EXPECT_EQ(watch.lookAtClocks(work(1200, 64), why), "") << "once";
  EXPECT_EQ(watch.lookAtClocks(work(1980), why), "");
  EXPECT_EQ(watch.lookAtClocks(work(1200), why), "");
  EXPECT_EQ(
      watch.lookAtClocks(work(1200), why),
      "straggler: the GPU of rank 2 runs at 1200 MHz, the others' at 1965 "
      "MHz (median); they wait for it");
  // Nobody says.
  EXPECT_EQ(watch.lookAtClocks({{0, 0, 5, {}}, {1, 0, 5, {}}}, why), "");
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
  // A figure that was not measured has no picture.
  EXPECT_EQ(text.find("Gradient norm"), std::string::npos);
  content.norms.add(2, 4);
  EXPECT_NE(pageText(content).find("<h2>Gradient norm</h2>"),
            std::string::npos);
}

TEST(Page, MemoryIsDrawnToOneScale) {
  PageContent content;
  for (auto [measured, planned] : {std::pair{1, 2}, {4, 3}}) {
    grt::RankMemory &rank = content.memory.emplace_back();
    rank.rank = int(content.memory.size()) + 6;
    rank.measuredPeakBytes = uint64_t(measured) << 20;
    rank.plannedPeakBytes = uint64_t(planned) << 20;
  }
  std::string text = pageText(content);
  text = text.substr(text.find("Memory of the ranks"));
  for (const char *label : {"rank 7", "rank 8", "1 of 2 MiB", "4 of 3 MiB"})
    EXPECT_NE(text.find(label), std::string::npos) << label;
  std::vector<double> widths;
  const std::string begin = "x='70'", width = "width='";
  for (size_t at = text.find(begin); at != std::string::npos;
       at = text.find(begin, at + 1))
    widths.push_back(
        std::stod(text.substr(text.find(width, at) + width.size())));
  ASSERT_EQ(widths.size(), 4u);
  EXPECT_GT(widths[2], 100);
  const double expected[] = {0.25, 0.5, 1, 0.75};
  for (size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(widths[i] / widths[2], expected[i], 0.01);
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

/// Each part of a step is a bar of its share, which its title names.
TEST(Page, SharesOfAStepAreBarsOfTheirLength) {
  PageContent content;
  content.measured.milliseconds = 20;
  content.measured.compute = 0.5;
  content.measured.exposedCommunication = 0.25;
  content.measured.bubble = 0.15;
  content.measured.idle = 0.1;
  content.measured.steps = 1;
  content.predicted = content.measured;
  content.predicted.milliseconds = 10;
  std::string text = pageText(content);
  const std::pair<const char *, double> parts[] = {
      {"compute: 50%", 0.5},
      {"exposed communication: 25%", 0.25},
      {"bubble: 15%", 0.15},
      {"idle: 10%", 0.1}};
  double whole = 0;
  for (const auto &[title, share] : parts) {
    SCOPED_TRACE(title);
    const std::string width = "width='";
    std::vector<double> lengths;
    for (size_t at = text.find(title); at != std::string::npos;
         at = text.find(title, at + 1))
      lengths.push_back(
          std::stod(text.substr(text.rfind(width, at) + width.size())));
    ASSERT_EQ(lengths.size(), 2u);
    double longer = std::max(lengths[0], lengths[1]);
    whole = whole ? whole : longer / share;
    EXPECT_NEAR(longer, whole * share, 0.02 * whole * share);
    EXPECT_NEAR(std::min(lengths[0], lengths[1]), longer / 2, 0.02 * longer);
  }
}

/// Memory is drawn over the time at which it was in use, from the first moment
/// to the last one and down to the bottom at both.
TEST(Page, LiveMemoryIsDrawnOverTheStep) {
  PageContent content;
  content.step.measuredMs = 8;
  using Kind = grt::StepPicture::Kind;
  content.step.ranks = {{0,
                         0,
                         {{Kind::Forward, 2, 4}, {Kind::Communication, 4, 8}},
                         {},
                         {{0, 30}, {2, 40}, {8, 10}},
                         40}};
  std::string text = pageText(content);
  const std::string begin = "<polygon class='live' points='";
  size_t at = text.find(begin);
  ASSERT_NE(at, std::string::npos);
  std::istringstream points(text.substr(at + begin.size()));
  std::vector<double> x, y;
  double value = 0;
  char comma = 0;
  while (points >> value) {
    x.push_back(value);
    points >> comma >> value;
    y.push_back(value);
  }
  ASSERT_EQ(x.size(), 5u);
  const double width = x[3] - x[0], tall = y[0] - y[2];
  EXPECT_GT(width, 100);
  EXPECT_GT(tall, 10);
  EXPECT_EQ(x[1], x[0]);
  EXPECT_NEAR(x[2], x[0] + width / 4, 0.01 * width);
  EXPECT_EQ(x[4], x[3]);
  EXPECT_NEAR(y[1], y[0] - 0.75 * tall, 0.01 * tall);
  EXPECT_NEAR(y[3], y[0] - 0.25 * tall, 0.01 * tall);
  EXPECT_EQ(y[4], y[0]);
  // The bars of what ran stand over the same time, in the rank's row; what may
  // run beside computation has the lower half.
  auto numberBefore = [&](const std::string &title, const std::string &name) {
    size_t behind = text.find("<title>" + title);
    EXPECT_NE(behind, std::string::npos) << title;
    size_t found = text.rfind(" " + name + "='", behind) + name.size() + 3;
    return std::stod(text.substr(found));
  };
  const std::string forward = "forward, 2 to 4 ms",
                    sent = "communication, 4 to 8 ms";
  EXPECT_NEAR(numberBefore(forward, "x"), x[2], 0.01 * width);
  EXPECT_NEAR(numberBefore(forward, "width"), width / 4, 0.01 * width);
  EXPECT_NEAR(numberBefore(sent, "width"), width / 2, 0.01 * width);
  EXPECT_LT(numberBefore(forward, "y"), y[2]);
  const double whole = numberBefore(forward, "height");
  EXPECT_EQ(numberBefore(sent, "height"), whole / 2);
  EXPECT_EQ(numberBefore(sent, "y"), numberBefore(forward, "y") + whole / 2);
}

/// Every colour stands below the picture with its name.
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
