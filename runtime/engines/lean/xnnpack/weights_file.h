// Packed weights in a file, to be mapped where the same program runs again. docs/lean.md says what it
// promises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/platform.h"
#include "slipway/status.h"

namespace slipway::lean {

// Where a constant is stored: in which of the files that the cache depends on.
struct Place {
  static constexpr std::uint64_t kNowhere = UINT64_MAX;  // there is no such constant

  std::uint64_t file = kNowhere;
  std::uint64_t offset = 0;
};

// What packed weights are made of.
struct PackedKey {
  Place kernel;
  Place bias;
  std::uint64_t seed = 0;  // XNNPACK's word for the kernel's layout
  Checksum form;           // what else the node makes of them (packed_weights.h)
};

struct PackedEntry {
  PackedKey key;
  std::uint64_t offset = 0;  // in the file
  std::uint64_t size = 0;
};

// An entry whose bytes are in memory.
struct PackedBlock {
  PackedKey key;
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
};

struct PackedKeyOrder {
  bool operator()(const PackedKey& one, const PackedKey& other) const;
};

// What a cache is valid for.
struct WeightsOwner {
  struct File {
    std::string path;
    const MappedFile* file;
  };

  Checksum processor;       // what decides between kernels
  std::vector<File> files;  // this program, the one that it runs, and that one's weights
};

class WeightsFile {
 public:
  // kFile with the reason when there is none that is whole and belongs to `owner`; kUsage when somebody else
  // may change it. Nothing in it is believed: whatever a file contains, what is found in it lies in it.
  static Result<WeightsFile> open(const std::string& path, const WeightsOwner& owner);

  // nullptr when it is not there.
  const PackedEntry* find(const PackedKey& key) const;
  const std::uint8_t* bytes(const PackedEntry& entry) const { return file_.data() + entry.offset; }
  std::vector<PackedBlock> blocks() const;

  std::size_t size() const { return file_.size(); }
  // Milliseconds of the load that packed these weights.
  double packing_load_ms() const { return packing_load_ms_; }

 private:
  explicit WeightsFile(MappedFile file) : file_(std::move(file)) {}
  std::string read(const WeightsOwner& owner);

  MappedFile file_;
  double packing_load_ms_ = 0;
  std::map<PackedKey, PackedEntry, PackedKeyOrder> entries_;
};

// Writes it, whole or not at all. kOutput when it cannot be written, kFile when the files that it depends on
// were not left alone long enough to know that these weights are theirs.
Status write_weights(const std::string& path, const WeightsOwner& owner,
                     const std::vector<PackedBlock>& blocks, double packing_load_ms);

}  // namespace slipway::lean
