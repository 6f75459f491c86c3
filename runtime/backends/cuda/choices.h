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
// the same bits.
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

/// By shape: an algorithm, or that the shape's epilogue is slower than the
/// product and a pass of our own. One object for all ranks of a process.
class Choices {
public:
  /// Those of a library and device, which `maker` names. With a file what it
  /// holds, unless another maker wrote it: then nothing, which is said on
  /// standard error. Throws DeviceError where the file is malformed.
  Choices(std::string maker, std::string path);

  /// What is known of a shape. An algorithm is null where the epilogue is left.
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

private:
  void read();
  void parse(const std::string &text);

  const std::string maker, path;
  bool told = false; ///< that the file is another's
  mutable std::mutex mutex;
  std::map<ProductShape, Choice> known;
};

/// The process's choices, in the file that GRT_CUDA_CHOICES names; null without
/// it: then products run what the library's heuristics name first.
Choices *choicesOfProcess(const Products &products);

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
