// The operators of language models: attention over a cache of keys and values, and the cache's updates.
#include <pthreadpool.h>
#include <xnnpack/common.h>
#include <xnnpack/hardware-config.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/platform.h"
#include "lean/kernels/attention_tile.h"
#include "lean/kernels/kernel.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

// Queries of one task: what they share is read once for all of them.
constexpr std::size_t kAttentionRows = 32;
// Few rows (a decoder's step) are divided among the threads by positions of the cache. By sizes alone: the
// bits stay the same with any number of threads.
constexpr std::size_t kAttentionPositions = 512;
// Multiplications that are not worth waking other threads.
constexpr std::size_t kFewProducts = std::size_t{1} << 15;

AttentionTiles attention_tiles() {
#if XNN_ARCH_X86_64
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  if (hardware != nullptr && hardware->use_x86_avx512f) {
    return avx512f::kAttentionTiles;
  }
  if (hardware != nullptr && hardware->use_x86_avx2 && hardware->use_x86_fma3) {
    return avx2::kAttentionTiles;
  }
#endif
  return {4, attention::attend<16>};
}

// [batch, positions, heads, dim], or with positions third; a scale and a zero point for each row of bytes.
struct HeadTensor {
  const TensorView* view = nullptr;
  const TensorView* zero_points = nullptr;
  const TensorView* scales = nullptr;
  std::size_t position_dim = 1;

  std::size_t size(std::size_t dim) const { return static_cast<std::size_t>(view->sizes[dim]); }
  std::size_t positions() const { return size(position_dim); }
  std::size_t heads() const { return size(3 - position_dim); }
  std::size_t position_step() const { return position_dim == 1 ? heads() : 1; }
  // Which row a head's first one is.
  std::size_t first_row(std::size_t batch, std::size_t head) const {
    return batch * size(1) * size(2) + head * (position_dim == 1 ? 1 : size(2));
  }
  HeadRows rows(std::size_t batch, std::size_t head) const {
    const std::size_t first = first_row(batch, head);
    const DType dtype = view->dtype;
    return {view->data + first * size(3) * size_of(dtype),
            position_step() * size(3),
            dtype == DType::kFloat32    ? CacheType::kFloat
            : dtype == DType::kFloat16  ? CacheType::kHalf
            : dtype == DType::kBFloat16 ? CacheType::kBFloat16
                                        : CacheType::kByte,
            scales == nullptr ? nullptr : scales->as<float>() + first,
            zero_points == nullptr ? nullptr : zero_points->as<std::int8_t>() + first,
            position_step()};
  }
};

// One call: what all tasks share.
struct AttentionCall {
  AttentionTiles tiles;
  HeadTensor query;
  HeadTensor keys;
  HeadTensor values;
  TensorView* out;
  const float* mask;  // [queries, positions]; nullptr: none
  std::size_t seen;   // positions that the first query sees
  bool causal;        // each query sees one more than the one before
  float scale;
  std::size_t group;   // query heads that share keys
  std::size_t width;   // of rows of floats
  std::size_t blocks;  // of rows, for each head of keys
  std::size_t parts;   // of positions, for each block
  float* memory;       // for each thread
  std::size_t floats;  // of one thread's memory
  float* states;       // of rows whose positions are divided: [task][kAttentionRows][width + 2]

  std::size_t all_rows() const { return query.positions() * group; }
  std::size_t seen_by(std::size_t row) const { return seen + (causal ? row / group : 0); }
  std::size_t state_size() const { return kAttentionRows * (width + 2); }
};

// Divides the sums by the weights' total and stores them.
void store_rows(const AttentionCall& call, std::size_t batch, std::size_t head, std::size_t first,
                std::size_t rows, float* sums, const float* total) {
  const std::size_t dim = call.query.size(3);
  HeadTensor out = call.query;
  out.view = call.out;
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t row = first + r;
    for (std::size_t d = 0; d < dim; ++d) {
      sums[r * call.width + d] /= total[r];
    }
    const std::size_t at =
        out.first_row(batch, head * call.group + row % call.group) + row / call.group * out.position_step();
    store(call.out->dtype, sums + r * call.width, dim, call.out->data + at * dim * size_of(call.out->dtype),
          1);
  }
}

// Task `index`: a block of rows of one head of keys, over a part of the positions.
void attend_some(void* context, std::size_t thread, std::size_t index) {
  const auto& call = *static_cast<const AttentionCall*>(context);
  const std::size_t part = index % call.parts;
  const std::size_t block = index / call.parts % call.blocks;
  const std::size_t head = index / call.parts / call.blocks % call.keys.heads();
  const std::size_t batch = index / call.parts / call.blocks / call.keys.heads();
  const std::size_t first = block * kAttentionRows;
  const std::size_t rows = std::min(kAttentionRows, call.all_rows() - first);
  const std::size_t dim = call.query.size(3);
  float* memory = call.memory + thread * call.floats;
  const auto take = [&memory](std::size_t count) { return (memory += count) - count; };
  float* query = take(kAttentionRows * call.width);
  float* state = take(call.state_size());
  float* scores = take(kAttentionRows * kAttentionTile);
  state = call.states == nullptr ? state : call.states + index * call.state_size();
  float* sums = state;
  float* largest = sums + kAttentionRows * call.width;
  float* total = largest + kAttentionRows;
  std::size_t seen[kAttentionRows];
  const float* masks[kAttentionRows];
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t row = first + r;
    const HeadRows from = call.query.rows(batch, head * call.group + row % call.group);
    float* to = query + r * call.width;
    attention::widen<16>(from, row / call.group, 1, dim, call.width, to);
    for (std::size_t d = 0; d < dim; ++d) {
      to[d] *= call.scale;
    }
    seen[r] = call.seen_by(row);
    masks[r] = call.mask == nullptr ? nullptr : call.mask + row / call.group * call.keys.positions();
    largest[r] = -__builtin_inff();
    total[r] = 0;
  }
  std::fill_n(sums, rows * call.width, 0.0F);
  const std::size_t last = seen[rows - 1];
  const std::size_t begin = part * kAttentionPositions;
  const std::size_t end = call.parts == 1 ? last : std::min(last, begin + kAttentionPositions);
  call.tiles.attend({rows, dim, call.width, begin, end, call.keys.rows(batch, head),
                     call.values.rows(batch, head), query, seen, call.mask == nullptr ? nullptr : masks,
                     largest, total, sums, scores, take(2 * kAttentionTile * call.width)});
  if (call.states == nullptr) {
    store_rows(call, batch, head, first, rows, sums, total);
  }
}

// Puts the parts of positions together.
void merge_states(const AttentionCall& call, std::size_t index) {
  const std::size_t block = index % call.blocks;
  const std::size_t first = block * kAttentionRows;
  const std::size_t rows = std::min(kAttentionRows, call.all_rows() - first);
  float* sums = call.states + index * call.parts * call.state_size();
  float* largest = sums + kAttentionRows * call.width;
  float* total = largest + kAttentionRows;
  for (std::size_t part = 1; part < call.parts; ++part) {
    const float* other = sums + part * call.state_size();
    for (std::size_t r = 0; r < rows; ++r) {
      const float most = other[kAttentionRows * call.width + r];
      const float best = std::max(largest[r], most);
      const float from = best == -__builtin_inff() ? 0.0F : best;
      const float own = exp_of(largest[r] - from);
      const float its = exp_of(most - from);
      for (std::size_t d = 0; d < call.width; ++d) {
        sums[r * call.width + d] = sums[r * call.width + d] * own + other[r * call.width + d] * its;
      }
      total[r] = total[r] * own + other[kAttentionRows * (call.width + 1) + r] * its;
      largest[r] = best;
    }
  }
  const std::size_t head = index / call.blocks;
  store_rows(call, head / call.keys.heads(), head % call.keys.heads(), first, rows, sums, total);
}

Status attend_all(AttentionCall& call, pthreadpool_t threads) {
  const std::size_t dim = call.query.size(3);
  const std::size_t heads = call.keys.size(0) * call.keys.heads();
  const std::size_t longest = call.seen_by(call.all_rows() - 1);
  call.tiles = attention_tiles();
  call.width = (dim + call.tiles.lanes - 1) / call.tiles.lanes * call.tiles.lanes;
  call.blocks = (call.all_rows() + kAttentionRows - 1) / kAttentionRows;
  call.parts = call.blocks == 1 ? (longest + kAttentionPositions - 1) / kAttentionPositions : 1;
  call.floats = kAttentionRows * call.width + call.state_size() + kAttentionRows * kAttentionTile +
                2 * kAttentionTile * call.width;
  if (call.all_rows() * longest * dim * heads < kFewProducts) {
    threads = nullptr;
  }
  const std::size_t tasks = heads * call.blocks * call.parts;
  const std::size_t own = call.floats * pthreadpool_get_threads_count(threads);
  const std::size_t states = call.parts == 1 ? 0 : tasks * call.state_size();
  SLIPWAY_RETURN_IF_ERROR(check_room(std::uint64_t{own + states} * sizeof(float), "attention"));
  // Each task writes what it reads; zeros would cost a step of a decoder more than its softmax.
  const std::unique_ptr<float[]> memory(new float[own + states]);
  call.memory = memory.get();
  call.states = states == 0 ? nullptr : memory.get() + own;
  pthreadpool_parallelize_1d_with_thread(threads, attend_some, &call, tasks,
                                         PTHREADPOOL_FLAG_DISABLE_DENORMALS);
  for (std::size_t i = 0; i < heads * call.blocks && states != 0; ++i) {
    merge_states(call, i);
  }
  return {};
}

std::string shapes_of(const AttentionCall& call) {
  return to_text(call.query.view->shape()) + ", " + to_text(call.keys.view->shape()) + " and " +
         to_text(call.values.view->shape());
}

// One for each row, or none at all.
bool scales_fit(const HeadTensor& tensor) {
  if (tensor.view->dtype != DType::kInt8) {
    return tensor.scales == nullptr && tensor.zero_points == nullptr;
  }
  const std::size_t rows = tensor.size(0) * tensor.size(1) * tensor.size(2);
  return tensor.scales != nullptr && tensor.scales->dtype == DType::kFloat32 && tensor.scales->contiguous() &&
         tensor.scales->count() == rows && tensor.zero_points != nullptr &&
         tensor.zero_points->dtype == DType::kInt8 && tensor.zero_points->contiguous() &&
         tensor.zero_points->count() == rows;
}

// Whether the positions from `start` on are there. If not, it is a fault of the inputs, as the runner says
// it: it blames their sizes for other failures.
Status check_in_cache(std::int64_t start, std::size_t tokens, std::size_t room) {
  if (start >= 0 && tokens <= room && static_cast<std::uint64_t>(start) <= room - tokens) {
    return {};
  }
  return {Code::kInput,
          std::to_string(tokens) + " tokens from position " + std::to_string(start) +
              " on are not in a cache of " + std::to_string(room) + " positions",
          start < 0 ? "give a position from 0 on"
                    : "give fewer tokens, or export the model with a longer context (max_context_length)"};
}

// What is left of a call, from its position on: `at` is the argument that start_pos is, `options` that
// attn_mask is, then come dropout, is_causal and scale.
Status attend(Arguments& arguments, AttentionCall& call, std::size_t at, std::size_t options) {
  const std::int64_t start = arguments.integer(at);
  const TensorView* mask = arguments.optional_tensor(options);
  const bool causal = arguments.boolean(options + 2);
  const std::optional<double> scale = argument_as<std::optional<double>>(arguments, options + 3);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  const TensorView& query = *call.query.view;
  const TensorView& keys = *call.keys.view;
  const TensorView& values = *call.values.view;
  for (const TensorView* view : {&query, &keys, &values}) {
    if (view->rank != 4 || !view->contiguous()) {
      return mismatch("queries, keys and values are not four dimensions in row-major order: " +
                      shapes_of(call));
    }
  }
  const bool same_type = query.dtype == keys.dtype && keys.dtype == values.dtype;
  const bool known = query.dtype == DType::kFloat32 || query.dtype == DType::kFloat16 ||
                     query.dtype == DType::kBFloat16 || query.dtype == DType::kInt8;
  const bool fits =
      query.dtype == DType::kInt8 ? call.out->dtype == DType::kFloat32 : call.out->dtype == query.dtype;
  if (!same_type || !known || !fits || !scales_fit(call.query) || !scales_fit(call.keys) ||
      !scales_fit(call.values)) {
    return mismatch(std::string("there is no attention of ") + name_of(query.dtype) + ", " +
                    name_of(keys.dtype) + " and " + name_of(values.dtype) + " to " +
                    name_of(call.out->dtype) + ", or not a scale and a zero point for each row of int8");
  }
  const std::size_t tokens = call.query.positions();
  const std::size_t room = call.keys.positions();
  const std::size_t heads = call.keys.heads();
  if (keys.sizes[0] != query.sizes[0] || values.sizes[0] != query.sizes[0] ||
      keys.sizes[3] != query.sizes[3] || values.sizes[3] != query.sizes[3] || call.values.heads() != heads ||
      heads == 0 || call.query.heads() % heads != 0) {
    return mismatch("queries, keys and values do not go together: " + shapes_of(call));
  }
  if (!call.out->contiguous()) {
    return mismatch("attention is not written in row-major order");
  }
  SLIPWAY_RETURN_IF_ERROR(resize(call.out, query.shape()));
  std::size_t seen = room;
  if (mask != nullptr) {
    // With a mask all of the cache takes part: the mask says what counts.
    if (causal || mask->dtype != DType::kFloat32 || mask->rank != 2 || !mask->contiguous() ||
        static_cast<std::size_t>(mask->sizes[0]) != tokens ||
        static_cast<std::size_t>(mask->sizes[1]) != room) {
      return mismatch("a mask of " + to_text(mask->shape()) + (causal ? ", and causal," : "") +
                      " does not fit " + std::to_string(tokens) + " queries and a cache of " +
                      std::to_string(room) + " positions");
    }
  } else {
    SLIPWAY_RETURN_IF_ERROR(check_in_cache(start, tokens, room));
    seen = static_cast<std::size_t>(start) + (causal ? 1 : tokens);
  }
  if (call.out->count() == 0) {
    return {};
  }
  if (call.values.positions() < (causal ? seen + tokens - 1 : seen) || seen == 0) {
    return mismatch("there are too few values for the keys: " + shapes_of(call));
  }
  call.mask = mask == nullptr ? nullptr : mask->as<float>();
  call.seen = seen;
  call.causal = causal;
  call.scale = static_cast<float>(scale ? *scale : 1 / std::sqrt(static_cast<double>(query.sizes[3])));
  call.group = call.query.heads() / heads;
  return attend_all(call, arguments.scratch().threads);
}

// llama::custom_sdpa.out(Tensor query, Tensor key, Tensor value, SymInt start_pos, Tensor? attn_mask=None,
// float drpout_p=0., bool is_causal=False, float? scale=None, *, Tensor(a!) out)
Status custom_sdpa(Arguments& arguments) {
  AttentionCall call{};
  call.query.view = &arguments.tensor(0);
  call.keys.view = &arguments.tensor(1);
  call.values.view = &arguments.tensor(2);
  call.out = &arguments.tensor(8);
  return attend(arguments, call, 3, 4);
}

// llama::custom_quantized_sdpa.out(Tensor query, Tensor key, Tensor value, SymInt start_pos, Tensor?
// attn_mask=None, float drpout_p=0., bool is_causal=False, float? scale=None, Tensor? q_zero_points=None,
// Tensor? q_scales=None, Tensor? k_zero_points=None, Tensor? k_scales=None, Tensor? v_zero_points=None,
// Tensor? v_scales=None, bool is_seq_at_dim_2=False, *, Tensor(a!) out)
Status custom_quantized_sdpa(Arguments& arguments) {
  AttentionCall call{};
  call.out = &arguments.tensor(15);
  std::size_t i = 0;
  for (HeadTensor* one : {&call.query, &call.keys, &call.values}) {
    one->view = &arguments.tensor(i);
    one->zero_points = arguments.optional_tensor(8 + 2 * i);
    one->scales = arguments.optional_tensor(9 + 2 * i);
    one->position_dim = arguments.boolean(14) ? 2 : 1;
    ++i;
  }
  return attend(arguments, call, 3, 4);
}

// Values that go into a cache, [batch, tokens, heads, dim] into [batch, positions, heads, dim].
Status check_update(const TensorView& value, TensorView& cache) {
  const bool fits = value.rank == 4 && cache.rank == 4 && value.contiguous() && cache.contiguous() &&
                    value.dtype == cache.dtype && value.sizes[0] == cache.sizes[0] &&
                    value.sizes[2] == cache.sizes[2] && value.sizes[3] == cache.sizes[3];
  return fits ? resize(&cache, cache)
              : mismatch(to_text(value.shape()) + " of " + name_of(value.dtype) +
                         " does not go into a cache of " + to_text(cache.shape()) + " of " +
                         name_of(cache.dtype));
}

// Each token at a position of its own, [batch, tokens], or one after the other from `start` on.
Status put_tokens(const TensorView& value, TensorView& cache, std::int64_t start, const TensorView* indices) {
  SLIPWAY_RETURN_IF_ERROR(check_update(value, cache));
  const auto tokens = static_cast<std::size_t>(value.sizes[1]);
  const auto room = static_cast<std::size_t>(cache.sizes[1]);
  SLIPWAY_RETURN_IF_ERROR(indices == nullptr ? check_in_cache(start, tokens, room) : Status());
  if (indices != nullptr && (indices->rank != 2 || indices->sizes[0] != value.sizes[0] ||
                             indices->sizes[1] != value.sizes[1] || is_floating(indices->dtype))) {
    return mismatch("positions of " + to_text(indices->shape()) + " are not one for each token of " +
                    to_text(value.shape()));
  }
  const auto given = indices == nullptr ? std::vector<std::int64_t>() : elements_of<std::int64_t>(*indices);
  for (const std::int64_t place : given) {
    SLIPWAY_RETURN_IF_ERROR(check_in_cache(place, 1, room));
  }
  const std::size_t rows = value.count() == 0 ? 0 : static_cast<std::size_t>(value.sizes[0]) * tokens;
  const std::size_t bytes = rows == 0 ? 0 : value.bytes() / rows;
  for (std::size_t i = 0; i < rows; ++i) {
    const auto place =
        static_cast<std::size_t>(given.empty() ? start : given[i]) + (given.empty() ? i % tokens : 0);
    std::memcpy(cache.data + (i / tokens * room + place) * bytes, value.data + i * bytes, bytes);
  }
  return {};
}

// Nothing reads its result.
Status update_cache(const TensorView& value, TensorView& cache, std::int64_t start, Unused /*out*/) {
  return put_tokens(value, cache, start, nullptr);
}

Status update_cache_with_indices(const TensorView& value, TensorView& cache, Unused /*start_pos*/,
                                 const TensorView& indices, Unused /*out*/) {
  return put_tokens(value, cache, 0, &indices);
}

// llama::sdpa_with_kv_cache.out(Tensor query, Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!)
// value_cache, SymInt start_pos, SymInt seq_len, Tensor? attn_mask=None, float drpout_p=0., bool
// is_causal=False, float? scale=None, *, Tensor(c!) out)
Status sdpa_with_kv_cache(Arguments& arguments) {
  AttentionCall call{};
  TensorView& keys = arguments.tensor(3);
  TensorView& values = arguments.tensor(4);
  call.query.view = &arguments.tensor(0);
  call.keys.view = &keys;
  call.values.view = &values;
  call.out = &arguments.tensor(11);
  const std::int64_t start = arguments.integer(5);
  SLIPWAY_RETURN_IF_ERROR(arguments.fault());
  SLIPWAY_RETURN_IF_ERROR(put_tokens(arguments.tensor(1), keys, start, nullptr));
  SLIPWAY_RETURN_IF_ERROR(put_tokens(arguments.tensor(2), values, start, nullptr));
  return attend(arguments, call, 5, 7);
}

}  // namespace

constexpr KernelTable kAttentionKernels = {
    {"llama::custom_quantized_sdpa.out", {custom_quantized_sdpa, 16}},
    {"llama::custom_sdpa.out", {custom_sdpa, 9}},
    {"llama::sdpa_with_kv_cache.out", {sdpa_with_kv_cache, 12}, Sharing::kCaches},
    {"llama::update_cache.out", typed<update_cache>, Sharing::kCache},
    {"llama::update_cache_with_indices.out", typed<update_cache_with_indices>, Sharing::kCache},
};

}  // namespace slipway::lean
