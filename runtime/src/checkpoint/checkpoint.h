//===- checkpoint.h - Writing and reading checkpoints ---------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Both sides work in phases. `prepare`, `open`, `flush`, `commit` and `check`
// run on the thread that drives the session, once in every process; between
// them every rank runs `write` or `read` on its own thread. All processes must
// have left a phase before the next begins; `prepare` and `commit` are for the
// leading process alone. In place of `write`, ranks may copy what they own
// (PieceCopies); one thread of the process writes the copies then and flushes,
// while the ranks go on until `addSums`.
//
//===----------------------------------------------------------------------===//

#ifndef GRT_CHECKPOINT_CHECKPOINT_H
#define GRT_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/pieces.h"
#include "checkpoint/state.h"

#include <functional>

namespace grt {

class CheckpointWriter {
public:
  /// `ranks` are those of this process.
  CheckpointWriter(const Manifest &manifest,
                   std::span<const std::unique_ptr<Rank>> ranks,
                   const CheckpointFolder &folder, const TrainingState &state);
  /// Removes what was prepared and not completed: what is tried again needs its
  /// space.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter &) = delete;
  CheckpointWriter &operator=(const CheckpointWriter &) = delete;

  /// Makes the folder under another name, its files and their headers, and
  /// takes the disk space. The checkpoints that are there are not touched.
  void prepare();
  void open();
  /// Writes what the rank owns and adds its sums to those of all ranks.
  void write(Rank &rank);
  /// The files' places, for the copies of a rank.
  std::span<const TensorPlace> tensors() const { return places; }
  /// Writes what was copied, on any thread.
  void write(std::span<const PieceCopies> copies);
  /// Adds the sums of what was copied to those of all ranks.
  void addSums(Rank &rank);
  void flush();
  /// Writes what describes the tensors, gives the folder its name, then removes
  /// the oldest checkpoints. The new one is safe then: why an old one could not
  /// be removed is returned, not thrown.
  std::string commit();

private:
  struct Part {
    std::string name;
    std::string header;
    uint64_t bytes = 0;
  };
  /// Divides places [begin, end) among files `prefix`-00001-of-0000N.
  void layOut(const std::string &prefix, size_t begin, size_t end);
  std::string index(size_t begin, size_t end) const;

  const Manifest &manifest;
  const CheckpointFolder &folder;
  TrainingState state;
  std::string target, temporary;
  bool prepared = false; ///< `temporary` is there, by this process
  std::vector<TensorPlace> places;
  size_t weights = 0; ///< places of parameters, which come first
  std::vector<Part> parts;
  std::vector<File> files;
  std::vector<HalfSums> sums; ///< by global rank, those of this process
};

/// The files that PEFT keeps adapters in.
inline constexpr const char *adapterFileName = "adapter_model.safetensors";
inline constexpr const char *adapterConfigName = "adapter_config.json";

/// The files in `folder` that an index (`model.safetensors.index.json`) names;
/// `name` is used in messages. Throws Error with exit code 2.
std::vector<std::string> indexedFiles(std::string_view text,
                                      const std::string &name,
                                      const std::string &folder);

class CheckpointReader {
public:
  /// Checks that the checkpoint is whole and fits the program.
  static CheckpointReader
  checkpoint(const Manifest &manifest,
             std::span<const std::unique_ptr<Rank>> ranks,
             const std::string &path);
  /// The weights of a Hugging Face model, see Session::loadWeights.
  static CheckpointReader weights(const Manifest &manifest,
                                  std::span<const std::unique_ptr<Rank>> ranks,
                                  const std::string &path);

  /// The adapters in a folder of PEFT's, see Session::loadAdapters.
  static CheckpointReader adapters(const Manifest &manifest,
                                   std::span<const std::unique_ptr<Rank>> ranks,
                                   const std::string &path);

  const TrainingState &state() const { return training; }
  /// True if an older version of the parameters is read, too.
  bool hasOlderWeights() const { return readsOlder; }
  /// Says how versions are treated that program and checkpoint do not both
  /// have.
  const std::string &note() const { return versionsNote; }
  void read(Rank &rank);
  /// Compares the sums with the checkpoint's.
  void check() const;

private:
  CheckpointReader(const Manifest &manifest,
                   std::span<const std::unique_ptr<Rank>> ranks,
                   const std::string &path, bool states);
  /// Leaves out parameters that are trained, or those that are not.
  void leaveOut(bool trained);
  void leaveOut(const std::function<bool(const TensorPlace &)> &isLeftOut);
  /// Finds every place in the files and takes them over. Unless `exact`, types
  /// that lose nothing are converted, names may lack the model's prefix, and
  /// what other programs store besides the parameters is passed over. Of older
  /// versions either may have what the other has not.
  void locate(std::vector<SafetensorsFile> opened, bool exact);

  const Manifest &manifest;
  std::string path;
  std::string versionsNote;
  bool readsOlder = false;
  TrainingState training;
  std::vector<TensorPlace> places;
  std::vector<File> files;
  std::map<std::string, uint64_t> expected; ///< empty: nothing to compare
  std::vector<HalfSums> sums;
};

} // namespace grt

#endif // GRT_CHECKPOINT_CHECKPOINT_H
