#include "lean/xnnpack/weights_file.h"

#include <xnnpack/hardware-config.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "lean/xnnpack/packed_weights.h"

namespace slipway::lean {
namespace {

constexpr char kMagic[] = "SLIPWAYW";
constexpr std::uint32_t kVersion = 3;
constexpr std::uint32_t kByteOrder = 0x01020304;
constexpr std::size_t kEntryAlignment = 64;  // XNNPACK's of all weights
constexpr std::size_t kFirstEntry = 4096;    // boundary of the first
constexpr std::size_t kReadBehind = 128;     // kernels read whole registers
constexpr std::uint64_t kMostFiles = 64;
constexpr std::uint64_t kMostEntries = std::uint64_t{1} << 20;
constexpr std::int64_t kSecond = 1000000000;
constexpr double kNanosecondsInMs = 1e6;
// A write gives a file the time of now, so one that has a time before its making was not written to.
constexpr std::int64_t kBefore = 3600 * kSecond;
// Two changes within one tick of a system's clock leave the same time.
constexpr std::int64_t kTick = 20 * kSecond / 1000;
constexpr std::int64_t kCoarseTick = 2 * kSecond;  // of file systems that know no parts of a second

// A file that the cache depends on.
struct Owned {
  std::uint64_t size;
  std::uint64_t number;
  std::int64_t modified;
  std::int64_t changed;
};

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t byte_order;
  std::uint64_t size;  // of all of the file
  std::uint64_t files;
  std::uint64_t entries;
  std::uint64_t number;  // the file's own
  std::int64_t modified;
  std::uint64_t packing_load;  // nanoseconds
  Checksum processor;
  Checksum sum;  // of all before the first entry's bytes, with zeros here
};

static_assert(std::has_unique_object_representations_v<Owned>);
static_assert(std::has_unique_object_representations_v<Header>);
static_assert(std::has_unique_object_representations_v<PackedKey>);
static_assert(std::has_unique_object_representations_v<PackedEntry>);

template <typename Record>
Record record_at(const std::uint8_t* data) {
  Record record;
  std::memcpy(&record, data, sizeof(record));
  return record;
}

Checksum table_sum(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> copy(data, data + size);
  std::memset(copy.data() + offsetof(Header, sum), 0, sizeof(Checksum));
  return checksum_of(copy.data(), copy.size());
}

Owned owned_by(const MappedFile& file) {
  const FileIdentity& identity = file.identity();
  return {file.size(), identity.number, identity.modified, identity.changed};
}

bool unchanged(const Owned& owned, const MappedFile& file) {
  const Owned now = owned_by(file);
  return owned.number != 0 && std::memcmp(&owned, &now, sizeof(now)) == 0;
}

bool inside(const PackedEntry& entry, std::uint64_t begin, std::uint64_t size) {
  return entry.offset % kEntryAlignment == 0 && entry.offset >= begin && entry.size != 0 &&
         entry.offset <= size && entry.size <= size - entry.offset &&
         size - entry.offset - entry.size >= kReadBehind;
}

std::uint64_t up_to(std::uint64_t bytes, std::uint64_t unit) {
  return bytes + (unit - bytes % unit) % unit;
}

// Why the file's bytes may be others than those that were packed, as its times tell, and what helps; empty
// when they are the same.
std::string doubt_about(const WeightsOwner::File& owned) {
  const FileIdentity& then = owned.file->identity();
  const std::int64_t tick = then.changed % kSecond == 0 ? kCoarseTick : kTick;
  if (then.number == 0) {
    return owned.path + " lies on a file system that does not tell whether it changes: move it to another";
  }
  if (then.changed - then.seen > tick) {
    return owned.path +
           " was changed later than now, by this system's clock: set the clock, or copy the file anew";
  }
  if (then.seen - then.changed <= tick) {
    return owned.path + " was changed a moment ago: the next run writes the cache";
  }
  const Result<MappedFile> again = MappedFile::open(owned.path);
  const bool same = again.ok() && unchanged(owned_by(*owned.file), again.value());
  return same ? "" : owned.path + " was changed during this run: the next run writes the cache";
}

}  // namespace

bool PackedKeyOrder::operator()(const PackedKey& one, const PackedKey& other) const {
  return std::memcmp(&one, &other, sizeof(one)) < 0;
}

Result<WeightsFile> WeightsFile::open(const std::string& path, const WeightsOwner& owner) {
  if (!exists(path)) {
    return Status(Code::kFile, "there was none", "");
  }
  Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped.ok()) {
    return Status(Code::kFile, mapped.status().message(), "");
  }
  if (!mapped.value().identity().private_to_us) {
    return Status(Code::kUsage, "others may write to it, or it is another user's",
                  "remove it, and make it in a folder of your own");
  }
  WeightsFile file(std::move(mapped.value()));
  const std::string wrong = file.read(owner);
  return wrong.empty() ? Result<WeightsFile>(std::move(file)) : Status(Code::kFile, wrong, "");
}

// What is wrong with it, or whose it is; empty for one to use.
std::string WeightsFile::read(const WeightsOwner& owner) {
  const std::uint8_t* data = file_.data();
  const std::uint64_t size = file_.size();
  if (size < sizeof(Header)) {
    return "it was damaged: it ended in its header";
  }
  const auto header = record_at<Header>(data);
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0) {
    return "it was no file of packed weights";
  }
  if (header.version != kVersion || header.byte_order != kByteOrder) {
    return "it was another version's";
  }
  if (header.size != size) {
    return "it was damaged: of " + std::to_string(header.size) + " bytes it had " + std::to_string(size);
  }
  if (header.files > kMostFiles || header.entries > kMostEntries) {
    return "it was damaged: its header had impossible numbers";
  }
  const std::uint64_t table =
      sizeof(Header) + header.files * sizeof(Owned) + header.entries * sizeof(PackedEntry);
  if (table > size || table_sum(data, static_cast<std::size_t>(table)) != header.sum) {
    return "it was damaged: its table was changed";
  }
  if (header.processor != owner.processor) {
    return "it was made for another processor, or for other kernels";
  }
  if (header.files != owner.files.size()) {
    return "it was another program's";
  }
  const FileIdentity& own = file_.identity();
  if (header.number == 0 || own.number != header.number || own.modified != header.modified) {
    return "it was copied, or changed";
  }
  for (std::size_t i = 0; i < owner.files.size(); ++i) {
    if (!unchanged(record_at<Owned>(data + sizeof(Header) + i * sizeof(Owned)), *owner.files[i].file)) {
      return i == 0 ? "it was another runner's" : "it was another program's, or this one was copied or moved";
    }
  }
  for (std::uint64_t i = 0; i < header.entries; ++i) {
    const auto entry = record_at<PackedEntry>(data + table - (header.entries - i) * sizeof(PackedEntry));
    if (!inside(entry, table, size) || entry.size > SIZE_MAX) {
      return "it was damaged: an entry lay outside of it";
    }
    entries_.emplace(entry.key, entry);
  }
  packing_load_ms_ = static_cast<double>(header.packing_load) / kNanosecondsInMs;
  return "";
}

const PackedEntry* WeightsFile::find(const PackedKey& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

std::vector<PackedBlock> WeightsFile::blocks() const {
  std::vector<PackedBlock> all;
  for (const auto& [key, entry] : entries_) {
    all.push_back({key, bytes(entry), static_cast<std::size_t>(entry.size)});
  }
  return all;
}

Status write_weights(const std::string& path, const WeightsOwner& owner,
                     const std::vector<PackedBlock>& blocks, double packing_load_ms) {
  static const std::uint8_t zeros[kFirstEntry] = {};
  std::vector<Owned> files;
  for (const WeightsOwner::File& owned : owner.files) {
    files.push_back(owned_by(*owned.file));
    const std::string doubt = doubt_about(owned);
    if (!doubt.empty()) {
      return {Code::kFile, doubt, ""};
    }
  }
  const std::uint64_t table =
      sizeof(Header) + files.size() * sizeof(Owned) + blocks.size() * sizeof(PackedEntry);
  std::uint64_t end = up_to(table, kFirstEntry);
  std::vector<FilePart> parts = {{nullptr, 0}, {zeros, static_cast<std::size_t>(end - table)}};
  std::vector<PackedEntry> entries;
  for (const PackedBlock& block : blocks) {
    entries.push_back({block.key, end, block.size});
    parts.push_back({block.data, block.size});
    const std::uint64_t after = up_to(end + block.size, kEntryAlignment);
    parts.push_back({zeros, static_cast<std::size_t>(after - end - block.size)});
    end = after;
  }
  parts.push_back({zeros, kReadBehind});
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  header.version = kVersion;
  header.byte_order = kByteOrder;
  header.size = end + kReadBehind;
  header.files = files.size();
  header.entries = entries.size();
  header.modified = (wall_clock() - kBefore) / kCoarseTick * kCoarseTick;
  header.packing_load = static_cast<std::uint64_t>(packing_load_ms * kNanosecondsInMs);
  header.processor = owner.processor;
  std::vector<std::uint8_t> text(static_cast<std::size_t>(table));
  const auto paint = [&](std::uint64_t number) {
    header.number = number;
    std::uint8_t* next = text.data();
    std::memcpy(next, &header, sizeof(header));
    next += sizeof(header);
    std::memcpy(next, files.data(), files.size() * sizeof(Owned));
    next += files.size() * sizeof(Owned);
    std::memcpy(next, entries.data(), entries.size() * sizeof(PackedEntry));
    const Checksum sum = table_sum(text.data(), text.size());
    std::memcpy(text.data() + offsetof(Header, sum), &sum, sizeof(sum));
  };
  parts.front() = {text.data(), text.size()};
  return write_file(path, parts, {header.modified, paint});
}

namespace {

// What decides which kernels are used on this processor. `kleidiai`: whether KleidiAI's may be.
Checksum processor_sum(bool kleidiai) {
  std::string text;
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  if (hardware != nullptr) {
    text.append(reinterpret_cast<const char*>(hardware), sizeof(*hardware));
  }
  text += kleidiai ? "" : "without KleidiAI";
  return checksum_of(text.data(), text.size());
}

}  // namespace

const WeightsFile* WeightsCache::open(const DataStore& store, const std::string& model_path,
                                      const std::string& data_path, bool kleidiai) {
  owner_ = {processor_sum(kleidiai), {}};
  file_.reset();
  const std::string own = own_path();
  Result<MappedFile> program = MappedFile::open(own);
  if (!program.ok()) {
    give_up("this system does not tell where the runner's own file is");
    return nullptr;
  }
  program_ = std::move(program.value());
  owner_.files.push_back({own, &*program_});
  const std::vector<const MappedFile*> files = store.files();
  for (std::size_t i = 0; i < files.size(); ++i) {
    owner_.files.push_back({i == 0 ? model_path : data_path, files[i]});
  }
  Result<WeightsFile> file = WeightsFile::open(info_.path, owner_);
  if (!file.ok()) {
    if (file.status().code() == Code::kUsage) {
      give_up(info_.path + ": " + file.status().message());
    } else {
      info_.why = file.status().message();
    }
    return nullptr;
  }
  file_ = std::move(file.value());
  return &*file_;
}

void WeightsCache::give_up(const std::string& why) {
  info_.state = "none";
  info_.why = why;
  info_.bytes = 0;
}

void WeightsCache::keep(const PackedWeights& weights, double load_ms) {
  if (info_.state == "none") {
    return;
  }
  info_.found = weights.found();
  bool news = false;
  const std::vector<PackedBlock> blocks = weights.to_keep(&news);
  if (file_ && !news) {
    info_.state = "used";
    info_.bytes = file_->size();
    info_.packing_load_ms = file_->packing_load_ms();
    return;
  }
  if (file_) {
    info_.why = "it lacked some of the layers";
  }
  const Status written = write_weights(info_.path, owner_, blocks,
                                       file_ ? std::max(file_->packing_load_ms(), load_ms) : load_ms);
  if (!written.ok()) {
    give_up(written.message());
    return;
  }
  info_.state = file_ ? "extended" : "made";
  const Result<MappedFile> made = MappedFile::open(info_.path);
  info_.bytes = made.ok() ? made.value().size() : 0;
}

}  // namespace slipway::lean
