//===- Target.h - Training software that plans are written for --*- C++ -*-===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A target says what its software can express, how it executes that, and writes
// and reads the software's own files. All are in one table; a new one is a
// class and a line there.
//
//===----------------------------------------------------------------------===//

#ifndef GALVATRON_SOFTWARE_TARGET_H
#define GALVATRON_SOFTWARE_TARGET_H

#include "galvatron/Software/Bounds.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <memory>
#include <optional>

namespace galvatron {

/// A request as `--for` has it: "megatron,sequence-parallel=off",
/// "execution:bloom,overlaps=on".
struct SoftwareRequest {
  bool execution = false; ///< "execution:" stands in front of the name
  std::string name;
  std::vector<std::pair<std::string, std::string>> options;

  /// Errors: no name, an option without a value, or one given twice.
  static llvm::Expected<SoftwareRequest> parse(llvm::StringRef text);
};

/// A file to be written, its name without a folder.
struct LaunchFile {
  std::string name, content;
  bool executable = false;
};

/// The form in which the values of a software's file are written: mappings of
/// YAML or JSON, assignments of a Python function, flags of a shell script.
enum class FileKind : uint8_t { Nested, Function, Flags };

/// A key of a software's file that says part of a plan.
struct PlanKey {
  std::string name;
  /// The value that a missing one has; empty: a missing one is not there.
  std::string absent;
  bool isSwitch = false; ///< a flag without a value
  /// A line that a function needs beside a value other than None.
  std::string beside;
};

/// The contents of a software's files.
struct SoftwareReading {
  ModelShape shape;
  Configuration configuration;
  int64_t devices = 0; ///< nodes times devices of one
  /// Flags that change neither time nor memory, as they stand there.
  std::vector<std::string> passed;
  /// Names whose values the file gets from elsewhere and which are unknown
  /// here: variables that it does not set, functions that it calls.
  std::vector<std::string> unread;
};

/// A plan that was priced for a software, and what for.
struct PricedPlan {
  ModelShape shape;
  Configuration configuration;
  int64_t nodes = 1;
  std::string dtype; ///< "bf16" or "f16"
};

/// The answer of a target that plans from measurements of its users.
struct ProfiledAnswer {
  std::string text; ///< of lines, indented
  llvm::json::Object json;
  std::vector<LaunchFile> files;
  std::string infeasible; ///< why there is no plan, if there is none
};

class Target {
public:
  virtual ~Target() = default;

  virtual llvm::StringRef name() const = 0;
  /// The software in words, with the version whose flags are written.
  virtual std::string description() const = 0;
  /// Takes an option of the target. Errors list what there is.
  virtual llvm::Error setOption(llvm::StringRef option,
                                llvm::StringRef value) = 0;
  /// Returns how the software executes, under the options.
  virtual Execution execution() const = 0;
  /// Returns how it executes on the devices of a cluster.
  virtual Execution executionOn(const Cluster &) const { return execution(); }
  /// The model as the software trains it for a configuration, where that takes
  /// memory or time: a padded vocabulary.
  virtual ModelShape asTrained(const ModelShape &shape,
                               const Configuration &configuration) const = 0;
  /// Calls `visit` for everything that the software can express of a batch on a
  /// cluster. Error: why it can train no such model.
  virtual llvm::Error
  visit(const ModelShape &shape, const Cluster &cluster, int64_t batch,
        llvm::function_ref<void(const Configuration &)> visit) const = 0;
  /// The files that start a configuration on the cluster.
  virtual std::vector<LaunchFile> write(const ModelShape &shape,
                                        const Configuration &configuration,
                                        const Cluster &cluster) const = 0;
  /// The kind of the first file, and those of its keys that say a plan; empty:
  /// it has no keys apart.
  virtual FileKind fileKind() const { return FileKind::Nested; }
  virtual std::vector<PlanKey> planKeys() const { return {}; }
  /// Whether it plans from profiles that its software has made, by that
  /// software's formulas: planFromProfiles() then stands for the rest.
  virtual bool takesProfiles() const { return false; }
  /// `path`: the document's file, beside which others are found; `batch`: if
  /// it is not the document's. Errors name the key or the file.
  virtual llvm::Expected<ProfiledAnswer>
  planFromProfiles(const llvm::json::Value &document, llvm::StringRef path,
                   std::optional<int64_t> batch) const;
  /// Whether its files say the model's sizes; else read() takes those of
  /// setModel().
  virtual bool filesNameModel() const { return true; }
  void setModel(ModelShape shape) { model = std::move(shape); }
  /// read() then reads a file that was filled with this plan: what the file
  /// leaves out is the plan's, and flags that nobody knows are told as unread.
  void setPriced(PricedPlan plan) {
    model = plan.shape;
    priced = std::move(plan);
  }
  /// Reads one back, by the software's own defaults. Errors name what is
  /// missing, cannot be expressed, or would change time or memory.
  virtual llvm::Expected<SoftwareReading>
  read(llvm::StringRef text, llvm::StringRef fileName) const = 0;

protected:
  std::optional<ModelShape> model;
  std::optional<PricedPlan> priced;
};

/// A present file with the plan of a written one: the values of the target's
/// keys are replaced, added or taken out, all else stays byte for byte. Errors
/// name the file, and the key that has no place in it; or there is none of the
/// target's keys, so that it is a file of another kind. `changed`, if given,
/// gets a text for every key.
llvm::Expected<std::string>
fillTemplate(const Target &target, llvm::StringRef text,
             llvm::StringRef fileName, llvm::StringRef written,
             std::vector<std::string> *changed = nullptr);

/// Checks that a filled file starts what was priced. Returns what it has that
/// nobody read. Errors name the file and what in it contradicts the price:
/// another size of the model, a plan that the target's keys do not undo, what
/// changes time or memory otherwise.
llvm::Expected<std::vector<std::string>> checkFilled(Target &target,
                                                     llvm::StringRef text,
                                                     llvm::StringRef fileName,
                                                     PricedPlan priced);

/// The registry of all targets, by name.
class TargetRegistry {
public:
  using Factory = std::unique_ptr<Target> (*)();

  static std::vector<std::string> names();
  /// Makes one and gives it the request's options. The error lists what there
  /// is.
  static llvm::Expected<std::unique_ptr<Target>>
  make(const SoftwareRequest &request);
  /// Adds one behind the others; the name must be new.
  static void add(llvm::StringRef name, Factory factory);
};

/// The fastest configuration of a target's space.
struct TargetAnswer {
  Configuration configuration;
  SoftwarePrice price;
  size_t space = 0;  ///< configurations that the software can express
  size_t priced = 0; ///< of these, those that no bound ruled out
  /// The priced one that needs least memory, where none fits.
  bool feasible = true;
  /// The software can express no plan of that batch on that cluster: nothing
  /// else is set then.
  bool expressible = true;
};

/// Prices the space in the order of LeastSteps and stops where that is above
/// the best, so that the answer is the fastest of all. Errors are the target's
/// and price()'s.
llvm::Expected<TargetAnswer> findFastest(const Target &target,
                                         const ModelShape &shape,
                                         const Cluster &cluster, int64_t batch);

} // namespace galvatron

#endif // GALVATRON_SOFTWARE_TARGET_H
