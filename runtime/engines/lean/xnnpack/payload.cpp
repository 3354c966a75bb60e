#include "lean/xnnpack/payload.h"

#include <flatbuffers/verifier.h>

#include <cstring>

#include "program_file.h"

namespace slipway::lean {
namespace {

// The header, little-endian: four zero bytes, magic, its own length, then where graph and constants are.
constexpr std::size_t kGraphMagic = 4;
constexpr std::size_t kGraphOffset = 10;
constexpr std::size_t kGraphSize = 14;
constexpr std::size_t kDataOffset = 18;
constexpr std::size_t kDataSize = 22;
constexpr std::size_t kHeaderEnd = 30;
constexpr std::size_t kIdentifier = 4;  // in the flatbuffer
constexpr std::uint64_t kByName = UINT64_MAX;

Status broken(const std::string& what, const std::string& fault) {
  return {Code::kFile, what + " is damaged: " + fault + ".", kCopyAgain};
}

bool within(std::uint64_t offset, std::uint64_t size, std::uint64_t all) {
  return offset <= all && size <= all - offset;
}

}  // namespace

Result<XnnPayload> XnnPayload::read(Bytes bytes, const DataStore& store, const std::string& what) {
  // Exporters of old wrote the flatbuffer alone, constants inside.
  Bytes graph = bytes;
  std::size_t data = bytes.size;
  if (bytes.size >= kHeaderEnd && std::memcmp(bytes.data + kGraphMagic, "XH00", 4) == 0) {
    const std::uint64_t graph_offset = little_endian(bytes.data + kGraphOffset, 4);
    const std::uint64_t graph_size = little_endian(bytes.data + kGraphSize, 4);
    const std::uint64_t data_offset = little_endian(bytes.data + kDataOffset, 4);
    if (!within(graph_offset, graph_size, bytes.size) ||
        !within(data_offset, little_endian(bytes.data + kDataSize, 8), bytes.size)) {
      return broken(what, "its header promises more than it has");
    }
    graph = {bytes.data + graph_offset, static_cast<std::size_t>(graph_size)};
    data = static_cast<std::size_t>(data_offset);
  }
  if (graph.size < 2 * kIdentifier || (std::memcmp(graph.data + kIdentifier, "XN00", 4) != 0 &&
                                       std::memcmp(graph.data + kIdentifier, "XN01", 4) != 0)) {
    return broken(what, "this runner reads XNNPACK's graphs of the versions XN00 and XN01 only");
  }
  XnnPayload payload;
  if (reinterpret_cast<std::uintptr_t>(graph.data) % 16 != 0) {
    payload.aligned_.resize(graph.size / sizeof(std::uint64_t) + 1);
    std::memcpy(payload.aligned_.data(), graph.data, graph.size);
    graph.data = reinterpret_cast<const std::uint8_t*>(payload.aligned_.data());
  }
  flatbuffers::Verifier verifier(graph.data, graph.size);
  if (graph.size >= FLATBUFFERS_MAX_BUFFER_SIZE || !verifier.VerifyBuffer<xnn::XNNGraph>(nullptr)) {
    return broken(what, "its graph is not a well-formed flatbuffer");
  }
  payload.graph_ = flatbuffers::GetRoot<xnn::XNNGraph>(graph.data);
  SLIPWAY_RETURN_IF_ERROR(payload.find_constants(bytes, data, store, what));
  return payload;
}

Status XnnPayload::find_constants(Bytes all, std::size_t base, const DataStore& store,
                                  const std::string& what) {
  if (const auto* buffers = graph_->constant_buffer(); buffers != nullptr && buffers->size() != 0) {
    for (const xnn::Buffer* buffer : *buffers) {
      const auto* storage = buffer->storage();
      constants_.push_back(storage == nullptr ? Bytes() : Bytes{storage->data(), storage->size()});
    }
    return {};
  }
  if (graph_->constant_data() == nullptr) {
    return {};
  }
  for (const xnn::ConstantDataOffset* item : *graph_->constant_data()) {
    if (item->offset() == kByName) {
      const std::string name = item->named_key() == nullptr ? "" : item->named_key()->str();
      Bytes found = store.named(name);
      // Entry 0 is the reserved one: it has neither an offset nor a name.
      if (!constants_.empty() && (found.data == nullptr || found.size < item->size())) {
        return {Code::kFile,
                what + " needs the weight '" + name + "', which is not in the program.",
                "name the .ptd file that was exported with it (--data_path)",
                {name}};
      }
      constants_.push_back(found);
    } else if (within(item->offset(), item->size(), all.size - base)) {
      constants_.push_back({all.data + base + static_cast<std::size_t>(item->offset()),
                            static_cast<std::size_t>(item->size())});
    } else {
      return broken(what, "a constant lies beyond its end");
    }
  }
  return {};
}

Bytes XnnPayload::constant(std::size_t index) const {
  return index == 0 || index >= constants_.size() ? Bytes() : constants_[index];
}

}  // namespace slipway::lean
