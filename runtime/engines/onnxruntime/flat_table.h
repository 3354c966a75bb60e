// FlatBuffers' layout, read in place with every offset checked against the file's end.
// https://flatbuffers.dev/internals/
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace slipway::flat {

// The file and what went wrong with it. Readers return empty things after a failure; the caller asks in the
// end.
struct Buffer {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
  bool failed = false;

  template <typename T>
  T at(std::size_t offset) {
    T value{};
    if (offset > size || size - offset < sizeof(T)) {
      failed = true;
    } else {
      std::memcpy(&value, data + offset, sizeof(T));
    }
    return value;
  }
  // Where the offset stored at `place` leads to; 0, which nothing lies at, when it leads out of the file.
  std::size_t follow(std::size_t place);
  std::string text(std::size_t place);
};

class Vector;

// A table; without one (position 0) every member is at its default.
class Table {
 public:
  Table(Buffer* buffer, std::size_t position) : buffer_(buffer), position_(position) {}

  static Table root(Buffer* buffer) { return {buffer, buffer->follow(0)}; }
  bool exists() const { return position_ != 0; }

  // `slot` is the member's offset in the vtable, as generated code has it: 4, 6, 8, ...
  template <typename T>
  T number(std::uint16_t slot) const {
    const std::size_t place = find(slot);
    return place == 0 ? T{} : buffer_->at<T>(place);
  }
  std::string text(std::uint16_t slot) const;
  Table table(std::uint16_t slot) const;
  Vector vector(std::uint16_t slot) const;

 private:
  std::size_t find(std::uint16_t slot) const;

  Buffer* buffer_;
  std::size_t position_;
};

class Vector {
 public:
  Vector(Buffer* buffer, std::size_t position);

  std::size_t size() const { return size_; }
  Table table(std::size_t index) const { return {buffer_, buffer_->follow(place(index, 4))}; }
  std::string text(std::size_t index) const { return buffer_->text(place(index, 4)); }
  std::int64_t integer(std::size_t index) const { return buffer_->at<std::int64_t>(place(index, 8)); }

 private:
  std::size_t place(std::size_t index, std::size_t width) const { return position_ + 4 + index * width; }

  Buffer* buffer_;
  std::size_t position_;
  std::size_t size_ = 0;
};

}  // namespace slipway::flat
