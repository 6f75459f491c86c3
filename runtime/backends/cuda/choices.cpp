//===- choices.cpp - Which algorithm each product runs --------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "choices.h"

#include "queries.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <memory>
#include <sstream>
#include <sys/file.h>
#include <unistd.h>

namespace grt::cuda {

namespace {

constexpr const char *title = "# products of ";
constexpr const char *left = "without-epilogue";

std::string lineOf(const ProductShape &s, const Choices::Choice &choice) {
  std::ostringstream line;
  line << s.m << ' ' << s.n << ' ' << s.k << ' ' << s.transA << ' ' << s.transB
       << ' ' << s.add << ' ' << int(s.epilogue) << ' ' << s.dtype << ' '
       << s.result << ' ' << s.alignment << " =";
  if (choice.algorithm) {
    line << std::hex;
    for (uint64_t word : choice.algorithm->data)
      line << ' ' << word;
    line << std::dec << ' ' << choice.algorithm->workspace;
  } else {
    line << ' ' << left;
  }
  return line.str();
}

bool parseLine(const std::string &line, ProductShape &s,
               Choices::Choice &choice) {
  std::istringstream in(line);
  int epilogue = 0;
  std::string sign, word;
  if (!(in >> s.m >> s.n >> s.k >> s.transA >> s.transB >> s.add >> epilogue >>
        s.dtype >> s.result >> s.alignment >> sign) ||
      sign != "=" || epilogue < 0 || epilogue > int(Epilogue::BiasGrad))
    return false;
  s.epilogue = Epilogue(epilogue);
  std::istringstream::pos_type behind = in.tellg();
  if (in >> word && word == left)
    return !(in >> word);
  in.clear();
  in.seekg(behind);
  Algorithm algorithm = {};
  in >> std::hex;
  for (uint64_t &each : algorithm.data)
    in >> each;
  in >> std::dec >> algorithm.workspace;
  if (!in || in >> word)
    return false;
  choice.algorithm = algorithm;
  return true;
}

} // namespace

Choices::Choices(std::string newMaker, std::string newPath)
    : maker(std::move(newMaker)), path(std::move(newPath)) {
  read();
}

Choices::Held::~Held() {
  if (file >= 0)
    close(file);
}

Choices::Held Choices::hold() {
  Held held;
  if (path.empty())
    return held;
  std::string name = path + ".lock";
  held.file = open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  if (held.file < 0 || flock(held.file, LOCK_EX) != 0)
    throw DeviceError("cannot lock '" + name + "': " + std::strerror(errno));
  std::lock_guard<std::mutex> lock(mutex);
  read();
  return held;
}

void Choices::read() {
  if (path.empty())
    return;
  std::ifstream file(path);
  std::stringstream content;
  if (file)
    content << file.rdbuf();
  parse(content.str(), "'" + path + "'", told, known);
}

void Choices::give(const std::string &text) {
  std::lock_guard<std::mutex> lock(mutex);
  given.clear();
  used.clear();
  bool toldOfThese = false;
  parse(text, "what the run before chose", toldOfThese, given);
}

void Choices::parse(const std::string &text, const std::string &where,
                    bool &told, Map &all) const {
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line))
    return;
  if (line.rfind(title, 0) != 0)
    throw DeviceError(where + ": expected a first line '" + title +
                      "...', found '" + line + "'");
  if (std::string other = line.substr(std::string(title).size());
      other != maker) {
    if (std::exchange(told, true))
      return;
    std::fprintf(stderr,
                 "%s is of %s, this is %s: products are chosen anew, and sums "
                 "may be rounded differently\n",
                 where.c_str(), other.c_str(), maker.c_str());
    return;
  }
  for (int number = 2; std::getline(lines, line); ++number) {
    ProductShape shape = {};
    Choice choice;
    if (!parseLine(line, shape, choice))
      throw DeviceError(where + ", line " + std::to_string(number) +
                        ": expected a shape of 10 numbers, '=', and 9 numbers "
                        "or '" +
                        left + "', found '" + line + "'");
    all[shape] = choice;
  }
}

std::optional<Choices::Choice> Choices::find(const ProductShape &shape) const {
  std::lock_guard<std::mutex> lock(mutex);
  for (const Map *all : {&given, &known})
    if (auto found = all->find(shape); found != all->end()) {
      used[shape] = found->second;
      return found->second;
    }
  return std::nullopt;
}

std::string Choices::textOf(const Map &all) const {
  std::string text = title + maker + "\n";
  for (const auto &[shape, choice] : all)
    text += lineOf(shape, choice) + "\n";
  return text;
}

std::string Choices::text() const { return textOf(known); }

std::string Choices::usedText() const {
  std::lock_guard<std::mutex> lock(mutex);
  return used.empty() ? "" : textOf(used);
}

void Choices::add(const ProductShape &shape, const Choice &choice) {
  std::lock_guard<std::mutex> lock(mutex);
  known[shape] = choice;
  used[shape] = choice;
  // An algorithm that was given and cannot be run any more is forgotten.
  given.erase(shape);
  if (path.empty())
    return;
  // Whole, or as it was: several processes may write the same file.
  std::string made = path + "." + std::to_string(getpid());
  std::ofstream file(made);
  file << text();
  file.close();
  if (!file || std::rename(made.c_str(), path.c_str()) != 0) {
    std::remove(made.c_str());
    throw DeviceError("cannot write '" + path + "'");
  }
}

namespace {

/// The choices of a process, whose ranks all have the same library and device,
/// and one file.
struct ProcessChoices {
  std::mutex mutex;
  /// The choices by file; those without one have no name.
  std::map<std::string, std::unique_ptr<Choices>> files;
  std::string given;

  static ProcessChoices &get() {
    static ProcessChoices choices;
    return choices;
  }
  static std::string file() {
    const char *path = std::getenv("GRT_CUDA_CHOICES");
    return path ? path : "";
  }
};

} // namespace

Choices *choicesOfProcess(const Products &products) {
  ProcessChoices &all = ProcessChoices::get();
  std::lock_guard<std::mutex> lock(all.mutex);
  const std::string file = ProcessChoices::file();
  if (file.empty() && all.given.empty())
    return nullptr;
  std::unique_ptr<Choices> &choices = all.files[file];
  if (!choices) {
    auto made = std::make_unique<Choices>(
        products.version() + " on " + gpu::deviceKind(), file);
    made->give(all.given);
    choices = std::move(made);
  }
  return choices.get();
}

void giveChoices(const std::string &text) {
  ProcessChoices &all = ProcessChoices::get();
  std::lock_guard<std::mutex> lock(all.mutex);
  for (auto &[file, choices] : all.files)
    choices->give(text);
  all.given = text;
}

std::string usedChoices() {
  ProcessChoices &all = ProcessChoices::get();
  std::lock_guard<std::mutex> lock(all.mutex);
  auto found = all.files.find(ProcessChoices::file());
  return found == all.files.end() ? "" : found->second->usedText();
}

namespace {

/// Sets what is known; says so where the library refuses it.
bool takeKnown(Products &products, const Choices &choices,
               const ProductShape &shape) {
  std::optional<Choices::Choice> known = choices.find(shape);
  if (!known)
    return false;
  if (products.take(shape, known->algorithm ? &*known->algorithm : nullptr))
    return true;
  std::fprintf(
      stderr,
      "the library refuses the algorithm that was chosen for a product "
      "of %lld x %lld x %lld: it is chosen anew, and sums may be "
      "rounded differently\n",
      (long long)shape.m, (long long)shape.n, (long long)shape.k);
  return false;
}

/// The quickest of the candidates of a shape, which is taken. Where none could
/// be timed the library's first is, and the time is below zero.
std::pair<double, Choices::Choice>
quickest(Products &products, const ProductShape &shape,
         const std::function<double()> &timed) {
  const std::vector<Algorithm> candidates = products.candidates(shape);
  std::pair<double, const Algorithm *> best{-1, nullptr};
  for (const Algorithm &candidate : candidates) {
    if (!products.take(shape, &candidate))
      continue;
    // The first in the library's order is taken of two that take as long.
    double time = timed();
    if (time >= 0 && (!best.second || time < best.first))
      best = {time, &candidate};
  }
  if (!best.second && !candidates.empty())
    best.second = &candidates.front();
  products.take(shape, best.second);
  Choices::Choice choice;
  if (best.second)
    choice.algorithm = *best.second;
  return {best.first, choice};
}

} // namespace

void chooseAlgorithms(Products &products, Choices &choices,
                      const ProductShape &shape, const ProductShape &without,
                      const std::function<double()> &timed) {
  if (!choices.tries()) {
    for (const ProductShape *each : {&shape, &without})
      if (choices.find(*each) && !takeKnown(products, choices, *each)) {
        auto candidates = products.candidates(*each);
        products.take(*each, candidates.empty() ? nullptr : &candidates[0]);
      }
    return;
  }
  auto isKnown = [&] {
    std::optional<Choices::Choice> known = choices.find(shape);
    return known && (known->algorithm || choices.find(without));
  };
  Choices::Held held;
  if (!isKnown())
    held = choices.hold();
  auto choosePlain = [&] {
    if (takeKnown(products, choices, without))
      return -1.0;
    auto [time, choice] = quickest(products, without, timed);
    if (time >= 0)
      choices.add(without, choice);
    return time;
  };
  const bool hasEpilogue = shape < without || without < shape;
  if (!hasEpilogue || products.candidates(shape).empty()) {
    choosePlain();
    return;
  }
  const bool known = takeKnown(products, choices, shape);
  if (known && choices.find(shape)->algorithm)
    return;
  // The call goes without the epilogue from here on.
  if (!known)
    products.take(shape, nullptr);
  double plain = choosePlain();
  if (known)
    return;
  if (plain < 0)
    plain = timed();
  auto [time, choice] = quickest(products, shape, timed);
  if (time < 0)
    return;
  if (plain >= 0 && plain < time) {
    products.take(shape, nullptr);
    choice.algorithm.reset();
  }
  choices.add(shape, choice);
}

} // namespace grt::cuda
