#include "lean/xnnpack/packed_weights.h"

#include <xnnpack/common.h>
#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>

#include "base/checksum.h"

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
  Packed packed = {};
  // XNNPACK's functions take it as theirs; those that run only read it.
  packed.data = const_cast<std::uint8_t*>(file_->bytes(*entry));
  packed.size = static_cast<std::size_t>(entry->size);
  packed.seed = key.seed;
  packed.form = *form_of(key.kernel);
  packed.from_file = packed.asked_for = true;
  packed.key = whole;
  packed_.push_back(packed);
  by_address_.emplace(Source(key.kernel, key.bias), packed_.size() - 1);
  ++found_;
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
    // Packed weights take about what the constants take.
    // With a file, most are not packed.
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
  Packed packed = {};
  packed.data = data;
  packed.size = size;
  packed.seed = key.seed;
  packed.form = form == nullptr ? std::string() : *form;
  packed.asked_for = missed_.seed == key.seed && missed_.kernel == key.kernel && missed_.bias == key.bias &&
                     find_key(key, &packed.key);
  packed_.push_back(std::move(packed));
  by_address_.emplace(source, packed_.size() - 1);
  return packed_.size() - 1;
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

using Values = std::unordered_map<std::uint32_t, const xnn::XValue*>;

void append(std::string* text, const void* data, std::size_t size) {
  text->append(static_cast<const char*>(data), size);
}

template <typename Number>
void append(std::string* text, Number number) {
  append(text, &number, sizeof(number));
}

// Numbers of which the packed weights' size does not depend: they would make texts long.
void put_content(std::string* text, const void* data, std::size_t size) {
  const Checksum sum = checksum_of(data, size);
  append(text, &sum, sizeof(sum));
}

void put_scales(std::string* text, const XnnPayload& payload, std::uint32_t buffer,
                const flatbuffers::Vector<float>* inline_scales) {
  if (buffer != 0) {
    const Bytes stored = payload.constant(buffer);
    put_content(text, stored.data, stored.size);
  } else if (inline_scales != nullptr) {
    put_content(text, inline_scales->data(), inline_scales->size() * sizeof(float));
  }
}

// A value's type and quantization; its shape only where that decides, since weights serve any batch.
void put_value(std::string* text, const XnnPayload& payload, const Values& values, std::uint32_t id,
               bool shape) {
  const auto found = values.find(id);
  if (found == values.end()) {
    append(text, '-');  // no bias
    return;
  }
  const xnn::XNNTensorValue& tensor = *tensor_of(*found->second);
  append(text, tensor.datatype());
  if (shape && tensor.dims() != nullptr) {
    append(text, tensor.dims()->data(), tensor.dims()->size() * sizeof(std::uint32_t));
  }
  const auto* quantized = found->second->xvalue_union_as_XNNQuantizedTensorValue();
  if (quantized == nullptr) {
    return;
  }
  append(text, quantized->quant_params_type());
  if (const auto* whole = quantized->quant_params_as_PerTensorQuant()) {
    append(text, whole->scale());
    append(text, whole->zero_point());
  } else if (const auto* channels = quantized->quant_params_as_PerChannelQuant()) {
    append(text, channels->channel_dim());
    put_scales(text, payload, channels->scale_buffer_idx(), channels->scale());
  } else if (const auto* blocks = quantized->quant_params_as_PerChannelGroupQuant()) {
    append(text, blocks->channel_dim());
    append(text, blocks->group_size());
    put_scales(text, payload, blocks->scale_buffer_idx(), nullptr);
  }
}

// XNNPACK packs it, too, and its key has none for layers whose input is quantized at run time.
void put_bias(std::string* text, const XnnPayload& payload, const Values& values, std::uint32_t id) {
  const auto found = values.find(id);
  if (found == values.end()) {
    return;
  }
  const xnn::XNNTensorValue& tensor = *tensor_of(*found->second);
  const Bytes stored = payload.constant(tensor.constant_buffer_idx());
  std::size_t bytes = sizeof(float);  // of an element, at most
  for (std::size_t i = 0; tensor.dims() != nullptr && i < tensor.dims()->size(); ++i) {
    bytes *= tensor.dims()->data()[i];
  }
  put_content(text, stored.data, std::min(bytes, stored.size));
}

const xnn::_XNNNodeConv* convolution_of(const xnn::XNode& node) {
  switch (node.xnode_union_type()) {
    case xnn::XNodeUnion::XNNConv2d:
      return node.xnode_union_as_XNNConv2d();
    case xnn::XNodeUnion::XNNDepthwiseConv2d:
      return node.xnode_union_as_XNNDepthwiseConv2d();
    case xnn::XNodeUnion::XNNConvTranspose2d:
      return node.xnode_union_as_XNNConvTranspose2d();
    default:
      return nullptr;
  }
}

template <typename Layer>
std::string form_of(const XnnPayload& payload, const Values& values, const xnn::XNode& node,
                    const Layer& layer) {
  std::string text;
  append(&text, node.xnode_union_type());
  append(&text, layer.flags());
  put_value(&text, payload, values, layer.input1_id(), false);
  put_value(&text, payload, values, layer.filter_id(), true);
  put_value(&text, payload, values, layer.bias_id(), true);
  put_value(&text, payload, values, layer.output_id(), false);
  put_bias(&text, payload, values, layer.bias_id());
  return text;
}

}  // namespace

PackingForms packing_forms(const XnnPayload& payload) {
  Values values;
  for (const xnn::XValue* value : *payload.graph().xvalues()) {
    values[tensor_of(*value)->id_out()] = value;
  }
  PackingForms forms;
  for (const xnn::XNode* node : *payload.graph().xnodes()) {
    std::string form;
    std::uint32_t filter = 0;
    if (const auto* layer = node->xnode_union_as_XNNFullyConnected()) {
      form = form_of(payload, values, *node, *layer);
      filter = layer->filter_id();
    } else if (const auto* convolution = convolution_of(*node)) {
      form = form_of(payload, values, *node, *convolution);
      for (const std::uint32_t number :
           {convolution->kernel_height(), convolution->kernel_width(), convolution->groups(),
            convolution->group_input_channels(), convolution->group_output_channels()}) {
        append(&form, number);
      }
      filter = convolution->filter_id();
    } else {
      continue;
    }
    const auto found = values.find(filter);
    const std::size_t index =
        found == values.end() ? 0 : std::size_t{tensor_of(*found->second)->constant_buffer_idx()};
    const void* kernel = payload.constant(index).data;
    if (kernel == nullptr) {
      continue;
    }
    const auto [entry, is_new] = forms.try_emplace(kernel, form);
    if (!is_new && entry->second != form) {
      entry->second.clear();  // used in two ways
    }
  }
  return forms;
}

}  // namespace slipway::lean
