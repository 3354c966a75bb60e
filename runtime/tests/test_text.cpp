// Sessions of language models and the choice of tokens, with a model that is a few lines: it adds up what it
// read.
#include "check.h"
#include "text/sampler.h"
#include "text/session.h"

namespace {

using namespace slipway;

constexpr std::int64_t kVocabulary = 10;

std::vector<std::int64_t> numbers_of(const Tensor& tensor) {
  std::vector<std::int64_t> numbers(tensor.bytes.size() / sizeof(std::int64_t));
  std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
  return numbers;
}

// Scores whose highest is that of (the sum of all tokens so far) mod 10; a cache by position, as real ones
// have.
struct Adder {
  std::vector<std::int64_t> cache = std::vector<std::int64_t>(64);
  std::vector<std::pair<Shape, std::vector<std::int64_t>>> calls;  // shape of the tokens, positions
  bool all_scores = false;  // of each token that it read, not the last one's

  Result<std::vector<Tensor>> operator()(const std::vector<Tensor>& inputs) {
    const std::vector<std::int64_t> tokens = numbers_of(inputs[0]);
    const std::vector<std::int64_t> places = numbers_of(inputs[1]);
    calls.emplace_back(inputs[0].shape, places);
    const auto count = static_cast<std::int64_t>(tokens.size());
    std::copy(tokens.begin(), tokens.end(), cache.begin() + places[0]);
    std::vector<float> scores;
    for (std::int64_t i = all_scores ? 1 : count; i <= count; ++i) {
      std::int64_t sum = 0;
      for (std::int64_t place = 0; place < places[0] + i; ++place) {
        sum += cache[static_cast<std::size_t>(place)];
      }
      for (std::int64_t token = 0; token < kVocabulary; ++token) {
        scores.push_back(token == sum % kVocabulary ? 1.0F : 0.0F);
      }
    }
    Tensor output{
        DType::kFloat32, {1, kVocabulary}, std::vector<std::uint8_t>(scores.size() * sizeof(float))};
    std::memcpy(output.bytes.data(), scores.data(), output.bytes.size());
    return std::vector<Tensor>{output};
  }
};

ValueSpec value(DType dtype, Shape shape, Dynamism dynamism = Dynamism::kStatic) {
  ValueSpec spec;
  spec.kind = "tensor";
  spec.dtype = dtype;
  spec.shape = std::move(shape);
  spec.dynamism = dynamism;
  return spec;
}

MethodInfo method(std::int64_t at_once, bool each_position = false) {
  const Dynamism tokens = at_once > 1 ? Dynamism::kBounded : Dynamism::kStatic;
  MethodInfo info;
  info.name = "forward";
  info.inputs = {value(DType::kInt64, {1, at_once}, tokens),
                 each_position ? value(DType::kInt64, {at_once}, tokens) : value(DType::kInt64, {1})};
  info.outputs = {value(DType::kFloat32, {1, kVocabulary})};
  return info;
}

TextSession session_of(Adder& adder, const MethodInfo& info, const TextMetadata& metadata) {
  Result<TextModel> model = text_model_of(info, metadata);
  CHECK(model.ok());
  return TextSession(
      std::move(model.value()),
      [&adder](const std::string&, const std::vector<Tensor>& inputs) { return adder(inputs); });
}

std::int64_t likeliest(const TextSession& session) {
  return Sampler({}).pick(session.scores().data(), session.scores().size());
}

TEST(text_is_read_in_as_few_pieces_as_the_model_allows) {
  Adder adder;
  TextSession session = session_of(adder, method(4), {{"get_max_context_len", {16}}});
  CHECK(session.read({1, 2, 3, 4, 5, 6}).ok());
  CHECK_EQUAL(adder.calls.size(), std::size_t{2});
  CHECK(adder.calls[0] == std::make_pair(Shape{1, 4}, std::vector<std::int64_t>{0}));
  CHECK(adder.calls[1] == std::make_pair(Shape{1, 2}, std::vector<std::int64_t>{4}));
  CHECK_EQUAL(likeliest(session), 1);
  CHECK(session.read({7}).ok());
  CHECK_EQUAL(likeliest(session), 8);
  CHECK_EQUAL(session.position(), 7);
}

TEST(text_of_models_that_want_each_position_and_give_all_scores) {
  Adder adder;
  adder.all_scores = true;
  TextSession session = session_of(adder, method(3, true), {});
  CHECK(session.read({1, 2, 3, 4}).ok());
  CHECK((adder.calls[0].second == std::vector<std::int64_t>{0, 1, 2}));
  CHECK(adder.calls[1].second == std::vector<std::int64_t>{3});
  CHECK_EQUAL(likeliest(session), 0);
}

TEST(text_token_by_token_where_the_program_says_so) {
  for (const bool open : {false, true}) {
    Adder adder;
    TextSession session = session_of(adder, method(open ? 4 : 1), {{"enable_dynamic_shape", {0}}});
    CHECK(session.read({1, 2, 3}).ok());
    CHECK_EQUAL(adder.calls.size(), std::size_t{3});
    CHECK_EQUAL(likeliest(session), 6);
  }
}

TEST(text_model_of_other_methods_is_refused) {
  CHECK(text_model_of(method(4), {}).ok());
  MethodInfo picture = method(4);
  picture.inputs = {value(DType::kFloat32, {1, 3, 8, 8})};
  CHECK_CONTAINS(text_model_of(picture, {}).status().message(), "it takes 1 inputs");
  MethodInfo floats = method(4);
  floats.inputs[0].dtype = DType::kFloat32;
  CHECK_CONTAINS(text_model_of(floats, {}).status().message(), "its inputs are float32 1x4 and int64 1");
  MethodInfo classes = method(4);
  classes.outputs[0].dtype = DType::kInt64;
  CHECK_CONTAINS(text_model_of(classes, {}).status().message(), "its output is int64");
  MethodInfo exact = method(4);
  exact.inputs[0].dynamism = Dynamism::kStatic;
  CHECK_CONTAINS(text_model_of(exact, {}).status().message(), "exactly 4 tokens");
}

TEST(text_stops_are_those_of_the_metadata) {
  const Result<TextModel> model = text_model_of(method(4), {{"get_eos_ids", {2, 7}}, {"get_eos_id", {2}}});
  CHECK((model.value().stops == std::vector<std::int64_t>{2, 7}));
}

TEST(sampler_takes_the_first_of_the_likeliest_and_no_nan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float scores[] = {nan, 1, 3, 3};
  CHECK_EQUAL(Sampler({}).pick(scores, 4), 2);
  CHECK_EQUAL(Sampler({}).pick(scores, 1), -1);
  CHECK_EQUAL(Sampler({1.0, 0, 1, 7}).pick(scores, 1), -1);
  std::vector<float> many(5000, -INFINITY);
  CHECK_EQUAL(Sampler({}).pick(many.data(), many.size()), 0);
  many[0] = NAN;
  CHECK_EQUAL(Sampler({}).pick(many.data(), many.size()), 1);
  for (const std::size_t at : {std::size_t{4999}, std::size_t{3071}, std::size_t{2048}, std::size_t{7}}) {
    many[at] = 1;  // the last one, and the last and the first of a block
    CHECK_EQUAL(Sampler({}).pick(many.data(), many.size()), static_cast<std::int64_t>(at));
  }
}

// How often each of the scores' indices comes in `rounds`.
std::vector<int> drawn(const Sampling& sampling, const std::vector<float>& scores, int rounds) {
  std::vector<int> counts(scores.size());
  Sampler sampler(sampling);
  for (int i = 0; i < rounds; ++i) {
    ++counts[static_cast<std::size_t>(sampler.pick(scores.data(), scores.size()))];
  }
  return counts;
}

TEST(sampler_draws_by_probability) {
  // Probabilities 0.5, 0.25 and twice 0.125.
  const std::vector<float> scores{std::log(4.0F), std::log(2.0F), 0, 0};
  const std::vector<int> counts = drawn({1.0, 0, 1, 3}, scores, 8000);
  CHECK(std::abs(counts[0] - 4000) < 200);
  CHECK(std::abs(counts[1] - 2000) < 200);
  CHECK(std::abs(counts[3] - 1000) < 150);
  const std::vector<int> colder = drawn({0.5, 0, 1, 3}, scores, 8000);  // 16 : 4 : 1 : 1
  CHECK(std::abs(colder[0] - 5818) < 250);
}

TEST(sampler_leaves_out_what_top_k_and_top_p_leave_out) {
  const std::vector<float> scores{0, std::log(4.0F), std::log(2.0F), 0};
  const std::vector<int> two = drawn({1.0, 2, 1, 1}, scores, 300);
  CHECK(two[0] == 0 && two[3] == 0 && two[1] > two[2] && two[2] > 0);
  const std::vector<int> most = drawn({1.0, 0, 0.5, 1}, scores, 300);
  CHECK_EQUAL(most[1], 300);
  const std::vector<int> more = drawn({1.0, 0, 0.6, 1}, scores, 300);
  CHECK(more[0] == 0 && more[1] > 0 && more[2] > 0);
}

TEST(sampler_gives_the_same_for_the_same_seed) {
  const std::vector<float> scores(100, 0.0F);
  CHECK(drawn({1.0, 0, 1, 5}, scores, 50) == drawn({1.0, 0, 1, 5}, scores, 50));
  CHECK(drawn({1.0, 0, 1, 5}, scores, 50) != drawn({1.0, 0, 1, 6}, scores, 50));
}

}  // namespace
