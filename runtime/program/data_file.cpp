#include "data_file.h"

#include <flatbuffers/verifier.h>

#include <cstring>
#include <string>

#include "base/platform.h"
#include "file_format.h"
#include "flat_tensor_generated.h"
#include "stored_types.h"

namespace slipway {
namespace {

// Root offset, identifier, then the extended header: magic, its length, and where the parts are (the SDK's
// flat_tensor_header.h documents it).
constexpr std::size_t kDataIdentifier = 4;
constexpr std::size_t kDataMagic = 8;
constexpr std::size_t kFlatbufferOffset = 16;
constexpr std::size_t kFlatbufferSize = 24;
constexpr std::size_t kDataSegmentBase = 32;
constexpr std::size_t kDataSegmentSize = 40;
constexpr std::size_t kDataHeaderEnd = 64;  // what the runtime reads at once

std::string find_layout_fault(const ptd::TensorLayout& layout, std::uint64_t segment_size) {
  Shape shape;
  if (layout.sizes() != nullptr) {
    shape.assign(layout.sizes()->begin(), layout.sizes()->end());
  }
  const std::size_t rank = layout.dim_order() == nullptr ? 0 : layout.dim_order()->size();
  const std::size_t element = element_size(layout.scalar_type());
  std::size_t count = 0;
  if (rank != shape.size() || element == 0 || !count_elements(shape, element, &count)) {
    return "has an impossible layout";
  }
  for (std::size_t i = 0; i < rank; ++i) {
    if (layout.dim_order()->Get(static_cast<flatbuffers::uoffset_t>(i)) >= rank) {
      return "has an impossible order of dimensions";
    }
  }
  return count * element <= segment_size ? "" : "is larger than its segment";
}

std::string find_fault(const ptd::FlatTensor& file, std::uint64_t all_segments) {
  const std::size_t segments = file.segments() == nullptr ? 0 : file.segments()->size();
  for (std::size_t i = 0; i < segments; ++i) {
    const ptd::DataSegment* segment = file.segments()->Get(static_cast<flatbuffers::uoffset_t>(i));
    if (segment->offset() > all_segments || segment->size() > all_segments - segment->offset()) {
      return "segment " + std::to_string(i) + " lies beyond the file's end";
    }
  }
  if (file.named_data() == nullptr) {
    return "it names no weights";
  }
  for (const ptd::NamedData* item : *file.named_data()) {
    if (item->key() == nullptr || item->segment_index() >= segments) {
      return "a weight has no name or no segment";
    }
    if (item->tensor_layout() != nullptr) {
      const std::string fault =
          find_layout_fault(*item->tensor_layout(), file.segments()->Get(item->segment_index())->size());
      if (!fault.empty()) {
        return "weight " + item->key()->str() + " " + fault;
      }
    }
  }
  return "";
}

}  // namespace

Status check_data(const std::uint8_t* data, std::size_t size, const std::string& path) {
  if (size < kDataHeaderEnd) {
    return truncated(path, size, kDataHeaderEnd);
  }
  if (std::memcmp(data + kDataIdentifier, ptd::FlatTensorIdentifier(), 4) != 0 ||
      std::memcmp(data + kDataMagic, "FH01", 4) != 0) {
    return {Code::kFile,
            path + " is not a file of weights.",
            "name the .ptd file that was exported with the program",
            {path}};
  }
  const std::uint64_t offset = little_endian(data + kFlatbufferOffset, 8);
  const std::uint64_t length = little_endian(data + kFlatbufferSize, 8);
  const std::uint64_t base = little_endian(data + kDataSegmentBase, 8);
  const std::uint64_t segments = little_endian(data + kDataSegmentSize, 8);
  if (offset > UINT32_MAX || length > UINT32_MAX || base < offset + length || segments > UINT64_MAX - base) {
    return damaged(path, "the sizes in its header contradict each other");
  }
  if (base + segments > size) {
    return truncated(path, size, base + segments);
  }
  flatbuffers::Verifier verifier(data, static_cast<std::size_t>(offset + length));
  if (offset + length >= FLATBUFFERS_MAX_BUFFER_SIZE || !ptd::VerifyFlatTensorBuffer(verifier)) {
    return damaged(
        path, "its first " + std::to_string(offset + length) + " bytes are not a well-formed flatbuffer");
  }
  const std::string fault = find_fault(*ptd::GetFlatTensor(data), segments);
  return fault.empty() ? Status() : damaged(path, fault);
}

Status check_data_file(const std::string& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  return file.ok() ? check_data(file.value().data(), file.value().size(), path) : file.status();
}

}  // namespace slipway
