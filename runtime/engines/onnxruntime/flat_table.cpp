#include "flat_table.h"

namespace slipway::flat {

std::size_t Buffer::follow(std::size_t place) {
  const auto offset = at<std::uint32_t>(place);
  if (failed || offset == 0 || offset > size - place) {
    failed = true;
    return 0;
  }
  return place + offset;
}

std::string Buffer::text(std::size_t place) {
  const std::size_t position = follow(place);
  const auto length = at<std::uint32_t>(position);
  if (failed || length > size - position - 4) {
    failed = true;
    return "";
  }
  return {reinterpret_cast<const char*>(data + position + 4), length};
}

std::size_t Table::find(std::uint16_t slot) const {
  if (position_ == 0) {
    return 0;
  }
  // The vtable lies at a signed distance before the table.
  const std::int64_t vtable = static_cast<std::int64_t>(position_) - buffer_->at<std::int32_t>(position_);
  if (buffer_->failed || vtable < 0) {
    buffer_->failed = true;
    return 0;
  }
  const auto start = static_cast<std::size_t>(vtable);
  if (slot >= buffer_->at<std::uint16_t>(start)) {
    return 0;
  }
  const auto offset = buffer_->at<std::uint16_t>(start + slot);
  return buffer_->failed || offset == 0 ? 0 : position_ + offset;
}

std::string Table::text(std::uint16_t slot) const {
  const std::size_t place = find(slot);
  return place == 0 ? "" : buffer_->text(place);
}

Table Table::table(std::uint16_t slot) const {
  const std::size_t place = find(slot);
  return {buffer_, place == 0 ? 0 : buffer_->follow(place)};
}

Vector Table::vector(std::uint16_t slot) const {
  const std::size_t place = find(slot);
  return {buffer_, place == 0 ? 0 : buffer_->follow(place)};
}

Vector::Vector(Buffer* buffer, std::size_t position) : buffer_(buffer), position_(position) {
  if (position == 0) {
    return;
  }
  size_ = buffer->at<std::uint32_t>(position);
  if (buffer->failed || size_ > (buffer->size - position) / 4) {
    buffer->failed = true;
    size_ = 0;
  }
}

}  // namespace slipway::flat
