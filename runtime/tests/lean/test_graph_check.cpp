#include <array>
#include <deque>
#include <random>
#include <set>

#include "check.h"
#include "graph_maker.h"
#include "lean/xnnpack/packed_weights.h"
#include "lean/xnnpack/rules.h"
#include "lean/xnnpack/xnn_delegate.h"
#include "views.h"

using namespace slipway;
using namespace slipway::lean;

namespace {

using Read = ReadPayload;

XnnContext& started() {
  static XnnContext context;
  CHECK(context.start().ok());
  return context;
}

// Tensors for a graph's inputs and outputs, in shapes of the caller's.
class GivenTensors {
 public:
  TensorView& add(xnn_datatype type, const Dims& dims, Dynamism dynamism = Dynamism::kBounded) {
    const Shape sizes(dims.size.begin(), dims.size.begin() + dims.rank);
    TensorView& view = views_.emplace_back(view_at(dtype_of_value(type), sizes, nullptr));
    view.dynamism = dynamism;
    memory_.emplace_back(view.capacity + 2 * XNN_EXTRA_BYTES);
    view.data = memory_.back().data();
    all_.push_back(&view);
    return view;
  }
  const std::vector<TensorView*>& all() const { return all_; }

 private:
  std::deque<TensorView> views_;
  std::vector<std::vector<std::uint8_t>> memory_;
  std::vector<TensorView*> all_;
};

// The graph's inputs and outputs among its values, as a call has them.
std::vector<std::size_t> outside(const GraphCheck& check) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < check.facts().size(); ++i) {
    if (check.facts()[i].input || check.facts()[i].output) {
      order.push_back(i);
    }
  }
  std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
    return check.facts()[one].external_id < check.facts()[other].external_id;
  });
  return order;
}

// In the shapes of `check`.
std::unique_ptr<GivenTensors> arguments_for(const GraphCheck& check, Dynamism dynamism = Dynamism::kBounded) {
  auto arguments = std::make_unique<GivenTensors>();
  for (const std::size_t fact : outside(check)) {
    arguments->add(check.facts()[fact].type, check.shapes()[fact], dynamism);
  }
  return arguments;
}

// A sound graph's check, with what it reads.
struct Checked {
  explicit Checked(const GraphRecipe& recipe)
      : read(recipe), found(GraphCheck::read(*read.payload, "Delegate 0")) {
    CHECK(found.ok());
  }
  GraphCheck* operator->() { return &found.value(); }

  const Read read;
  Result<GraphCheck> found;
};

Status run(const GraphRecipe& recipe) {
  const Read read(recipe);
  Result<GraphCheck> check = GraphCheck::read(*read.payload, "Delegate 0");
  SLIPWAY_RETURN_IF_ERROR(check);
  PackedWeights weights(any_store());
  Result<std::unique_ptr<XnnDelegate>> made =
      XnnDelegate::load(started(), check.value(), weights, "Delegate 0", false);
  SLIPWAY_RETURN_IF_ERROR(made);
  const std::unique_ptr<GivenTensors> arguments = arguments_for(check.value());
  const Status accepted = check.value().accept(arguments->all());
  // The delegate compares XNNPACK's shapes with the check's before it runs.
  return accepted.ok() ? made.value()->execute(arguments->all(), &check.value()) : accepted;
}

// The refusal of a recipe; empty when it is sound.
std::string refusal(const GraphRecipe& recipe) {
  const Read read(recipe);
  const Result<GraphCheck> check = GraphCheck::read(*read.payload, "Delegate 0");
  if (!check.ok()) {
    CHECK(check.status().code() == Code::kFile || check.status().code() == Code::kMissingOperator);
    CHECK_CONTAINS(check.status().message(), "Delegate 0: ");
  }
  return check.ok() ? "" : check.status().message();
}

std::string name_of(const GraphRecipe& recipe) {
  return xnn::EnumNameXNodeUnion(recipe.kind);
}

// Outputs declared as the rule says, so that a changed graph is refused for what is wrong with its node only.
void redeclare(GraphRecipe* recipe) {
  const Read read(*recipe);
  std::vector<GraphFact> facts(read.payload->graph().xvalues()->size());
  std::vector<Dims> shapes(facts.size());
  for (std::uint32_t i = 0; i < facts.size(); ++i) {
    Fault wrong;
    if (!read_fact(*read.payload->graph().xvalues()->Get(i), *read.payload, &facts[i], &wrong) ||
        !wrong.empty()) {
      return;
    }
    shapes[i] = facts[i].declared;
  }
  const auto& nodes = *read.payload->graph().xnodes();
  const GraphNode node = {nodes.Get(nodes.size() - 1), 0,
                          rule_of(recipe->kind)->operands(*nodes.Get(nodes.size() - 1))};
  NodeCheck check(node, facts, &shapes);
  if (!rule_of(recipe->kind)->check(check).empty()) {
    return;
  }
  for (std::size_t i = recipe->values.size() - recipe->outputs; i < recipe->values.size(); ++i) {
    recipe->values[i].dims.assign(shapes[i].size.begin(), shapes[i].size.begin() + shapes[i].rank);
  }
}

// A node between float32 values of these shapes, the last one its result.
GraphRecipe plain_graph(xnn::XNodeUnion kind, const std::vector<std::vector<std::uint32_t>>& dims) {
  GraphRecipe recipe;
  recipe.kind = kind;
  for (const std::vector<std::uint32_t>& one : dims) {
    recipe.values.emplace_back().dims = one;
  }
  recipe.values.back().role = ValueRecipe::Role::kOutput;
  return recipe;
}

Dims dims_of(std::initializer_list<std::size_t> sizes) {
  Dims made;
  for (const std::size_t size : sizes) {
    made[made.rank++] = size;
  }
  return made;
}

// One number of a graph changes, to a neighbour, or to one that somebody may have thought of.
GraphRecipe changed_graph(GraphRecipe recipe, std::mt19937* random) {
  const auto below = [&](std::size_t count) { return static_cast<std::size_t>((*random)() % count); };
  std::vector<std::uint32_t*> numbers = {&recipe.flags};
  for (ValueRecipe& value : recipe.values) {
    for (std::uint32_t& dim : value.dims) {
      numbers.push_back(&dim);
    }
  }
  for (std::vector<std::uint32_t>* list : {&recipe.parameters, &recipe.list, &recipe.second}) {
    for (std::uint32_t& number : *list) {
      numbers.push_back(&number);
    }
  }
  const std::size_t which = below(numbers.size() + 3);
  if (which < numbers.size()) {
    std::uint32_t* number = numbers[which];
    const std::uint32_t choices[] = {0,           1,           *number + 1,
                                     *number - 1, *number * 2, *numbers[below(numbers.size())]};
    const bool is_dim = which != 0 && number != nullptr && *number < 65536;
    *number = choices[below(6)];
    // Sizes stay small: what a constant has is made.
    *number = is_dim && *number < UINT32_MAX ? *number % 4096 : *number;
  } else {
    ValueRecipe& value = recipe.values[below(recipe.values.size())];
    if (which == numbers.size()) {
      value.type = static_cast<xnn::XNNDatatype>(1 + below(14));
    } else if (which == numbers.size() + 1) {
      value.dims.push_back(1);
    } else if (!value.dims.empty()) {
      value.dims.pop_back();
    }
  }
  return recipe;
}

}  // namespace

TEST(every_kind_of_node_has_a_sound_graph_that_is_checked_and_runs) {
  std::set<xnn::XNodeUnion> kinds;
  for (const GraphRecipe& recipe : sound_graphs()) {
    const Status done = run(recipe);
    if (!done.ok()) {
      FAILED(name_of(recipe) + ": " + done.message());
    }
    kinds.insert(recipe.kind);
  }
  CHECK_EQUAL(kinds.size(), std::size_t{47});
}

TEST(convolutions_of_single_pixels_quantize_each_pixel_by_itself) {
  // Padding, kernel and stride of a 1x1 convolution; then its groups.
  const std::vector<std::uint32_t> plain = {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 8, 12, 1};
  const auto is_by_pixels = [](const GraphRecipe& recipe) {
    Checked check(recipe);
    const std::vector<GraphFact>& facts = check->facts();
    return std::any_of(facts.begin(), facts.end(), [](const GraphFact& fact) { return fact.by_pixels; });
  };
  std::size_t pixels = 0;
  for (const GraphRecipe& recipe : sound_graphs()) {
    if (recipe.kind != xnn::XNodeUnion::XNNConv2d || recipe.quantized_by != 3) {
      continue;
    }
    CHECK_EQUAL(is_by_pixels(recipe), recipe.parameters == plain);
    pixels += recipe.parameters == plain ? 1 : 0;
    // Padding and stride change the result's height or width.
    for (const auto& [other, along, size] :
         {std::array{0U, 1U, 10U}, {1U, 2U, 11U}, {6U, 1U, 5U}, {7U, 2U, 5U}}) {
      GraphRecipe changed = recipe;
      ++changed.parameters[other];
      changed.values.back().dims[along] = size;
      CHECK(recipe.parameters != plain || !is_by_pixels(changed));
    }
  }
  CHECK_EQUAL(pixels, std::size_t{1});
}

TEST(quantized_weights_are_refused_with_inputs_that_are_not) {
  for (const auto type : {xnn::XNNDatatype::xnn_datatype_qcint8, xnn::XNNDatatype::xnn_datatype_qcint4}) {
    GraphRecipe recipe;
    recipe.kind = xnn::XNodeUnion::XNNFullyConnected;
    recipe.values = {{xnn::XNNDatatype::xnn_datatype_fp32, {3, 8}},
                     {type, {6, 8}, ValueRecipe::Role::kConstant},
                     {xnn::XNNDatatype::xnn_datatype_fp32, {3, 6}, ValueRecipe::Role::kOutput}};
    recipe.no_bias = true;
    CHECK_CONTAINS(refusal(recipe), "do not go together");
    recipe.quantized_by = 1;
    CHECK_EQUAL(refusal(recipe), "");
  }
}

TEST(a_graph_that_says_another_shape_of_its_result_is_refused) {
  for (GraphRecipe recipe : sound_graphs()) {
    std::vector<std::uint32_t>& dims = recipe.values.back().dims;
    --dims[dims.size() / 2];
    CHECK_CONTAINS(refusal(recipe), name_of(recipe));
    // A larger one may be a bound, but not of tensors whose sizes are known.
    dims[dims.size() / 2] += 2;
    const Read read(recipe);
    Result<GraphCheck> check = GraphCheck::read(*read.payload, "Delegate 0");
    const Status refused = check.ok()
                               ? check.value().accept(arguments_for(check.value(), Dynamism::kStatic)->all())
                               : check.status();
    CHECK(refused.code() == Code::kFile);
    CHECK_CONTAINS(refused.message(), name_of(recipe));
  }
}

TEST(a_shape_may_be_declared_with_its_channels_before_the_rest_as_pytorch_has_it) {
  GraphRecipe recipe = plain_graph(xnn::XNodeUnion::XNNStaticTranspose, {{1, 6, 3, 5}, {}});
  recipe.list = {0, 3, 1, 2};
  using Declared = std::vector<std::uint32_t>;
  for (const Declared& declared : {Declared{1, 5, 6, 3}, Declared{1, 3, 5, 6}}) {
    recipe.values[1].dims = declared;
    Checked check(recipe);
    GivenTensors given;
    given.add(xnn_datatype_fp32, dims_of({1, 6, 3, 5}), Dynamism::kStatic);
    given.add(xnn_datatype_fp32, dims_of({1, 5, 6, 3}), Dynamism::kStatic);
    CHECK(check->accept(given.all()).ok());
    CHECK(check->shapes()[1] == dims_of({1, 5, 6, 3}));
  }
  for (const Declared& declared : {Declared{1, 6, 3, 5}, Declared{1, 3, 4, 6}, Declared{5, 1, 3, 6}}) {
    recipe.values[1].dims = declared;
    CHECK_CONTAINS(refusal(recipe), "is declared as ");
  }
}

TEST(a_graph_with_one_number_changed_is_refused_or_runs_in_the_shapes_that_were_foreseen) {
  std::mt19937 random(13);
  std::size_t refused = 0;
  std::size_t ran = 0;
  for (const GraphRecipe& sound : sound_graphs()) {
    for (int i = 0; i < 150; ++i) {
      GraphRecipe recipe = changed_graph(sound, &random);
      redeclare(&recipe);
      const Status done = run(recipe);
      ++(done.ok() ? ran : refused);
      // Where check and XNNPACK differ, or XNNPACK cannot do what was let through.
      if (done.message().find("XNNPACK makes") != std::string::npos ||
          done.message().find("XNNPACK cannot reshape") != std::string::npos) {
        FAILED(name_of(recipe) + ": " + done.message());
      }
    }
  }
  CHECK(refused > 1000);
  CHECK(ran > 1000);
}

TEST(the_shapes_of_a_call_go_through_the_graph_before_xnnpack_sees_them) {
  GraphRecipe recipe;
  for (const GraphRecipe& one : sound_graphs()) {
    recipe = one.kind == xnn::XNodeUnion::XNNFullyConnected && one.quantized_by == 1 ? one : recipe;
  }
  Checked checked(recipe);
  const std::size_t depth = recipe.values[0].dims[1];
  const auto accept = [&](const Dims& input, const Dims& output, void (*change)(TensorView&) = nullptr) {
    GivenTensors arguments;
    for (const std::size_t fact : outside(checked.found.value())) {
      TensorView& view = arguments.add(xnn_datatype_fp32, checked->facts()[fact].input ? input : output);
      if (change != nullptr) {
        change(view);
      }
    }
    return checked->accept(arguments.all());
  };
  const Dims rows = dims_of({5, depth});
  const Dims results = dims_of({5, 6});
  CHECK(accept(rows, results).ok());
  const Status narrow = accept(dims_of({5, depth - 1}), results);
  CHECK(narrow.code() == Code::kExecution);
  CHECK_CONTAINS(narrow.message(),
                 "value 0 is qdint8 5x" + std::to_string(depth - 1) + ", which it does not take");
  const Status small = accept(rows, dims_of({4, 6}));
  CHECK(small.code() == Code::kFile);
  CHECK_CONTAINS(small.message(), "does not fit the tensor float32 4x6");
  CHECK(accept(dims_of({1, 5, depth}), results).code() == Code::kFile);
  const auto sixteen = [](TensorView& view) {
    view.rank = 16;
    std::fill(view.sizes.begin(), view.sizes.end(), 1);
  };
  CHECK(accept(rows, results, sixteen).code() == Code::kFile);
  CHECK(accept(rows, results, [](TensorView& view) { view.dtype = DType::kInt32; }).code() == Code::kFile);
  CHECK(checked->accept({}).code() == Code::kFile);
  CHECK(accept(rows, results).ok());
}

TEST(memory_is_planned_anew_for_other_shapes) {
  // With one row the sum may lie where the first term was; with many rows it may not.
  constexpr std::size_t kMany = 1 << 18;
  GraphRecipe recipe = plain_graph(xnn::XNodeUnion::XNNAdd, {{1, 5}, {kMany, 5}, {kMany, 5}});
  recipe.inside = true;
  Checked check(recipe);
  PackedWeights weights(any_store());
  XnnContext context;  // with memory of its own
  CHECK(context.start().ok());
  Result<std::unique_ptr<XnnDelegate>> made =
      XnnDelegate::load(context, check.found.value(), weights, "Delegate 0", false);
  CHECK(made.ok());
  for (const std::size_t rows : {std::size_t{1}, kMany, std::size_t{3}, kMany}) {
    GivenTensors arguments;
    for (const std::size_t count : {std::size_t{1}, rows, rows}) {
      TensorView& view = arguments.add(xnn_datatype_fp32, dims_of({count, 5}));
      std::fill_n(view.as<float>(), view.count(), -1.5F);
    }
    CHECK(check->accept(arguments.all()).ok());
    CHECK(made.value()->execute(arguments.all(), &check.found.value()).ok());
    const TensorView& sum = *arguments.all()[2];
    CHECK(std::all_of(sum.as<float>(), sum.as<float>() + sum.count(), [](float one) { return one == 3; }));
  }
}

TEST(a_graph_that_needs_more_memory_than_there_is_is_refused_before_it_asks_for_it) {
  constexpr std::uint32_t kSide = 1U << 20;  // squared, of float32: 4 TiB
  GraphRecipe recipe = plain_graph(xnn::XNodeUnion::XNNAbs, {{kSide, kSide}, {kSide, kSide}});
  recipe.inside = true;
  Checked check(recipe);
  CHECK_EQUAL(check->peak(), std::size_t{4} * kSide * kSide);
  // Nobody looks at the elements.
  TensorView view = view_at(DType::kFloat32, {kSide, kSide}, nullptr);
  view.dynamism = Dynamism::kBounded;
  TensorView result = view;
  const Status refused = check->accept({&view, &result});
  CHECK(refused.code() == Code::kMemory);
  CHECK_CONTAINS(refused.message(), "Delegate 0");
}

TEST(a_declared_shape_is_a_bound_of_values_that_are_dynamic_only) {
  // 7: the bound of (rows * rows) / rows, which an exporter takes apart.
  GraphRecipe recipe = plain_graph(xnn::XNodeUnion::XNNAdd, {{1, 5}, {3, 5}, {7, 5}});
  for (const Dynamism dynamism : {Dynamism::kBounded, Dynamism::kStatic}) {
    Checked check(recipe);
    GivenTensors given;
    given.add(xnn_datatype_fp32, dims_of({1, 5}), dynamism);
    given.add(xnn_datatype_fp32, dims_of({3, 5}), dynamism);
    given.add(xnn_datatype_fp32, dims_of({7, 5}));  // dynamic in both
    const Status accepted = check->accept(given.all());
    CHECK(accepted.ok() == (dynamism == Dynamism::kBounded));
    if (!accepted.ok()) {
      CHECK(accepted.code() == Code::kFile);
      CHECK_CONTAINS(accepted.message(), "is declared as 7x5");
    }
  }
  recipe.values[2].dims = {2, 5};
  CHECK_CONTAINS(refusal(recipe), "is declared as 2x5");
}
