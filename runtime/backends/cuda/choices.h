//===- choices.h - Which algorithm each product runs ----------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A product's algorithm decides how its sums are rounded. What is measured may
// come out differently the next time, so a choice that was measured is written
// down, and what is written down is not measured again: runs with one file have
// the same bits. A checkpoint holds those of its run, and a run that goes on
// from it takes them before the file's.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_BACKENDS_CUDA_CHOICES_H
#define GRT_BACKENDS_CUDA_CHOICES_H

#include "products.h"

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace grt::cuda {

/// The choices by shape: an algorithm, or that the shape's epilogue is slower
/// than the product and a pass of our own. One object for all ranks of a
/// process.
class Choices {
public:
  /// Begins with the choices of a library and device, which `maker` names, that
  /// the file holds; with none if another maker wrote it, which is said on
  /// standard error. Throws DeviceError where the file is malformed.
  Choices(std::string maker, std::string path);

  /// Takes the lines of a usedText() of an earlier run, in place of those given
  /// before. They go before the file's and are not written into it. Of another
  /// maker none are taken, which is said. Throws DeviceError as the file does.
  void give(const std::string &text);
  /// Whether what is not known is tried: without a file it is not.
  bool tries() const { return !path.empty(); }

  /// The knowledge of a shape. An algorithm is null where the epilogue is left.
  struct Choice {
    std::optional<Algorithm> algorithm;
  };
  std::optional<Choice> find(const ProductShape &shape) const;
  /// Keeps a choice, and writes the file.
  void add(const ProductShape &shape, const Choice &choice);

  /// Nobody else tries, in this process or another, as long as it lives.
  class Held {
  public:
    Held() = default;
    Held(Held &&other) noexcept : file(std::exchange(other.file, -1)) {}
    Held &operator=(Held &&other) noexcept {
      std::swap(file, other.file);
      return *this;
    }
    ~Held();

  private:
    friend class Choices;
    int file = -1;
  };
  /// Waits for whoever tries, and reads what they have added: processes of one
  /// run choose alike.
  Held hold();

  /// The contents of a file.
  std::string text() const;
  /// The same of those alone that were found or added since the last give():
  /// empty where there are none.
  std::string usedText() const;

private:
  using Map = std::map<ProductShape, Choice>;

  void read();
  /// Adds the lines of `text`, which `where` names in messages, to `all`.
  void parse(const std::string &text, const std::string &where, bool &told,
             Map &all) const;
  std::string textOf(const Map &all) const;

  const std::string maker, path;
  bool told = false; ///< that the file is another's
  mutable std::mutex mutex;
  Map known, given;
  mutable Map used;
};

/// The process's choices: those given, then those of the file that
/// GRT_CUDA_CHOICES names. Null where there are neither: then products run what
/// the library's heuristics name first.
Choices *choicesOfProcess(const Products &products);
/// Gives a text to the process's choices, those that are there and those made
/// later; an empty one takes the last back.
void giveChoices(const std::string &text);
/// Returns the algorithms that the products of the process's ranks run by, see
/// Choices::usedText.
std::string usedChoices();

/// Sets the algorithms of a call whose product is `shape`, or, without its
/// epilogue, `without` (the same where there is none): those that are known, or
/// else the quickest of the library's candidates, with the epilogue and
/// without. `timed` runs the whole call as it is set up and returns its time,
/// below zero if it cannot be run; it is not called where all is known.
void chooseAlgorithms(Products &products, Choices &choices,
                      const ProductShape &shape, const ProductShape &without,
                      const std::function<double()> &timed);

} // namespace grt::cuda

#endif // GRT_BACKENDS_CUDA_CHOICES_H
