#include "slipway/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace slipway {

std::vector<SizeRange> size_ranges(const ValueSpec& spec) {
  if (!spec.ranges.empty()) {
    return spec.ranges;
  }
  std::vector<SizeRange> ranges;
  for (const std::int64_t size : spec.shape) {
    const bool fixed = spec.dynamism == Dynamism::kStatic;
    ranges.push_back({fixed ? size : 0, spec.dynamism == Dynamism::kUnbounded ? SizeRange::kAny : size});
  }
  return ranges;
}

bool fits(const ValueSpec& spec, const Shape& shape) {
  const std::vector<SizeRange> ranges = size_ranges(spec);
  return std::equal(ranges.begin(), ranges.end(), shape.begin(), shape.end(),
                    [](const SizeRange& range, std::int64_t size) { return range.holds(size); });
}

Status Engine::configure(const EngineOptions& options) {
  struct Only {
    bool given;
    const char* flag;
    const char* engine;  // the one that has it
  };
  const Only all[] = {
      {options.max_jumps != 0, "--max_jumps", "lean"},
      {!options.weights_cache.empty(), "--weights_cache", "lean"},
      {!options.kleidiai.empty(), "--kleidiai", "lean"},
      {!options.unused_features.empty(), "--cpu_features", "lean"},
      {!options.provider.empty(), "--provider", "onnxruntime"},
      {options.ort_threads != 0, "--ort_threads", "onnxruntime"},
      {options.ort_spinning, "--ort_spinning", "onnxruntime"},
      {options.trust_provider, "--trust_provider", "onnxruntime"},
  };
  for (const Only& only : all) {
    if (only.given && info().name != only.engine) {
      return {Code::kUsage, "The engine " + info().name + " has no " + only.flag + ".",
              std::string("leave ") + only.flag + " to bundles of the engine " + only.engine};
    }
  }
  return {};
}

Status Engine::choose(const std::string& /*method*/) {
  return {Code::kUsage, "The engine " + info().name + " runs one method in a process.",
          "leave --run_first to bundles of the engines executorch and lean"};
}

Result<std::vector<std::uint8_t>> Engine::values() {
  return Status(Code::kUsage, "The engine " + info().name + " keeps no intermediate values.",
                "leave --dump_intermediate to bundles of the engines executorch and lean");
}

Result<std::vector<ProfileRow>> Engine::profile_rows(unsigned /*timed*/) {
  return Status(Code::kUsage, "The engine " + info().name + " makes no table of its profile.",
                "give --profile_path FILE, and read the file with the engine's own tools");
}

void ProfileRows::add(const std::string& name, const std::string& op, const std::string& provider,
                      double ms) {
  ProfileRow& row = rows_[{name, op, provider}];
  row.name = name;
  row.op = op;
  row.provider = provider;
  ++row.count;
  row.total_ms += ms;
  row.times_ms.push_back(ms);
}

std::vector<ProfileRow> ProfileRows::sorted() const {
  std::vector<ProfileRow> all;
  for (const auto& [key, row] : rows_) {
    all.push_back(row);
  }
  std::sort(all.begin(), all.end(), [](const ProfileRow& a, const ProfileRow& b) {
    return std::tie(b.total_ms, a.name, a.op) < std::tie(a.total_ms, b.name, b.op);
  });
  return all;
}

const char* kind_of(Code code) {
  // By the code's number; there is none of 1.
  static constexpr const char* kKinds[] = {
      "ok",     "",       "usage", "file", "missing-operator", "missing-backend", "input", "execution",
      "output", "memory", "crash", "limit"};
  return kKinds[static_cast<std::size_t>(code)];
}

Status out_of_memory() {
  return {Code::kMemory, "Out of memory.", "use a smaller program or input, or a device with more memory"};
}

namespace {

struct TypeRow {
  DType dtype;
  const char* name;
  // The bits of 1 in this type, little-endian in the low bytes; of complex numbers the real part.
  std::uint64_t one;
};

constexpr TypeRow kTypes[] = {
    {DType::kBool, "bool", 1},
    {DType::kUInt8, "uint8", 1},
    {DType::kInt8, "int8", 1},
    {DType::kUInt16, "uint16", 1},
    {DType::kInt16, "int16", 1},
    {DType::kUInt32, "uint32", 1},
    {DType::kInt32, "int32", 1},
    {DType::kUInt64, "uint64", 1},
    {DType::kInt64, "int64", 1},
    {DType::kFloat16, "float16", 0x3C00},
    {DType::kBFloat16, "bfloat16", 0x3F80},
    {DType::kFloat32, "float32", 0x3F800000},
    {DType::kFloat64, "float64", 0x3FF0000000000000},
    {DType::kUnknown, "unknown", 0},
    {DType::kNone, "none", 0},
    {DType::kComplex64, "complex64", 0x3F800000},
    {DType::kComplex128, "complex128", 0x3FF0000000000000},
};

constexpr std::size_t kTypeCount = sizeof(kTypes) / sizeof(kTypes[0]);

constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < kTypeCount; ++i) {
    if (static_cast<std::size_t>(kTypes[i].dtype) != i) {
      return false;
    }
  }
  return true;
}
static_assert(rows_are_in_order(), "a type's number is its row");

// By its number: each execution asks for the sizes of its inputs and outputs.
const TypeRow& row(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  return kTypes[index < kTypeCount ? index : static_cast<std::size_t>(DType::kUnknown)];
}

// Calls visit(row_major_index, memory_index) for every element.
template <typename Visit>
void walk(const Shape& shape, const std::vector<std::uint8_t>& dim_order, Visit visit) {
  const std::size_t rank = shape.size();
  std::vector<std::size_t> stride(rank);  // memory stride of each logical dimension, in elements
  std::size_t step = 1;
  for (std::size_t i = rank; i-- > 0;) {
    stride[dim_order[i]] = step;
    step *= static_cast<std::size_t>(shape[dim_order[i]]);
  }
  const std::size_t count = step;
  std::vector<std::size_t> index(rank, 0);
  std::size_t memory = 0;
  for (std::size_t element = 0; element < count; ++element) {
    visit(element, memory);
    for (std::size_t d = rank; d-- > 0;) {
      memory += stride[d];
      if (++index[d] < static_cast<std::size_t>(shape[d])) {
        break;
      }
      memory -= stride[d] * index[d];
      index[d] = 0;
    }
  }
}

}  // namespace

const char* name_of(DType dtype) {
  return row(dtype).name;
}

bool count_elements(const Shape& shape, std::size_t element_size, std::size_t* count) {
  constexpr std::uint64_t kMost = std::min<std::uint64_t>(std::uint64_t{1} << 62, SIZE_MAX);
  const std::uint64_t most = kMost / std::max<std::size_t>(element_size, 1);
  std::uint64_t elements = 1;
  bool empty = false;
  for (const std::int64_t dim : shape) {
    if (dim < 0 || (dim > 0 && elements > most / static_cast<std::uint64_t>(dim))) {
      return false;
    }
    empty = empty || dim == 0;
    elements *= dim == 0 ? 1 : static_cast<std::uint64_t>(dim);
  }
  *count = empty ? 0 : static_cast<std::size_t>(elements);
  return true;
}

std::string to_text(const Shape& shape) {
  if (shape.empty()) {
    return "scalar";
  }
  std::string text;
  for (const std::int64_t dim : shape) {
    text += (text.empty() ? "" : "x") + std::to_string(dim);
  }
  return text;
}

std::vector<std::uint8_t> bytes_at(const void* data, std::size_t size) {
  const auto* first = static_cast<const std::uint8_t*>(data);
  return {first, first + size};
}

// IEEE 754 half precision: 1 sign, 5 exponent, 10 mantissa bits.
float float16_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  if (exponent == 31) {
    magnitude = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent != 0) {
    magnitude = std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

float bfloat16_value(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

Tensor ones(DType dtype, const Shape& shape, std::size_t count) {
  const TypeRow& type = row(dtype);
  Tensor tensor{dtype, shape, std::vector<std::uint8_t>(count * size_of(dtype))};
  std::uint8_t one[16] = {};
  for (std::size_t byte = 0; byte < sizeof(type.one); ++byte) {
    one[byte] = static_cast<std::uint8_t>(type.one >> (8 * byte));
  }
  for (std::size_t element = 0; element < count; ++element) {
    std::memcpy(tensor.bytes.data() + element * size_of(dtype), one, size_of(dtype));
  }
  return tensor;
}

std::vector<std::uint8_t> to_memory_order(const std::vector<std::uint8_t>& row_major, const Shape& shape,
                                          const std::vector<std::uint8_t>& dim_order,
                                          std::size_t element_size) {
  std::vector<std::uint8_t> memory(row_major.size());
  walk(shape, dim_order, [&](std::size_t logical, std::size_t physical) {
    std::memcpy(memory.data() + physical * element_size, row_major.data() + logical * element_size,
                element_size);
  });
  return memory;
}

std::vector<std::uint8_t> to_row_major(const std::vector<std::uint8_t>& memory, const Shape& shape,
                                       const std::vector<std::uint8_t>& dim_order, std::size_t element_size) {
  std::vector<std::uint8_t> row_major(memory.size());
  walk(shape, dim_order, [&](std::size_t logical, std::size_t physical) {
    std::memcpy(row_major.data() + logical * element_size, memory.data() + physical * element_size,
                element_size);
  });
  return row_major;
}

}  // namespace slipway
