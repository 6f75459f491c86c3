//===- dataset.cpp - Samples of files -------------------------------------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "base/error.h"
#include "data/corruption.h"
#include "data/files.h"
#include "grt/data.h"
#include "grt/philox.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace grt {

Permutation::Permutation(uint64_t size, uint64_t seed, uint64_t epoch)
    : size(size), seed(seed), epoch(epoch), halfBits(1) {
  while (halfBits < 32 && (uint64_t(1) << (2 * halfBits)) < size)
    ++halfBits;
}

uint64_t Permutation::operator()(uint64_t index) const {
  // A stream of its own, apart from weights and dropout.
  const PhiloxKey key = philoxKey(seed, 0x73616d706c657321ull);
  const uint64_t mask = (uint64_t(1) << halfBits) - 1;
  do {
    uint64_t left = index >> halfBits, right = index & mask;
    for (uint32_t round = 0; round < 6; ++round) {
      PhiloxBlock block = philox(key, uint32_t(right), uint32_t(epoch),
                                 uint32_t(epoch >> 32), round);
      uint64_t next = (left ^ block.lane[0]) & mask;
      left = right;
      right = next;
    }
    index = left << halfBits | right;
  } while (index >= size);
  return index;
}

/// Integers of all files that are checked when they are opened: what takes a
/// moment. The others are checked as they are read.
static constexpr uint64_t checkedAtOnce = uint64_t(1) << 25;

/// A datum of every sample. Columns that are made from the same files share
/// them.
class Dataset::Column {
public:
  using Files = std::vector<std::shared_ptr<const DataFile>>;

  /// The way in which a column follows from its files.
  struct Use {
    /// Number of values by which samples begin later in the files than those of
    /// the tokens; 1 for next tokens.
    uint64_t shift = 0;
    /// Number of values that must follow the last sample of a file.
    uint64_t spare = 0;
    /// The first value of a document does not count.
    bool masks = false;
    /// True if tokens that a file does not mark as labels do not count.
    bool hasLabels = false;
    /// The values are where in its sample the document of each token begins.
    bool areStarts = false;
  };

  Column(const Datum &datum, Files files, Use use)
      : datum(datum), fileList(std::move(files)), shift(use.shift),
        spare(use.spare), masks(use.masks), hasLabels(use.hasLabels),
        areStarts(use.areStarts) {
    for (const std::shared_ptr<const DataFile> &file : fileList) {
      if (file->isArray())
        checkShape(*file);
      else if (datum.type != GRT_I32)
        invalid("data file '" + file->name() + "': expected an array file " +
                "(.npy) for '" + datum.name +
                "', whose values are no integers");
      // A column of next tokens is not checked, as the column of their tokens
      // is.
      if (datum.type == GRT_I32 && shift == 0 && !areStarts)
        file->checkFirst(datum);
      if ((masks || areStarts) && !file->documents())
        invalid("data file '" + file->name() +
                "' has no index that says where its documents end" +
                (areStarts ? ", which the program keeps apart" : ""));
      if (samplesOf(*file) == 0)
        invalid("data file '" + file->name() + "' is too short: expected at " +
                "least " + str(length() + spare) + " " + unit() + ", found " +
                str(file->values()));
    }
  }

  const Files &files() const { return fileList; }
  /// True if values may be negative, so that the number of those that count is
  /// known only after they were read.
  bool hasSigns() const {
    return std::any_of(fileList.begin(), fileList.end(),
                       [](const auto &file) { return file->hasSigns(); });
  }
  uint64_t samples() const { return samples(0, fileList.size()); }
  /// The number of samples in files [begin, end).
  uint64_t samples(uint64_t begin, uint64_t end) const {
    uint64_t sum = 0;
    for (uint64_t i = begin; i < end; ++i)
      sum += samplesOf(*fileList[i]);
    return sum;
  }
  /// The number of values of a sample that count, if values have no signs.
  uint64_t counted(uint64_t sample) const {
    uint64_t gone = 0;
    locate(sample, [&](const DataFile &file, uint64_t first) {
      eachLeftOut(file, first, [&](uint64_t) { ++gone; });
    });
    return length() - gone;
  }
  void read(uint64_t sample, char *to) const {
    locate(sample, [&](const DataFile &file, uint64_t first) {
      if (areStarts)
        return readStarts(file, first, to);
      if (datum.type == GRT_I32 && first + length() > file.checked())
        file.checkIntegers(datum, first, length());
      file.read(first, length(), datum.type, to);
      eachLeftOut(file, first, [&](uint64_t at) {
        const int32_t none = -1;
        std::memcpy(to + at * sizeof(none), &none, sizeof(none));
      });
    });
  }

  /// Values of a file that stand in samples, labels included.
  uint64_t usedValues(const DataFile &file) const {
    uint64_t samples = samplesOf(file);
    return samples ? samples * length() + spare : 0;
  }

private:
  uint64_t length() const { return uint64_t(datum.elements()); }
  /// A document that begins before the sample begins with it.
  void readStarts(const DataFile &file, uint64_t first, char *to) const {
    std::vector<int32_t> starts(length(), 0);
    eachMasked(file, first, [&](uint64_t at) { starts[at] = int32_t(at); });
    for (uint64_t i = 1; i < length(); ++i)
      starts[i] = std::max(starts[i], starts[i - 1]);
    std::memcpy(to, starts.data(), length() * sizeof(int32_t));
  }
  /// Calls `use` with the file of a sample and its first value there.
  template <typename Use> void locate(uint64_t sample, Use use) const {
    for (const std::shared_ptr<const DataFile> &file : fileList) {
      uint64_t here = samplesOf(*file);
      if (sample >= here) {
        sample -= here;
        continue;
      }
      return use(*file, sample * length() + shift);
    }
  }
  /// Calls `use` once with every value of a sample that does not count.
  template <typename Use>
  void eachLeftOut(const DataFile &file, uint64_t first, Use use) const {
    std::string_view labels = hasLabels ? file.labels() : std::string_view();
    for (uint64_t i = 0; i < length() && !labels.empty(); ++i) {
      auto counts = uint8_t(labels[first + i]);
      if (counts > 1)
        invalid("file of labels '" + file.name() +
                std::string(ShardIndex::labelSuffix) +
                "': expected 0 or 1 at position " + str(first + i) +
                ", found " + str(counts));
      if (!counts)
        use(i);
    }
    if (masks)
      eachMasked(file, first, [&](uint64_t at) {
        if (labels.empty() || labels[first + at])
          use(at);
      });
  }
  /// Calls `use` with every value of a sample that begins a document.
  template <typename Use>
  void eachMasked(const DataFile &file, uint64_t first, Use use) const {
    const DocumentEnds &ends = *file.documents();
    uint64_t before = first;
    for (uint64_t i = ends.firstAt(std::max<uint64_t>(first, 1));
         i < ends.documents(); ++i) {
      uint64_t end = ends.end(i);
      if (end >= first + length())
        return;
      // Documents without tokens end where the one before does; an index whose
      // order is wrong is not followed.
      if (end < before || (end == before && i > 0 && ends.end(i - 1) == end))
        continue;
      use(end - first);
      before = end;
    }
  }
  const char *unit() const {
    return datum.kind == "tokens" ? "tokens" : "values";
  }
  uint64_t samplesOf(const DataFile &file) const {
    uint64_t values = file.values();
    return values < spare ? 0 : (values - spare) / length();
  }
  void checkShape(const DataFile &file) const {
    auto text = [](const std::vector<int64_t> &shape) {
      std::string result = "[";
      for (size_t i = 0; i < shape.size(); ++i)
        result += (i ? ", " : "") + str(shape[i]);
      return result + "]";
    };
    std::vector<int64_t> found = file.header().shape;
    if (spare)
      invalid("data file '" + file.name() +
              "': an array of samples has no next tokens, expected labels in a "
              "file of their own");
    if (found.empty() || !std::equal(found.begin() + 1, found.end(),
                                     datum.shape.begin(), datum.shape.end()))
      invalid("data file '" + file.name() + "': expected samples of shape " +
              text(datum.shape) + " for '" + datum.name +
              "', found an array of shape " + text(found));
  }

  Datum datum;
  Files fileList;
  uint64_t shift, spare;
  bool masks, hasLabels, areStarts;
};

Dataset::Dataset() = default;
Dataset::~Dataset() = default;

/// The datum that files are of which name none.
static const Datum &mainDatum(const std::vector<Datum> &data) {
  for (const Datum &datum : data)
    if (datum.kind == "tokens")
      return datum;
  return data.front();
}

namespace {

/// True if a model may read all tokens of a sample at once, as an encoder does:
/// a mask says which of them it sees, or a decoder has tokens of its own. The
/// next token is then seen, and not predicted.
bool seesNextTokens(const std::vector<Datum> &data, const Datum &main) {
  return std::any_of(data.begin(), data.end(), [&](const Datum &datum) {
    return &datum != &main && (datum.kind == "mask" || datum.kind == "tokens");
  });
}

/// Throws unless the files' tokens are those of one tokenizer, the given one
/// if there is one. Files of which it is not known are anybody's.
void checkTokenizers(const std::vector<std::shared_ptr<const DataFile>> &files,
                     const std::string &given) {
  const DataFile *first = nullptr;
  for (const std::shared_ptr<const DataFile> &file : files) {
    const std::string &hash = file->tokenizerHash();
    if (hash.empty())
      continue;
    if (!given.empty() && hash != given)
      invalid("data file '" + file->name() +
              "' was made by another tokenizer than the one given (SHA-256 " +
              hash.substr(0, 16) + ".., found " + given.substr(0, 16) + "..)");
    if (first && hash != first->tokenizerHash())
      invalid("data files '" + first->name() + "' and '" + file->name() +
              "' were made by different tokenizers");
    first = file.get();
  }
}

/// Throws unless what files say of their labels and samples is what the program
/// does with them: `areNext`: its labels are the next tokens; `length`: tokens
/// of a sample.
void checkLabels(const std::vector<std::shared_ptr<const DataFile>> &files,
                 bool areNext, int64_t length) {
  uint64_t counted = 0;
  for (const std::shared_ptr<const DataFile> &file : files) {
    counted += file->countedLabels();
    if (!file->labels().empty() && !areNext)
      invalid("data file '" + file->name() + "' says which tokens count as " +
              "labels, expected a program whose labels are the next tokens");
    if (file->sampleTokens() && file->sampleTokens() != uint64_t(length))
      invalid("data file '" + file->name() + "' was packed for samples of " +
              str(file->sampleTokens()) + " tokens, expected the " +
              str(length) + " of the program");
  }
  if (areNext && counted == 0)
    invalid("data file '" + files.front()->name() + "': no token of " +
            (files.size() > 1 ? "all files" : "it") + " counts as a label");
}

} // namespace

bool Dataset::keepsDocumentsApart() const {
  return std::any_of(data.begin(), data.end(), [](const Datum &datum) {
    return datum.kind == "document_starts";
  });
}

void Dataset::checkStarts(const Datum &starts, const Datum &main,
                          bool hasFiles) const {
  if (hasFiles)
    invalid("data '" + starts.name + "': it is made from the documents of '" +
            main.name + "', expected no file for it");
  if (maker)
    invalid(std::string("the program keeps documents apart, whose tokens ") +
            maker->name() +
            " would replace: expected a program compiled without --documents");
  if (main.kind != "tokens" || starts.shape != main.shape)
    invalid("data '" + starts.name +
            "': expected a program whose documents "
            "are those of one row of tokens");
}

void Dataset::makeColumns(const DataOptions &options) {
  const Datum &main = mainDatum(data);
  std::vector<std::vector<std::string>> paths(data.size());
  for (const DataFiles &given : options.files) {
    const std::string &name = given.name.empty() ? main.name : given.name;
    auto datum = std::find_if(data.begin(), data.end(), [&](const Datum &each) {
      return each.name == name;
    });
    if (datum == data.end()) {
      std::string names;
      for (const Datum &each : data)
        names += (names.empty() ? "'" : ", '") + each.name + "'";
      invalid("data '" + name + "': expected one of the program's, " + names);
    }
    std::vector<std::string> &list = paths[size_t(datum - data.begin())];
    list.insert(list.end(), given.paths.begin(), given.paths.end());
    if (given.weight)
      sources.push_back({given.paths.size(), *given.weight});
    isMixture |= given.weight.has_value();
  }
  for (const DataFiles &given : options.files)
    if (isMixture && !given.weight)
      invalid("data '" + given.paths.front() +
              "': expected a weight for all files of a mixture, or for none");
  std::vector<bool> hasFiles;
  for (const std::vector<std::string> &list : paths)
    hasFiles.push_back(!list.empty());
  size_t mainNumber = size_t(&main - data.data());
  maker = makeSampleMaker(options.corruption, data, mainNumber, hasFiles);
  for (size_t i = 0; maker && i < data.size(); ++i)
    if (maker->makes(i) && i != mainNumber && hasFiles[i])
      invalid("data '" + data[i].name + "': " + maker->name() +
              " make it, expected no file for it");
  // The next token of the row is a label of its own.
  const bool seesNext = seesNextTokens(data, main);
  auto isNextToken = [&](size_t i) {
    return !maker && !seesNext && data[i].kind == "labels" &&
           paths[i].empty() && main.kind == "tokens" &&
           data[i].shape == main.shape && data[i].below == main.below;
  };
  uint64_t unchecked = checkedAtOnce;
  bool shifted = false;
  for (size_t i = 0; i < data.size(); ++i)
    shifted |= isNextToken(i);
  auto areStarts = [&](size_t i) { return data[i].kind == "document_starts"; };
  for (size_t i = 0; i < data.size(); ++i)
    if (areStarts(i))
      checkStarts(data[i], main, !paths[i].empty());
  Column::Files mainFiles;
  for (size_t i = 0; i < data.size(); ++i) {
    if (isNextToken(i) || areStarts(i)) {
      columns.push_back(nullptr); // made below, when the tokens are there
      continue;
    }
    bool isMain = i == mainNumber;
    if (maker && maker->makes(i) && !isMain) {
      columns.push_back(nullptr);
      continue;
    }
    if (paths[i].empty())
      invalid("data '" + data[i].name + "' of kind '" + data[i].kind +
              "': expected a file, --data=" + data[i].name + "=FILE" +
              (maker || main.kind != "tokens"
                   ? ""
                   : ", or --corrupt=tokens or spans, which make it from the "
                     "tokens") +
              (data[i].kind == "labels" && seesNext
                   ? "; a model with a mask, or with tokens of a decoder, may "
                     "see the tokens that follow, so that they are no labels"
                   : ""));
    Column::Files files;
    for (const std::string &path : paths[i]) {
      files.push_back(std::make_shared<DataFile>(
          path, options.format, options.encodeText, unchecked));
      unchecked -= files.back()->checked();
    }
    checkTokenizers(files, options.tokenizerHash);
    allFiles.insert(allFiles.end(), files.begin(), files.end());
    if (isMain)
      mainFiles = files;
    Datum stored = data[i];
    if (isMain && maker)
      stored.shape = {int64_t(maker->rowLength())};
    if (isMixture && !isMain)
      invalid("data '" + data[i].name + "': files of a mixture are those of '" +
              main.name + "' alone");
    columns.push_back(std::make_unique<Column>(
        stored, std::move(files),
        Column::Use{.spare = isMain && shifted ? 1u : 0u}));
  }
  if (options.maskDocuments && !shifted)
    invalid("documents are masked in the next tokens, which are none of the "
            "program's data");
  // Columns of starts come first, so that files without documents are refused
  // with the reason that these have.
  for (size_t i = 0; i < data.size(); ++i)
    if (areStarts(i))
      columns[i] = std::make_unique<Column>(
          data[i], mainFiles,
          Column::Use{.spare = shifted ? 1u : 0u, .areStarts = true});
  for (size_t i = 0; i < data.size(); ++i)
    if (isNextToken(i))
      columns[i] = std::make_unique<Column>(
          data[i], mainFiles,
          Column::Use{
              .shift = 1, .spare = 1, .masks = masks, .hasLabels = true});
  checkLabels(mainFiles, shifted, main.elements());
}

void Dataset::countSamples(const DataOptions &options) {
  size_t main = size_t(&mainDatum(data) - data.data());
  uint64_t samples = columns[main]->samples();
  for (size_t i = 0; i < columns.size(); ++i)
    if (columns[i] && columns[i]->samples() != samples)
      invalid("data '" + data[i].name + "' has " + str(columns[i]->samples()) +
              " samples, expected the " + str(samples) + " of '" +
              data[main].name + "'");
  if (!isMixture)
    sources = {{columns[main]->files().size()}};
  uint64_t file = 0, sample = 0;
  for (Source &source : sources) {
    uint64_t all = columns[main]->samples(file, file + source.files);
    source.first = sample;
    source.validation =
        uint64_t(std::floor(double(all) * options.validationFraction));
    source.training = all - source.validation;
    training += source.training;
    validation += source.validation;
    file += source.files;
    sample += all;
  }
  if (isMixture)
    makeMixture();
}

/// Samples of a row that have exactly their parts of each source.
static constexpr uint64_t mixtureBlock = uint64_t(1) << 16;

void Dataset::makeMixture() {
  double sum = 0;
  for (const Source &source : sources)
    sum += source.weight;
  constexpr double roundingOfPeople = 1e-6;
  if (!(std::abs(sum - 1) <= roundingOfPeople))
    invalid("weights of data: expected a sum of 1, found " +
            std::to_string(sum));
  uint64_t begin = 0;
  double before = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    Source &source = sources[i];
    before += source.weight;
    // Rounded where it ends, so that all quotas fill the block.
    uint64_t end = i + 1 == sources.size()
                       ? mixtureBlock
                       : uint64_t(std::llround(before * double(mixtureBlock)));
    source.quotaBegin = begin;
    source.quota = end - begin;
    begin = end;
    std::string name =
        "weight " + std::to_string(source.weight) + " of data " + str(i);
    if (!(source.weight > 0) || source.quota == 0)
      invalid(name + ": expected at least 1/" + str(mixtureBlock));
    if (source.training == 0)
      invalid(name + ": the validation fraction leaves no training samples");
  }
}

/// The slots of a block, in the order in which samples take them: a Weyl
/// sequence, whose step is the golden ratio's part of the block. It is odd, so
/// all slots come once; and a stretch of any length has nearly its part of
/// every range of slots (Niederreiter 1992, chapter 3).
static constexpr uint64_t slotStep = 40503;

/// The slot at which the sequence of a block begins.
static uint64_t firstSlot(uint64_t seed, uint64_t block) {
  return mix64(mix64(seed ^ 0x6d697874757265ull) + block) % mixtureBlock;
}

/// The sum over i in [0, count) of floor((step * i + first) / mixtureBlock), by
/// the steps of Euclid's algorithm (Graham, Knuth and Patashnik 1994, 3.5).
static uint64_t sumOfQuotients(uint64_t count, uint64_t step, uint64_t first) {
  uint64_t sum = 0, divisor = mixtureBlock;
  while (count) {
    sum +=
        count * (count - 1) / 2 * (step / divisor) + count * (first / divisor);
    step %= divisor;
    first %= divisor;
    uint64_t last = step * count + first;
    count = last / divisor;
    first = last % divisor;
    std::swap(step, divisor);
  }
  return sum;
}

/// The number of slots below `bound` among the first `count` of a block's
/// sequence.
static uint64_t slotsBelow(uint64_t bound, uint64_t count, uint64_t first) {
  // floor((x + block - bound) / block) is one more than floor(x / block) where
  // the slot, x modulo block, is at least `bound`.
  return count + sumOfQuotients(count, slotStep, first) -
         sumOfQuotients(count, slotStep, first + mixtureBlock - bound);
}

uint64_t Dataset::drawn(const Source &source, uint64_t number) const {
  uint64_t block = number / mixtureBlock, count = number % mixtureBlock;
  uint64_t first = firstSlot(seed, block);
  return block * source.quota +
         slotsBelow(source.quotaBegin + source.quota, count, first) -
         slotsBelow(source.quotaBegin, count, first);
}

std::vector<Dataset::Draws> Dataset::draws(uint64_t number) const {
  std::vector<Draws> result;
  size_t file = 0;
  for (const Source &source : sources) {
    result.push_back({allFiles[file]->name(), source.training,
                      isMixture ? drawn(source, number) : number});
    file += source.files;
  }
  return result;
}

Dataset::Place Dataset::trainingSample(uint64_t number) const {
  if (!isMixture) {
    uint64_t epoch = number / training;
    return {Permutation(training, seed, epoch)(number % training), epoch};
  }
  uint64_t block = number / mixtureBlock;
  uint64_t slot = (firstSlot(seed, block) + number % mixtureBlock * slotStep) %
                  mixtureBlock;
  size_t which = 0;
  while (slot >= sources[which].quotaBegin + sources[which].quota)
    ++which;
  const Source &source = sources[which];
  // Samples of a source are counted, so that it is read in whole passes; each
  // source has orders of its own.
  uint64_t place = drawn(source, number);
  uint64_t epoch = place / source.training;
  constexpr uint64_t step = 0x9e3779b97f4a7c15ull;
  Permutation order(source.training, seed + step * which, epoch);
  return {source.first + order(place % source.training), epoch};
}

Dataset::Usable Dataset::usable() const {
  Usable result;
  const Column &column = *columns[size_t(&mainDatum(data) - data.data())];
  for (const auto &file : column.files()) {
    result.all += file->values();
    result.used += column.usedValues(*file);
    result.labels += file->countedLabels();
    // Padding of a sample is a document too, and so is the last next token.
    if (uint64_t length = file->sampleTokens(); length && file->documents())
      result.areMixed |=
          !keepsDocumentsApart() &&
          file->documents()->documents() > 2 * (file->values() / length) + 1;
  }
  return result;
}

Dataset::Place Dataset::validationSample(uint64_t number) const {
  for (const Source &source : sources) {
    if (number < source.validation)
      return {source.first + source.training + number};
    number -= source.validation;
  }
  return {}; // nobody asks for more than there are
}

Status Dataset::open(const DataOptions &options, std::vector<Datum> data,
                     std::unique_ptr<Dataset> &result) {
  return guarded([&] {
    if (options.files.empty())
      invalid("expected at least one data file");
    if (!(options.validationFraction >= 0 && options.validationFraction <= 1))
      invalid("validation fraction: expected a number from 0 to 1");
    std::unique_ptr<Dataset> opened(new Dataset);
    opened->data = std::move(data);
    opened->seed = options.seed;
    // No token is foretold from another document that it does not see.
    opened->masks = options.maskDocuments || opened->keepsDocumentsApart();
    opened->makeColumns(options);
    opened->countSamples(options);
    result = std::move(opened);
  });
}

/// True if a row of a batch lies in one of the ranges.
static bool contains(const std::vector<SampleRange> &ranges, int64_t row) {
  return std::any_of(ranges.begin(), ranges.end(), [&](SampleRange range) {
    return row >= range.first && row < range.first + range.count;
  });
}

/// The number of integers that are not negative.
static uint64_t countOf(const char *integers, uint64_t bytes) {
  uint64_t count = 0;
  for (uint64_t at = 0; at < bytes; at += sizeof(int32_t)) {
    int32_t value;
    std::memcpy(&value, integers + at, sizeof(value));
    count += value >= 0;
  }
  return count;
}

std::vector<DataIdentity> Dataset::identity() const {
  std::vector<DataIdentity> identities;
  for (const auto &file : allFiles)
    identities.push_back(file->identity());
  // The order is another with other weights, or other files of each.
  if (isMixture || masks) {
    std::string facts = masks ? "masked" : "";
    for (const Source &source : sources)
      facts += " " + str(source.files) + ":" + str(source.quota);
    identities.push_back({isMixture ? mixtureFormat : "mixture", sources.size(),
                          edgeHashOf(facts)});
  }
  if (maker)
    identities.push_back(
        {maker->name(), maker->rowLength(), edgeHashOf(maker->facts())});
  return identities;
}

std::vector<std::string> Dataset::fileNames() const {
  std::vector<std::string> names;
  for (const auto &file : allFiles)
    names.push_back(file->name());
  if (isMixture || masks)
    names.push_back("the mixture of all files");
  if (maker)
    names.push_back("what is made of rows of tokens");
  return names;
}

void Dataset::checkSizes() const {
  for (const auto &file : allFiles)
    file->checkSize();
}

void Dataset::makeSample(Place place, int64_t row, const SamplesRead *wanted,
                         DataBatch &batch, uint64_t &counted) const {
  std::optional<uint64_t> known = maker->counted();
  counted += known.value_or(0);
  std::vector<char *> to(data.size(), nullptr);
  bool isRead = false;
  for (size_t i = 0; i < data.size(); ++i)
    if (maker->makes(i) && (!wanted || contains((*wanted)[i], row))) {
      to[i] = batch[i].data() + uint64_t(row) * data[i].bytesPerSample;
      isRead = true;
    }
  if (known && !isRead)
    return;
  std::vector<int32_t> tokens(maker->rowLength());
  columns[size_t(&mainDatum(data) - data.data())]->read(
      place.sample, reinterpret_cast<char *>(tokens.data()));
  if (!known)
    counted += maker->counted(tokens);
  if (isRead)
    maker->make(SampleDraws(seed, place.epoch, place.sample), tokens, to);
}

void Dataset::readSample(Place place, int64_t row, const SamplesRead *wanted,
                         DataBatch &batch, uint64_t &counted) const {
  if (maker)
    makeSample(place, row, wanted, batch, counted);
  const uint64_t sample = place.sample;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (maker && maker->makes(i))
      continue;
    bool isCounted = data[i].counted;
    bool countsAll = isCounted && !columns[i]->hasSigns();
    if (countsAll)
      counted += columns[i]->counted(sample);
    bool isWanted = !wanted || contains((*wanted)[i], row);
    if (!isWanted && (!isCounted || countsAll))
      continue;
    char *to = batch[i].data() + uint64_t(row) * data[i].bytesPerSample;
    columns[i]->read(sample, to);
    if (isCounted && !countsAll)
      counted += countOf(to, data[i].bytesPerSample);
  }
}

Status Dataset::trainingBatch(uint64_t first, int64_t batch, DataBatch &result,
                              const SamplesRead *wanted,
                              uint64_t *counted) const {
  return guarded([&] {
    uint64_t values = 0;
    if (training == 0)
      invalid("data: the validation fraction leaves no training samples");
    checkSizes();
    resize(batch, result);
    for (int64_t j = 0; j < batch; ++j) {
      uint64_t number = first + uint64_t(j);
      readSample(trainingSample(number), j, wanted, result, values);
    }
    if (counted)
      *counted = values;
  });
}

uint64_t Dataset::validationBatches(int64_t batch) const {
  return (validation + uint64_t(batch) - 1) / uint64_t(batch);
}

Status Dataset::validationBatch(uint64_t index, int64_t batch,
                                DataBatch &result, const SamplesRead *wanted,
                                uint64_t *counted) const {
  return guarded([&] {
    uint64_t values = 0;
    checkSizes();
    resize(batch, result);
    for (int64_t j = 0; j < batch; ++j) {
      uint64_t sample = index * uint64_t(batch) + uint64_t(j);
      if (sample < validation)
        readSample(validationSample(sample), j, wanted, result, values);
      else
        clearSample(uint64_t(j), result);
    }
    if (counted)
      *counted = values;
  });
}

void Dataset::resize(int64_t batch, DataBatch &result) const {
  result.resize(data.size());
  for (size_t i = 0; i < data.size(); ++i)
    result[i].resize(size_t(batch) * data[i].bytesPerSample);
}

void Dataset::clearSample(uint64_t row, DataBatch &batch) const {
  // Integers of all ones are -1, which does not count.
  for (size_t i = 0; i < data.size(); ++i)
    std::memset(batch[i].data() + row * data[i].bytesPerSample,
                data[i].counted ? 0xff : 0, data[i].bytesPerSample);
}

} // namespace grt
