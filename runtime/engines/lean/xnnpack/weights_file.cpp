#include "lean/xnnpack/weights_file.h"

#include <cstring>
#include <type_traits>
#include <utility>

namespace slipway::lean {
namespace {

constexpr char kMagic[] = "SLIPWAYW";
constexpr std::uint32_t kVersion = 2;
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
constexpr std::int64_t kSlowDisk = 10 * kSecond;  // between the making of a file and its last rename
// Two changes within one tick of a system's clock leave the same time.
constexpr std::int64_t kTick = 20 * kSecond / 1000;
constexpr std::int64_t kCoarseTick = 2 * kSecond;  // of file systems that know no parts of a second

// A file that the cache depends on.
struct Owned {
  std::uint64_t size;
  std::uint64_t number;
  std::int64_t modified;
  std::int64_t changed;
  Checksum sum;
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
  std::int64_t made;
  std::uint64_t rewritten;
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

Checksum bytes_sum(const MappedFile& file) {
  const Checksum sum = checksum_of(file.data(), file.size());
  file.forget(file.data(), file.size());
  return sum;
}

bool unchanged(const Owned& owned, const FileIdentity& identity) {
  return owned.number != 0 && owned.number == identity.number && owned.modified == identity.modified &&
         owned.changed == identity.changed;
}

bool inside(const PackedEntry& entry, std::uint64_t begin, std::uint64_t size) {
  return entry.offset % kEntryAlignment == 0 && entry.offset >= begin && entry.size != 0 &&
         entry.offset <= size && entry.size <= size - entry.offset &&
         size - entry.offset - entry.size >= kReadBehind;
}

bool stands_in(const Place& place, const std::vector<Owned>& files) {
  return place.file == Place::kNowhere ||
         (place.file < files.size() && place.offset < files[static_cast<std::size_t>(place.file)].size);
}

std::uint64_t up_to(std::uint64_t bytes, std::uint64_t unit) {
  return bytes + (unit - bytes % unit) % unit;
}

std::int64_t tick_of(const FileIdentity& identity) {
  return identity.changed % kSecond == 0 ? kCoarseTick : kTick;
}

// Why the file's bytes may be others than those that were packed, as its times tell, and what helps; empty
// when they are the same.
std::string doubt_about(const WeightsOwner::File& owned) {
  const FileIdentity& then = owned.file->identity();
  if (then.number == 0) {
    return owned.path + " lies on a file system that does not tell whether it changes: move it to another";
  }
  if (then.changed - then.seen > tick_of(then)) {
    return owned.path +
           " was changed later than now, by this system's clock: set the clock, or copy the file anew";
  }
  if (then.seen - then.changed <= tick_of(then)) {
    return owned.path + " was changed a moment ago: the next run writes the cache";
  }
  const Result<MappedFile> again = MappedFile::open(owned.path);
  const bool same = again.ok() && again.value().identity().number == then.number &&
                    again.value().identity().modified == then.modified &&
                    again.value().identity().changed == then.changed;
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
  // The system stamps files with the time of its last tick, which may lie before the making that a finer
  // clock gave.
  own_as_written_ = header.number != 0 && own.number == header.number && own.modified == header.modified &&
                    own.changed >= header.made - tick_of(own) && own.changed - header.made <= kSlowDisk;
  as_written_ = own_as_written_;
  std::vector<Owned> files;
  for (std::size_t i = 0; i < owner.files.size(); ++i) {
    const auto owned = record_at<Owned>(data + sizeof(Header) + i * sizeof(Owned));
    const MappedFile& file = *owner.files[i].file;
    const bool same = owned.size == file.size() && unchanged(owned, file.identity());
    if (!same && (owned.size != file.size() || owned.sum != bytes_sum(file))) {
      return i == 0 ? "it was another runner's" : "it was another program's";
    }
    as_written_ = as_written_ && same;
    files.push_back(owned);
  }
  for (std::uint64_t i = 0; i < header.entries; ++i) {
    const auto entry = record_at<PackedEntry>(data + table - (header.entries - i) * sizeof(PackedEntry));
    if (!inside(entry, table, size) || entry.size > SIZE_MAX || !stands_in(entry.key.kernel, files) ||
        !stands_in(entry.key.bias, files)) {
      return "it was damaged: an entry lay outside of it";
    }
    entries_.emplace(entry.key, entry);
  }
  rewritten_ = header.rewritten;
  packing_load_ms_ = static_cast<double>(header.packing_load) / kNanosecondsInMs;
  return "";
}

const PackedEntry* WeightsFile::find(const PackedKey& key) const {
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    return nullptr;
  }
  const PackedEntry& entry = found->second;
  const bool sound =
      own_as_written_ || checksum_of(bytes(entry), static_cast<std::size_t>(entry.size)) == entry.sum;
  return sound ? &entry : nullptr;
}

std::vector<PackedBlock> WeightsFile::blocks() const {
  std::vector<PackedBlock> all;
  for (const auto& [key, entry] : entries_) {
    if (find(key) != nullptr) {
      all.push_back({key, entry.layout, bytes(entry), static_cast<std::size_t>(entry.size)});
    }
  }
  return all;
}

Status write_weights(const std::string& path, const WeightsOwner& owner,
                     const std::vector<PackedBlock>& blocks, const WeightsNote& note) {
  static const std::uint8_t zeros[kFirstEntry] = {};
  std::vector<Owned> files;
  for (const WeightsOwner::File& owned : owner.files) {
    const FileIdentity& identity = owned.file->identity();
    files.push_back(
        {owned.file->size(), identity.number, identity.modified, identity.changed, bytes_sum(*owned.file)});
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
    entries.push_back({block.key, block.layout, end, block.size, checksum_of(block.data, block.size)});
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
  header.made = wall_clock();
  header.modified = (header.made - kBefore) / kCoarseTick * kCoarseTick;
  header.rewritten = note.rewritten;
  header.packing_load = static_cast<std::uint64_t>(note.packing_load_ms * kNanosecondsInMs);
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

}  // namespace slipway::lean
