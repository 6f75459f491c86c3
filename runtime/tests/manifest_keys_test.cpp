//===- manifest_keys_test.cpp - Every key of whole manifests --------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Manifests of the compiler and of the tests, each changed in one place, in
// programs whose digest is right.
//
//===----------------------------------------------------------------------===//

#include "changed_manifests.h"
#include "core/program_check.h"
#include "grt/program_file.h"
#include "grt/session.h"
#include "reference_backend.h"
#include "test_program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>

using namespace grt;
using namespace grt::test;
using Json = nlohmann::json;

namespace {

/// A program with another manifest, which is the last section of its file.
std::string withManifest(std::string file, const std::string &manifest) {
  const size_t row = sizeof(gvx::Header) +
                     size_t(gvx::SectionKind::Manifest) * sizeof(gvx::Section);
  gvx::Section section;
  std::memcpy(&section, file.data() + row, sizeof(section));
  file.resize(section.offset);
  file += manifest;
  section.rows = manifest.size();
  std::memcpy(file.data() + row, &section, sizeof(section));
  const uint64_t bytes = file.size();
  std::memcpy(file.data() + offsetof(gvx::Header, bytes), &bytes,
              sizeof(bytes));
  gvx::seal(file);
  return file;
}

std::string manifestOf(const std::string &file) {
  std::shared_ptr<const Program> program;
  const Status status = Program::loadMemory(file, "p", program);
  EXPECT_TRUE(status) << status.message();
  return status ? std::string(program->manifestText()) : "{}";
}

/// A program that galvatron-compile has made.
std::string compiled(const char *name) {
  std::ifstream file(std::string(PROGRAMS) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Names that are data: of a model's configuration, a plan and purposes.
bool isFree(const std::string &key) {
  return key == "model-config" || key == "plan" || key == "ledger";
}

/// Calls `visit(path)` for a value and what is in it, from the outside in; of
/// lists the first and the last entry.
void forValues(const Json &value, const Json::json_pointer &path,
               const std::function<void(const Json::json_pointer &)> &visit) {
  visit(path);
  if (value.is_object())
    for (const auto &[key, entry] : value.items())
      if (!isFree(key))
        forValues(entry, path / key, visit);
  if (value.is_array())
    for (size_t i = 0; i < value.size();
         i += std::max<size_t>(value.size() - 1, 1))
      forValues(value[i], path / i, visit);
}

/// The message with which a program is refused, "" if it is not. Refusals are
/// of invalid input.
std::string loadRefusal(const std::string &file,
                        std::shared_ptr<const Program> &program) {
  const Status status = Program::loadMemory(file, "p", program);
  EXPECT_EQ(status.exitCode(), status ? 0 : 2) << status.message();
  return status.message();
}

/// Runs a step, which may fail.
void runOneStep(const std::shared_ptr<const Program> &program) {
  SessionOptions options;
  options.backend = referenceBackend();
  options.poison = true;
  std::unique_ptr<Session> session;
  if (!Session::create(program, options, session))
    return;
  const size_t values = size_t(program->batchSize() * 4);
  std::vector<int32_t> tokens(values, 1);
  if (!session->setBatch(tokens, tokens))
    return;
  StepResult result;
  (void)session->step(result);
}

/// Changes every key of a program's manifest, and with `numbers` every number,
/// one at a time. A key of another name is refused; everything else is refused
/// or runs, by `accepted`.
void changeEverything(
    const std::string &file, bool numbers,
    const std::function<void(const std::shared_ptr<const Program> &)>
        &accepted) {
  const Json good = Json::parse(manifestOf(file));
  Json changed = good;
  auto isRefused = [&](const std::string &change) {
    std::shared_ptr<const Program> program;
    SCOPED_TRACE(change);
    const std::string message =
        loadRefusal(withManifest(file, changed.dump()), program);
    if (message.empty())
      accepted(program);
    return !message.empty();
  };
  auto changeKeys = [&](const Json::json_pointer &path) {
    for (const auto &[key, value] : good[path].items()) {
      Json &object = changed[path];
      const std::string place = path.to_string() + "/" + key;
      object.erase(key);
      isRefused(place + " is dropped");
      object[key + "x"] = value;
      EXPECT_TRUE(isRefused(place + " is misspelt")) << place;
      object.erase(key + "x");
      object[key] = value;
    }
  };
  auto changeNumber = [&](const Json::json_pointer &path) {
    Json &number = changed[path];
    for (int64_t change : {-64, -1, 1, 64}) {
      if (number.is_number_integer())
        number = good[path].get<int64_t>() + change;
      else
        number = good[path].get<double>() + double(change);
      isRefused(path.to_string() + " is " + number.dump());
    }
    number = good[path];
  };
  forValues(good, Json::json_pointer(), [&](const Json::json_pointer &path) {
    if (good[path].is_object())
      changeKeys(path);
    else if (numbers && good[path].is_number())
      changeNumber(path);
  });
}

TEST(ManifestKeys, OfCompiledProgramsAreKnown) {
  for (const char *name : {"packs", "streams"})
    changeEverything(compiled(name), /*numbers=*/false, [](const auto &) {});
}

TEST(ManifestKeys, ChangedProgramsAreRefusedOrRun) {
  ModelPlan plan;
  plan.tied = true;
  plan.layers[1].levels = {{"sdp", 2}};
  plan.layers[2].ckpt = true;
  plan.layers[0].levels = {{"dp", 2}};
  plan.layers[2].levels = {{"tp", 2}};
  plan.stages = {{{0, 1, 2}, {0, 1}}};
  size_t ran = 0;
  changeEverything(TestProgram(plan).file(), /*numbers=*/true,
                   [&](const auto &program) {
                     runOneStep(program);
                     ++ran;
                   });
  EXPECT_GT(ran, 0u);
}

TEST(ManifestKeys, MessagesSayWhatIsExpected) {
  const std::string file = compiled("streams");
  auto refusalOf = [&](const std::function<void(Json &)> &change) {
    Json manifest = Json::parse(manifestOf(file));
    change(manifest);
    std::shared_ptr<const Program> program;
    return loadRefusal(withManifest(file, manifest.dump()), program);
  };
  const std::string at = "program 'p': manifest: ";
  EXPECT_EQ(refusalOf([](Json &m) {
              Json &layer = m["roles"][0]["layers"][0];
              layer["forward-transiet"] = layer["forward-transient"];
              layer.erase("forward-transient");
            }),
            at + "roles[0].layers[0]: missing key 'forward-transient'");
  EXPECT_EQ(refusalOf([](Json &m) { m["roles"][0]["arena"]["wndow"] = {0}; }),
            at + "roles[0].arena.wndow: unknown key; expected 'window'");
  EXPECT_EQ(refusalOf([](Json &m) {
              m["roles"][0]["layers"][0]["levels"][0]["number"] = 1;
            }),
            at + "roles[0].layers[0].levels[0].number: unknown key; expected "
                 "keys 'degree', 'kind', 'stride'");
  std::string twice = manifestOf(file);
  twice.insert(1, "\"world\":1,");
  std::shared_ptr<const Program> program;
  EXPECT_EQ(loadRefusal(withManifest(file, twice), program),
            at + "world: stands twice");
}

/// While a chunk's states are away from home they are apart.
TEST(ManifestKeys, ResidentsThatMeetAreRefused) {
  gvx::Tables tables = TestProgram(ModelPlan()).tables();
  Json away = Json::parse(atHome(2).dump());
  Json &layers = away["roles"][0]["layers"];
  for (Json &layer : layers) {
    layer["resident-parameter"] = layer["parameter"];
    layer["resident-gradient"] = layer["gradient"];
  }
  tables.manifest = away.dump();
  ASSERT_TRUE(gvx::lowerTasks(tables));
  const std::string file = tables.file();
  std::shared_ptr<const Program> program;
  EXPECT_EQ(loadRefusal(file, program), "");
  layers[1]["resident-gradient"] = layers[0]["resident-gradient"];
  const std::string found =
      loadRefusal(withManifest(file, away.dump()), program);
  EXPECT_NE(found.find("stage 0, chunk 0: expected places that are apart"),
            std::string::npos)
      << found;
  EXPECT_NE(found.find("resident gradients of layer 'layer1'"),
            std::string::npos)
      << found;
}

TEST(ManifestKeys, PlacesThatMeetAreRefused) {
  const std::string file = TestProgram(ModelPlan()).file();
  const Json good = Json::parse(manifestOf(file));
  auto refusalOf = [&](const std::function<void(Json &)> &change) {
    Json manifest = good;
    change(manifest);
    std::shared_ptr<const Program> program;
    return loadRefusal(withManifest(file, manifest.dump()), program);
  };
  const Json &arena = good["roles"][0]["arena"];
  const Json &layers = good["roles"][0]["layers"];
  auto text = [](const std::string &what, uint64_t bytes, uint64_t at) {
    return std::to_string(bytes) + " bytes of " + what + " at " +
           std::to_string(at);
  };
  const std::string apart = ": expected places that are apart, found ";
  // Regions of the arena.
  EXPECT_EQ(refusalOf([](Json &m) {
              Json &of = m["roles"][0]["arena"];
              of["step"][0] = of["loss"][0];
            }),
            "program 'p': manifest: stage 0, arena" + apart +
                text("step", arena["step"][1], arena["loss"][0]) + " and " +
                text("loss", arena["loss"][1], arena["loss"][0]));
  // States of two layers.
  EXPECT_NE(refusalOf([](Json &m) {
              Json &of = m["roles"][0]["layers"];
              of[1]["parameter"] = of[0]["parameter"];
            })
                .find("bytes of parameters of layer 'layer1' at " +
                      layers[0]["parameter"].dump()),
            std::string::npos);
  // Temporaries of a forward function and what its layer keeps.
  EXPECT_NE(refusalOf([](Json &m) {
              Json &of = m["roles"][0]["layers"];
              of[2]["forward-transient"] = of[2]["stash"];
            })
                .find("bytes of forward temporaries of layer 'layer2' at " +
                      layers[2]["stash"].dump()),
            std::string::npos);
  // They, and the next layer's input, which the function writes.
  EXPECT_NE(refusalOf([](Json &m) {
              Json &of = m["roles"][0]["layers"];
              of[1]["forward-transient"] = of[2]["stash"];
            })
                .find("bytes of input of layer 'layer2' at " +
                      layers[2]["stash"].dump()),
            std::string::npos);
  // Backward temporaries may lie where layers behind keep values, unless weight
  // parts need these later.
  auto moveBehind = [&](bool splits) {
    return refusalOf([&](Json &m) {
      Json &of = m["roles"][0]["layers"];
      of[1]["transient"] = of[2]["stash"];
      of[1]["transient-bytes"] = layers[2]["input-bytes"];
      if (splits)
        of[1]["weight"] = of[1]["backward"];
    });
  };
  const std::string temporaries =
      "bytes of backward temporaries of layer 'layer1' at " +
      layers[2]["stash"].dump();
  EXPECT_EQ(moveBehind(false).find(temporaries), std::string::npos);
  EXPECT_NE(moveBehind(true).find(temporaries), std::string::npos);
}

/// The fault of a compiled program with a changed manifest, in its commands.
std::string faultOfStreams(const std::function<void(Json &)> &change) {
  const std::string file = compiled("streams");
  Json m = Json::parse(manifestOf(file));
  change(m["roles"][0]["layers"]);
  std::shared_ptr<const Program> program;
  EXPECT_EQ(loadRefusal(withManifest(file, m.dump()), program), "");
  return program ? unprovable(program->manifest(), program->file()) : "";
}

/// Functions run beside gathers for the layers that run next.
TEST(ManifestKeys, WhatFunctionsUseIsApartFromGatheredParameters) {
  EXPECT_EQ(faultOfStreams([](Json &) {}), "");
  auto expectFault = [](const std::function<void(Json &)> &change,
                        const std::string &message) {
    const std::string fault = faultOfStreams(change);
    EXPECT_NE(fault.find(message), std::string::npos)
        << "expected " << message << ", found " << fault;
  };
  const char *temporaries = "expected the layer's temporaries [";
  for (size_t gathered : {1, 2})
    expectFault(
        [&](Json &layers) {
          layers[1]["forward-transient"] =
              layers[gathered]["forward-gathered"]["offset"];
        },
        temporaries);
  expectFault(
      [](Json &layers) {
        layers[1]["transient"] = layers[1]["backward-gathered"]["offset"];
      },
      temporaries);
  // For the layer in front, while the layer's backward function runs.
  expectFault(
      [](Json &layers) {
        const int64_t kept = layers[2]["stash"].get<int64_t>() +
                             layers[2]["input-bytes"].get<int64_t>();
        layers[1]["backward-gathered"]["offset"] = kept;
      },
      "expected the layer's kept values [");
}

} // namespace
