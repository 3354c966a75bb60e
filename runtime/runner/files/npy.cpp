#include "runner/files/npy.h"

#include <cstring>
#include <string_view>

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

// Reads the header's Python dictionary: exactly the keys descr, fortran_order and shape, in any order.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  bool parse() {
    if (!take('{')) {
      return false;
    }
    while (!take('}')) {
      std::string name;
      if (!string(&name) || !take(':') || !entry(name)) {
        return false;
      }
      if (!take(',')) {
        if (!take('}')) {
          return false;
        }
        break;
      }
    }
    skip();
    return text_.empty() && have_descr_ && have_order_ && have_shape_;
  }

  std::string descr;
  bool fortran = false;
  Shape shape;

 private:
  bool entry(const std::string& name) {
    if (name == "descr") {
      have_descr_ = true;
      return string(&descr);
    }
    if (name == "fortran_order") {
      have_order_ = true;
      fortran = word("True");
      return fortran || word("False");
    }
    have_shape_ = true;
    return name == "shape" && tuple();
  }

  bool tuple() {
    if (!take('(')) {
      return false;
    }
    while (!take(')')) {
      std::int64_t dim = 0;
      if (!number(&dim)) {
        return false;
      }
      shape.push_back(dim);
      if (!take(',')) {
        return take(')');
      }
    }
    return true;
  }

  bool number(std::int64_t* value) {
    skip();
    std::size_t digits = 0;
    *value = 0;
    while (digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9') {
      if (digits == 18) {
        return false;
      }
      *value = *value * 10 + (text_[digits] - '0');
      ++digits;
    }
    text_.remove_prefix(digits);
    return digits != 0;
  }

  bool string(std::string* value) {
    skip();
    if (text_.empty() || (text_.front() != '\'' && text_.front() != '"')) {
      return false;
    }
    const std::size_t end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) {
      return false;
    }
    *value = std::string(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return true;
  }

  bool word(std::string_view expected) {
    skip();
    if (text_.substr(0, expected.size()) != expected) {
      return false;
    }
    text_.remove_prefix(expected.size());
    return true;
  }

  bool take(char expected) {
    skip();
    if (text_.empty() || text_.front() != expected) {
      return false;
    }
    text_.remove_prefix(1);
    return true;
  }

  void skip() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n')) {
      text_.remove_prefix(1);
    }
  }

  std::string_view text_;
  bool have_descr_ = false;
  bool have_order_ = false;
  bool have_shape_ = false;
};

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
  HeaderParser parser(std::string_view(reinterpret_cast<const char*>(data + prefix), header));
  if (!parser.parse()) {
    return bad(name, "has a .npy header that cannot be read (an array of records, perhaps)", save);
  }
  Tensor tensor;
  tensor.shape = parser.shape;
  for (const Descriptor& descriptor : kDescriptors) {
    if (parser.descr == descriptor.text) {
      tensor.dtype = descriptor.dtype;
      break;
    }
  }
  if (tensor.dtype == DType::kUnknown) {
    const bool big = !parser.descr.empty() && parser.descr.front() == '>';
    return bad(name, "holds elements of type '" + parser.descr + "'" + (big ? ", which is big-endian" : ""),
               big ? "convert it: array.astype(array.dtype.newbyteorder('<'))"
                   : "use bool, (u)int8 to (u)int64, float16/32/64, complex64/128, or bfloat16 as '|V2'");
  }
  if (parser.fortran && tensor.shape.size() > 1) {
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
  const std::uint8_t* first = data + prefix + header;
  tensor.bytes.assign(first, first + body);
  return tensor;
}

std::vector<std::uint8_t> format_npy(const Tensor& tensor) {
  const char* descr = "|V1";
  for (const Descriptor& descriptor : kDescriptors) {
    if (descriptor.dtype == tensor.dtype) {
      descr = descriptor.text;
      break;
    }
  }
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
