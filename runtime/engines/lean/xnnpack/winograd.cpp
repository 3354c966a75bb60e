#include "lean/xnnpack/winograd.h"

#include <xnnpack/common.h>
#include <xnnpack/compute.h>
#include <xnnpack/node-type.h>
#include <xnnpack/operator-type.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <limits>
#include <new>
#include <type_traits>
#include <vector>

#include "selection.h"

namespace slipway::lean {
namespace {

// Far more than nets have, and few enough that no size computed from them is too great for 64 bits.
constexpr std::size_t kMostChannels = std::size_t{1} << 20;
// Of the second cache, whose rest holds a panel's weights and sums.
constexpr std::size_t kStripElements = std::size_t{128} * 1024;
// Weights that stay there while few tiles are multiplied by them.
constexpr std::size_t kNearWeights = std::size_t{128} * 1024;
constexpr std::size_t kBlocksPerThread = 4;
constexpr std::size_t kFewTiles = 8;
// What a tile takes besides its products, for each vector of its channels and at all.
constexpr double kVectorCycles = 30;
constexpr double kTileCycles = 60;
// What it takes to read each weight that this method has more, 16 for 9, from no cache. It decides where
// images are small and weights many.
constexpr double kWeightCycles = 1.4;
constexpr std::size_t kPixelTaps = 9;
// The model does not know what the caches do.
constexpr double kGain = 0.85;
constexpr std::size_t kFewChannels = 16;
// Rows that lie a multiple of a page apart would share a few lines of the first cache.
constexpr std::size_t kLine = 16;

// A convolution with 3x3 windows that lie side by side.
struct WinogradSizes {
  std::size_t batch = 0;
  std::size_t channels = 0;  // of the input
  std::size_t results = 0;   // channels of the output
  std::size_t height = 0;    // of the input
  std::size_t width = 0;
  std::size_t pixel = 0;  // elements from one pixel of the input to the next
  std::size_t result_height = 0;
  std::size_t result_width = 0;
  std::size_t result_pixel = 0;
  std::size_t top = 0;  // padding
  std::size_t left = 0;

  std::size_t tiles() const { return batch * ((result_height + 1) / 2) * ((result_width + 1) / 2); }
};

struct WinogradData {
  const float* input = nullptr;
  const float* zero = nullptr;  // a pixel of zeros
  const float* weights = nullptr;
  float* output = nullptr;
  float* work = nullptr;  // aligned as packed weights are
  float limits[2] = {};   // the least and the greatest result
};

// How a convolution's work is cut. Plain data: XNNPACK keeps it among an operator's.
struct WinogradPlan {
  WinogradSizes sizes;
  WinogradData data;
  const WinogradKernels* kernels;
  Gemm<float> multiply;
  std::size_t tile_rows;  // of the kernel
  std::size_t panel;      // columns of packed weights
  std::size_t strip;      // tiles that are multiplied together
  std::size_t row;        // elements from one transformed tile to the next
  std::size_t stride;     // from one of the 16 products' rows to the next one's
  std::size_t sum_stride;
  std::size_t group;            // panels that a task computes
  std::size_t input_elements;   // of a strip's transformed tiles
  std::size_t thread_elements;  // of all that a thread needs

  std::size_t panels() const { return (sizes.results + panel - 1) / panel; }
  std::size_t strips() const { return (sizes.tiles() + strip - 1) / strip; }
  std::size_t groups() const { return (panels() + group - 1) / group; }
};

// What a marked operator has besides XNNPACK's own context.
struct Hooked {
  xnn_reshape_operator_fn reshape;
  xnn_setup_operator_fn setup;
  WinogradPlan plan;
};
static_assert(std::is_trivially_copyable_v<Hooked>, "XNNPACK frees it without a destructor");

// Behind the part of XNNPACK's context that its own functions write.
constexpr std::size_t kHookedOffset =
    (sizeof(xnn_operator::context.igemm) + alignof(Hooked) - 1) / alignof(Hooked) * alignof(Hooked);
static_assert(kHookedOffset + sizeof(Hooked) <= sizeof(xnn_operator::context),
              "XNNPACK's operators have room for a plan");

Hooked* hooked_of(xnn_operator_t op) {
  return std::launder(reinterpret_cast<Hooked*>(reinterpret_cast<char*>(&op->context) + kHookedOffset));
}

std::size_t whole_units(std::size_t count, std::size_t unit) {
  return (count + unit - 1) / unit * unit;
}

// An odd number of lines.
std::size_t spread(std::size_t count) {
  return (whole_units(count, kLine) / kLine | 1) * kLine;
}

// The kernels that go with those of float_tiles(); nullptr where we have none.
const WinogradKernels* own_kernels() {
#if XNN_ARCH_X86_64
  if constexpr (has_float_layers()) {
    const TileSet* set = float_tiles();
    return set == &avx512f::kTiles ? &avx512f::kWinograd : set == &avx2::kTiles ? &avx2::kWinograd : nullptr;
  }
#endif
  return nullptr;
}

// Stands for the method where XNNPACK keeps a kernel, and is never called as one.
xnn_igemm_ukernel_fn marker_of(const WinogradKernels& kernels) {
  return reinterpret_cast<xnn_igemm_ukernel_fn>(reinterpret_cast<void (*)()>(kernels.input));
}

// Transforms a tile's pixels.
void transform_input(const WinogradPlan& plan, std::size_t tile, float* to) {
  const WinogradSizes& s = plan.sizes;
  const std::size_t across = (s.result_width + 1) / 2;
  const std::size_t down = (s.result_height + 1) / 2;
  const std::size_t x = tile % across * 2;
  const std::size_t y = tile / across % down * 2;
  const float* image = plan.data.input + tile / (across * down) * s.height * s.width * s.pixel;
  const float* pixels[kWinogradProducts];
  for (std::size_t r = 0; r < 4; ++r) {
    // Above the first row the difference wraps around, and is greater than any height.
    const std::size_t from_y = y + r - s.top;
    for (std::size_t c = 0; c < 4; ++c) {
      const std::size_t from_x = x + c - s.left;
      pixels[4 * r + c] = from_y < s.height && from_x < s.width
                              ? image + (from_y * s.width + from_x) * s.pixel
                              : plan.data.zero;
    }
  }
  plan.kernels->input(pixels, s.channels, to, plan.stride);
}

// Multiplies a strip's tiles by a panel of weights, and writes the results. `work` holds the sums, and a
// panel for results that do not exist.
void multiply_panel(const WinogradPlan& plan, std::size_t begin, std::size_t count, const float* input,
                    std::size_t panel, float* work) {
  const WinogradSizes& s = plan.sizes;
  constexpr float kAll[] = {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()};
  const std::size_t product_elements = plan.panel * (s.channels + 1);
  const float* weights = plan.data.weights + panel * kWinogradProducts * product_elements;
  for (std::size_t i = 0; i < kWinogradProducts; ++i) {
    for (std::size_t m = 0; m < count; m += plan.tile_rows) {
      plan.multiply(std::min(plan.tile_rows, count - m), plan.panel, s.channels * sizeof(float),
                    input + i * plan.stride + m * plan.row, plan.row * sizeof(float),
                    weights + i * product_elements, work + i * plan.sum_stride + m * plan.panel,
                    plan.panel * sizeof(float), plan.panel * sizeof(float), kAll);
    }
  }
  const std::size_t across = (s.result_width + 1) / 2;
  const std::size_t down = (s.result_height + 1) / 2;
  const std::size_t columns = std::min(plan.panel, s.results - panel * plan.panel);
  float* nowhere = work + kWinogradProducts * plan.sum_stride;
  for (std::size_t m = 0; m < count; ++m) {
    const std::size_t tile = begin + m;
    const std::size_t x = tile % across * 2;
    const std::size_t y = tile / across % down * 2;
    const std::size_t image = tile / (across * down);
    float* first = plan.data.output + ((image * s.result_height + y) * s.result_width + x) * s.result_pixel +
                   panel * plan.panel;
    const std::size_t next = s.result_width * s.result_pixel;
    const bool right = x + 1 < s.result_width;
    const bool below = y + 1 < s.result_height;
    float* const to[] = {first, right ? first + s.result_pixel : nowhere, below ? first + next : nowhere,
                         right && below ? first + next + s.result_pixel : nowhere};
    plan.kernels->output(work + m * plan.panel, plan.sum_stride, columns, to, plan.data.limits);
  }
}

TileShape winograd_tile(const TileSet& set, std::size_t tiles, const WinogradSizes& sizes) {
  return choose_tile(set, TileElement::kFloat, tiles, sizes.results, sizes.channels);
}

// Processor cycles that a convolution takes, as cycles_of() counts them.
double winograd_cycles(const TileSet& set, const WinogradSizes& sizes) {
  const TileShape shape = winograd_tile(set, sizes.tiles(), sizes);
  const double tiles = static_cast<double>(sizes.tiles());
  const double products =
      kWinogradProducts * cycles_of(set, shape, sizes.tiles(), sizes.results, sizes.channels);
  const double vectors = static_cast<double>(sizes.channels + sizes.results) / static_cast<double>(set.lanes);
  const double more = static_cast<double>((kWinogradProducts - kPixelTaps) * sizes.channels * sizes.results);
  return products + tiles * (kTileCycles + kVectorCycles * vectors) + kWeightCycles * more;
}

// Whether they are fewer than those of sums over windows.
bool pays(const TileSet& set, const WinogradSizes& sizes) {
  const std::size_t rows = sizes.batch * sizes.result_height * sizes.result_width;
  const std::size_t depth = kPixelTaps * sizes.channels;
  const TileShape shape = choose_tile(set, TileElement::kFloat, rows, sizes.results, depth);
  const double direct = cycles_of(set, shape, rows, sizes.results, depth);
  return sizes.channels >= kFewChannels && sizes.results >= kFewChannels &&
         winograd_cycles(set, sizes) < kGain * direct;
}

// Elements of packed weights.
std::size_t packed_elements(const WinogradSizes& sizes, std::size_t panel) {
  return kWinogradProducts * whole_units(sizes.results, panel) * (sizes.channels + 1);
}

WinogradPlan plan_winograd(const TileSet& set, const WinogradSizes& sizes, std::size_t panel,
                           std::size_t threads) {
  WinogradPlan plan = {};
  plan.sizes = sizes;
  plan.kernels = own_kernels();
  plan.panel = panel;
  plan.row = spread(sizes.channels);
  const std::size_t tiles = sizes.tiles();
  const std::size_t panels = plan.panels();
  const std::size_t many = winograd_tile(set, kStripElements, sizes).rows;
  const std::size_t resident = kStripElements / (kWinogradProducts * plan.row) / many * many;
  plan.strip = std::min(std::clamp(resident, 2 * many, 4 * many), tiles);
  plan.group = panels;
  const bool near_weights = packed_elements(sizes, panel) <= kNearWeights;
  const auto halve = [](std::size_t* count, std::size_t unit) {
    *count = whole_units((*count + 1) / 2, unit);
  };
  while (threads > 1 && plan.strips() * plan.groups() < threads * kBlocksPerThread) {
    // Each part of the weights is multiplied by tiles that are transformed for it once more.
    if (plan.strip >= 4 * many) {
      halve(&plan.strip, many);
    } else if (plan.strip >= 2 * kFewTiles && (near_weights || plan.group == 1)) {
      halve(&plan.strip, 1);
    } else if (plan.group > 1) {
      halve(&plan.group, 1);
    } else {
      break;
    }
  }
  // As many strips, all of about the same height.
  const std::size_t each = (tiles + plan.strips() - 1) / plan.strips();
  plan.strip = std::min(each < many ? each : whole_units(each, many), plan.strip);
  plan.tile_rows = winograd_tile(set, plan.strip, sizes).rows;
  plan.multiply = set.tiles[panel / set.lanes - 1][plan.tile_rows - 1].gemm;
  plan.stride = spread(plan.strip * plan.row);
  plan.sum_stride = spread(plan.strip * panel);
  plan.input_elements = kWinogradProducts * plan.stride;
  plan.thread_elements =
      plan.input_elements + whole_units(kWinogradProducts * plan.sum_stride + panel, kLine);
  return plan;
}

// A plan's task, one of strips() times groups(). Each thread has thread_elements of the plan's work.
void compute_block(void* context, std::size_t thread, std::size_t strip, std::size_t group) {
  const WinogradPlan& plan = static_cast<const Hooked*>(context)->plan;
  const std::size_t begin = strip * plan.strip;
  const std::size_t count = std::min(plan.strip, plan.sizes.tiles() - begin);
  float* input = plan.data.work + thread * plan.thread_elements;
  for (std::size_t m = 0; m < count; ++m) {
    transform_input(plan, begin + m, input + m * plan.row);
  }
  const std::size_t last = std::min((group + 1) * plan.group, plan.panels());
  for (std::size_t panel = group * plan.group; panel < last; ++panel) {
    multiply_panel(plan, begin, count, input, panel, input + plan.input_elements);
  }
}

WinogradSizes sizes_of(const xnn_operator& op) {
  WinogradSizes sizes;
  sizes.batch = op.batch_size;
  sizes.channels = op.group_input_channels;
  sizes.results = op.group_output_channels;
  sizes.height = op.input_height;
  sizes.width = op.input_width;
  sizes.pixel = op.input_pixel_stride;
  sizes.result_height = op.output_height;
  sizes.result_width = op.output_width;
  sizes.result_pixel = op.output_pixel_stride;
  sizes.top = op.padding_top;
  sizes.left = op.padding_left;
  return sizes;
}

xnn_status reshape_winograd(xnn_operator_data* data, xnn_value* values, std::size_t count,
                            pthreadpool_t pool) {
  xnn_operator_t op = data->operator_objects[0];
  Hooked* hooked = hooked_of(op);
  const std::size_t before = data->workspace_size;
  const xnn_status status = hooked->reshape(data, values, count, pool);
  if ((status != xnn_status_success && status != xnn_status_reallocation_required) ||
      op->state == xnn_run_state_skip) {
    return status;
  }
  const std::size_t threads = pthreadpool_get_threads_count(pool);
  hooked->plan = plan_winograd(*float_tiles(), sizes_of(*op), op->ukernel.igemm.nr, threads);
  for (compute_parameters& compute : op->compute) {
    compute.type = xnn_parallelization_type_invalid;
  }
  compute_parameters& compute = op->compute[0];
  compute.type = xnn_parallelization_type_2d_with_thread;
  compute.task_2d_with_thread = &compute_block;
  compute.context_offset = kHookedOffset;
  compute.range[0] = hooked->plan.strips();
  compute.range[1] = hooked->plan.groups();
  data->workspace_size = threads * hooked->plan.thread_elements * sizeof(float);
  data->workspace_alignment = XNN_ALLOCATION_ALIGNMENT;
  return data->workspace_size > before ? xnn_status_reallocation_required : status;
}

xnn_status setup_winograd(const xnn_operator_data* data, const xnn_value* values, std::size_t count,
                          pthreadpool_t pool) {
  xnn_operator_t op = data->operator_objects[0];
  Hooked* hooked = hooked_of(op);
  const xnn_status status = hooked->setup(data, values, count, pool);
  if (status != xnn_status_success || op->state == xnn_run_state_skip) {
    return status;
  }
  const igemm_context& igemm = op->context.igemm.igemm;
  WinogradData& to = hooked->plan.data;
  to.input = static_cast<const float*>(op->input);
  // Without padding only results that do not exist are made of pixels outside: any numbers will do.
  to.zero = op->zero_buffer == nullptr ? to.input : static_cast<const float*>(op->zero_buffer);
  to.weights = static_cast<const float*>(igemm.packed_w);
  to.output = static_cast<float*>(op->output);
  to.work = static_cast<float*>(data->workspace);
  to.limits[0] = igemm.params.f32.scalar.min;
  to.limits[1] = igemm.params.f32.scalar.max;
  return status;
}

struct PanelTask {
  const TileSet* set;
  WinogradSizes sizes;
  std::size_t panel;
  const float* weights;  // [results, 3, 3, channels]
  const float* bias;     // nullptr: none
  float* packed;
};

void pack_panel(void* context, std::size_t at) {
  const auto& [set, sizes, panel, weights, bias, packed] = *static_cast<const PanelTask*>(context);
  const std::size_t channels = sizes.channels;
  const std::size_t stride = panel * channels;
  const std::size_t begin = at * panel;
  const std::size_t some = std::min(panel, sizes.results - begin);
  std::vector<float> transformed(kWinogradProducts * stride);
  for (std::size_t n = 0; n < some; ++n) {
    own_kernels()->weights(weights + (begin + n) * kPixelTaps * channels, channels,
                           transformed.data() + n * channels, stride);
  }
  for (std::size_t i = 0; i < kWinogradProducts; ++i) {
    // The product in the second row and column is added to each of the four results, and to each once.
    const bool adds = i == 5 && bias != nullptr;
    set->pack_rows(some, channels, panel, transformed.data() + i * stride, adds ? bias + begin : nullptr,
                   packed + (at * kWinogradProducts + i) * panel * (channels + 1), 0, 1);
  }
}

// Whether the node is a convolution in float32 with 3x3 windows that lie side by side, and with constant
// weights.
bool can_be_winograd(const xnn_node& node, const xnn_value* values) {
  if (own_kernels() == nullptr || node.type != xnn_node_type_convolution_2d) {
    return false;
  }
  for (std::uint32_t i = 1; i < node.num_inputs; ++i) {
    const xnn_value& value = values[node.inputs[i]];
    if (value.datatype != xnn_datatype_fp32 || value.data == nullptr) {
      return false;
    }
  }
  const auto& params = node.params.convolution_2d;
  return params.kernel_height == 3 && params.kernel_width == 3 && params.subsampling_height == 1 &&
         params.subsampling_width == 1 && params.dilation_height == 1 && params.dilation_width == 1 &&
         params.groups == 1 && params.group_input_channels <= kMostChannels &&
         params.group_output_channels <= kMostChannels && values[node.outputs[0]].shape.num_dims == 4;
}

// Of such a node; nothing of how its input lies in memory.
WinogradSizes winograd_sizes(const xnn_node& node, const xnn_value* values) {
  const auto& params = node.params.convolution_2d;
  const xnn_shape& result = values[node.outputs[0]].shape;
  WinogradSizes sizes;
  sizes.batch = result.dim[0];
  sizes.result_height = result.dim[1];
  sizes.result_width = result.dim[2];
  sizes.channels = params.group_input_channels;
  sizes.results = params.group_output_channels;
  return sizes;
}

bool is_winograd(const xnn_operator& op) {
  const WinogradKernels* kernels = own_kernels();
  return kernels != nullptr && op.type == xnn_operator_type_convolution_nhwc_f32 &&
         op.ukernel.type == xnn_microkernel_type_igemm &&
         op.ukernel.igemm.igemm_cases[0].function[XNN_UARCH_DEFAULT] == marker_of(*kernels);
}

}  // namespace

std::optional<WinogradLayer> winograd_layer(const TileSet& set, const xnn_node& node, const xnn_value* values,
                                            pthreadpool_t threads) {
  if (!can_be_winograd(node, values) || !pays(set, winograd_sizes(node, values))) {
    return {};
  }
  const WinogradSizes sizes = winograd_sizes(node, values);
  const TileShape shape = winograd_tile(set, sizes.tiles(), sizes);
  const void* weights = values[node.inputs[1]].data;
  const void* bias = node.num_inputs > 2 ? values[node.inputs[2]].data : nullptr;
  PanelTask task = {&set,
                    sizes,
                    shape.vectors * set.lanes,
                    static_cast<const float*>(weights),
                    static_cast<const float*>(bias),
                    nullptr};
  const auto pack = [task, threads](std::uint8_t* to) mutable {
    task.packed = reinterpret_cast<float*>(to);
    pthreadpool_parallelize_1d(threads, &pack_panel, &task,
                               (task.sizes.results + task.panel - 1) / task.panel, 0);
  };
  return WinogradLayer{shape,
                       {weights, bias, packed_elements(sizes, task.panel) * sizeof(float), pack, "winograd"}};
}

void mark_winograd(xnn_operator_t op) {
  const xnn_igemm_ukernel_fn marker = marker_of(*own_kernels());
  for (xnn_hmp_igemm_ukernel& one : op->ukernel.igemm.igemm_cases) {
    for (xnn_igemm_ukernel_fn& function : one.function) {
      function = function == nullptr ? nullptr : marker;
    }
  }
  // Otherwise XNNPACK would keep the addresses of all windows' pixels.
  op->flags |= XNN_FLAG_TRANSIENT_INDIRECTION_BUFFER;
}

void hook_winograd(xnn_runtime_t runtime) {
  for (std::size_t i = 0; i < runtime->num_ops; ++i) {
    xnn_operator_data& data = runtime->opdata[i];
    xnn_operator_t op = data.operator_objects[0];
    if (op != nullptr && is_winograd(*op)) {
      new (reinterpret_cast<char*>(&op->context) + kHookedOffset) Hooked{data.reshape, data.setup, {}};
      data.reshape = &reshape_winograd;
      data.setup = &setup_winograd;
    }
  }
}

std::string winograd_name(void (*kernel)()) {
  const WinogradKernels* kernels = own_kernels();
  return kernels != nullptr && kernel == reinterpret_cast<void (*)()>(kernels->input)
             ? std::string("slipway_f32_winograd_2x2_3x3__") + kernels->isa
             : std::string();
}

}  // namespace slipway::lean
