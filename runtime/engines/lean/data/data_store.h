#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/platform.h"
#include "program_file.h"
#include "slipway/status.h"

namespace slipway::lean {

struct Bytes {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
};

// A program's file and, where there is one, its file of weights: mapped, checked, and everything in them that
// has an index or a name.
class DataStore {
 public:
  // kFile when a file is damaged. `data_path` may be empty.
  static Result<DataStore> open(const std::string& model_path, const std::string& data_path);
  // The same of what is mapped already; `name` is what messages call it.
  static Result<DataStore> open(MappedFile file, const std::string& name, const std::string& data_path);

  const pte::Program& program() const { return *program_; }

  // Every index below was checked when the file was opened.
  Bytes segment(std::size_t index) const;
  // A constant tensor's bytes up to the end of where it is stored.
  Bytes constant(std::size_t index) const;
  // The initial value of a mutable tensor.
  Bytes initial(std::size_t table, std::size_t index) const;
  Bytes delegate(const pte::BackendDelegateDataReference& reference) const;
  // Data stored under a name, in the program or in the file of weights; nullptr data when there is none.
  Bytes named(std::string_view key) const;

  // The mapped files: the program first.
  std::vector<const MappedFile*> files() const;
  // Where these bytes are stored: in which of those files, counted from 1, and where; false when in none.
  bool find(const void* data, std::uint64_t* file, std::uint64_t* offset) const;

  // These bytes were read and will hardly be read again: their memory goes back to the system. Nothing
  // happens to bytes that are not a file's.
  void forget(Bytes bytes) const;
  // The same for all of the files, after a program was loaded: what is read again comes back by itself.
  void forget_all() const;

 private:
  DataStore(MappedFile file, const pte::Program* program, ProgramLayout layout)
      : file_(std::move(file)), program_(program), layout_(layout) {}
  Status open_data(const std::string& path);
  Bytes in_segment(const pte::SubsegmentOffsets& table, std::size_t index) const;

  MappedFile file_;
  const pte::Program* program_;
  ProgramLayout layout_;
  std::map<std::string, MappedFile> data_files_;
  std::map<std::string, Bytes, std::less<>> named_;
};

// The bytes of each planned memory up to the end of the last tensor in it.
std::vector<std::size_t> arenas_used(const pte::ExecutionPlan& plan);

// Zeroed memory that stays where it is, with bytes behind it that XNNPACK may read.
class Blocks {
 public:
  // nullptr when there is none left.
  std::uint8_t* allocate(std::size_t bytes);

 private:
  std::vector<std::unique_ptr<std::uint8_t[]>> memory_;
  std::vector<Pages> pages_;  // of what is large
};

// The arenas through which methods share state: what one leaves in a buffer, the next one finds. Upstream's
// planner (`share_mutable_buffers`) gives these buffers an arena of their own, behind the one of intermediate
// values, and lists it with the same size in every method, also in those that use none of them. State in the
// first arena is each method's own.
class SharedArenas {
 public:
  explicit SharedArenas(const pte::Program& program);

  bool has(std::size_t arena) const { return sizes_.count(arena) != 0; }
  // The same for every method that asks; nullptr when there is none left.
  std::uint8_t* memory(std::size_t arena);

 private:
  std::map<std::size_t, std::size_t> sizes_;  // bytes, by the arena's number
  std::map<std::size_t, std::uint8_t*> made_;
  Blocks blocks_;
};

}  // namespace slipway::lean
