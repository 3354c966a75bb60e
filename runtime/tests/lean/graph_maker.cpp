#include "graph_maker.h"

#include <flatbuffers/flatbuffers.h>

#include "check.h"
#include "program_builder.h"
#include "temporary_folder.h"

using slipway::xnn::XNNDatatype;
using slipway::xnn::XNNQuantParams;
using slipway::xnn::XNodeUnion;
using slipway::xnn::XValueUnion;
namespace xnn = slipway::xnn;

namespace {

using Builder = flatbuffers::FlatBufferBuilder;
using Sizes = std::vector<std::uint32_t>;
template <typename T>
using Offset = flatbuffers::Offset<T>;

constexpr std::uint32_t kNone = UINT32_MAX;

std::size_t bytes_of(const ValueRecipe& value) {
  std::size_t count = 1;
  for (const std::uint32_t dim : value.dims) {
    count *= dim;
  }
  switch (value.type) {
    case XNNDatatype::xnn_datatype_qcint4:
    case XNNDatatype::xnn_datatype_qbint4: {
      const std::size_t last = value.dims.empty() ? 1 : value.dims.back();
      return last == 0 ? 0 : count / last * ((last + 1) / 2);
    }
    case XNNDatatype::xnn_datatype_fp16:
    case XNNDatatype::xnn_datatype_bf16:
      return 2 * count;
    case XNNDatatype::xnn_datatype_qint8:
    case XNNDatatype::xnn_datatype_quint8:
    case XNNDatatype::xnn_datatype_qcint8:
      return count;
    default:
      return 4 * count;
  }
}

class Maker {
 public:
  explicit Maker(const GraphRecipe& recipe) : recipe_(recipe) {
    add_constant({});  // the reserved one
  }

  std::vector<std::uint8_t> make() {
    std::vector<Offset<xnn::XNode>> nodes;
    std::vector<Offset<xnn::XNode>> behind;
    const std::size_t count = recipe_.values.size();
    for (std::size_t i = 0; i < count; ++i) {
      const bool output = i >= count - recipe_.outputs;
      if (i == 0 && recipe_.quantized_by != 0) {
        add_converted();
      } else if (recipe_.inside && recipe_.values[i].role != ValueRecipe::Role::kConstant) {
        const auto outer = static_cast<std::uint32_t>(count + i);
        const auto id = static_cast<std::uint32_t>(i);
        add_value(recipe_.values[i], outer);
        add(tensor(recipe_.values[i].type, recipe_.values[i].dims, id));
        const auto abs = xnn::Create_XNNNode1x1(builder_, output ? id : outer, output ? outer : id, 0);
        (output ? behind : nodes).push_back(xnn::CreateXNode(builder_, XNodeUnion::XNNAbs, abs.Union(), 9));
      } else {
        add_value(recipe_.values[i], static_cast<std::uint32_t>(i));
      }
    }
    if (recipe_.quantized_by != 0) {
      const auto convert = xnn::Create_XNNNode1x1(builder_, static_cast<std::uint32_t>(count), 0, 0);
      nodes.push_back(xnn::CreateXNode(builder_, XNodeUnion::XNNConvert, convert.Union(), 7));
    }
    Offset<xnn::OutputMinMax> range;
    if (!recipe_.range.empty()) {
      range = xnn::CreateOutputMinMax(builder_, recipe_.range[0], recipe_.range[1]);
    }
    const Offset<void> made = node();
    nodes.push_back(xnn::CreateXNode(builder_, recipe_.kind, made, 8, range));
    nodes.insert(nodes.end(), behind.begin(), behind.end());
    const auto graph = xnn::CreateXNNGraph(
        builder_, builder_.CreateString("0"), builder_.CreateVector(nodes), builder_.CreateVector(values_),
        externals_, builder_.CreateVector(std::vector<std::uint32_t>()),
        builder_.CreateVector(std::vector<std::uint32_t>()), builder_.CreateVector(constants_));
    builder_.Finish(graph, "XN00");
    return {builder_.GetBufferPointer(), builder_.GetBufferPointer() + builder_.GetSize()};
  }

 private:
  std::uint32_t add_constant(const std::vector<std::uint8_t>& bytes) {
    builder_.ForceVectorAlignment(bytes.size(), 1, 16);
    const auto storage = builder_.CreateVector(bytes);
    constants_.push_back(xnn::CreateBuffer(builder_, storage));
    return static_cast<std::uint32_t>(constants_.size() - 1);
  }

  Offset<xnn::XNNTensorValue> tensor(XNNDatatype type, const Sizes& dims, std::uint32_t id,
                                     std::uint32_t constant = 0, std::uint32_t external = kNone,
                                     std::uint32_t flags = 0) {
    return xnn::CreateXNNTensorValue(builder_, type, static_cast<std::uint32_t>(dims.size()),
                                     builder_.CreateVector(dims), constant, external, flags, id);
  }

  void add(Offset<xnn::XNNTensorValue> one, XNNQuantParams kind = XNNQuantParams::NONE,
           Offset<void> quant = {}) {
    if (kind == XNNQuantParams::NONE) {
      values_.push_back(xnn::CreateXValue(builder_, XValueUnion::XNNTensorValue, one.Union()));
    } else {
      const auto quantized = xnn::CreateXNNQuantizedTensorValue(builder_, one, kind, quant);
      values_.push_back(xnn::CreateXValue(builder_, XValueUnion::XNNQuantizedTensorValue, quantized.Union()));
    }
  }

  // The graph's input, behind all others, and what the node takes.
  void add_converted() {
    const ValueRecipe& given = recipe_.values[0];
    add_value(given, static_cast<std::uint32_t>(recipe_.values.size()));
    add(tensor(XNNDatatype::xnn_datatype_qdint8, given.dims, 0), XNNQuantParams::PerTokenDynamicQuant,
        xnn::CreatePerTokenDynamicQuant(builder_, recipe_.quantized_by).Union());
  }

  void add_value(const ValueRecipe& value, std::uint32_t id) {
    const bool constant = value.role == ValueRecipe::Role::kConstant;
    const auto filled = [&](std::size_t size) { return std::vector<std::uint8_t>(size, value.content); };
    const std::uint32_t index =
        !constant ? 0 : add_constant(value.bytes.empty() ? filled(bytes_of(value)) : value.bytes);
    const std::uint32_t flags = constant ? 0 : (value.role == ValueRecipe::Role::kOutput ? 2 : 1);
    const auto made = tensor(value.type, value.dims, id, index, constant ? kNone : externals_++, flags);
    XNNQuantParams kind = XNNQuantParams::NONE;
    Offset<void> quant;
    const auto channel = static_cast<std::size_t>(value.channel_dim);
    const std::uint32_t channels = channel < value.dims.size() ? value.dims[channel] : 1;
    switch (value.type) {
      case XNNDatatype::xnn_datatype_qint8:
      case XNNDatatype::xnn_datatype_quint8:
      case XNNDatatype::xnn_datatype_qint32:
        kind = XNNQuantParams::PerTensorQuant;
        quant = xnn::CreatePerTensorQuant(builder_, value.scale, value.zero_point).Union();
        break;
      case XNNDatatype::xnn_datatype_qcint8:
      case XNNDatatype::xnn_datatype_qcint4:
      case XNNDatatype::xnn_datatype_qcint32: {
        const std::vector<float> scales =
            value.scales.empty() ? std::vector<float>(channels, value.scale) : value.scales;
        kind = XNNQuantParams::PerChannelQuant;
        quant =
            xnn::CreatePerChannelQuant(builder_, builder_.CreateVector(scales), value.channel_dim).Union();
        break;
      }
      case XNNDatatype::xnn_datatype_qbint4: {
        const std::size_t blocks = bytes_of(value) * 2 / static_cast<std::size_t>(value.block_size);
        kind = XNNQuantParams::PerChannelGroupQuant;
        const std::uint32_t scales =
            add_constant(value.block_scales.empty() ? filled(2 * blocks) : value.block_scales);
        quant =
            xnn::CreatePerChannelGroupQuant(builder_, 0, value.channel_dim, value.block_size, scales).Union();
        break;
      }
      default:
        break;
    }
    add(made, kind, quant);
  }

  // The node's own numbers; 0 where the recipe has none.
  std::uint32_t number(std::size_t i) const {
    return i < recipe_.parameters.size() ? recipe_.parameters[i] : 0;
  }

  Offset<void> node() {
    const std::uint32_t flags = recipe_.flags;
    const auto out = static_cast<std::uint32_t>(recipe_.values.size() - recipe_.outputs);
    const std::uint32_t bias = recipe_.no_bias ? kNone : 2;
    const auto rank = static_cast<std::uint32_t>(recipe_.list.size());
    const auto list = builder_.CreateVector(recipe_.list);
    const auto second = builder_.CreateVector(recipe_.second);
    switch (recipe_.kind) {
      case XNodeUnion::XNNAdd:
      case XNodeUnion::XNNSubtract:
      case XNodeUnion::XNNMultiply:
      case XNodeUnion::XNNDiv:
      case XNodeUnion::XNNMinimum:
      case XNodeUnion::XNNMaximum:
      case XNodeUnion::XNNPReLU:
      case XNodeUnion::XNNBatchMatrixMultiply:
        return xnn::Create_XNNNode2x1(builder_, 0, 1, out, flags).Union();
      case XNodeUnion::XNNFullyConnected:
        return xnn::CreateXNNFullyConnected(builder_, 0, 1, bias, out, flags).Union();
      case XNodeUnion::XNNConv2d:
      case XNodeUnion::XNNDepthwiseConv2d:
      case XNodeUnion::XNNConvTranspose2d:
        return xnn::Create_XNNNodeConv(builder_, number(0), number(1), number(2), number(3), number(4),
                                       number(5), number(6), number(7), number(8), number(9), number(10),
                                       number(11), number(12), number(13), number(14), 0, 1, bias, out, flags)
            .Union();
      case XNodeUnion::XNNAvgPooling2d:
      case XNodeUnion::XNNMaxPooling2d:
        return xnn::Create_XNNPooling2D(builder_, number(0), number(1), number(2), number(3), number(4),
                                        number(5), number(6), number(7), number(8), number(9), 0, out, flags)
            .Union();
      case XNodeUnion::XNNArgMaxPooling2d:
        return xnn::CreateXNNArgMaxPooling2d(builder_, number(0), number(1), number(2), number(3), number(4),
                                             number(5), 0, out, out + 1, flags)
            .Union();
      case XNodeUnion::XNNStaticTranspose:
        return xnn::CreateXNNStaticTranspose(builder_, rank, list, 0, out, flags).Union();
      case XNodeUnion::XNNStaticReshape:
        return xnn::CreateXNNStaticReshape(builder_, rank, list, 0, out, flags).Union();
      case XNodeUnion::XNNStaticSlice:
        return xnn::CreateXNNStaticSlice(builder_, rank, list, second, 0, out, flags).Union();
      case XNodeUnion::XNNStaticConstantPad:
        return xnn::CreateXNNStaticConstantPad(builder_, list, second, 0.5F, 0, out, flags).Union();
      case XNodeUnion::XNNStaticResizeBilinear2D:
        return xnn::CreateXNNStaticResizeBilinear2D(builder_, number(0), number(1), 0, out, flags).Union();
      case XNodeUnion::XNNConcatenate2:
      case XNodeUnion::XNNConcatenate3:
      case XNodeUnion::XNNConcatenate4:
      case XNodeUnion::XNNConcatenate5:
        return xnn::Create_XNNCat(builder_, number(0), 0, 1, 2, 3, out, flags, 4).Union();
      case XNodeUnion::XNNScaledDotProductAttention:
        return xnn::CreateXNNScaledDotProductAttention(builder_, 0, 1, 2, 3, 4, out, flags).Union();
      case XNodeUnion::XNNELU:
        return xnn::CreateXNNELU(builder_, recipe_.number, 0, out, flags).Union();
      case XNodeUnion::XNNLeakyReLU:
        return xnn::CreateXNNLeakyReLU(builder_, recipe_.number, 0, out, flags).Union();
      default:
        return xnn::Create_XNNNode1x1(builder_, 0, out, flags).Union();
    }
  }

  const GraphRecipe& recipe_;
  Builder builder_;
  std::vector<Offset<xnn::XValue>> values_;
  std::vector<Offset<xnn::Buffer>> constants_;
  std::uint32_t externals_ = 0;
};

constexpr auto kFloat = XNNDatatype::xnn_datatype_fp32;
constexpr auto kQint8 = XNNDatatype::xnn_datatype_qint8;
constexpr auto kRoleOut = ValueRecipe::Role::kOutput;
constexpr auto kConstant = ValueRecipe::Role::kConstant;

ValueRecipe in(const Sizes& dims, XNNDatatype type = kFloat) {
  return {type, dims};
}

ValueRecipe out(const Sizes& dims, XNNDatatype type = kFloat) {
  return {type, dims, kRoleOut};
}

ValueRecipe constant(const Sizes& dims, XNNDatatype type = kFloat, std::int32_t channel_dim = 0) {
  return {type, dims, kConstant, 0.5F, 0, channel_dim};
}

void add_products(std::vector<GraphRecipe>* to) {
  const auto add = [to](GraphRecipe recipe) { to->push_back(std::move(recipe)); };
  const auto qc8 = XNNDatatype::xnn_datatype_qcint8;
  const auto qc4 = XNNDatatype::xnn_datatype_qcint4;
  const auto qb4 = XNNDatatype::xnn_datatype_qbint4;
  const auto qc32 = XNNDatatype::xnn_datatype_qcint32;
  const auto linear = XNodeUnion::XNNFullyConnected;
  const auto product = XNodeUnion::XNNBatchMatrixMultiply;
  add({linear, {in({3, 5, 8}), constant({6, 8}), constant({6}), out({3, 5, 6})}});
  add({linear, {in({3, 8}), constant({8, 6}), constant({6}), out({3, 6})}, 1, {}, {}, {}, 1});
  add({linear, {in({3, 8}), constant({6, 8}), out({3, 6})}, 1, {}, {}, {}, 0, 0, true});
  add({linear, {in({3, 8}), in({6, 8}), in({6}), out({3, 6})}});
  add({linear, {in({3, 8}, kQint8), constant({6, 8}, qc8), constant({6}, qc32), out({3, 6}, kQint8)}});
  add({linear, {in({3, 8}), constant({6, 8}, qc8), constant({6}), out({3, 6})}, 1, {}, {}, {}, 0, 1});
  add({linear, {in({3, 8}), constant({6, 8}, qc4), constant({6}), out({3, 6})}, 1, {}, {}, {}, 0, 1});
  add({linear, {in({3, 64}), constant({6, 64}, qb4), constant({6}), out({3, 6})}, 1, {}, {}, {}, 0, 1});
  add({product, {in({2, 3, 8}), in({2, 8, 5}), out({2, 3, 5})}});
  add({product, {in({2, 3, 8}), in({1, 5, 8}), out({2, 3, 5})}, 1, {}, {}, {}, 1});
  add({product, {in({2, 3, 8}), constant({2, 8, 5}), out({2, 3, 5})}});
  add({XNodeUnion::XNNScaledDotProductAttention,
       {in({2, 3, 5, 8}), in({2, 3, 7, 8}), in({2, 3, 7, 4}), in({8}), in({5, 7}), out({2, 3, 5, 4})}});
}

void add_images(std::vector<GraphRecipe>* to) {
  const auto add = [to](GraphRecipe recipe) { to->push_back(std::move(recipe)); };
  const auto qc8 = XNNDatatype::xnn_datatype_qcint8;
  const auto qc32 = XNNDatatype::xnn_datatype_qcint32;
  // Padding, kernel, stride, dilation, channels of a group, groups, adjustment.
  const Sizes forward = {1, 2, 1, 0, 3, 3, 2, 1, 1, 2, 4, 6, 2};
  const Sizes depthwise = {1, 1, 1, 1, 3, 3, 2, 2, 1, 1, 1, 2, 4};
  const Sizes backward = {1, 0, 1, 1, 3, 3, 2, 2, 1, 1, 4, 6, 1, 1, 0};
  const auto conv = XNodeUnion::XNNConv2d;
  const auto deep = XNodeUnion::XNNDepthwiseConv2d;
  const auto back = XNodeUnion::XNNConvTranspose2d;
  const Sizes image = {2, 9, 10, 8};
  const Sizes made = {2, 5, 8, 12};
  add({conv, {in(image), constant({12, 3, 3, 4}), constant({12}), out(made)}, 1, forward});
  add({conv,
       {in(image, kQint8), constant({12, 3, 3, 4}, qc8), constant({12}, qc32), out(made, kQint8)},
       1,
       forward});
  add({conv, {in(image), constant({12, 3, 3, 4}, qc8), constant({12}), out(made)}, 1, forward, {}, {}, 0, 3});
  add({conv,
       {in(image), constant({12, 1, 1, 8}, qc8), constant({12}), out({2, 9, 10, 12})},
       1,
       {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 8, 12, 1},
       {},
       {},
       0,
       3});
  add({deep, {in({2, 9, 9, 4}), constant({1, 3, 3, 8}), constant({8}), out({2, 5, 5, 8})}, 1, depthwise});
  add({deep,
       {in({2, 9, 9, 4}, kQint8), constant({1, 3, 3, 8}, qc8, 3), constant({8}, qc32),
        out({2, 5, 5, 8}, kQint8)},
       1,
       depthwise});
  add({back, {in({2, 5, 6, 4}), constant({6, 3, 3, 4}), constant({6}), out({2, 10, 12, 6})}, 1, backward});
  const Sizes pool = {1, 1, 1, 1, 3, 2, 2, 2, 1, 1};
  add({XNodeUnion::XNNMaxPooling2d, {in({2, 9, 9, 4}), out({2, 5, 5, 4})}, 1, pool});
  add({XNodeUnion::XNNMaxPooling2d, {in({2, 9, 9, 4}, kQint8), out({2, 5, 5, 4}, kQint8)}, 1, pool});
  const Sizes single = {0, 0, 0, 0, 1, 1, 1, 1, 1, 1};
  add({XNodeUnion::XNNMaxPooling2d, {in({2, 9, 9, 4}), out({2, 9, 9, 4})}, 1, single});
  add({XNodeUnion::XNNMaxPooling2d, {in({2, 9, 9, 4}, kQint8), out({2, 9, 9, 4}, kQint8)}, 1, single});
  add({XNodeUnion::XNNAvgPooling2d, {in({2, 9, 9, 4}), out({2, 5, 5, 4})}, 1, pool, {}, {}, 64});
  add({XNodeUnion::XNNArgMaxPooling2d,
       {in({2, 9, 9, 4}), out({2, 3, 4, 4}), out({2, 3, 4, 4}, XNNDatatype::xnn_datatype_int32)},
       2,
       {0, 0, 0, 0, 3, 2}});
  add({XNodeUnion::XNNGlobalAvgPooling2d, {in({2, 5, 6, 4}), out({2, 1, 1, 4})}});
  add({XNodeUnion::XNNGlobalAvgPooling2d, {in({2, 5, 6, 4}), out({2, 4})}});
  add({XNodeUnion::XNNStaticResizeBilinear2D, {in({2, 5, 6, 4}), out({2, 7, 9, 4})}, 1, {7, 9}, {}, {}, 8});
}

void add_movements(std::vector<GraphRecipe>* to) {
  const auto add = [to](GraphRecipe recipe) { to->push_back(std::move(recipe)); };
  add({XNodeUnion::XNNStaticTranspose, {in({2, 3, 4, 5}), out({2, 5, 3, 4})}, 1, {}, {0, 3, 1, 2}});
  add({XNodeUnion::XNNStaticReshape, {in({2, 3, 4}), out({6, 4})}, 1, {}, {0, 4}});
  add({XNodeUnion::XNNStaticSlice, {in({4, 6}), out({4, 3})}, 1, {}, {0, 2}, {0, 3}});
  add({XNodeUnion::XNNStaticConstantPad, {in({4, 6}), out({4, 9})}, 1, {}, {0, 2}, {0, 1}});
  add({XNodeUnion::XNNConcatenate2, {in({4, 2}), in({4, 3}), out({4, 5})}, 1, {1}});
  add({XNodeUnion::XNNConcatenate3, {in({4, 2}), in({4, 3}), in({4, 1}), out({4, 6})}, 1, {1}});
  add({XNodeUnion::XNNConcatenate4, {in({4, 2}), in({4, 3}), in({4, 1}), in({4, 1}), out({4, 7})}, 1, {1}});
  add({XNodeUnion::XNNConcatenate5,
       {in({4, 2}), in({4, 3}), in({4, 1}), in({4, 1}), in({4, 2}), out({4, 9})},
       1,
       {UINT32_MAX}});  // the last one, counted from the end
}

}  // namespace

std::vector<std::uint8_t> make_graph(const GraphRecipe& recipe) {
  return Maker(recipe).make();
}

const slipway::lean::DataStore& any_store() {
  static const TemporaryFolder folder;
  static const auto opened = slipway::lean::DataStore::open(folder.write("model.pte", make_program()), "");
  return opened.value();
}

ReadPayload::ReadPayload(const std::vector<std::uint8_t>& bytes) : words(bytes.size() / 8 + 9) {
  // A flatbuffer lies at an aligned address.
  auto* start = reinterpret_cast<std::uint8_t*>(words.data());
  start += (64 - reinterpret_cast<std::uintptr_t>(start) % 64) % 64;
  std::copy(bytes.begin(), bytes.end(), start);
  auto read = slipway::lean::XnnPayload::read({start, bytes.size()}, any_store(), "Delegate 0");
  CHECK(read.ok());
  payload = std::make_unique<slipway::lean::XnnPayload>(std::move(read.value()));
}

std::vector<GraphRecipe> sound_graphs() {
  std::vector<GraphRecipe> all;
  for (const XNodeUnion kind : {XNodeUnion::XNNSoftmax,
                                XNodeUnion::XNNSigmoid,
                                XNodeUnion::XNNClamp,
                                XNodeUnion::XNNFloor,
                                XNodeUnion::XNNSquareRoot,
                                XNodeUnion::XNNCeiling,
                                XNodeUnion::XNNHardswish,
                                XNodeUnion::XNNLeakyReLU,
                                XNodeUnion::XNNNegate,
                                XNodeUnion::XNNSquare,
                                XNodeUnion::XNNELU,
                                XNodeUnion::XNNAbs,
                                XNodeUnion::XNNReciprocalSquareRoot,
                                XNodeUnion::XNNLog,
                                XNodeUnion::XNNGelu,
                                XNodeUnion::XNNTanh,
                                XNodeUnion::XNNExp,
                                XNodeUnion::XNNSin,
                                XNodeUnion::XNNCopy,
                                XNodeUnion::XNNCos}) {
    all.push_back({kind, {in({3, 4, 5}), out({3, 4, 5})}});
  }
  for (const XNodeUnion kind :
       {XNodeUnion::XNNAdd, XNodeUnion::XNNSubtract, XNodeUnion::XNNMultiply, XNodeUnion::XNNDiv,
        XNodeUnion::XNNMinimum, XNodeUnion::XNNMaximum, XNodeUnion::XNNPReLU}) {
    all.push_back({kind, {in({3, 1, 5}), in({4, 1}), out({3, 4, 5})}});
    all.push_back({kind, {in({3, 4, 5}), constant({5}), out({3, 4, 5})}});
  }
  all.push_back({XNodeUnion::XNNAdd, {in({3, 4}, kQint8), in({3, 4}, kQint8), out({3, 4}, kQint8)}});
  all.push_back({XNodeUnion::XNNConvert, {in({3, 4}), out({3, 4}, kQint8)}});
  all.push_back({XNodeUnion::XNNConvert, {in({3, 4}, kQint8), out({3, 4})}});
  add_products(&all);
  add_images(&all);
  add_movements(&all);
  return all;
}
