// What decides how a layer's weights are packed: graphs of the same form share them, others do not.
#include <xnnpack/common.h>

#include "check.h"
#include "graph_maker.h"
#include "lean/xnnpack/packed_weights.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

using Role = ValueRecipe::Role;

// The forms of a graph's constants; their addresses are gone when this returns.
std::vector<std::string> forms_of(const GraphRecipe& recipe) {
  const ReadPayload read(recipe);
  std::vector<std::string> forms;
  for (const auto& [constant, form] : packing_forms(*read.payload)) {
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
  CHECK(forms != changed_forms([](GraphRecipe& recipe) { recipe.flags = 1; }));
  CHECK(forms != changed_forms([](GraphRecipe& recipe) { recipe.values[1].dims = {12, 4}; }));
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
  CHECK(forms_of(GraphRecipe{xnn::XNodeUnion::XNNAbs, {linear().values[0], linear().values[3]}}).empty());
}

TEST(packing_of_convolutions_depends_on_kernel_and_groups) {
  GraphRecipe convolution;
  for (const GraphRecipe& one : sound_graphs()) {
    convolution = one.kind == xnn::XNodeUnion::XNNConv2d ? one : convolution;
  }
  const std::vector<std::string> forms = forms_of(convolution);
  CHECK_EQUAL(forms.size(), std::size_t{1});
  // Of the schema's numbers: the kernel's height and width (4, 5), and the channels and groups (10 to 12).
  for (std::size_t i = 0; i < convolution.parameters.size(); ++i) {
    GraphRecipe other = convolution;
    other.parameters[i] += 1;
    const bool counts = i == 4 || i == 5 || (i >= 10 && i <= 12);
    CHECK_EQUAL(forms_of(other) != forms, counts);
  }
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
