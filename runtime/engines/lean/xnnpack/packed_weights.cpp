#include "lean/xnnpack/packed_weights.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace slipway::lean {
namespace {

constexpr std::size_t kWeightsAlignment = 64;  // XNNPACK's of everything it allocates
constexpr std::size_t kLeastChunk = std::size_t{64} * 1024;
constexpr std::size_t kLeastForgotten = std::size_t{16} * 1024;  // for less, a call is not worth it

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return bytes + (unit - bytes % unit) % unit;
}

PackedWeights* self(void* context) {
  return static_cast<PackedWeights*>(context);
}

}  // namespace

PackedWeights::PackedWeights(const DataStore& store) : store_(store), provider_() {
  provider_.context = this;
  provider_.look_up = [](void* context, const xnn_weights_cache_look_up_key* key) {
    return self(context)->look_up(*key);
  };
  provider_.reserve_space = [](void* context, std::size_t bytes) -> void* {
    return self(context)->reserve(bytes);
  };
  provider_.look_up_or_insert = [](void* context, const xnn_weights_cache_look_up_key* key, void* data,
                                   std::size_t size) {
    return self(context)->keep(*key, static_cast<std::uint8_t*>(data), size);
  };
  provider_.is_finalized = [](void*) { return true; };
  provider_.offset_to_addr = [](void* context, std::size_t index) -> void* {
    return self(context)->packed_[index].data;
  };
  provider_.delete_cache = [](void*) { return xnn_status_success; };
}

void PackedWeights::expect(const std::vector<Bytes>& constants, PackingForms forms) {
  forms_ = std::move(forms);
  expected_ = 0;
  constants_.clear();
  for (const Bytes& constant : constants) {
    if (constant.data != nullptr && constants_.emplace(constant.data, constant.size).second) {
      expected_ += constant.size;
    }
  }
}

std::size_t PackedWeights::size() const {
  std::size_t bytes = 0;
  for (const Packed& packed : packed_) {
    bytes += packed.size;
  }
  return bytes;
}

const std::string* PackedWeights::form_of(const void* kernel) const {
  const auto found = forms_.find(kernel);
  return found == forms_.end() || found->second.empty() ? nullptr : &found->second;
}

std::size_t PackedWeights::share(std::size_t index) {
  ++shared_;
  shared_size_ += packed_[index].size;
  return index;
}

// Scales are no part of XNNPACK's key, nor is the shape: without a form, whether weights are the same is
// known only when they are packed.
std::size_t PackedWeights::find(const xnn_weights_cache_look_up_key& key) const {
  const std::string* form = form_of(key.kernel);
  const auto [begin, end] = by_address_.equal_range(Source(key.kernel, key.bias));
  for (auto entry = begin; form != nullptr && entry != end; ++entry) {
    const Packed& packed = packed_[entry->second];
    if (packed.seed == key.seed && packed.form == *form) {
      return entry->second;
    }
  }
  return SIZE_MAX;
}

std::size_t PackedWeights::look_up(const xnn_weights_cache_look_up_key& key) {
  const std::size_t found = find(key);
  return found == SIZE_MAX ? SIZE_MAX : share(found);
}

std::uint8_t* PackedWeights::reserve(std::size_t bytes) {
  if (bytes > SIZE_MAX - kLeastChunk - kWeightsAlignment) {
    return nullptr;
  }
  if (chunks_.empty() || chunks_.back().pages.size() - chunks_.back().used < bytes + kWeightsAlignment) {
    // Packed weights take about what the constants take.
    const std::size_t chunk = std::max({bytes + kWeightsAlignment, expected_ + expected_ / 16, kLeastChunk});
    expected_ = 0;
    Pages pages = Pages::allocate(chunk);
    if (pages.data() == nullptr && chunk > bytes + kWeightsAlignment) {
      pages = Pages::allocate(bytes + kWeightsAlignment);
    }
    if (pages.data() == nullptr) {
      return nullptr;
    }
    chunks_.push_back({std::move(pages), 0});
  }
  // Taken only when the weights are kept: XNNPACK packs one operator at a time.
  return chunks_.back().pages.data() + chunks_.back().used;
}

std::size_t PackedWeights::keep(const xnn_weights_cache_look_up_key& key, std::uint8_t* data,
                                std::size_t size) {
  // Convolutions hand over no bytes when their look-up found some.
  if (data == nullptr) {
    return find(key);
  }
  forget(key.kernel);
  forget(key.bias);
  const Source source(key.kernel, key.bias);
  const auto [begin, end] = by_address_.equal_range(source);
  for (auto entry = begin; entry != end; ++entry) {
    const Packed& packed = packed_[entry->second];
    if (packed.size == size && std::memcmp(packed.data, data, size) == 0) {
      return share(entry->second);
    }
  }
  const std::string* form = form_of(key.kernel);
  chunks_.back().used = rounded_up(chunks_.back().used + size, kWeightsAlignment);
  packed_.push_back({data, size, key.seed, form == nullptr ? std::string() : *form});
  by_address_.emplace(source, packed_.size() - 1);
  return packed_.size() - 1;
}

void PackedWeights::forget(const void* constant) const {
  const auto found = constants_.find(constant);
  if (found != constants_.end() && found->second >= kLeastForgotten) {
    store_.forget({static_cast<const std::uint8_t*>(found->first), found->second});
  }
}

}  // namespace slipway::lean
