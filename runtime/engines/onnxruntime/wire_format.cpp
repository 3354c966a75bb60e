#include "wire_format.h"

namespace slipway::wire {
namespace {

void append_varint(std::uint64_t value, std::string* bytes) {
  while (value >= 0x80) {
    bytes->push_back(static_cast<char>(0x80 | (value & 0x7F)));
    value >>= 7;
  }
  bytes->push_back(static_cast<char>(value));
}

}  // namespace

bool Reader::fail() {
  failed_ = true;
  return false;
}

bool Reader::varint(std::uint64_t* value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (ended()) {
      return fail();
    }
    const std::uint8_t byte = *next_++;
    *value |= std::uint64_t{byte & 0x7Fu} << shift;
    if ((byte & 0x80u) == 0) {
      return true;
    }
  }
  return fail();
}

bool Reader::fixed(std::size_t size, std::uint64_t* value) {
  if (static_cast<std::size_t>(end_ - next_) < size) {
    return fail();
  }
  *value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    *value |= std::uint64_t{*next_++} << (8 * i);
  }
  return true;
}

bool Reader::next(Field* field) {
  if (failed_ || ended()) {
    return false;
  }
  std::uint64_t tag = 0;
  if (!varint(&tag) || tag >> 3 == 0 || tag >> 3 > 0x1FFFFFFF) {
    return fail();
  }
  *field = {};
  field->number = static_cast<std::uint32_t>(tag >> 3);
  switch (tag & 7u) {
    case 0:
      return varint(&field->value);
    case 1:
      field->kind = Kind::kFixed64;
      return fixed(8, &field->value);
    case 5:
      field->kind = Kind::kFixed32;
      return fixed(4, &field->value);
    case 2: {
      field->kind = Kind::kBytes;
      std::uint64_t size = 0;
      if (!varint(&size) || size > static_cast<std::uint64_t>(end_ - next_)) {
        return fail();
      }
      field->bytes = {next_, static_cast<std::size_t>(size)};
      next_ += size;
      return true;
    }
    default:  // groups, which no ONNX message has, and what is no wire type
      return fail();
  }
}

bool append_integers(const Field& field, std::vector<std::int64_t>* numbers) {
  if (field.kind == Kind::kVarint) {
    numbers->push_back(field.integer());
    return true;
  }
  if (field.kind != Kind::kBytes) {
    return false;
  }
  Reader packed(field.bytes);
  std::uint64_t value = 0;
  while (!packed.ended() && packed.varint(&value)) {
    numbers->push_back(static_cast<std::int64_t>(value));
  }
  return !packed.failed();
}

void append_bytes(unsigned number, Bytes content, std::string* message) {
  append_varint(number << 3 | 2, message);
  append_varint(content.size, message);
  message->append(reinterpret_cast<const char*>(content.data), content.size);
}

void append_bytes(unsigned number, const std::string& content, std::string* message) {
  append_bytes(number, {reinterpret_cast<const std::uint8_t*>(content.data()), content.size()}, message);
}

void append_number(unsigned number, std::int64_t value, std::string* message) {
  append_varint(number << 3, message);
  append_varint(static_cast<std::uint64_t>(value), message);
}

}  // namespace slipway::wire
