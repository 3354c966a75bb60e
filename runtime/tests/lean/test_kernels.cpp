// What decides how a layer's weights are packed: graphs of the same form share them, others do not.
#include <pthreadpool.h>
#include <xnnpack.h>
#include <xnnpack/common.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include "check.h"
#include "graph_maker.h"
#include "lean/xnnpack/blocking.h"
#include "lean/xnnpack/packed_weights.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

using Role = ValueRecipe::Role;

// The forms of a graph's constants; their addresses are gone when this returns.
std::vector<std::string> forms_of(const GraphRecipe& recipe) {
  const ReadPayload read(recipe);
  const Result<GraphCheck> check = GraphCheck::read(*read.payload, "Delegate 0");
  CHECK(check.ok());
  std::vector<std::string> forms;
  for (const auto& [constant, form] : packing_forms(check.value())) {
    CHECK(constant != nullptr);
    forms.push_back(form);
  }
  return forms;
}

GraphRecipe linear() {
  constexpr auto kFloat = xnn::XNNDatatype::xnn_datatype_fp32;
  return {xnn::XNodeUnion::XNNFullyConnected,
          {{kFloat, {3, 8}},
           {kFloat, {6, 8}, Role::kConstant},
           {kFloat, {6}, Role::kConstant},
           {kFloat, {3, 6}, Role::kOutput}}};
}

template <typename Change>
std::vector<std::string> changed_forms(Change change) {
  GraphRecipe recipe = linear();
  change(recipe);
  return forms_of(recipe);
}

}  // namespace

TEST(packing_is_the_same_for_any_batch) {
  const std::vector<std::string> forms = forms_of(linear());
  CHECK_EQUAL(forms.size(), std::size_t{1});
  CHECK(!forms.empty() && !forms[0].empty());
  CHECK(forms == changed_forms([](GraphRecipe& recipe) {
          recipe.values[0].dims = {9, 8};
          recipe.values[3].dims = {9, 6};
        }));
}

TEST(packing_depends_on_flags_and_shapes_of_the_weights) {
  const std::vector<std::string> forms = forms_of(linear());
  const auto square = [](std::uint32_t flags) {
    return changed_forms([&](GraphRecipe& recipe) {
      recipe.flags = flags;
      recipe.values[1].dims = {8, 8};
      recipe.values[2].dims = {8};
      recipe.values[3].dims = {3, 8};
    });
  };
  CHECK(forms != square(0));
  CHECK(square(XNN_FLAG_TRANSPOSE_WEIGHTS) != square(0));
  CHECK(forms != changed_forms([](GraphRecipe& recipe) { recipe.values[2].dims = {1, 6}; }));
  CHECK(forms != changed_forms([](GraphRecipe& recipe) {
          recipe.values.erase(recipe.values.begin() + 2);
          recipe.no_bias = true;
        }));
}

TEST(packing_depends_on_types_and_quantization) {
  const auto quantized = [](float scale, std::int32_t zero_point) {
    return changed_forms([&](GraphRecipe& recipe) {
      recipe.values[0].type = recipe.values[3].type = xnn::XNNDatatype::xnn_datatype_qint8;
      recipe.values[0].scale = scale;
      recipe.values[0].zero_point = zero_point;
      recipe.values[1].type = xnn::XNNDatatype::xnn_datatype_qcint8;
      recipe.values[2].type = xnn::XNNDatatype::xnn_datatype_qcint32;
    });
  };
  CHECK_EQUAL(quantized(0.5F, 0).size(), std::size_t{1});
  CHECK(quantized(0.5F, 0) == quantized(0.5F, 0));
  CHECK(quantized(0.5F, 0) != forms_of(linear()));
  CHECK(quantized(0.5F, 0) != quantized(0.25F, 0));
  CHECK(quantized(0.5F, 0) != quantized(0.5F, 3));
}

TEST(packing_depends_on_the_bias_but_not_on_the_weights) {
  CHECK(forms_of(linear()) != changed_forms([](GraphRecipe& recipe) { recipe.values[2].content = 1; }));
  CHECK(forms_of(linear()) == changed_forms([](GraphRecipe& recipe) { recipe.values[1].content = 1; }));
}

TEST(packing_is_not_known_of_weights_that_are_given_at_run_time) {
  CHECK(changed_forms([](GraphRecipe& recipe) { recipe.values[1].role = Role::kInput; }).empty());
  ValueRecipe result = linear().values[3];
  result.dims = linear().values[0].dims;
  CHECK(forms_of(GraphRecipe{xnn::XNodeUnion::XNNAbs, {linear().values[0], result}}).empty());
}

TEST(packing_of_convolutions_depends_on_groups) {
  GraphRecipe convolution;
  for (const GraphRecipe& one : sound_graphs()) {
    if (one.kind == xnn::XNodeUnion::XNNConv2d && convolution.values.empty()) {
      convolution = one;
    }
  }
  // The same weights, of two groups of four channels or of one.
  GraphRecipe whole = convolution;
  CHECK_EQUAL(whole.parameters.at(12), 2U);
  whole.parameters[12] = 1;
  whole.parameters[11] *= 2;
  whole.values[0].dims[3] /= 2;
  CHECK_EQUAL(forms_of(whole).size(), std::size_t{1});
  CHECK(forms_of(whole) != forms_of(convolution));
}

TEST("what packed weights leave of their last line is zero") {
  PackedWeights weights(any_store());
  const std::uint8_t kernel = 0;
  weights.expect({}, {{&kernel, "form"}});
  xnn_weights_cache_t provider = weights.provider();
  constexpr std::size_t kLine = XNN_ALLOCATION_ALIGNMENT;
  std::memset(provider->reserve_space(provider->context, kLine), 0xa5, kLine);
  constexpr std::size_t kSize = 10;
  weights.offer({&kernel, nullptr, kSize, [](std::uint8_t* to) { std::memset(to, 1, kSize); }});
  const xnn_weights_cache_look_up_key key = {5, &kernel, nullptr};
  const std::size_t index = provider->look_up(provider->context, &key);
  CHECK_EQUAL(weights.size(), kLine);
  const auto* data = static_cast<const std::uint8_t*>(provider->offset_to_addr(provider->context, index));
  for (std::size_t i = 0; i < kLine; ++i) {
    CHECK_EQUAL(static_cast<int>(data[i]), i < kSize ? 1 : 0);
  }
}

// Chains of element-by-element nodes between 8-bit values: looked up in a table, against XNNPACK's nodes one
// after the other, bit for bit.

namespace {

struct Chain {
  xnn_datatype type = xnn_datatype_qint8;
  std::vector<xnn_unary_operator> between;  // in float32
  bool seen = false;                        // the last value in float32 is one of the graph's outputs
  std::size_t count = 300;
  enum { kNothing, kItself, kNumber, kOther } times = kNothing;  // what the last value is multiplied by
};

struct Outcome {
  std::vector<std::uint8_t> bytes;
  std::size_t operators = 0;
  std::size_t tables = 0;
};

Outcome run_chain(const Chain& chain, bool joined, pthreadpool_t threads) {
  xnn_subgraph_t made = nullptr;
  CHECK(xnn_create_subgraph(4, 0, &made) == xnn_status_success);
  const std::unique_ptr<xnn_subgraph, decltype(&xnn_delete_subgraph)> subgraph(made, xnn_delete_subgraph);
  const std::size_t dims[] = {chain.count};
  const std::int32_t zero = chain.type == xnn_datatype_qint8 ? -20 : 110;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  CHECK(xnn_define_quantized_tensor_value(made, chain.type, zero, 0.05F, 1, dims, nullptr, 0,
                                          XNN_VALUE_FLAG_EXTERNAL_INPUT, &first) == xnn_status_success);
  CHECK(xnn_define_quantized_tensor_value(made, chain.type, zero + 5, 0.04F, 1, dims, nullptr, 1,
                                          XNN_VALUE_FLAG_EXTERNAL_OUTPUT, &last) == xnn_status_success);
  std::uint32_t at = first;
  std::uint32_t itself = 0;
  for (std::size_t i = 0; i <= chain.between.size(); ++i) {
    const bool outside = chain.seen && i == chain.between.size();
    std::uint32_t next = 0;
    CHECK(xnn_define_tensor_value(made, xnn_datatype_fp32, 1, dims, nullptr,
                                  outside ? 2 : XNN_INVALID_VALUE_ID,
                                  outside ? XNN_VALUE_FLAG_EXTERNAL_OUTPUT : 0, &next) == xnn_status_success);
    xnn_unary_params params = {};
    params.clamp.min = -1.0F;
    params.clamp.max = 2.0F;
    CHECK(xnn_define_unary(made, i == 0 ? xnn_unary_convert : chain.between[i - 1], &params, at, next, 0) ==
          xnn_status_success);
    itself = i == 0 ? next : itself;
    at = next;
  }
  if (chain.times != Chain::kNothing) {
    static const float number = 1.5F;
    const std::size_t one = 1;
    const bool other = chain.times == Chain::kOther;
    std::uint32_t by = itself;
    std::uint32_t product = 0;
    CHECK(chain.times == Chain::kItself ||
          xnn_define_tensor_value(made, xnn_datatype_fp32, 1, other ? dims : &one, other ? nullptr : &number,
                                  other ? 3 : XNN_INVALID_VALUE_ID, other ? XNN_VALUE_FLAG_EXTERNAL_INPUT : 0,
                                  &by) == xnn_status_success);
    CHECK(xnn_define_tensor_value(made, xnn_datatype_fp32, 1, dims, nullptr, XNN_INVALID_VALUE_ID, 0,
                                  &product) == xnn_status_success);
    CHECK(xnn_define_binary(made, xnn_binary_multiply, nullptr, at, by, product, 0) == xnn_status_success);
    at = product;
  }
  CHECK(xnn_define_unary(made, xnn_unary_convert, nullptr, at, last, 0) == xnn_status_success);

  xnn_runtime_t started = nullptr;
  if (joined) {
    const ByteTables tables(made);
    CHECK(xnn_create_runtime_v2(made, threads, 0, &started) == xnn_status_success);
    CHECK(tables.install(started) == xnn_status_success);
  } else {
    CHECK(xnn_create_runtime_v2(made, threads, 0, &started) == xnn_status_success);
  }
  const std::unique_ptr<xnn_runtime, decltype(&xnn_delete_runtime)> runtime(started, xnn_delete_runtime);
  Outcome outcome;
  for (std::size_t i = 0; i < started->num_ops; ++i) {
    const xnn_operator* op = started->opdata[i].operator_objects[0];
    outcome.operators += op != nullptr ? 1 : 0;
    outcome.tables += op != nullptr && op->lookup_table != nullptr ? 1 : 0;
  }
  std::vector<std::uint8_t> given(chain.count + XNN_EXTRA_BYTES);
  for (std::size_t i = 0; i < given.size(); ++i) {
    given[i] = static_cast<std::uint8_t>(i);
  }
  outcome.bytes.resize(chain.count);
  std::vector<float> between(chain.count + XNN_EXTRA_BYTES, 0.5F);
  std::vector<xnn_external_value> values = {{0, given.data()}, {1, outcome.bytes.data()}};
  if (chain.seen || chain.times == Chain::kOther) {
    values.push_back({chain.seen ? 2U : 3U, between.data()});
  }
  CHECK(xnn_reshape_runtime(started) == xnn_status_success);
  set_blocks(started, threads == nullptr ? 1 : pthreadpool_get_threads_count(threads));
  CHECK(xnn_setup_runtime_v2(started, values.size(), values.data()) == xnn_status_success);
  CHECK(xnn_invoke_runtime(started) == xnn_status_success);
  return outcome;
}

void check_chain(const Chain& chain, bool becomes_table = true) {
  const std::unique_ptr<pthreadpool, decltype(&pthreadpool_destroy)> threads(pthreadpool_create(3),
                                                                             pthreadpool_destroy);
  const Outcome plain = run_chain(chain, false, nullptr);
  CHECK(plain.operators == chain.between.size() + (chain.times == Chain::kNothing ? 2 : 3));
  for (pthreadpool_t pool : {static_cast<pthreadpool_t>(nullptr), threads.get()}) {
    const Outcome joined = run_chain(chain, true, pool);
    CHECK(joined.bytes == plain.bytes);
    CHECK(joined.tables == (becomes_table ? 1U : 0U));
    CHECK(joined.operators == (becomes_table ? 1U : plain.operators));
  }
}

}  // namespace

TEST("a chain between 8-bit values is one table, with the bits of its nodes") {
  CHECK(xnn_initialize(nullptr) == xnn_status_success);
  for (const xnn_datatype type : {xnn_datatype_qint8, xnn_datatype_quint8}) {
    check_chain({type, {xnn_unary_hardswish}});
    check_chain({type, {xnn_unary_gelu}});
    check_chain({type, {xnn_unary_sigmoid, xnn_unary_clamp}});
    check_chain({type, {}});
  }
  check_chain({xnn_datatype_qint8, {xnn_unary_hardswish}, false, 1});
  check_chain({xnn_datatype_qint8, {xnn_unary_hardswish}, false, 200000});  // shared among threads
}

TEST("an activation that multiplies what it was given is one table, too") {
  CHECK(xnn_initialize(nullptr) == xnn_status_success);
  check_chain({xnn_datatype_qint8, {xnn_unary_sigmoid}, false, 300, Chain::kItself});
  check_chain({xnn_datatype_quint8, {xnn_unary_hardswish, xnn_unary_sigmoid}, false, 300, Chain::kNumber});
}

TEST("a chain whose values are seen outside stays as it is") {
  CHECK(xnn_initialize(nullptr) == xnn_status_success);
  check_chain({xnn_datatype_qint8, {xnn_unary_sigmoid}, false, 300, Chain::kOther}, false);
  check_chain({xnn_datatype_qint8, {xnn_unary_hardswish}, true}, false);
}
