#include "patches.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace slipway::fuzz {
namespace {

template <typename T>
std::uint64_t bits_of(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

template <typename T>
T value_of(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

std::uint64_t mask_of(std::size_t width) {
  return width == 8 ? UINT64_MAX : (std::uint64_t{1} << (8 * width)) - 1;
}

template <typename T>
std::vector<std::uint64_t> floating(std::uint64_t now) {
  using Limits = std::numeric_limits<T>;
  const T value = value_of<T>(now);
  const T all[] = {0,
                   1,
                   std::nextafter(value, Limits::infinity()),
                   std::nextafter(value, -Limits::infinity()),
                   value + 1,
                   value - 1,
                   2 * value,
                   -value,
                   Limits::max(),
                   Limits::lowest(),
                   Limits::denorm_min(),
                   Limits::infinity(),
                   -Limits::infinity(),
                   Limits::quiet_NaN()};
  std::vector<std::uint64_t> bits;
  for (const T item : all) {
    bits.push_back(bits_of(item));
  }
  return bits;
}

std::vector<std::uint64_t> whole(const Field& field, std::uint64_t now) {
  const std::uint64_t all = mask_of(width_of(field.type));
  // 0, 1, neighbours, double, half; the largest with a sign and without (which is -1), and the smallest with
  // one.
  std::vector<std::uint64_t> values = {0,       1,        now + 1, now - 1,       2 * now,
                                       now / 2, all >> 1, all,     (all >> 1) + 1};
  if (field.names != nullptr) {
    for (const reflection::EnumVal* name : *field.names->values()) {
      values.push_back(static_cast<std::uint64_t>(name->value()));
    }
  }
  for (std::uint64_t& value : values) {
    value &= all;
  }
  return values;
}

}  // namespace

std::uint64_t stored(const std::uint8_t* data, const Field& field) {
  std::uint64_t value = 0;
  std::memcpy(&value, data + field.offset, width_of(field.type));
  return value;
}

void store(std::uint8_t* data, const Field& field, std::uint64_t value) {
  std::memcpy(data + field.offset, &value, width_of(field.type));
}

std::string shown(const Field& field, std::uint64_t value) {
  switch (field.type) {
    case reflection::Float:
      return std::to_string(value_of<float>(value));
    case reflection::Double:
      return std::to_string(value_of<double>(value));
    case reflection::Byte:
      return std::to_string(value_of<std::int8_t>(value));
    case reflection::Short:
      return std::to_string(value_of<std::int16_t>(value));
    case reflection::Int:
      return std::to_string(value_of<std::int32_t>(value));
    case reflection::Long:
      return std::to_string(value_of<std::int64_t>(value));
    default:
      return std::to_string(value);
  }
}

std::vector<std::uint64_t> values_for(const Field& field, std::uint64_t now) {
  std::vector<std::uint64_t> values;
  if (field.entry) {
    values = {0};
  } else if (field.type == reflection::Float) {
    values = floating<float>(now);
  } else if (field.type == reflection::Double) {
    values = floating<double>(now);
  } else {
    values = whole(field, now);
  }
  values.push_back(now);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  values.erase(std::find(values.begin(), values.end(), now));
  return values;
}

std::vector<Patch> plan_patches(const std::uint8_t* data, const std::vector<Field>& fields,
                                std::size_t siblings) {
  std::map<std::string, std::vector<std::size_t>> kinds;
  std::vector<std::pair<const std::vector<std::size_t>*, std::size_t>> memberships;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    std::vector<std::size_t>& kin = kinds[kind_of(fields[i].path)];
    memberships.emplace_back(&kin, kin.size());
    kin.push_back(i);
  }
  std::vector<Patch> patches;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::uint64_t now = stored(data, fields[i]);
    std::vector<std::uint64_t> values = values_for(fields[i], now);
    const auto add = [&](std::uint64_t value) {
      if (value == now || std::find(values.begin(), values.end(), value) != values.end()) {
        return false;
      }
      values.push_back(value);
      return true;
    };
    const auto& [kin, at] = memberships[i];
    std::size_t before = 0;
    std::size_t after = 0;
    for (std::size_t k = at; k-- > 0 && before < siblings && !fields[i].entry;) {
      before += add(stored(data, fields[(*kin)[k]])) ? 1 : 0;
    }
    for (std::size_t k = at + 1; k < kin->size() && after < siblings && !fields[i].entry; ++k) {
      after += add(stored(data, fields[(*kin)[k]])) ? 1 : 0;
    }
    for (const std::uint64_t value : values) {
      patches.push_back({i, value});
    }
  }
  return patches;
}

}  // namespace slipway::fuzz
