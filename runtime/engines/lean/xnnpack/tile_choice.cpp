#include "lean/xnnpack/own_kernels.h"

#include <xnnpack/common.h>
#include <xnnpack/microparams.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <mutex>
#include <type_traits>
#include <utility>

#include "lean/xnnpack/blocking.h"
#include "lean/xnnpack/weight_packing.h"
#include "lean/xnnpack/winograd.h"

namespace slipway::lean {
namespace {

static_assert(offsetof(xnn_f16_minmax_params, scalar.min) == 0 &&
                  offsetof(xnn_f16_minmax_params, scalar.max) == sizeof(Half),
              "our kernels read the limits as two numbers");

// A number of rows that every tile divides.
constexpr std::size_t kManyRows = 27720;
constexpr double kLatency = 4;  // cycles from a multiplication to the next one that needs its result
constexpr std::size_t kFirstCache = std::size_t{24} * 1024;  // bytes of a panel that stay in it beside rows

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
    const xnn_datatype type = std::is_same_v<Element, float> ? xnn_datatype_fp32 : xnn_datatype_fp16;
    config->pack_gemm_goi = pack_rows_of(type);
    config->pack_gemm_gio = pack_columns_of(type);
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
  if (making.weights == nullptr) {
    return order.make();
  }
  making.weights->offer(weights_packer(*order.node, order.values, making.threads));
  const xnn_status status = order.make();
  making.weights->offer({});
  return status;
}

// A layer that only XNNPACK has kernels for, of one set or of two.
xnn_status make_theirs(const Order& order) {
  const auto kernels = vector_kernels(*order.node, order.values);
  return make_packed(order);
}

// A convolution by Winograd's method.
xnn_status make_winograd(const Order& order, const TileSet& set, WinogradLayer layer,
                         const xnn_gemm_config* table) {
  const OwnTile own(table, set.tiles, set.lanes, layer.shape);
  making.weights->offer(std::move(layer.packer));
  const xnn_status status = order.make();
  const xnn_operator_t op = order.operator_data->operator_objects[0];
  if (status == xnn_status_success && making.weights->has_offered(op->packed_weights.offset)) {
    mark_winograd(op);
  }
  making.weights->offer({});
  return status;
}

template <typename Element>
xnn_status make_product(const Order& order, const TileSet& set, const Tiles<Element>& tiles,
                        TileElement element, const xnn_gemm_config* table) {
  const LayerProduct product = product_of(*order.node, order.values);
  if (table == nullptr || product.rows == 0 || product.columns <= kFewColumns || product.depth() == 0) {
    return make_theirs(order);
  }
  if (element == TileElement::kFloat) {
    if (auto layer = winograd_layer(set, *order.node, order.values, making.threads)) {
      return make_winograd(order, set, std::move(*layer), table);
    }
  }
  const TileShape shape = choose_tile(set, element, product.rows, product.columns, product.depth());
  const OwnTile own(table, tiles, set.lanes, shape);
  return make_packed(order);
}

xnn_status make(const xnn_node* node, const xnn_value* values, std::size_t value_count,
                xnn_operator_data* operator_data, xnn_code_cache* code, xnn_weights_cache_t cache) {
  xnn_node product;
  if (takes_im2col(*node, values)) {
    product = product_over_windows(*node);
    node = &product;
  }
  const Order order = {node, values, value_count, operator_data, code, cache};
  if (const auto kernels = depthwise_kernels(*node, values)) {
    return order.make();
  }
  if (const auto kernels = channel_kernels(*node, values)) {
    return order.make();
  }
  if (const auto kernels = int4_kernels(*node, values)) {
    return make_packed(order);
  }
  if (const auto kernels = byte_kernels(*node, values)) {
    return make_packed(order);
  }
  if (const TileSet* set = float_tiles(); set != nullptr && computes_in(xnn_datatype_fp32, *node, values)) {
    return make_product(order, *set, set->tiles, TileElement::kFloat, xnn_init_f32_gemm_config());
  }
  if (const TileSet* set = half_tiles(); set != nullptr && computes_in(xnn_datatype_fp16, *node, values)) {
    return make_product(order, *set, set->halves, TileElement::kHalf, xnn_init_f16_gemm_config());
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

TileShape choose_tile(const TileSet& set, TileElement element, std::size_t rows, std::size_t columns,
                      std::size_t depth) {
  const auto best = [&](std::size_t for_rows, std::size_t first, std::size_t last) {
    TileShape found;
    double least = 0;
    for (std::size_t vectors = first; vectors <= last; ++vectors) {
      for (std::size_t tile = 1; tile <= kMostTileRows; ++tile) {
        const bool there = element == TileElement::kFloat ? set.tiles[vectors - 1][tile - 1].gemm != nullptr
                                                          : set.halves[vectors - 1][tile - 1].gemm != nullptr;
        if (!there) {
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
  making_mutex.unlock();
}

}  // namespace slipway::lean
