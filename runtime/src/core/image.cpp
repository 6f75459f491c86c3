//===- image.cpp - What a program's shared object asks of the loader ------===//
//
// Part of Galvatron, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The dynamic loader goes by program headers and by addresses; section headers,
// which other tools read, are not looked at here either, so that there is no
// second, harmless table to show. Every access is checked against the file.
//
//===----------------------------------------------------------------------===//

#include "core/image.h"
#include "core/error.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <elf.h>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace grt {
namespace {

#if defined(__aarch64__)
constexpr uint32_t relativeType = 1027, dataRelocations[] = {257, 1025, 1026};
#else
constexpr uint32_t relativeType = R_X86_64_RELATIVE,
                   dataRelocations[] = {R_X86_64_64, R_X86_64_GLOB_DAT,
                                        R_X86_64_JUMP_SLOT};
#endif

/// Larger numbers are not those of a program; sums of some stay far from
/// overflow.
constexpr uint64_t mostAddress = uint64_t(1) << 47;
constexpr uint64_t mostSegments = 64, mostDynamicEntries = 256;

/// The smallest page of the processors that are known: segments that share no
/// page of any size share none of this size.
constexpr uint64_t pageBytes = 4096;

constexpr std::string_view importPrefix = "grt_";

std::string quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

class Image {
public:
  explicit Image(std::string_view file) : file(file) {}

  void check() {
    readHeader();
    readSegments();
    readDynamic();
    readSymbols();
    checkRelocations(DT_RELA, DT_RELASZ);
    checkRelocations(DT_JMPREL, DT_PLTRELSZ);
  }

private:
  [[noreturn]] static void damaged(const std::string &what) {
    invalid("its ELF file is malformed: " + what);
  }

  /// What stands at an offset of the file.
  template <typename T> T at(uint64_t offset, const char *what) const {
    if (offset > file.size() || file.size() - offset < sizeof(T))
      damaged(std::string(what) + " outside the file");
    T value;
    std::memcpy(&value, file.data() + offset, sizeof(T));
    return value;
  }

  /// The segment that has `bytes` from an address on in the file.
  const Elf64_Phdr &segmentOf(uint64_t address, uint64_t bytes,
                              const char *what) const {
    for (const Elf64_Phdr &segment : loads)
      if (address >= segment.p_vaddr &&
          address - segment.p_vaddr <= segment.p_filesz &&
          segment.p_filesz - (address - segment.p_vaddr) >= bytes)
        return segment;
    damaged(std::string(what) + " outside the segments");
  }
  /// The offset of an address in the file, of a table that the loader reads
  /// while it relocates: a relocation could change what was checked here if it
  /// were in a segment where relocations write.
  uint64_t offsetOf(uint64_t address, uint64_t bytes, const char *what) const {
    const Elf64_Phdr &segment = segmentOf(address, bytes, what);
    if (segment.p_flags & PF_W)
      damaged(std::string(what) + " in a writable segment");
    return segment.p_offset + (address - segment.p_vaddr);
  }
  template <typename T> T atAddress(uint64_t address, const char *what) const {
    return at<T>(offsetOf(address, sizeof(T), what), what);
  }

  void readHeader() {
    header = at<Elf64_Ehdr>(0, "the header");
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_ident[EI_DATA] != ELFDATA2LSB)
      damaged("expected a 64-bit, little-endian ELF file");
    if (header.e_type != ET_DYN)
      invalid("expected an ELF shared object, found type " +
              str(header.e_type));
    if (header.e_phentsize != sizeof(Elf64_Phdr) ||
        header.e_phnum > mostSegments)
      damaged("program headers of " + str(header.e_phentsize) + " bytes, " +
              str(header.e_phnum) + " of them");
  }

  void readSegments() {
    for (uint64_t i = 0; i < header.e_phnum; ++i) {
      // The first of them is in the file, so that no sum overflows.
      auto segment = at<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr),
                                    "program headers");
      switch (segment.p_type) {
      case PT_LOAD:
        addLoad(segment);
        break;
      case PT_DYNAMIC:
        if (dynamic)
          damaged("two dynamic sections");
        if (segment.p_memsz > mostAddress)
          damaged("a dynamic section of " + str(segment.p_memsz) + " bytes");
        dynamic = segment;
        break;
      case PT_GNU_STACK:
        if (segment.p_flags & PF_X)
          invalid("it asks for an executable stack");
        break;
      case PT_INTERP:
        invalid("it has an interpreter, so it is a program of its own");
      case PT_TLS:
        invalid("it has thread-local data");
      case PT_NULL:
      case PT_NOTE:
      case PT_PHDR:
      case PT_GNU_EH_FRAME:
      case PT_GNU_RELRO:
      case PT_GNU_PROPERTY:
        break;
      default:
        invalid("it has a segment of type " + str(segment.p_type));
      }
    }
    if (!dynamic)
      damaged("no dynamic section");
  }

  void addLoad(const Elf64_Phdr &segment) {
    if (segment.p_offset > file.size() ||
        segment.p_filesz > file.size() - segment.p_offset ||
        segment.p_filesz > segment.p_memsz || segment.p_memsz > mostAddress ||
        segment.p_vaddr > mostAddress ||
        (segment.p_vaddr - segment.p_offset) % pageBytes)
      damaged("a segment that does not fit the file");
    if ((segment.p_flags & PF_W) && (segment.p_flags & PF_X))
      invalid("it has a segment that is writable and executable");
    // Pages that two segments share would hold what the later one has there.
    if (!loads.empty() && segment.p_vaddr / pageBytes * pageBytes <
                              loads.back().p_vaddr + loads.back().p_memsz)
      damaged("segments that overlap or do not ascend");
    loads.push_back(segment);
  }

  void readDynamic() {
    for (uint64_t i = 0;; ++i) {
      if (i == mostDynamicEntries)
        damaged("a dynamic section without an end");
      // Relocations of it are refused one by one: it is in a writable segment.
      const char *what = "the dynamic section";
      uint64_t address = dynamic->p_vaddr + i * sizeof(Elf64_Dyn);
      const Elf64_Phdr &segment = segmentOf(address, sizeof(Elf64_Dyn), what);
      auto entry =
          at<Elf64_Dyn>(segment.p_offset + (address - segment.p_vaddr), what);
      if (entry.d_tag == DT_NULL) {
        // Relocations of its entries are found by its size.
        if ((i + 1) * sizeof(Elf64_Dyn) > dynamic->p_memsz)
          damaged("a dynamic section of " + str(dynamic->p_memsz) +
                  " bytes, whose entries take " +
                  str((i + 1) * sizeof(Elf64_Dyn)));
        break;
      }
      checkEntry(entry);
      if (entry.d_tag == DT_NEEDED)
        needed.push_back(entry.d_un.d_val);
      else if (!entries.emplace(entry.d_tag, entry.d_un.d_val).second)
        damaged("two dynamic entries " + str(entry.d_tag));
    }
    readStrings();
    if (!needed.empty())
      invalid("it needs library " + quoted(text(needed.front())) +
              "; programs need none");
    if (value(DT_SYMENT).value_or(sizeof(Elf64_Sym)) != sizeof(Elf64_Sym) ||
        value(DT_RELAENT).value_or(sizeof(Elf64_Rela)) != sizeof(Elf64_Rela) ||
        value(DT_PLTREL).value_or(DT_RELA) != DT_RELA)
      damaged("entries of another size or kind than this processor's");
    if (value(DT_FLAGS).value_or(0) & DF_TEXTREL)
      invalid("it has relocations in its code");
  }

  static void checkEntry(const Elf64_Dyn &entry) {
    switch (entry.d_tag) {
    case DT_NEEDED: // said with its name
    case DT_HASH:
    case DT_GNU_HASH:
    case DT_STRTAB:
    case DT_STRSZ:
    case DT_SYMTAB:
    case DT_SYMENT:
    case DT_RELA:
    case DT_RELASZ:
    case DT_RELAENT:
    case DT_RELACOUNT:
    case DT_JMPREL:
    case DT_PLTREL:
    case DT_PLTRELSZ:
    case DT_PLTGOT:
    case DT_SONAME:
    case DT_FLAGS:
    case DT_FLAGS_1:
    case DT_BIND_NOW:
      return;
    case DT_INIT:
    case DT_INIT_ARRAY:
    case DT_INIT_ARRAYSZ:
    case DT_PREINIT_ARRAY:
    case DT_PREINIT_ARRAYSZ:
      invalid("it has constructors, which would run before it is checked");
    case DT_FINI:
    case DT_FINI_ARRAY:
    case DT_FINI_ARRAYSZ:
      invalid("it has destructors");
    case DT_TEXTREL:
      invalid("it has relocations in its code");
    case DT_RPATH:
    case DT_RUNPATH:
      invalid("it has a search path for libraries");
    case DT_AUXILIARY:
    case DT_FILTER:
    case DT_AUDIT:
    case DT_DEPAUDIT:
      invalid("it asks for other libraries (dynamic entry " + str(entry.d_tag) +
              ")");
    default:
      invalid("it has a dynamic entry " + str(entry.d_tag) +
              ", which programs do not have");
    }
  }

  std::optional<uint64_t> value(int64_t tag) const {
    auto it = entries.find(tag);
    return it == entries.end() ? std::nullopt : std::optional(it->second);
  }
  uint64_t expected(int64_t tag, const char *what) const {
    if (std::optional<uint64_t> found = value(tag))
      return *found;
    damaged(std::string("no ") + what);
  }

  void readStrings() {
    uint64_t bytes = expected(DT_STRSZ, "size of strings");
    uint64_t address = expected(DT_STRTAB, "strings");
    strings = file.substr(offsetOf(address, bytes, "strings"), bytes);
  }
  std::string_view text(uint64_t offset) const {
    size_t end = offset < strings.size() ? strings.find('\0', offset)
                                         : std::string_view::npos;
    if (end == std::string_view::npos)
      damaged("a name outside the strings");
    return strings.substr(offset, end - offset);
  }

  /// Symbols that the loader can find, by either of its tables.
  uint64_t countSymbols() const {
    uint64_t count = 0;
    if (std::optional<uint64_t> table = value(DT_HASH))
      count = countChained(*table);
    if (std::optional<uint64_t> table = value(DT_GNU_HASH))
      count = std::max(count, countHashed(*table));
    else if (!value(DT_HASH))
      damaged("no hash table");
    return count;
  }

  /// Symbols of a hash table. Its layout: numbers of buckets and of symbols;
  /// the buckets; then a word for every symbol, which names the next one.
  uint64_t countChained(uint64_t table) const {
    const char *what = "the hash table";
    uint64_t buckets = atAddress<uint32_t>(table, what);
    uint64_t count = atAddress<uint32_t>(table + 4, what);
    // Bounded by the file, as each word is read from it.
    for (uint64_t i = 0; i < buckets + count; ++i)
      if (atAddress<uint32_t>(table + 8 + i * 4, what) >= count)
        damagedHash();
    return count;
  }
  [[noreturn]] static void damagedHash() {
    damaged("a hash table that names a symbol it does not have");
  }

  /// One above the largest symbol of a GNU hash table. Its layout: numbers of
  /// buckets, of the first symbol, of words of a filter, a shift; the filter;
  /// the buckets; then a word for every symbol from the first on, whose lowest
  /// bit ends a bucket.
  uint64_t countHashed(uint64_t table) const {
    const char *what = "the hash table";
    uint64_t buckets = atAddress<uint32_t>(table, what);
    uint64_t first = atAddress<uint32_t>(table + 4, what);
    uint64_t filter = atAddress<uint32_t>(table + 8, what);
    if (filter == 0 || (filter & (filter - 1)))
      damaged("a hash table with a filter of " + str(filter) + " words");
    uint64_t start = table + 16 + filter * 8, chains = start + buckets * 4;
    // All of it, before any of it is followed.
    offsetOf(table, 16 + filter * 8 + buckets * 4, what);
    uint64_t last = 0;
    for (uint64_t i = 0; i < buckets; ++i) {
      uint64_t symbol = atAddress<uint32_t>(start + i * 4, what);
      if (symbol == 0)
        continue;
      if (symbol < first)
        damagedHash();
      last = std::max(last, symbol);
    }
    if (last == 0)
      return first;
    while (!(atAddress<uint32_t>(chains + (last - first) * 4, what) & 1))
      ++last;
    return last + 1;
  }

  void readSymbols() {
    symbolCount = countSymbols();
    symbols = expected(DT_SYMTAB, "symbols");
    // Bounded by the file, as each symbol is read from it.
    for (uint64_t i = 1; i < symbolCount; ++i)
      checkSymbol(symbol(i));
  }

  Elf64_Sym symbol(uint64_t index) const {
    if (index > file.size())
      damaged("a symbol outside the file");
    return atAddress<Elf64_Sym>(symbols + index * sizeof(Elf64_Sym),
                                "a symbol");
  }

  void checkSymbol(const Elf64_Sym &symbol) const {
    std::string_view name = text(symbol.st_name);
    unsigned type = ELF64_ST_TYPE(symbol.st_info);
    if (type == STT_GNU_IFUNC)
      invalid("symbol " + quoted(name) +
              " is an indirect function, which the loader would call");
    if (type == STT_TLS)
      invalid("symbol " + quoted(name) + " is thread-local");
    if (symbol.st_shndx == SHN_UNDEF && !name.starts_with(importPrefix))
      invalid("it imports " + quoted(name) +
              "; programs import functions of the runtime (" +
              std::string(importPrefix) + "...) only");
  }

  void checkRelocations(int64_t tableTag, int64_t bytesTag) {
    uint64_t bytes = value(bytesTag).value_or(0);
    if (bytes == 0)
      return;
    uint64_t table = expected(tableTag, "relocations");
    if (bytes % sizeof(Elf64_Rela))
      damaged("relocations of " + str(bytes) + " bytes");
    uint64_t offset = offsetOf(table, bytes, "relocations");
    for (uint64_t done = 0; done < bytes; done += sizeof(Elf64_Rela)) {
      auto relocation = at<Elf64_Rela>(offset + done, "relocations");
      checkRelocation(relocation);
    }
  }

  void checkRelocation(const Elf64_Rela &relocation) const {
    uint32_t type = uint32_t(ELF64_R_TYPE(relocation.r_info));
    uint64_t index = ELF64_R_SYM(relocation.r_info);
    bool known = type == relativeType;
    for (uint32_t other : dataRelocations)
      known |= type == other;
    if (!known)
      invalid("it has a relocation of type " + str(type) +
              ", which programs do not have");
    bool writable = false;
    for (const Elf64_Phdr &segment : loads)
      writable |= (segment.p_flags & PF_W) &&
                  relocation.r_offset >= segment.p_vaddr &&
                  segment.p_memsz >= sizeof(uint64_t) &&
                  relocation.r_offset - segment.p_vaddr <=
                      segment.p_memsz - sizeof(uint64_t);
    if (!writable)
      damaged("a relocation outside the writable segments");
    if (dynamic->p_vaddr < relocation.r_offset + sizeof(uint64_t) &&
        relocation.r_offset < dynamic->p_vaddr + dynamic->p_memsz)
      damaged("a relocation of the dynamic section");
    // Symbols beyond those of the hash tables are as good for a relocation.
    if (index)
      checkSymbol(symbol(index));
  }

  std::string_view file;
  Elf64_Ehdr header{};
  std::vector<Elf64_Phdr> loads;
  std::optional<Elf64_Phdr> dynamic;
  std::map<int64_t, uint64_t> entries;
  std::vector<uint64_t> needed;
  std::string_view strings;
  uint64_t symbols = 0, symbolCount = 0;
};

} // namespace

void checkImage(std::string_view file) { Image(file).check(); }

} // namespace grt
