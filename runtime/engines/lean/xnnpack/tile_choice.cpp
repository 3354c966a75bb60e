#include "lean/xnnpack/tile_choice.h"

#include <xnnpack/common.h>
#include <xnnpack/config.h>
#include <xnnpack/microparams.h>
#include <xnnpack/node-type.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <mutex>
#include <type_traits>
#include <utility>

#include "lean/xnnpack/im2col.h"
#include "lean/xnnpack/own_kernels.h"
#include "lean/xnnpack/winograd.h"

namespace slipway::lean {
namespace {

static_assert(offsetof(xnn_f32_minmax_params, scalar.min) == 0 &&
                  offsetof(xnn_f32_minmax_params, scalar.max) == sizeof(float),
              "our kernels read the limits as two numbers");
static_assert(offsetof(xnn_f16_minmax_params, scalar.min) == 0 &&
                  offsetof(xnn_f16_minmax_params, scalar.max) == sizeof(Half),
              "our kernels read the limits as two numbers");

// A number of rows that every tile divides.
constexpr std::size_t kManyRows = 27720;
// XNNPACK has kernels of two columns.
constexpr std::size_t kFewColumns = 2;
constexpr std::size_t kPanelsAtOnce = 4;
constexpr double kLatency = 4;  // cycles from a multiplication to the next one that needs its result
constexpr std::size_t kFirstCache = std::size_t{24} * 1024;  // bytes of a panel that stay in it beside rows

// What a layer multiplies.
struct TileProduct {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t depth = 0;
  std::size_t groups = 1;
  const void* weights = nullptr;  // as rows, one for each output; nullptr when they lie otherwise
  const void* bias = nullptr;
  xnn_datatype datatype = xnn_datatype_invalid;  // of weights and bias
};

const void* data_of(const xnn_node& node, const xnn_value* values, std::size_t input) {
  return input < node.num_inputs ? values[node.inputs[input]].data : nullptr;
}

// Whether the node computes in that type, with weights that it has kernels for: XNNPACK rounds weights of a
// convolution in float16 when it packs them.
bool computes_in(xnn_datatype datatype, const xnn_node& node, const xnn_value* values) {
  if (node.num_inputs == 0 || node.num_outputs != 1 || values[node.inputs[0]].datatype != datatype) {
    return false;
  }
  for (std::uint32_t i = 1; i < node.num_inputs; ++i) {
    const xnn_value& value = values[node.inputs[i]];
    if (value.datatype != datatype && (value.datatype != xnn_datatype_fp32 || value.data == nullptr)) {
      return false;
    }
  }
  return values[node.outputs[0]].datatype == datatype &&
         values[node.outputs[0]].layout == xnn_layout_type_nhwc;
}

// The type of weights and bias, if they have one and the same.
xnn_datatype weights_type(const xnn_node& node, const xnn_value* values) {
  const xnn_datatype found = node.num_inputs < 2 ? xnn_datatype_invalid : values[node.inputs[1]].datatype;
  return node.num_inputs > 2 && values[node.inputs[2]].datatype != found ? xnn_datatype_invalid : found;
}

// Nothing for nodes that are no product.
TileProduct product_of(const xnn_node& node, const xnn_value* values) {
  TileProduct found;
  if (node.type == xnn_node_type_convolution_2d) {
    const auto& params = node.params.convolution_2d;
    const std::size_t taps = std::size_t{params.kernel_height} * params.kernel_width;
    // Otherwise a depthwise convolution, or a product of vectors.
    if (params.groups == 1 || params.group_input_channels != 1 || params.group_output_channels != 1) {
      found = {rows_of(values[node.outputs[0]]),   params.group_output_channels,
               taps * params.group_input_channels, params.groups,
               data_of(node, values, 1),           data_of(node, values, 2)};
    }
  } else if (node.type == xnn_node_type_deconvolution_2d) {
    const auto& params = node.params.deconvolution_2d;
    const std::size_t phases = std::size_t{params.upsampling_height} * params.upsampling_width;
    const std::size_t taps = std::size_t{params.kernel_height} * params.kernel_width;
    found.rows = rows_of(values[node.outputs[0]]) / std::max<std::size_t>(phases, 1);
    found.columns = params.group_output_channels;
    found.depth =
        std::max<std::size_t>(taps / std::max<std::size_t>(phases, 1), 1) * params.group_input_channels;
    found.groups = params.groups;
  } else if (node.type == xnn_node_type_fully_connected) {
    const xnn_shape& filter = values[node.inputs[1]].shape;
    const bool transposed = (node.flags & XNN_FLAG_TRANSPOSE_WEIGHTS) != 0;
    if (filter.num_dims == 2) {
      found = {rows_of(values[node.outputs[0]]),
               filter.dim[transposed ? 1 : 0],
               filter.dim[transposed ? 0 : 1],
               1,
               transposed ? nullptr : data_of(node, values, 1),
               data_of(node, values, 2)};
    }
  } else if (node.type == xnn_node_type_batch_matrix_multiply) {
    const xnn_shape& left = values[node.inputs[0]].shape;
    const xnn_shape& result = values[node.outputs[0]].shape;
    if (left.num_dims >= 2 && result.num_dims >= 2) {
      found.rows = left.dim[left.num_dims - 2];
      found.depth = left.dim[left.num_dims - 1];
      found.columns = result.dim[result.num_dims - 1];
    }
  }
  found.datatype = weights_type(node, values);
  if (found.datatype == xnn_datatype_invalid) {
    found.weights = nullptr;
  }
  return found;
}

template <typename From, typename Element>
PackRows<From, Element> pack_rows() {
  if constexpr (std::is_same_v<Element, float>) {
    return float_tiles()->pack_rows;
  } else if constexpr (std::is_same_v<From, float>) {
    return float_tiles()->pack_rounded;
  } else {
    return float_tiles()->pack_halves;
  }
}

template <typename Element>
void pack_goi(std::size_t groups, std::size_t columns, std::size_t depth, std::size_t panel, std::size_t,
              std::size_t, const Element* weights, const Element* bias, const void*, Element* packed,
              std::size_t, const void*) {
  const std::size_t panels = (columns + panel - 1) / panel;
  for (std::size_t group = 0; group < groups; ++group) {
    pack_rows<Element, Element>()(columns, depth, panel, weights + group * columns * depth,
                                  bias == nullptr ? nullptr : bias + group * columns,
                                  packed + group * panels * panel * (depth + 1), 0, panels);
  }
}

// Weights in columns; `stride` elements from one element of the depth to the next.
template <typename Element>
void pack_gio(std::size_t groups, std::size_t columns, std::size_t depth, std::size_t panel, std::size_t,
              std::size_t, std::size_t stride, const Element* weights, const Element* bias, const void*,
              Element* packed, std::size_t, const void*) {
  for (std::size_t group = 0; group < groups; ++group) {
    for (std::size_t begin = 0; begin < columns; begin += panel) {
      const std::size_t some = std::min(panel, columns - begin);
      const Element* from = bias == nullptr ? nullptr : bias + begin;
      for (std::size_t k = 0; k <= depth; ++k, packed += panel) {
        if (from == nullptr) {
          std::fill_n(packed, panel, Element{});
        } else {
          std::copy_n(from, some, packed);
          std::fill_n(packed + some, panel - some, Element{});
        }
        from = weights + k * stride + begin;
      }
    }
    weights += depth * stride;
    bias = bias == nullptr ? nullptr : bias + columns;
  }
}

struct PackingJob {
  TileProduct product;
  std::size_t panel = 0;
  std::size_t element = 0;  // bytes of one
  std::uint8_t* packed = nullptr;

  std::size_t panels() const { return (product.columns + panel - 1) / panel; }
  std::size_t group_size() const { return panels() * panel * (product.depth + 1) * element; }
};

// Some panels of a group.
template <typename From, typename Element>
void pack_panels(void* context, std::size_t group, std::size_t first, std::size_t count) {
  const auto& job = *static_cast<const PackingJob*>(context);
  const TileProduct& product = job.product;
  const auto* weights = static_cast<const From*>(product.weights);
  const auto* bias = static_cast<const From*>(product.bias);
  pack_rows<From, Element>()(
      product.columns, product.depth, job.panel, weights + group * product.columns * product.depth,
      bias == nullptr ? nullptr : bias + group * product.columns,
      reinterpret_cast<Element*>(job.packed + group * job.group_size()), first, first + count);
}

void hide(const Changed<xnn_gemm_config>& config) {
  if (config != nullptr) {
    config->minmax = {};
    config->relu = {};
    config->linear = {};
  }
}

// XNNPACK's table with one of our kernels, and its kernels of two columns hidden.
struct OwnTile {
  template <typename Element>
  OwnTile(const xnn_gemm_config* table, const Tiles<Element>& tiles, std::size_t lanes, TileShape shape)
      : config(change(table)), narrow(change(xnn_init_f32_gemm_nr2_config())) {
    hide(config);
    hide(narrow);
    for (const std::size_t rows : {std::size_t{1}, shape.rows}) {
      const Tile<Element>& tile = tiles[shape.vectors - 1][rows - 1];
      put(config->minmax.gemm[rows - 1].function, tile.gemm);
      put(config->minmax.igemm[rows - 1].function, tile.igemm);
    }
    config->mr = static_cast<std::uint8_t>(shape.rows);
    config->nr = static_cast<std::uint8_t>(shape.vectors * lanes);
    config->log2_kr = 0;
    config->log2_sr = 0;
    config->pack_gemm_goi = reinterpret_cast<xnn_packw_gemm_goi_ukernel_fn>(&pack_goi<Element>);
    config->pack_gemm_gio = reinterpret_cast<xnn_packw_gemm_gio_ukernel_fn>(&pack_gio<Element>);
  }

  Changed<xnn_gemm_config> config;
  Changed<xnn_gemm_config> narrow;
};

using Create = xnn_create_operator_fn;

// Who makes operators now. One at a time: XNNPACK's tables are shared.
struct Making {
  const std::vector<void (*)()>* originals;
  PackedWeights* weights;
  pthreadpool_t threads;
};
std::mutex making_mutex;
Making making;

// The arguments with which XNNPACK has an operator made.
struct Order {
  const xnn_node* node;
  const xnn_value* values;
  std::size_t value_count;
  xnn_operator_data* operator_data;
  xnn_code_cache* code;
  xnn_weights_cache_t cache;

  xnn_status make() const {
    const auto original = reinterpret_cast<Create>((*making.originals)[node->id]);
    return original(node, values, value_count, operator_data, code, cache);
  }
};

// With weights that we pack, where we do that as XNNPACK does.
xnn_status make_packed(const Order& order) {
  Packer packer = making.weights == nullptr ? Packer() : panel_packer(*order.node, order.values);
  if (packer.pack == nullptr) {
    return order.make();  // what was offered before stays
  }
  making.weights->offer(std::move(packer));
  const xnn_status status = order.make();
  making.weights->offer({});
  return status;
}

// A layer that only XNNPACK has kernels for, of one set or of two.
xnn_status make_theirs(const Order& order) {
  const auto kernels = vector_kernels(time_by_vectors(*order.node, order.values).value_or(1) < 1);
  return make_packed(order);
}

// A convolution as a product over windows.
xnn_status make_im2col(const Order& order) {
  const xnn_node product = product_over_windows(*order.node);
  Order other = order;
  other.node = &product;
  const auto kernels = vector_kernels(time_by_vectors(product, order.values).value_or(1) < 1);
  const auto bytes = byte_kernels(byte_table(product, order.values));
  return make_packed(other);
}

// A convolution by Winograd's method.
xnn_status make_winograd(const Order& order, const TileSet& set, const TileProduct& product,
                         const xnn_gemm_config* table) {
  const WinogradSizes sizes = winograd_sizes(*order.node, order.values);
  const TileShape shape = winograd_tile(set, sizes.tiles(), sizes.channels, sizes.results);
  const OwnTile own(table, set.tiles, set.lanes, shape);
  making.weights->offer(
      winograd_packer(set, sizes, shape.vectors * set.lanes, product.weights, product.bias, making.threads));
  const xnn_status status = order.make();
  const xnn_operator_t op = order.operator_data->operator_objects[0];
  if (status == xnn_status_success && making.weights->has_offered(op->packed_weights.offset)) {
    mark_winograd(op);
  }
  making.weights->offer({});
  return status;
}

// Weights in rows are packed by all threads, in XNNPACK's order for kernels that read one element of the
// depth at a time.
template <typename Element>
void offer_packing(const TileProduct& product, std::size_t panel) {
  if (product.weights == nullptr) {
    return;
  }
  PackingJob job{product, panel, sizeof(Element)};
  const bool rounded = product.datatype == xnn_datatype_fp32;
  making.weights->offer(
      {product.weights, product.bias, product.groups * job.group_size(), [=](std::uint8_t* to) mutable {
         job.packed = to;
         pthreadpool_parallelize_2d_tile_1d(
             making.threads, rounded ? &pack_panels<float, Element> : &pack_panels<Element, Element>, &job,
             product.groups, job.panels(), kPanelsAtOnce, 0);
       }});
}

// A layer in float16 for XNNPACK's kernels: it packs such weights in one thread, element by element.
xnn_status make_their_halves(const Order& order) {
  const xnn_gemm_config* table = xnn_init_f16_gemm_config();
  if (table != nullptr && table->log2_kr == 0 && table->log2_sr == 0) {
    offer_packing<Half>(product_of(*order.node, order.values), table->nr);
  }
  const xnn_status status = make_theirs(order);
  making.weights->offer({});
  return status;
}

template <typename Element>
xnn_status make_product(const Order& order, const TileSet& set, const Tiles<Element>& tiles,
                        TileElement element, const xnn_gemm_config* table) {
  const TileProduct product = product_of(*order.node, order.values);
  if (table == nullptr || product.rows == 0 || product.columns <= kFewColumns || product.depth == 0) {
    return make_theirs(order);
  }
  if (element == TileElement::kFloat && can_be_winograd(*order.node, order.values) &&
      winograd_pays(set, winograd_sizes(*order.node, order.values))) {
    return make_winograd(order, set, product, table);
  }
  const TileShape shape = choose_tile(set, element, product.rows, product.columns, product.depth);
  const OwnTile own(table, tiles, set.lanes, shape);
  offer_packing<Element>(product, shape.vectors * set.lanes);
  const xnn_status status = order.make();
  making.weights->offer({});
  return status;
}

xnn_status make(const xnn_node* node, const xnn_value* values, std::size_t value_count,
                xnn_operator_data* operator_data, xnn_code_cache* code, xnn_weights_cache_t cache) {
  const Order order = {node, values, value_count, operator_data, code, cache};
  if (has_depthwise(*node, values)) {
    const auto kernels = depthwise_kernels(*node, values);
    return order.make();
  }
  if (takes_im2col(*node, values)) {
    return make_im2col(order);
  }
  if (const std::size_t rows = int4_rows(*node, values); rows != 0) {
    const auto kernels = int4_kernels(rows);
    return order.make();
  }
  if (const ByteTable table = byte_table(*node, values); table != ByteTable::kNone) {
    const auto kernels = byte_kernels(table);
    return make_packed(order);
  }
  if (const TileSet* set = float_tiles(); set != nullptr && computes_in(xnn_datatype_fp32, *node, values)) {
    return make_product(order, *set, set->tiles, TileElement::kFloat, xnn_init_f32_gemm_config());
  }
  if (float_tiles() != nullptr && computes_in(xnn_datatype_fp16, *node, values)) {
    const TileSet* set = half_tiles();
    return set == nullptr
               ? make_their_halves(order)
               : make_product(order, *set, set->halves, TileElement::kHalf, xnn_init_f16_gemm_config());
  }
  return make_theirs(order);
}

}  // namespace

double cycles_of(const TileSet& set, TileShape shape, std::size_t rows, std::size_t columns,
                 std::size_t depth) {
  const double vectors = static_cast<double>(shape.vectors);
  // A panel that does not stay in the first cache is read from the second one for each tile.
  const bool stays = shape.vectors * set.lanes * sizeof(float) * depth <= kFirstCache;
  const double reading = stays ? 0 : set.second_cache * vectors;
  const auto tile = [&](std::size_t some) {
    const double products = static_cast<double>(some) * vectors;
    const double loads = static_cast<double>(some) + vectors;
    // What is loaded counts a little even when multiplications hide it: equal shapes differ by it.
    const double step = std::max({products / 2, loads / 2, kLatency, reading}) + loads / 64;
    return step * static_cast<double>(depth) + 2 * products + 20;
  };
  const std::size_t panel = shape.vectors * set.lanes;
  const std::size_t rest = rows % shape.rows;
  return static_cast<double>((columns + panel - 1) / panel) *
         (static_cast<double>(rows / shape.rows) * tile(shape.rows) + (rest == 0 ? 0 : tile(rest)));
}

bool has_tile(const TileSet& set, TileElement element, std::size_t rows, std::size_t vectors) {
  return element == TileElement::kFloat ? set.tiles[vectors - 1][rows - 1].gemm != nullptr
                                        : set.halves[vectors - 1][rows - 1].gemm != nullptr;
}

TileShape choose_tile(const TileSet& set, TileElement element, std::size_t rows, std::size_t columns,
                      std::size_t depth) {
  const auto best = [&](std::size_t for_rows, std::size_t first, std::size_t last) {
    TileShape found;
    double least = 0;
    for (std::size_t vectors = first; vectors <= last; ++vectors) {
      for (std::size_t tile = 1; tile <= kMostTileRows; ++tile) {
        if (!has_tile(set, element, tile, vectors)) {
          continue;
        }
        const double cycles = cycles_of(set, {tile, vectors}, for_rows, columns, depth);
        if (found.rows == 0 || cycles < least) {
          found = {tile, vectors};
          least = cycles;
        }
      }
    }
    return found;
  };
  const std::size_t vectors = best(kManyRows, 1, kMostTileVectors).vectors;
  return best(rows, vectors, vectors);
}

TileChoice::TileChoice(xnn_subgraph_t subgraph, PackedWeights* weights, pthreadpool_t threads)
    : subgraph_(subgraph) {
  making_mutex.lock();
  int4_.emplace(threads);
  panels_.emplace(threads);
  for (std::uint32_t i = 0; i < subgraph->num_nodes; ++i) {
    xnn_node& node = subgraph->nodes[i];
    originals_.push_back(reinterpret_cast<void (*)()>(node.create));
    if (node.create != nullptr) {
      node.create = &make;
    }
  }
  making = {&originals_, weights, threads};
}

TileChoice::~TileChoice() {
  for (std::uint32_t i = 0; i < subgraph_->num_nodes && i < originals_.size(); ++i) {
    if (subgraph_->nodes[i].create == &make) {
      subgraph_->nodes[i].create = reinterpret_cast<Create>(originals_[i]);
    }
  }
  making = {};
  panels_.reset();
  int4_.reset();
  making_mutex.unlock();
}

}  // namespace slipway::lean
