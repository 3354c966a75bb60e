#include "program_file.h"

#include <flatbuffers/verifier.h>

#include <cstring>

#include "base/platform.h"
#include "flat_tensor_generated.h"
#include "program_info.h"

namespace slipway {
namespace {

// The extended header follows the flatbuffer's root offset and identifier: magic, its own length, then the
// sizes of the file's parts, all little-endian.
constexpr std::size_t kIdentifier = 4;
constexpr std::size_t kMagic = 8;
constexpr std::size_t kHeaderLength = 12;
constexpr std::size_t kProgramSize = 16;
constexpr std::size_t kSegmentBase = 24;
constexpr std::size_t kSegmentSize = 32;
constexpr std::size_t kHeaderEnd = 40;
constexpr std::uint32_t kLengthWithoutSegmentSize = 24;
constexpr std::uint32_t kLengthWithSegmentSize = 32;

bool starts_with(const std::uint8_t* data, std::size_t size, const char* prefix) {
  const std::size_t length = std::strlen(prefix);
  return size >= length && std::memcmp(data, prefix, length) == 0;
}

// A guess at what a file is that is no program, for the message.
std::string guess(const std::uint8_t* data, std::size_t size) {
  struct Known {
    std::size_t at;
    const char* text;
    const char* what;
  };
  constexpr Known kKnown[] = {
      {0, "version https://git-lfs", "it is a Git LFS pointer"},
      {0, "PK\x03\x04", "it is a zip archive: a .pt2 or .pth file, perhaps"},
      {0, "\177ELF", "it is an executable or a library"},
      {kIdentifier, "FT01", "it is a .ptd file of weights, which goes to --data_path"},
      {kIdentifier, "BP", "it is a bundled program (.bpte): export the program alone"},
  };
  for (const Known& known : kKnown) {
    if (size >= kMagic && starts_with(data + known.at, size - known.at, known.text)) {
      return known.what;
    }
  }
  return "its identifier is missing";
}

Status not_a_program(const std::uint8_t* data, std::size_t size, const std::string& path) {
  if (size >= kMagic && starts_with(data + kIdentifier, size - kIdentifier, "ET")) {
    const std::string found(reinterpret_cast<const char*>(data + kIdentifier), 4);
    return {Code::kFile,
            path + " is a program of schema " + found + "; this runner reads ET12.",
            "export the model with the version of ExecuTorch that this runner has (pte_runner --version)",
            {path}};
  }
  return {Code::kFile,
          path + " is not a program: " + guess(data, size) + ".",
          "name a .pte file, as ./inv export writes it",
          {path}};
}

}  // namespace

Result<ProgramLayout> check_layout(const std::uint8_t* data, std::size_t size, const std::string& path) {
  if (size == 0) {
    return Status(Code::kFile, path + " is empty.", kCopyAgain, {path});
  }
  if (size < kMagic) {
    return Status(Code::kFile,
                  path + " is truncated or not a program: " + std::to_string(size) +
                      " bytes found, its header alone takes " + std::to_string(kHeaderEnd) + ".",
                  kCopyAgain, {path});
  }
  if (!starts_with(data + kIdentifier, size - kIdentifier, pte::ProgramIdentifier())) {
    return not_a_program(data, size, path);
  }
  if (size < kHeaderEnd) {
    return truncated(path, size, kHeaderEnd);
  }
  if (!starts_with(data + kMagic, size - kMagic, "eh00")) {
    // Exporters of old wrote the flatbuffer alone; its end is the file's.
    return ProgramLayout{size, size, 0};
  }
  const std::uint64_t length = little_endian(data + kHeaderLength, 4);
  ProgramLayout layout{little_endian(data + kProgramSize, 8), little_endian(data + kSegmentBase, 8), 0};
  if (length < kLengthWithoutSegmentSize) {
    return damaged(path, "its extended header says it is " + std::to_string(length) + " bytes long");
  }
  if (layout.program_size < kHeaderEnd ||
      (layout.segment_base != 0 && layout.segment_base < layout.program_size)) {
    return damaged(path, "its header says the program is " + std::to_string(layout.program_size) +
                             " bytes long and segments start at " + std::to_string(layout.segment_base));
  }
  if (layout.program_size > size) {
    return truncated(path, size, layout.program_size);
  }
  if (layout.segment_base == 0) {
    return layout;
  }
  if (length >= kLengthWithSegmentSize) {
    layout.segment_size = little_endian(data + kSegmentSize, 8);
    if (layout.segment_size > UINT64_MAX - layout.segment_base) {
      return damaged(
          path, "its header says its segments are " + std::to_string(layout.segment_size) + " bytes long");
    }
    if (layout.segment_base + layout.segment_size > size) {
      return truncated(path, size, layout.segment_base + layout.segment_size);
    }
  } else if (layout.segment_base <= size) {
    layout.segment_size = size - layout.segment_base;
  } else {
    return truncated(path, size, layout.segment_base);
  }
  return layout;
}

Result<const pte::Program*> check_program(const std::uint8_t* data, std::size_t size,
                                          const std::string& path) {
  SLIPWAY_TRY(const ProgramLayout layout, check_layout(data, size, path));
  const auto program_size = static_cast<std::size_t>(layout.program_size);
  flatbuffers::Verifier::Options options;
  options.max_tables = static_cast<flatbuffers::uoffset_t>(
      program_size / 4 < FLATBUFFERS_MAX_BUFFER_SIZE ? program_size / 4 : FLATBUFFERS_MAX_BUFFER_SIZE);
  flatbuffers::Verifier verifier(data, program_size, options);
  if (program_size >= FLATBUFFERS_MAX_BUFFER_SIZE || !pte::VerifyProgramBuffer(verifier)) {
    return damaged(path,
                   "its first " + std::to_string(program_size) + " bytes are not a well-formed flatbuffer");
  }
  const pte::Program* program = pte::GetProgram(data);
  const std::string fault = find_fault(*program, layout);
  if (!fault.empty()) {
    return damaged(path, fault);
  }
  return program;
}

namespace {

// It begins as a .pte does; where the parts are, the SDK's flat_tensor_header.h documents.
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
    if (item_of(layout.dim_order(), i) >= rank) {
      return "has an impossible order of dimensions";
    }
  }
  return count * element <= segment_size ? "" : "is larger than its segment";
}

std::string find_fault(const ptd::FlatTensor& file, std::uint64_t all_segments) {
  const std::size_t segments = file.segments() == nullptr ? 0 : file.segments()->size();
  for (std::size_t i = 0; i < segments; ++i) {
    const ptd::DataSegment* segment = item_of(file.segments(), i);
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
  if (std::memcmp(data + kIdentifier, ptd::FlatTensorIdentifier(), 4) != 0 ||
      std::memcmp(data + kMagic, "FH01", 4) != 0) {
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

}  // namespace slipway
