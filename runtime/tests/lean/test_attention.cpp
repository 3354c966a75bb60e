// Attention over a cache, and the cache's updates, against sums in double.
#include <pthreadpool.h>
#include <xnnpack/common.h>
#include <xnnpack/hardware-config.h>

#include <numeric>

#include "check.h"
#include "lean/kernels/attention_tile.h"
#include "lean/kernels/elements.h"
#include "lean/kernels/kernel.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

// A tensor with memory of its own, whose elements are given as doubles.
struct OwnedTensor {
  std::vector<std::uint8_t> bytes;
  TensorView view;

  OwnedTensor(const Shape& shape, DType dtype, const std::vector<double>& values = {}) {
    view.dtype = dtype;
    view.rank = static_cast<std::uint8_t>(shape.size());
    for (std::size_t i = 0; i < shape.size(); ++i) {
      view.sizes[i] = view.bounds[i] = shape[i];
      view.order[i] = static_cast<std::uint8_t>(i);
    }
    bytes.resize(view.bytes() + 16);
    view.data = bytes.data();
    view.capacity = view.bytes();
    if (!values.empty()) {
      store(dtype, values.data(), values.size(), view.data, 1);
    }
  }
  std::vector<double> values() const {
    std::vector<double> found(view.count());
    load(view.dtype, bytes.data(), 1, found.size(), found.data());
    return found;
  }
};

// Numbers that look like chance, from -1 to 1.
std::vector<double> pseudo_numbers(std::size_t count, std::uint32_t seed) {
  std::vector<double> found(count);
  std::uint32_t state = seed * 2654435761U + 1;
  for (double& value : found) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<double>(static_cast<std::int32_t>(state)) / 2147483648.0;
  }
  return found;
}

Status call_kernel(const char* name, std::vector<EValue> values, pthreadpool_t threads = nullptr) {
  std::vector<std::int32_t> indices(values.size());
  std::iota(indices.begin(), indices.end(), 0);
  Scratch scratch;
  scratch.threads = threads;
  Arguments arguments(&values, indices.data(), indices.size(), &scratch);
  const KernelEntry* entry = find_kernel(name);
  CHECK(entry != nullptr && entry->arguments == values.size());
  const Status done = entry->function(arguments);
  return arguments.fault().ok() ? done : arguments.fault();
}

struct CacheSizes {
  std::int64_t batch, tokens, heads, kv, dim, room, start;
};

// What it should be, of [batch, tokens, heads, dim] and whole caches.
std::vector<double> attention_in_double(const CacheSizes& s, const std::vector<double>& query,
                                        const std::vector<double>& keys, const std::vector<double>& values,
                                        const std::vector<double>& mask, bool causal, double scale) {
  std::vector<double> out(query.size());
  for (std::int64_t row = 0; row < s.batch * s.tokens * s.heads; ++row) {
    const std::int64_t head = row % s.heads;
    const std::int64_t token = row / s.heads % s.tokens;
    const std::int64_t batch = row / s.heads / s.tokens;
    const std::int64_t seen = !mask.empty() ? s.room : s.start + (causal ? token + 1 : s.tokens);
    const auto at = [&](std::int64_t position, std::int64_t d) {
      return static_cast<std::size_t>(((batch * s.room + position) * s.kv + head / (s.heads / s.kv)) * s.dim +
                                      d);
    };
    std::vector<double> weights(static_cast<std::size_t>(seen));
    for (std::int64_t k = 0; k < seen; ++k) {
      double& score = weights[static_cast<std::size_t>(k)];
      for (std::int64_t d = 0; d < s.dim; ++d) {
        score += query[static_cast<std::size_t>(row * s.dim + d)] * keys[at(k, d)];
      }
      score = score * scale + (mask.empty() ? 0 : mask[static_cast<std::size_t>(token * s.room + k)]);
    }
    const double largest = *std::max_element(weights.begin(), weights.end());
    double total = 0;
    for (double& weight : weights) {
      weight = std::exp(weight - largest);
      total += weight;
    }
    for (std::int64_t d = 0; d < s.dim; ++d) {
      double sum = 0;
      for (std::int64_t k = 0; k < seen; ++k) {
        sum += weights[static_cast<std::size_t>(k)] * values[at(k, d)];
      }
      out[static_cast<std::size_t>(row * s.dim + d)] = sum / total;
    }
  }
  return out;
}

double worst_difference(const std::vector<double>& found, const std::vector<double>& expected) {
  double worst = found.size() == expected.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < found.size() && worst < 1e9; ++i) {
    const double error = std::fabs(found[i] - expected[i]);
    worst = error <= worst ? worst : error;  // NaN, too
  }
  return worst;
}

// A query and caches of some type, as a call gets them.
struct AttentionCase {
  CacheSizes sizes;
  OwnedTensor query, keys, values, out;

  explicit AttentionCase(const CacheSizes& s, DType dtype = DType::kFloat32)
      : sizes(s),
        query({s.batch, s.tokens, s.heads, s.dim}, dtype, pseudo_numbers(count(s.tokens * s.heads), 1)),
        keys({s.batch, s.room, s.kv, s.dim}, dtype, pseudo_numbers(count(s.room * s.kv), 2)),
        values({s.batch, s.room, s.kv, s.dim}, dtype, pseudo_numbers(count(s.room * s.kv), 3)),
        out({s.batch, s.tokens, s.heads, s.dim}, dtype) {}
  std::size_t count(std::int64_t rows) const {
    return static_cast<std::size_t>(sizes.batch * rows * sizes.dim);
  }

  Status run(const EValue& mask, bool causal, const EValue& scale, pthreadpool_t threads = nullptr) {
    return call_kernel("llama::custom_sdpa.out",
                       {query.view, keys.view, values.view, sizes.start, mask, 0.0, causal, scale, out.view},
                       threads);
  }
  double worst(const std::vector<double>& mask, bool causal, double scale) const {
    return worst_difference(out.values(), attention_in_double(sizes, query.values(), keys.values(),
                                                              values.values(), mask, causal, scale));
  }
};

constexpr CacheSizes kSmallCache = {1, 3, 4, 2, 8, 16, 5};

}  // namespace

TEST(attention_is_what_sums_in_double_give) {
  const pthreadpool_t pool = pthreadpool_create(3);
  const CacheSizes all[] = {
      {1, 1, 4, 4, 64, 40, 0},     {1, 5, 6, 2, 20, 40, 7},   {1, 1, 9, 3, 64, 1500, 1499},
      {1, 70, 6, 2, 64, 200, 130}, {1, 40, 8, 1, 3, 100, 60}, {2, 5, 4, 2, 33, 70, 65},
      {1, 1, 70, 1, 128, 130, 64}, {1, 128, 4, 2, 1, 128, 0}, {1, 2, 2, 2, 80, 2000, 1024},
  };
  for (const CacheSizes& sizes : all) {
    const double scale = 1 / std::sqrt(static_cast<double>(sizes.dim));
    AttentionCase given(sizes);
    for (const bool causal : {true, false}) {
      CHECK_EQUAL(given.run(EValue(), causal, EValue(), pool).message(), "");
      CHECK(given.worst({}, causal, scale) < 2e-6);
      const std::vector<std::uint8_t> before = given.out.bytes;
      CHECK(given.run(EValue(), causal, EValue()).ok());
      CHECK(given.out.bytes == before);  // the bits do not depend on the number of threads
    }
    CHECK(given.run(EValue(), true, EValue(3.5), pool).ok());
    CHECK(given.worst({}, true, 3.5) < 4e-6);
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      AttentionCase narrow(sizes, dtype);
      CHECK(narrow.run(EValue(), true, EValue(), pool).ok());
      CHECK(narrow.worst({}, true, scale) < (dtype == DType::kFloat16 ? 6e-4 : 5e-3));
    }
  }
  pthreadpool_destroy(pool);
}

TEST(attention_adds_a_mask_and_sees_all_of_the_cache) {
  for (const std::int64_t start : {std::int64_t{2}, std::int64_t{5000}}) {  // a ring's positions go on
    const CacheSizes sizes = {1, 5, 6, 2, 20, 150, start};
    AttentionCase given(sizes);
    std::vector<double> mask = pseudo_numbers(5 * 150, 9);
    for (std::size_t i = 0; i < mask.size(); ++i) {
      mask[i] = i % 7 < 3 && i % 150 != 0 ? -std::numeric_limits<double>::infinity() : mask[i];
    }
    // The first tiles of a row may be empty.
    std::fill(mask.begin(), mask.begin() + 130, -std::numeric_limits<double>::infinity());
    const OwnedTensor added({5, 150}, DType::kFloat32, mask);
    CHECK_EQUAL(given.run(added.view, false, EValue()).message(), "");
    CHECK(given.worst(added.values(), false, 1 / std::sqrt(20.0)) < 2e-6);
    CHECK_CONTAINS(given.run(added.view, true, EValue()).message(), "causal");
    const OwnedTensor narrow({5, 149}, DType::kFloat32);
    CHECK_CONTAINS(given.run(narrow.view, false, EValue()).message(), "does not fit");
  }
}

TEST(attention_computes_bytes_with_a_scale_for_each_row) {
  for (const bool third : {false, true}) {
    const CacheSizes sizes = {1, 7, 6, 2, 36, 90, 70};
    std::vector<OwnedTensor> tensors;
    std::vector<std::vector<double>> real;
    std::uint32_t seed = 20;
    for (const auto& [positions, heads] :
         {std::pair{sizes.tokens, sizes.heads}, {sizes.room, sizes.kv}, {sizes.room, sizes.kv}}) {
      const auto rows = static_cast<std::size_t>(positions * heads);
      std::vector<double> bytes = pseudo_numbers(rows * 36, ++seed);
      std::vector<double> zeros = pseudo_numbers(rows, ++seed);
      std::vector<double> scales = pseudo_numbers(rows, ++seed);
      std::vector<double> found(bytes.size());
      std::vector<double> stored(bytes.size());
      std::vector<double> stored_zeros(rows);
      std::vector<double> stored_scales(rows);
      for (std::size_t row = 0; row < rows; ++row) {
        zeros[row] = std::floor(zeros[row] * 20);
        scales[row] = static_cast<double>(static_cast<float>(0.01 + scales[row] * scales[row] / 50));
        const auto head = row % static_cast<std::size_t>(heads);
        const std::size_t to =
            third ? head * static_cast<std::size_t>(positions) + row / static_cast<std::size_t>(heads) : row;
        stored_zeros[to] = zeros[row];
        stored_scales[to] = scales[row];
        for (std::size_t d = 0; d < 36; ++d) {
          const double byte = std::floor(bytes[row * 36 + d] * 127);
          stored[to * 36 + d] = byte;
          found[row * 36 + d] = (byte - zeros[row]) * scales[row];
        }
      }
      const Shape shape = third ? Shape{1, heads, positions, 36} : Shape{1, positions, heads, 36};
      Shape one = shape;
      one.back() = 1;
      tensors.emplace_back(shape, DType::kInt8, stored);
      tensors.emplace_back(one, DType::kInt8, stored_zeros);
      tensors.emplace_back(one, DType::kFloat32, stored_scales);
      real.push_back(found);
    }
    OwnedTensor out(tensors[0].view.shape(), DType::kFloat32);
    const auto run = [&](const EValue& scales) {
      return call_kernel("llama::custom_quantized_sdpa.out",
                         {tensors[0].view, tensors[3].view, tensors[6].view, sizes.start, EValue(), 0.0, true,
                          EValue(), tensors[1].view, tensors[2].view, tensors[4].view, tensors[5].view,
                          tensors[7].view, scales, third, out.view});
    };
    CHECK_EQUAL(run(tensors[8].view).message(), "");
    std::vector<double> found = out.values();
    std::vector<double> expected = attention_in_double(sizes, real[0], real[1], real[2], {}, true, 1.0 / 6);
    if (third) {
      std::vector<double> turned(found.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        turned[(i / 36 % 7 * 6 + i / 36 / 7) * 36 + i % 36] = found[i];
      }
      found = turned;
    }
    CHECK(worst_difference(found, expected) < 5e-6);
    CHECK_CONTAINS(run(EValue()).message(), "not a scale");
    const OwnedTensor few({1, 3, 1, 1}, DType::kFloat32);
    CHECK_CONTAINS(run(few.view).message(), "not a scale");
  }
}

// The processor's own vectors are what the operators use; all of them give nearly the same.
TEST(attention_of_all_widths_agrees) {
  std::vector<AttentionTiles> all = {{4, attention::attend<16>}};
#if XNN_ARCH_X86_64
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  if (hardware != nullptr && hardware->use_x86_avx2 && hardware->use_x86_fma3) {
    all.push_back(kAttentionTilesForAvx2);
  }
  if (hardware != nullptr && hardware->use_x86_avx512f) {
    all.push_back(kAttentionTilesForAvx512f);
  }
#endif
  for (const std::size_t dim : {5U, 64U, 72U}) {
    const CacheSizes sizes = {1, 1, 7, 1, static_cast<std::int64_t>(dim), 101, 100};
    const AttentionCase given(sizes);
    const std::vector<double> expected = attention_in_double(sizes, given.query.values(), given.keys.values(),
                                                             given.values.values(), {}, true, 1);
    for (const AttentionTiles& tiles : all) {
      const std::size_t width = (dim + tiles.lanes - 1) / tiles.lanes * tiles.lanes;
      std::vector<float> query(7 * width);
      std::vector<float> sums(7 * width);
      std::vector<float> scores(7 * kAttentionTile);
      std::vector<float> widened(2 * kAttentionTile * width);
      std::vector<float> largest(7, -std::numeric_limits<float>::infinity());
      std::vector<float> total(7);
      const std::vector<std::size_t> seen(7, 101);
      for (std::size_t r = 0; r < 7; ++r) {
        std::copy_n(given.query.view.as<float>() + r * dim, dim, query.data() + r * width);
      }
      const auto rows = [&](const OwnedTensor& owned) {
        return HeadRows{owned.bytes.data(), dim, CacheType::kFloat, nullptr, nullptr, 0};
      };
      tiles.attend({7, dim, width, 0, 101, rows(given.keys), rows(given.values), query.data(), seen.data(),
                    nullptr, largest.data(), total.data(), sums.data(), scores.data(), widened.data()});
      std::vector<double> found;
      for (std::size_t i = 0; i < 7 * dim; ++i) {
        found.push_back(static_cast<double>(sums[i / dim * width + i % dim] / total[i / dim]));
      }
      CHECK(worst_difference(found, expected) < 3e-6);
    }
  }
}

TEST(attention_that_does_not_fit_is_refused) {
  CHECK(AttentionCase(kSmallCache).run(EValue(), true, EValue()).ok());
  const auto refused = [](const CacheSizes& sizes, DType dtype = DType::kFloat32) {
    const Status done = AttentionCase(sizes, dtype).run(EValue(), true, EValue());
    CHECK(done.code() == (sizes.start > 13 || sizes.start < 0 ? Code::kInput : Code::kExecution));
    return done.message() + "; " + done.fix();
  };
  CacheSizes sizes = kSmallCache;
  sizes.start = -1;
  CHECK_CONTAINS(refused(sizes), "position -1");
  for (const std::int64_t start : {std::int64_t{14}, std::numeric_limits<std::int64_t>::max()}) {
    sizes.start = start;
    CHECK_CONTAINS(refused(sizes), "max_context_length");
  }
  sizes.start = 13;
  CHECK(AttentionCase(sizes).run(EValue(), true, EValue()).ok());
  sizes = kSmallCache;
  sizes.kv = 3;
  CHECK_CONTAINS(refused(sizes), "do not go together");
  CHECK_CONTAINS(refused(kSmallCache, DType::kInt8), "int8");
  CHECK_CONTAINS(refused(kSmallCache, DType::kFloat64), "no attention of float64");
  AttentionCase shorter(kSmallCache);
  shorter.values.view.sizes[1] = 7;
  CHECK_CONTAINS(shorter.run(EValue(), true, EValue()).message(), "too few values");
  shorter.values.view.sizes[1] = 8;
  CHECK(shorter.run(EValue(), true, EValue()).ok());
  AttentionCase other(kSmallCache);
  other.keys.view.order = {0, 2, 1, 3};
  CHECK_CONTAINS(other.run(EValue(), true, EValue()).message(), "row-major");
}

TEST(caches_take_tokens_where_they_belong) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt8}) {
    std::vector<double> numbers(2 * 3 * 2 * 2);
    std::iota(numbers.begin(), numbers.end(), 1);
    const OwnedTensor value({2, 3, 2, 2}, dtype, numbers);
    const auto after = [&](std::int64_t start, Status* done) {
      OwnedTensor cache({2, 8, 2, 2}, dtype);
      OwnedTensor dummy({1}, DType::kFloat32);
      *done = call_kernel("llama::update_cache.out", {value.view, cache.view, start, dummy.view});
      return cache.values();
    };
    Status done;
    for (const std::int64_t start : {0, 2, 5}) {
      const std::vector<double> found = after(start, &done);
      CHECK_EQUAL(done.message(), "");
      for (std::int64_t i = 0; i < 64; ++i) {
        const std::int64_t position = i / 4 % 8 - start;
        const bool inside = position >= 0 && position < 3;
        CHECK_EQUAL(found[static_cast<std::size_t>(i)],
                    inside ? static_cast<double>(i / 32 * 12 + position * 4 + i % 4 + 1) : 0);
      }
    }
    for (const std::int64_t start :
         {std::int64_t{-1}, std::int64_t{6}, std::numeric_limits<std::int64_t>::max()}) {
      CHECK(after(start, &done) == std::vector<double>(64));
      CHECK_CONTAINS(done.message(), "3 tokens from position " + std::to_string(start));
    }
  }
  const OwnedTensor value({1, 3, 1, 1}, DType::kFloat32, {1, 2, 3});
  const auto placed = [&](const std::vector<double>& places, const Shape& shape, Status* done) {
    OwnedTensor cache({1, 5, 1, 1}, DType::kFloat32);
    const OwnedTensor indices(shape, DType::kInt64, places);
    OwnedTensor dummy({1}, DType::kFloat32);
    *done = call_kernel("llama::update_cache_with_indices.out",
                        {value.view, cache.view, std::int64_t{77}, indices.view, dummy.view});
    return cache.values();
  };
  Status done;
  const std::vector<double> in_their_places = {2, 3, 0, 0, 1};
  CHECK(placed({4, 0, 1}, {1, 3}, &done) == in_their_places);
  CHECK_EQUAL(done.message(), "");
  CHECK(placed({4, 5, 1}, {1, 3}, &done) == std::vector<double>(5));
  CHECK_CONTAINS(done.message(), "position 5");
  placed({4, -1, 1}, {1, 3}, &done);
  CHECK_CONTAINS(done.message(), "position -1");
  placed({4, 0}, {1, 2}, &done);
  CHECK_CONTAINS(done.message(), "not one for each token");
  OwnedTensor half({1, 5, 1, 1}, DType::kFloat16);
  OwnedTensor dummy({1}, DType::kFloat32);
  CHECK_CONTAINS(
      call_kernel("llama::update_cache.out", {value.view, half.view, std::int64_t{0}, dummy.view}).message(),
      "of float16");
  OwnedTensor fixed({1, 5, 1, 1}, DType::kFloat32);
  fixed.view.constant = true;
  CHECK_CONTAINS(
      call_kernel("llama::update_cache.out", {value.view, fixed.view, std::int64_t{0}, dummy.view}).message(),
      "constant");
}

TEST(attention_with_its_caches_in_one_call) {
  AttentionCase given(kSmallCache);
  const std::vector<double> fresh = pseudo_numbers(3 * 2 * 8, 30);
  const OwnedTensor key({1, 3, 2, 8}, DType::kFloat32, fresh);
  const auto run = [&](std::int64_t start) {
    return call_kernel("llama::sdpa_with_kv_cache.out",
                       {given.query.view, key.view, key.view, given.keys.view, given.values.view, start,
                        std::int64_t{3}, EValue(), 0.0, true, EValue(), given.out.view});
  };
  CHECK_EQUAL(run(5).message(), "");
  const std::vector<double> keys = given.keys.values();
  CHECK(worst_difference({keys.begin() + 5 * 16, keys.begin() + 8 * 16}, key.values()) == 0);
  CHECK(given.values.values() != keys);
  CHECK(given.worst({}, true, 1 / std::sqrt(8.0)) < 2e-6);
  CHECK_CONTAINS(run(14).fix(), "max_context_length");
}

TEST(hadamard_transforms_keep_lengths) {
  for (const std::size_t count : {1U, 2U, 64U, 1024U, 28U, 112U}) {
    const auto columns = static_cast<std::int64_t>(count);
    const OwnedTensor in({2, columns}, DType::kFloat32, pseudo_numbers(2 * count, 40));
    OwnedTensor out({2, columns}, DType::kFloat32);
    CHECK(call_kernel("llama::fast_hadamard_transform.out", {in.view, out.view}).ok());
    const std::vector<double> before = in.values();
    const std::vector<double> after = out.values();
    const double squares = std::inner_product(before.begin(), before.end(), before.begin(), 0.0);
    const double turned = std::inner_product(after.begin(), after.end(), after.begin(), 0.0);
    CHECK(std::fabs(turned / squares / (count % 28 == 0 ? 28 : 1) - 1) < 1e-5);
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += before[i] / std::sqrt(static_cast<double>(count));
    }
    CHECK(count % 28 == 0 || std::fabs(after[0] - sum) < 1e-5);
  }
  const OwnedTensor odd({1, 12}, DType::kFloat32);
  OwnedTensor out({1, 12}, DType::kFloat32);
  CHECK_CONTAINS(call_kernel("llama::fast_hadamard_transform.out", {odd.view, out.view}).message(), "28 2^n");
}
