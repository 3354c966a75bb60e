#include "lean/xnnpack/blocking.h"

#include <xnnpack/common.h>
#include <xnnpack/compute.h>
#include <xnnpack/config.h>
#include <xnnpack/node-type.h>
#include <xnnpack/operator.h>
#include <xnnpack/subgraph.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <type_traits>

#include "lean/kernels/moves.h"
#include "lean/xnnpack/own_kernels.h"

// XNNPACK's task; its header hides it from C++.
extern "C" void xnn_compute_gemm(const gemm_context* context, std::size_t row, std::size_t column,
                                 std::size_t rows, std::size_t columns);

namespace slipway::lean {
namespace {

// With more channels little of the work is padding.
constexpr std::size_t kMostPatchChannels = 4;
// To copy a window of 3x3 bytes takes as long as it saves.
constexpr std::size_t kLeastPixels = 25;
// Windows that are copied at a time stay in the first cache; a kernel's rows are among them.
constexpr std::size_t kWindowsBytes = std::size_t{16} * 1024;
constexpr std::size_t kMostWindow = kWindowsBytes / XNN_MAX_MR;
constexpr std::size_t kMostLines = 32;  // of a window whose lines are pointed at
// Kernels that take fewer channels at once have little padding.
constexpr unsigned kLeastTogether = 4;
constexpr std::size_t kSharesPerThread = 8;

// The image and its windows, as they lie in memory.
struct Image {
  std::size_t height;
  std::size_t width;
  std::size_t channels;  // bytes of a pixel
  std::size_t rows;      // of windows, and how many stand in each
  std::size_t columns;
  std::size_t window_height;
  std::size_t window_width;
  std::size_t down;  // pixels from one window to the next
  std::size_t across;
  std::size_t top;  // padding
  std::size_t left;
  std::size_t more_height;  // with the padding of the other side
  std::size_t more_width;
  std::uint8_t padding;

  std::size_t row_bytes() const { return window_width * channels; }
  std::size_t step() const { return across * channels; }
  std::size_t window_bytes() const { return window_height * row_bytes(); }
};

// What a hooked operator has besides XNNPACK's own context.
struct Im2colLayer {
  xnn_reshape_operator_fn reshape;
  Image image;
  // Our kernel that takes each line of a window by a pointer; nullptr: windows are copied.
  Igemm<void> lines;
};
static_assert(std::is_trivially_copyable_v<Im2colLayer>, "XNNPACK frees it without a destructor");

// Behind the product in XNNPACK's context, where layers have more that pack weights at run time.
constexpr std::size_t kIm2colOffset =
    (sizeof(gemm_context) + alignof(Im2colLayer) - 1) / alignof(Im2colLayer) * alignof(Im2colLayer);
static_assert(kIm2colOffset + sizeof(Im2colLayer) <= sizeof(xnn_operator::context),
              "XNNPACK's operators have room for an image");

Im2colLayer* im2col_of(void* context) {
  return std::launder(reinterpret_cast<Im2colLayer*>(static_cast<char*>(context) + kIm2colOffset));
}

// Rows of a window that is inside the image: its bytes are copied without calls.
template <typename Word>
void gather_lines(const Image& image, const std::uint8_t* from, std::uint8_t* to) {
  const std::size_t row = image.row_bytes();
  const std::size_t stride = image.width * image.channels;
  for (const std::uint8_t* end = to + image.window_bytes(); to != end; to += row, from += stride) {
    move_ends<Word>(to, from, row);
  }
}

struct SixteenBytes {
  std::uint64_t first;
  std::uint64_t second;
};

void gather_inside(const Image& image, const std::uint8_t* from, std::uint8_t* to) {
  const std::size_t row = image.row_bytes();
  if (row >= 16 && row <= 32) {
    gather_lines<SixteenBytes>(image, from, to);
  } else if (row >= 8 && row <= 16) {
    gather_lines<std::uint64_t>(image, from, to);
  } else if (row >= 4 && row <= 8) {
    gather_lines<std::uint32_t>(image, from, to);
  } else {
    for (std::size_t y = 0; y < image.window_height; ++y) {
      std::memcpy(to + y * row, from + y * image.width * image.channels, row);
    }
  }
}

// A window that reaches over the image's edge; `y` and `x`: its first pixel, with the padding counted.
void gather_at_edge(const Image& image, const std::uint8_t* pixels, std::size_t y, std::size_t x,
                    std::uint8_t* to) {
  const std::size_t row = image.row_bytes();
  // The columns of the window that are inside.
  const std::size_t first = std::min(x < image.left ? image.left - x : 0, image.window_width);
  const std::size_t end = image.left + image.width;  // of the image, counted as `x`
  const std::size_t last = std::max(first, std::min(x < end ? end - x : 0, image.window_width));
  for (std::size_t i = 0; i < image.window_height; ++i, to += row) {
    const std::size_t at = y + i;
    if (at < image.top || at - image.top >= image.height || first == last) {
      std::memset(to, image.padding, row);
      continue;
    }
    const std::size_t from = (at - image.top) * image.width + (x + first - image.left);
    std::memset(to, image.padding, first * image.channels);
    std::memcpy(to + first * image.channels, pixels + from * image.channels, (last - first) * image.channels);
    std::memset(to + last * image.channels, image.padding, (image.window_width - last) * image.channels);
  }
}

// Goes through windows by their number in the batch. Calls `inside` with neighbours that are inside their
// image: the number of the first, how many they are, and their first byte, one `image.step()` behind the
// other; `at_edge` with the image and a window's first pixel, with the padding counted.
template <typename Inside, typename AtEdge>
void for_windows(const Image& image, const std::uint8_t* images, std::size_t number, std::size_t count,
                 Inside inside, AtEdge at_edge) {
  std::size_t column = number % image.columns;
  std::size_t row = number / image.columns % image.rows;
  const std::size_t pixels = image.height * image.width;
  const std::uint8_t* from = images + number / image.columns / image.rows * pixels * image.channels;
  for (std::size_t i = 0; i < count;) {
    const std::size_t y = row * image.down;
    const std::size_t x = column * image.across;
    std::size_t some = 1;
    if (y >= image.top && y - image.top + image.window_height <= image.height && x >= image.left &&
        x - image.left + image.window_width <= image.width) {
      const std::size_t more = (image.width - image.window_width - (x - image.left)) / image.across;
      some = std::min(count - i, more + 1);
      inside(i, some, from + ((y - image.top) * image.width + (x - image.left)) * image.channels);
    } else {
      at_edge(i, from, y, x);
    }
    i += some;
    column += some;
    if (column == image.columns) {
      column = 0;
      if (++row == image.rows) {
        row = 0;
        from += pixels * image.channels;
      }
    }
  }
}

using WindowsBuffer = std::uint8_t[kWindowsBytes + XNN_EXTRA_BYTES];

// A task of XNNPACK's product: some windows, all channels.
void compute_im2col(void* context, std::size_t row, std::size_t column, std::size_t rows,
                    std::size_t columns) {
  const Image& image = im2col_of(context)->image;
  alignas(XNN_ALLOCATION_ALIGNMENT) WindowsBuffer windows;
  gemm_context product = *static_cast<const gemm_context*>(context);
  const std::size_t size = image.window_bytes();
  for_windows(
      image, static_cast<const std::uint8_t*>(product.a), row, rows,
      [&](std::size_t first, std::size_t some, const std::uint8_t* from) {
        for (std::size_t i = first; i < first + some; ++i, from += image.step()) {
          gather_inside(image, from, windows + i * size);
        }
      },
      [&](std::size_t i, const std::uint8_t* from, std::size_t y, std::size_t x) {
        gather_at_edge(image, from, y, x, windows + i * size);
      });
  product.a = windows;
  product.c = static_cast<std::uint8_t*>(product.c) + row * product.cm_stride;
  for (std::size_t i = 0; i < rows; i += product.mr) {
    xnn_compute_gemm(&product, i, column, std::min(product.mr, rows - i), columns);
  }
}

// The same, where the kernel reads windows in the image: only those at its edges are copied.
void compute_lines(void* context, std::size_t row, std::size_t, std::size_t rows, std::size_t columns) {
  const Im2colLayer& layer = *im2col_of(context);
  const Image& image = layer.image;
  const gemm_context& product = *static_cast<const gemm_context*>(context);
  alignas(XNN_ALLOCATION_ALIGNMENT) WindowsBuffer windows;
  const void* lines[kMostLines * kMostTileRows];
  const auto point = [&](std::size_t first, std::size_t some, const std::uint8_t* from, std::size_t stride) {
    for (std::size_t y = 0; y < image.window_height; ++y, from += stride) {
      const void** to = lines + y * product.mr + first;
      for (std::size_t i = 0; i < some; ++i) {
        to[i] = from + i * image.step();
      }
    }
  };
  for (std::size_t end = row + rows; row < end; row += product.mr) {
    const std::size_t some = std::min(product.mr, end - row);
    for_windows(
        image, static_cast<const std::uint8_t*>(product.a), row, some,
        [&](std::size_t first, std::size_t inside, const std::uint8_t* from) {
          point(first, inside, from, image.width * image.channels);
        },
        [&](std::size_t i, const std::uint8_t* from, std::size_t y, std::size_t x) {
          std::uint8_t* copy = windows + i * image.window_bytes();
          gather_at_edge(image, from, y, x, copy);
          point(i, 1, copy, image.row_bytes());
        });
    layer.lines(some, columns, image.row_bytes(), image.window_height * product.mr * sizeof(void*), lines,
                product.packed_w, static_cast<std::uint8_t*>(product.c) + row * product.cm_stride,
                product.cm_stride, product.cn_stride, 0, nullptr, product.fused_params);
  }
}

// Our kernel that takes its rows by pointers, beside the one that takes them one after the other.
template <typename Element>
Igemm<void> beside(const Tiles<Element>& tiles, void (*gemm)()) {
  for (const auto& some : tiles) {
    for (const Tile<Element>& tile : some) {
      if (tile.gemm != nullptr && reinterpret_cast<void (*)()>(tile.gemm) == gemm) {
        return reinterpret_cast<Igemm<void>>(tile.igemm);
      }
    }
  }
  return nullptr;
}

Igemm<void> lines_kernel(const gemm_context& product) {
  const auto gemm = reinterpret_cast<void (*)()>(product.ukernel.function[XNN_UARCH_DEFAULT]);
  const TileSet* set = float_tiles();
  if (set == nullptr) {
    return nullptr;
  }
  const auto found = beside(set->tiles, gemm);
  return found != nullptr ? found : beside(set->halves, gemm);
}

std::size_t windows_in(std::size_t size, std::size_t padding, std::size_t window, std::size_t step) {
  return size + padding < window ? 0 : (size + padding - window) / step + 1;
}

xnn_status reshape_im2col(xnn_operator_data* data, xnn_value* values, std::size_t count, pthreadpool_t pool) {
  xnn_operator_t op = data->operator_objects[0];
  Im2colLayer* layer = im2col_of(&op->context);
  Image& image = layer->image;
  std::size_t* dims = values[data->inputs[0]].shape.dim;
  const std::size_t height = dims[1];
  const std::size_t width = dims[2];
  image.height = height;
  image.width = width;
  image.rows = windows_in(height, image.more_height, image.window_height, image.down);
  image.columns = windows_in(width, image.more_width, image.window_width, image.across);
  // For XNNPACK each window is a pixel.
  dims[1] = image.rows;
  dims[2] = image.columns;
  const xnn_status status = layer->reshape(data, values, count, pool);
  dims[1] = height;
  dims[2] = width;
  if ((status != xnn_status_success && status != xnn_status_reallocation_required) ||
      op->state == xnn_run_state_skip) {
    return status;
  }
  gemm_context& product = op->context.gemm.gemm.gemm;
  compute_parameters& compute = op->compute[0];
  product.mr = compute.tile[0];
  const std::size_t threads = pthreadpool_get_threads_count(pool);
  const std::size_t share = threads == 1 ? compute.range[0] : compute.range[0] / (threads * kSharesPerThread);
  layer->lines = lines_kernel(product);
  const std::size_t most =
      layer->lines == nullptr ? std::min(share, kWindowsBytes / image.window_bytes()) : share;
  compute.task_2d_tile_2d = layer->lines == nullptr ? &compute_im2col : &compute_lines;
  compute.tile[0] = std::max<std::size_t>(most / product.mr, 1) * product.mr;
  compute.tile[1] = compute.range[1];
  return status;
}

// 0 for types that no kernel here is for.
std::size_t element_size(const xnn_value& value) {
  switch (value.datatype) {
    case xnn_datatype_qint8:
      return 1;
    case xnn_datatype_fp16:
      return 2;
    case xnn_datatype_fp32:
      return 4;
    default:
      return 0;
  }
}

// Whether kernels compute the product over windows of so many bytes, and faster than one tap after the other.
[[maybe_unused]] bool gains_im2col(const xnn_node& node, const xnn_value* values, std::size_t window_bytes) {
  const auto& params = node.params.convolution_2d;
  const xnn_datatype type = values[node.inputs[0]].datatype;
  if (values[node.outputs[0]].datatype != type) {
    return false;
  }
  if (type != xnn_datatype_qint8) {
    return window_bytes <= kWindowsBytes / kMostTileRows && params.kernel_height <= kMostLines &&
           params.group_output_channels > kFewColumns &&
           (type == xnn_datatype_fp16 ? half_tiles() : float_tiles()) != nullptr;
  }
  const xnn_gemm_config* config = xnn_init_qs8_qc8w_gemm_config();
  return window_bytes <= kMostWindow && is_bytes(values[node.inputs[1]]) &&
         std::size_t{params.kernel_height} * params.kernel_width >= kLeastPixels && config != nullptr &&
         1U << (config->log2_kr + config->log2_sr) >= kLeastTogether;
}

}  // namespace

bool takes_im2col(const xnn_node& node, const xnn_value* values) {
#if XNN_ARCH_X86_64
  if (node.type != xnn_node_type_convolution_2d) {
    return false;
  }
  const auto& params = node.params.convolution_2d;
  const xnn_value& filter = values[node.inputs[1]];
  const std::size_t pixels = std::size_t{params.kernel_height} * params.kernel_width;
  const std::size_t pixel = params.group_input_channels * element_size(values[node.inputs[0]]);
  // One channel of one result is a depthwise convolution.
  return pixels != 1 && params.groups == 1 && params.group_input_channels <= kMostPatchChannels &&
         (params.group_input_channels != 1 || params.group_output_channels != 1) && pixel != 0 &&
         params.dilation_height == 1 && params.dilation_width == 1 &&
         (node.flags & XNN_FLAG_TENSORFLOW_SAME_PADDING) == 0 && filter.data != nullptr &&
         values[node.outputs[0]].layout == xnn_layout_type_nhwc && gains_im2col(node, values, pixels * pixel);
#else
  static_cast<void>(node);
  static_cast<void>(values);
  return false;
#endif
}

xnn_node product_over_windows(const xnn_node& node) {
  xnn_node product = node;
  auto& params = product.params.convolution_2d;
  params.group_input_channels *= std::size_t{params.kernel_height} * params.kernel_width;
  params.kernel_height = params.kernel_width = 1;
  params.subsampling_height = params.subsampling_width = 1;
  params.input_padding_top = params.input_padding_right = 0;
  params.input_padding_bottom = params.input_padding_left = 0;
  return product;
}

void hook_im2col(xnn_runtime_t runtime, const xnn_subgraph& subgraph) {
  for (std::size_t i = 0; i < runtime->num_ops; ++i) {
    xnn_operator_data& data = runtime->opdata[i];
    xnn_operator_t op = data.operator_objects[0];
    if (op == nullptr || data.id >= subgraph.num_nodes) {
      continue;
    }
    const xnn_node& node = subgraph.nodes[data.id];
    const auto& params = node.params.convolution_2d;
    // Made of another node than the graph's.
    if (node.type != xnn_node_type_convolution_2d || op->ukernel.type != xnn_microkernel_type_gemm ||
        std::size_t{params.kernel_height} * params.kernel_width == 1) {
      continue;
    }
    Image image = {};
    const xnn_value& pixels = runtime->values[data.inputs[0]];
    image.channels = params.group_input_channels * element_size(pixels);
    image.window_height = params.kernel_height;
    image.window_width = params.kernel_width;
    image.down = params.subsampling_height;
    image.across = params.subsampling_width;
    image.top = params.input_padding_top;
    image.left = params.input_padding_left;
    image.more_height = image.top + params.input_padding_bottom;
    image.more_width = image.left + params.input_padding_right;
    image.padding = pixels.datatype == xnn_datatype_qint8
                        ? static_cast<std::uint8_t>(pixels.quantization.zero_point)
                        : std::uint8_t{0};
    new (reinterpret_cast<char*>(&op->context) + kIm2colOffset) Im2colLayer{data.reshape, image, nullptr};
    data.reshape = &reshape_im2col;
  }
}

}  // namespace slipway::lean
