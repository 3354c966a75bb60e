// The file of packed weights: what is written is found, and nothing else is, whatever happened to the file.
#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "check.h"
#include "lean/xnnpack/weights_file.h"
#include "program_builder.h"
#include "temporary_folder.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

// Of the file: docs of the format are its source, weights_file.cpp.
constexpr std::size_t kSumAt = 80;
constexpr std::size_t kHeaderSize = 96;
constexpr std::size_t kOwnedSize = 32;
constexpr std::size_t kEntrySize = 72;
constexpr std::size_t kOffsetInEntry = 56;

void wait_a_tick() {
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
}

// A program, its cache, and what is in it.
struct Kept {
  TemporaryFolder folder;
  std::unique_ptr<MappedFile> program;
  WeightsOwner owner;
  std::vector<std::uint8_t> first = std::vector<std::uint8_t>(192, 7);
  std::vector<std::uint8_t> second = std::vector<std::uint8_t>(100, 9);
  std::vector<PackedBlock> blocks;
  std::string path = folder.file("weights");

  explicit Kept(
      const std::string& text = "a program that is longer than 64 bytes, so that its constants are inside") {
    folder.write_text("model.pte", text);
    wait_a_tick();
    read_program();
    PackedBlock block;
    block.key.kernel = {0, 16};
    block.key.bias = {0, 32};
    block.key.seed = 5;
    block.data = first.data();
    block.size = first.size();
    blocks.push_back(block);
    block.key.kernel = {0, 48};
    block.key.bias = {};
    block.data = second.data();
    block.size = second.size();
    blocks.push_back(block);
  }

  void read_program() {
    Result<MappedFile> file = MappedFile::open(folder.file("model.pte"));
    CHECK(file.ok());
    program = std::make_unique<MappedFile>(std::move(file.value()));
    owner = {{1, 2}, {{folder.file("model.pte"), program.get()}}};
  }

  Status write() { return write_weights(path, owner, blocks, 7.5); }
  Result<WeightsFile> open() const { return WeightsFile::open(path, owner); }
  std::string refused() const {
    const Result<WeightsFile> file = open();
    return file.ok() ? "" : file.status().message();
  }
  // Other bytes in the same file, with its time: as damage that the file system does not know of.
  void damage(const std::vector<std::uint8_t>& bytes) const {
    struct stat status = {};
    CHECK_EQUAL(::stat(path.c_str(), &status), 0);
    folder.write("weights", bytes);
    const struct timespec times[2] = {status.st_atim, status.st_mtim};
    CHECK_EQUAL(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  std::vector<std::uint8_t> bytes() const {
    const std::string text = folder.read("weights");
    return {text.begin(), text.end()};
  }
  // How many of the blocks are found; they must be whole.
  std::size_t found() const {
    const Result<WeightsFile> file = open();
    std::size_t count = 0;
    for (const PackedBlock& block : blocks) {
      const PackedEntry* entry = file.ok() ? file.value().find(block.key) : nullptr;
      if (entry != nullptr) {
        ++count;
        CHECK_EQUAL(entry->size, block.size);
        CHECK(std::memcmp(file.value().bytes(*entry), block.data, block.size) == 0);
      }
    }
    return count;
  }
};

// Another number, and a sum that fits: as somebody would who knows the format.
std::vector<std::uint8_t> with_number(std::vector<std::uint8_t> bytes, std::size_t at, std::uint64_t number) {
  put_number(&bytes, at, number, sizeof(number));
  std::memset(bytes.data() + kSumAt, 0, sizeof(Checksum));
  const Checksum sum = checksum_of(bytes.data(), kHeaderSize + kOwnedSize + 2 * kEntrySize);
  std::memcpy(bytes.data() + kSumAt, &sum, sizeof(sum));
  return bytes;
}

}  // namespace

TEST(weights_that_were_kept_are_found_where_kernels_can_read_them) {
  Kept kept;
  CHECK(!kept.open().ok());
  CHECK_CONTAINS(kept.refused(), "there was none");
  CHECK(kept.write().ok());
  CHECK_EQUAL(kept.found(), std::size_t{2});
  const Result<WeightsFile> file = kept.open();
  CHECK(file.ok());
  CHECK_EQUAL(file.value().packing_load_ms(), 7.5);
  CHECK_EQUAL(file.value().blocks().size(), std::size_t{2});
  for (const PackedBlock& block : file.value().blocks()) {
    CHECK_EQUAL(reinterpret_cast<std::uintptr_t>(block.data) % 64, std::uintptr_t{0});
  }
  PackedKey other = kept.blocks[0].key;
  other.seed = 6;
  CHECK(file.value().find(other) == nullptr);
  other = kept.blocks[0].key;
  other.form.first = 1;
  CHECK(file.value().find(other) == nullptr);
  other = kept.blocks[0].key;
  other.bias.offset = 33;
  CHECK(file.value().find(other) == nullptr);
  CHECK(kept.folder.files().size() == 2);
}

TEST(weights_of_a_file_that_was_damaged_or_changed_are_not_found) {
  Kept kept;
  CHECK(kept.write().ok());
  const std::vector<std::uint8_t> bytes = kept.bytes();
  constexpr std::size_t kTable = kHeaderSize + kOwnedSize + 2 * kEntrySize;
  for (std::size_t i = 0; i < kTable; ++i) {
    std::vector<std::uint8_t> other = bytes;
    other[i] = static_cast<std::uint8_t>(other[i] ^ 0x10);
    kept.damage(other);
    CHECK_EQUAL(kept.found(), std::size_t{0});
  }
  for (std::size_t size = 0; size < bytes.size(); size += 7) {
    kept.damage({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)});
    CHECK_CONTAINS(kept.refused(), "it was damaged");
  }
  kept.damage(std::vector<std::uint8_t>(5000, 'x'));
  CHECK_CONTAINS(kept.refused(), "it was no file of packed weights");
  kept.damage(bytes);
  CHECK_EQUAL(kept.found(), std::size_t{2});
  kept.folder.write("weights", bytes);
  CHECK_CONTAINS(kept.refused(), "it was copied, or changed");
}

TEST(weights_lie_in_the_file_whatever_its_table_says) {
  Kept kept;
  CHECK(kept.write().ok());
  const std::vector<std::uint8_t> bytes = kept.bytes();
  const std::uint64_t size = bytes.size();
  const std::size_t entry = kHeaderSize + kOwnedSize + kOffsetInEntry;
  for (const std::uint64_t number :
       {std::uint64_t{0}, std::uint64_t{64}, std::uint64_t{4097}, size - 64, size - 1, size, size + 64,
        std::uint64_t{1} << 63, UINT64_MAX - 63, UINT64_MAX}) {
    for (const std::size_t at : {entry, entry + 8}) {
      kept.damage(with_number(bytes, at, number));
      const Result<WeightsFile> file = kept.open();
      const PackedEntry* found = file.ok() ? file.value().find(kept.blocks[0].key) : nullptr;
      CHECK((found == nullptr || (found->offset < size && found->size < size - found->offset)));
    }
  }
  // The numbers of files and entries.
  for (const std::size_t at : {std::size_t{24}, std::size_t{32}}) {
    for (const std::uint64_t number :
         {std::uint64_t{100}, std::uint64_t{1} << 40, UINT64_MAX - 1, UINT64_MAX}) {
      kept.damage(with_number(bytes, at, number));
      CHECK_EQUAL(kept.found(), std::size_t{0});
    }
  }
}

TEST(weights_are_not_kept_of_a_program_that_changes) {
  Kept kept;
  kept.folder.write_text("model.pte", kept.folder.read("model.pte"));
  CHECK_CONTAINS(kept.write().message(), "model.pte was changed during this run");
  kept.read_program();
  CHECK_CONTAINS(kept.write().message(), "changed a moment ago");
  wait_a_tick();
  kept.read_program();
  CHECK(kept.write().ok());
  // As where the clock was set back: to wait does not help.
  auto& identity = const_cast<FileIdentity&>(kept.program->identity());
  identity.changed += std::int64_t{3600} * 1000000000;
  CHECK_CONTAINS(kept.write().message(), "set the clock, or copy the file anew");
}
