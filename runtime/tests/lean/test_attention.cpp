// Attention over a cache against sums in double, for more sizes than programs of upstream's have, and what is
// refused. verify/sound/runtime.py has all operators of language models.
#include <pthreadpool.h>

#include "check.h"
#include "views.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

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

TEST(caches_refuse_tokens_that_do_not_belong_there) {
  const OwnedTensor value({1, 3, 1, 1}, DType::kFloat32, {1, 2, 3});
  OwnedTensor cache({1, 5, 1, 1}, DType::kFloat32);
  OwnedTensor dummy({1}, DType::kFloat32);
  const auto update = [&](const OwnedTensor& into, std::int64_t start) {
    return call_kernel("llama::update_cache.out", {value.view, into.view, start, dummy.view}).message();
  };
  for (const std::int64_t start :
       {std::int64_t{-1}, std::int64_t{3}, std::numeric_limits<std::int64_t>::max()}) {
    CHECK_CONTAINS(update(cache, start), "3 tokens from position " + std::to_string(start));
  }
  const auto place = [&](const std::vector<double>& places) {
    const OwnedTensor indices({1, static_cast<std::int64_t>(places.size())}, DType::kInt64, places);
    return call_kernel("llama::update_cache_with_indices.out",
                       {value.view, cache.view, std::int64_t{77}, indices.view, dummy.view})
        .message();
  };
  CHECK_CONTAINS(place({4, 5, 1}), "position 5");
  CHECK_CONTAINS(place({4, -1, 1}), "position -1");
  CHECK_CONTAINS(place({4, 0}), "not one for each token");
  CHECK_CONTAINS(update(OwnedTensor({1, 5, 1, 1}, DType::kFloat16), 0), "of float16");
  CHECK(cache.values() == std::vector<double>(5));
  cache.view.constant = true;
  CHECK_CONTAINS(update(cache, 0), "constant");
  cache.view.constant = false;
  CHECK_EQUAL(update(cache, 2), "");
  CHECK(cache.values() == (std::vector<double>{0, 0, 1, 2, 3}));
}
