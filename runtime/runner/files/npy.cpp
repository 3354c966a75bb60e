#include "runner/files/npy.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "base/text.h"

namespace slipway {
namespace {

struct Descriptor {
  const char* text;
  DType dtype;
};

// The first entry of a type is the one written.
constexpr Descriptor kDescriptors[] = {
    {"|b1", DType::kBool},      {"|u1", DType::kUInt8},       {"|i1", DType::kInt8},
    {"<u2", DType::kUInt16},    {"<i2", DType::kInt16},       {"<u4", DType::kUInt32},
    {"<i4", DType::kInt32},     {"<u8", DType::kUInt64},      {"<i8", DType::kInt64},
    {"<f2", DType::kFloat16},   {"<f4", DType::kFloat32},     {"<f8", DType::kFloat64},
    {"<c8", DType::kComplex64}, {"<c16", DType::kComplex128}, {"|V2", DType::kBFloat16},
    {"<V2", DType::kBFloat16},  {"<u1", DType::kUInt8},       {"<i1", DType::kInt8},
    {"<b1", DType::kBool},      {"|V0", DType::kNone},
};

constexpr char kMagic[] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

// What the header's Python dictionary says: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
struct Header {
  std::string descr;
  bool fortran = false;
  Shape shape;
};

// What stands behind the key; nothing when there is no such key.
std::string_view behind(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  return at == std::string_view::npos ? std::string_view() : text.substr(at + key.size());
}

// False for what is no such dictionary.
bool read_header(std::string_view stored, Header* header) {
  std::string loose;  // blanks, and the kind of quotes, are the writer's choice
  for (const char c : stored) {
    if (c != ' ' && c != '\n') {
      loose += c == '"' ? '\'' : c;
    }
  }
  const std::string_view text = loose;
  const std::string_view descr = behind(text, "'descr':'");
  const std::string_view order = behind(text, "'fortran_order':");
  const std::string_view shape = behind(text, "'shape':(");
  const std::size_t end = shape.find(')');
  if (text.empty() || text.front() != '{' || text.back() != '}' || descr.empty() ||
      end == std::string_view::npos) {
    return false;
  }
  header->descr = descr.substr(0, descr.find('\''));
  header->fortran = order.substr(0, 4) == "True";
  for (const std::string_view number : pieces(shape.substr(0, end), ",")) {
    if (number.size() > 18 || number.find_first_not_of("0123456789") != std::string_view::npos) {
      return false;
    }
    header->shape.push_back(std::stoll(std::string(number)));
  }
  return header->fortran || order.substr(0, 5) == "False";
}

Status bad(const std::string& name, const std::string& what, const std::string& fix) {
  return {Code::kInput, name + " " + what + ".", fix, {name}};
}

}  // namespace

Result<Tensor> parse_npy(const std::uint8_t* data, std::size_t size, const std::string& name) {
  const std::string save = "write it with numpy.save(file, numpy.ascontiguousarray(array))";
  if (size < 10 || std::memcmp(data, kMagic, sizeof(kMagic)) != 0) {
    return bad(name, "is not a .npy file", save);
  }
  const unsigned major = data[6];
  if (major < 1 || major > 3) {
    return bad(name, "has .npy version " + std::to_string(major) + ", known are 1 to 3", save);
  }
  const std::size_t prefix = major == 1 ? 10 : 12;
  if (size < prefix) {
    return bad(name, "is truncated in its header", "copy or write the file again");
  }
  std::uint64_t header_size = data[8] | (std::uint64_t{data[9]} << 8);
  if (major > 1) {
    header_size |= (std::uint64_t{data[10]} << 16) | (std::uint64_t{data[11]} << 24);
  }
  if (header_size > size - prefix) {
    return bad(name, "is truncated in its header", "copy or write the file again");
  }
  const auto header = static_cast<std::size_t>(header_size);
  // data + prefix: the header is text.
  Header said;
  if (!read_header({reinterpret_cast<const char*>(data + prefix), header}, &said)) {
    return bad(name, "has a .npy header that cannot be read (an array of records, perhaps)", save);
  }
  Tensor tensor;
  tensor.shape = said.shape;
  const auto* known = std::find_if(std::begin(kDescriptors), std::end(kDescriptors),
                                   [&said](const Descriptor& one) { return said.descr == one.text; });
  if (known == std::end(kDescriptors)) {
    const bool big = !said.descr.empty() && said.descr.front() == '>';
    return bad(name, "holds elements of type '" + said.descr + "'" + (big ? ", which is big-endian" : ""),
               big ? "convert it: array.astype(array.dtype.newbyteorder('<'))"
                   : "use bool, (u)int8 to (u)int64, float16/32/64, complex64/128, or bfloat16 as '|V2'");
  }
  tensor.dtype = known->dtype;
  if (said.fortran && tensor.shape.size() > 1) {
    return bad(name, "is in Fortran order", save);
  }
  std::size_t count = 0;
  const std::size_t element = size_of(tensor.dtype);
  if (!count_elements(tensor.shape, element, &count)) {
    return bad(name, "has the impossible shape " + to_text(tensor.shape), save);
  }
  const std::size_t body = size - prefix - header;
  if (body != count * element) {
    return bad(name,
               std::string(body < count * element ? "is truncated: " : "is too long: ") +
                   std::to_string(body) + " bytes of data, " + std::to_string(count * element) +
                   " expected for " + name_of(tensor.dtype) + " " + to_text(tensor.shape),
               "copy or write the file again");
  }
  tensor.bytes = bytes_at(data + prefix + header, body);
  return tensor;
}

std::vector<std::uint8_t> format_npy(const Tensor& tensor) {
  const auto* known = std::find_if(std::begin(kDescriptors), std::end(kDescriptors),
                                   [&tensor](const Descriptor& one) { return one.dtype == tensor.dtype; });
  const char* descr = known == std::end(kDescriptors) ? "|V1" : known->text;
  std::string header = std::string("{'descr': '") + descr + "', 'fortran_order': False, 'shape': (";
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    header += (i == 0 ? "" : ", ") + std::to_string(tensor.shape[i]);
  }
  header += tensor.shape.size() == 1 ? ",), }" : "), }";
  // The format asks that the data begin at a multiple of 64 and the header end in a newline.
  const std::size_t prefix = sizeof(kMagic) + 4;
  header.append(63 - (prefix + header.size()) % 64, ' ');
  header += '\n';
  std::vector<std::uint8_t> file(kMagic, kMagic + sizeof(kMagic));
  file.push_back(1);
  file.push_back(0);
  file.push_back(static_cast<std::uint8_t>(header.size() & 0xFF));
  file.push_back(static_cast<std::uint8_t>(header.size() >> 8));
  file.insert(file.end(), header.begin(), header.end());
  file.insert(file.end(), tensor.bytes.begin(), tensor.bytes.end());
  return file;
}

}  // namespace slipway
