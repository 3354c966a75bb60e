#include "lean/xnnpack/packed_weights.h"

#include <xnnpack/common.h>

#include <algorithm>
#include <cstring>

namespace slipway::lean {
namespace {

constexpr std::size_t kWeightsAlignment = 64;  // at least XNNPACK's of everything it allocates
constexpr std::size_t kLeastChunk = std::size_t{64} * 1024;
constexpr std::size_t kLeastForgotten = std::size_t{16} * 1024;  // for less, a call is not worth it
constexpr std::size_t kForgottenTogether = std::size_t{1} << 20;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return bytes + (unit - bytes % unit) % unit;
}

PackedWeights* self(void* context) {
  return static_cast<PackedWeights*>(context);
}

}  // namespace

PackedWeights::PackedWeights(const DataStore& store, const WeightsFile* file)
    : store_(store), file_(file), provider_() {
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

void PackedWeights::plan(const std::vector<Bytes>& constants) {
  for (const Bytes& constant : constants) {
    if (constant.data != nullptr && seen_.insert(constant.data).second) {
      planned_ += constant.size;
    }
  }
}

void PackedWeights::expect(const std::vector<Bytes>& constants, PackingForms forms) {
  forms_ = std::move(forms);
  constants_.clear();
  for (const Bytes& constant : constants) {
    if (constant.data != nullptr) {
      constants_.emplace(constant.data, constant.size);
    }
  }
}

void PackedWeights::offer(Packer packer) {
  packer_ = {};
  const std::string* form = form_of(packer.weights);
  offered_form_ = form == nullptr ? std::string() : *form + packer.layout;
  packer_ = std::move(packer);
}

bool PackedWeights::has_offered(std::size_t index) const {
  return index < packed_.size() && !offered_form_.empty() && packer_.pack != nullptr &&
         packed_[index].form == offered_form_;
}

std::size_t PackedWeights::size() const {
  std::size_t bytes = 0;
  for (const Packed& packed : packed_) {
    bytes += packed.size;
  }
  return bytes;
}

const std::string* PackedWeights::form_of(const void* kernel) const {
  if (!packer_.layout.empty() && kernel == packer_.weights) {
    return offered_form_.empty() ? nullptr : &offered_form_;
  }
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
  if (found != SIZE_MAX) {
    return share(found);
  }
  const std::size_t taken = file_ == nullptr ? SIZE_MAX : take_from_file(key);
  missed_ = taken == SIZE_MAX ? key : xnn_weights_cache_look_up_key();
  return taken == SIZE_MAX ? pack(key) : taken;
}

// Packs with what was offered for the operator, if it was offered for these weights.
std::size_t PackedWeights::pack(const xnn_weights_cache_look_up_key& key) {
  // Without a form what is packed here would not be found again, as XNNPACK wants it.
  if (packer_.pack == nullptr || key.kernel != packer_.weights || key.bias != packer_.bias ||
      form_of(key.kernel) == nullptr) {
    return SIZE_MAX;
  }
  const std::size_t size = rounded_up(packer_.size, XNN_ALLOCATION_ALIGNMENT);  // as XNNPACK's sizes
  std::uint8_t* to = reserve(size);
  if (to == nullptr) {
    packer_ = {};  // XNNPACK may find memory for its own order
    return SIZE_MAX;
  }
  packer_.pack(to);
  std::memset(to + packer_.size, 0, size - packer_.size);  // what was packed there before may be shared
  return keep(key, to, size);
}

// What the weights are made of, for another process; false when they are not only made of what is in files.
bool PackedWeights::find_key(const xnn_weights_cache_look_up_key& key, PackedKey* found) const {
  const std::string* form = form_of(key.kernel);
  if (form == nullptr || !store_.find(key.kernel, &found->kernel.file, &found->kernel.offset) ||
      (key.bias != nullptr && !store_.find(key.bias, &found->bias.file, &found->bias.offset))) {
    return false;
  }
  found->seed = key.seed;
  found->form = checksum_of(form->data(), form->size());
  return true;
}

std::size_t PackedWeights::take_from_file(const xnn_weights_cache_look_up_key& key) {
  PackedKey whole;
  const PackedEntry* entry = find_key(key, &whole) ? file_->find(whole) : nullptr;
  if (entry == nullptr) {
    return SIZE_MAX;
  }
  ++found_;
  // XNNPACK's functions take it as theirs; those that run only read it.
  Packed packed = {const_cast<std::uint8_t*>(file_->bytes(*entry)), static_cast<std::size_t>(entry->size),
                   *form_of(key.kernel)};
  packed.from_file = packed.asked_for = true;
  packed.key = whole;
  return add(key, std::move(packed));
}

std::size_t PackedWeights::add(const xnn_weights_cache_look_up_key& key, Packed packed) {
  packed.seed = key.seed;
  packed_.push_back(std::move(packed));
  by_address_.emplace(Source(key.kernel, key.bias), packed_.size() - 1);
  return packed_.size() - 1;
}

std::vector<PackedBlock> PackedWeights::to_keep(bool* news) const {
  std::vector<PackedBlock> all;
  *news = false;
  for (const Packed& packed : packed_) {
    if (packed.asked_for) {
      all.push_back({packed.key, packed.data, packed.size});
      *news = *news || !packed.from_file;
    }
  }
  // Other methods' weights stay.
  std::vector<PackedBlock> others = *news && file_ != nullptr ? file_->blocks() : std::vector<PackedBlock>();
  for (const PackedBlock& old : others) {
    if (std::none_of(packed_.begin(), packed_.end(),
                     [&](const Packed& packed) { return packed.from_file && packed.data == old.data; })) {
      all.push_back(old);
    }
  }
  return all;
}

std::uint8_t* PackedWeights::reserve(std::size_t bytes) {
  if (bytes > SIZE_MAX - kLeastChunk - kWeightsAlignment) {
    return nullptr;
  }
  if (chunks_.empty() || chunks_.back().pages.size() - chunks_.back().used < bytes + kWeightsAlignment) {
    // Packed weights take about what the constants take. With a file, most are not packed.
    const std::size_t planned = file_ == nullptr ? planned_ : 0;
    const std::size_t chunk = std::max({bytes + kWeightsAlignment, planned + planned / 16, kLeastChunk});
    planned_ = 0;
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
  const auto [begin, end] = by_address_.equal_range(Source(key.kernel, key.bias));
  for (auto entry = begin; entry != end; ++entry) {
    const Packed& packed = packed_[entry->second];
    if (packed.size == size && std::memcmp(packed.data, data, size) == 0) {
      return share(entry->second);
    }
  }
  const std::string* form = form_of(key.kernel);
  chunks_.back().used = rounded_up(chunks_.back().used + size, kWeightsAlignment);
  Packed packed = {data, size, form == nullptr ? std::string() : *form};
  packed.asked_for = missed_.seed == key.seed && missed_.kernel == key.kernel && missed_.bias == key.bias &&
                     find_key(key, &packed.key);
  return add(key, std::move(packed));
}

// Neighbours together: each call makes every thread forget addresses.
void PackedWeights::forget(const void* constant) {
  const auto found = constants_.find(constant);
  if (found == constants_.end() || found->second < kLeastForgotten) {
    return;
  }
  const auto* data = static_cast<const std::uint8_t*>(found->first);
  const std::uint8_t* end = read_.data + read_.size;
  if (read_.data != nullptr && data >= end && static_cast<std::size_t>(data - end) < kForgottenTogether) {
    read_.size = static_cast<std::size_t>(data - read_.data) + found->second;
  } else {
    store_.forget(read_);
    read_ = {data, found->second};
  }
  if (read_.size >= kForgottenTogether) {
    store_.forget(read_);
    read_ = {};
  }
}

namespace {

template <typename Number>
void append(std::string* text, Number number) {
  text->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// Numbers of which the packed weights' size does not depend: they would make texts long.
void put_content(std::string* text, const void* data, std::size_t size) {
  append(text, checksum_of(data, size));
}

// A value's type and quantization; its shape only where that decides, since weights serve any batch.
void put_value(std::string* text, const GraphFact& fact, bool shape) {
  append(text, fact.type);
  for (std::size_t i = 0; shape && i < fact.declared.rank; ++i) {
    append(text, fact.declared[i]);
  }
  append(text, fact.scale);
  append(text, fact.zero_point);
  append(text, fact.channel_dim);
  append(text, fact.block_size);
  const std::size_t channels = fact.declared.rank == 0 ? 0 : fact.declared[fact.channel_dim];
  if (fact.scales != nullptr) {
    put_content(text, fact.scales, channels * sizeof(*fact.scales));
  }
  if (fact.block_scales != nullptr) {
    const std::size_t blocks = fact.declared[1 - fact.channel_dim] / fact.block_size;
    put_content(text, fact.block_scales, channels * blocks * sizeof(*fact.block_scales));
  }
}

}  // namespace

PackingForms packing_forms(const GraphCheck& check) {
  PackingForms forms;
  for (const GraphNode& node : check.nodes()) {
    const Operands& values = node.operands;
    const std::vector<GraphFact>& facts = check.facts();
    if (!is_layer(node.node->xnode_union_type()) || !facts[values.inputs[1]].constant) {
      continue;
    }
    std::string form;
    append(&form, node.node->xnode_union_type());
    if (const auto* linear = node.node->xnode_union_as_XNNFullyConnected()) {
      append(&form, linear->flags());
    } else {
      const auto& convolution = *static_cast<const xnn::_XNNNodeConv*>(node.node->xnode_union());
      append(&form, convolution.flags());
      append(&form, convolution.groups());
    }
    put_value(&form, facts[values.inputs[0]], false);
    put_value(&form, facts[values.inputs[1]], true);
    put_value(&form, facts[values.outputs[0]], false);
    if (values.inputs[2] != kNoValue) {
      // XNNPACK packs it, too, and its key has none for layers whose input is quantized at run time.
      const GraphFact& bias = facts[values.inputs[2]];
      std::size_t bytes = 0;
      put_value(&form, bias, true);
      count_bytes(bias.declared, bias.type, &bytes);
      put_content(&form, bias.data.data, bias.constant ? bytes : 0);
    }
    const auto [entry, is_new] = forms.try_emplace(facts[values.inputs[1]].data.data, form);
    if (!is_new && entry->second != form) {
      entry->second.clear();  // used in two ways
    }
  }
  return forms;
}

}  // namespace slipway::lean
