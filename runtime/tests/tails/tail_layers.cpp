#include "tail_layers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "lean/kernels/elements.h"

namespace tails {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

class AnyNumbers {
 public:
  explicit AnyNumbers(std::uint32_t seed) : state_(seed * 2654435761U + 12345U) {}
  std::int32_t between(std::int32_t low, std::int32_t high) {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 17U;
    state_ ^= state_ << 5U;
    return low + static_cast<std::int32_t>((state_ >> 8U) % static_cast<std::uint32_t>(high - low + 1));
  }

 private:
  std::uint32_t state_;
};

bool is_float(Type type) {
  return type == Type::xnn_datatype_fp32 || type == Type::xnn_datatype_fp16;
}

bool has_four_bits(Type type) {
  return type == Type::xnn_datatype_qcint4 || type == Type::xnn_datatype_qbint4;
}

// Numbers that are small enough for sums in half precision to be exact.
bool is_small(const Types& types) {
  return types.input == Type::xnn_datatype_fp16 && !types.dynamic;
}

void put(std::vector<std::uint8_t>* bytes, Type type, double number) {
  const auto append = [&](auto value) {
    const std::size_t at = bytes->size();
    bytes->resize(at + sizeof(value));
    std::memcpy(bytes->data() + at, &value, sizeof(value));
  };
  switch (type) {
    case Type::xnn_datatype_fp32:
      append(static_cast<float>(number));
      break;
    case Type::xnn_datatype_fp16:
      append(slipway::lean::float_to_half(static_cast<float>(number)));
      break;
    case Type::xnn_datatype_qint32:
    case Type::xnn_datatype_qcint32:
      append(static_cast<std::int32_t>(number));
      break;
    case Type::xnn_datatype_quint8:
      append(static_cast<std::uint8_t>(number));
      break;
    default:
      append(static_cast<std::int8_t>(number));
      break;
  }
}

// The whole numbers that are multiplied; a product is worth `unit`.
struct Numbers {
  std::vector<std::int32_t> input;   // as it lies in memory
  std::vector<std::int32_t> filter;  // [batch or 1][results][taps][depth]
  double unit = 1;
};

double rms(const std::vector<std::int32_t>& numbers) {
  double sum = 0;
  for (const std::int32_t one : numbers) {
    sum += static_cast<double>(one) * one;
  }
  return std::sqrt(sum / static_cast<double>(std::max<std::size_t>(numbers.size(), 1)));
}

void fill_static_input(const Layer& layer, AnyNumbers* any, Data* data, Numbers* numbers) {
  const Type type = layer.types->input;
  const bool floats = is_float(type);
  const std::int32_t most = is_small(*layer.types) ? 2 : 7;
  data->input_zero = type == Type::xnn_datatype_qint8 ? -7 : (floats ? 0 : 119);
  data->input_scale = floats ? 1.0F : 0.5F;
  const std::int32_t low = floats ? -most : (type == Type::xnn_datatype_qint8 ? -128 : 0);
  const std::int32_t high = floats ? most : low + 255;
  const std::size_t extreme = static_cast<std::size_t>(any->between(0, 1 << 20)) % numbers->input.size();
  for (std::size_t i = 0; i < numbers->input.size(); ++i) {
    std::int32_t stored = any->between(low, high);
    if (i == extreme) {
      stored = floats ? 9 * most : high;
    }
    numbers->input[i] = stored - data->input_zero;
    put(&data->input, type, stored);
  }
  numbers->unit *= data->input_scale;
}

// Of a row, a channel or a block: its scale in least ones.
std::int32_t scale_factor(std::size_t index) {
  return static_cast<std::int32_t>(1U << (index % 3));
}

// Rows or images with scales and zero points of their own, which XNNPACK finds exactly: each has a smallest
// and a largest number that are 255 steps of a power of two apart.
void fill_dynamic_input(const Layer& layer, AnyNumbers* any, Data* data, Numbers* numbers) {
  const std::size_t together = layer.quantized_by_rows() ? layer.depth : numbers->input.size() / layer.batch;
  const double unit = layer.types->input == Type::xnn_datatype_fp16 ? 1.0 / 128 : 1.0 / 4;
  for (std::size_t i = 0; i < numbers->input.size(); i += together) {
    const std::size_t row = i / together;
    const std::int32_t factor = scale_factor(row);
    const std::int32_t low = -static_cast<std::int32_t>((row * 37 + 20) % 250);
    const std::size_t least = static_cast<std::size_t>(any->between(0, 1 << 20)) % together;
    for (std::size_t k = 0; k < together; ++k) {
      std::int32_t step = any->between(low, low + 255);
      step = k == least ? low : (k == (least + 1) % together ? low + 255 : step);
      numbers->input[i + k] = factor * step;
      put(&data->input, layer.types->input, factor * step * unit);
    }
  }
  numbers->unit *= unit;
}

double least_scale(const Types& types) {
  return types.input == Type::xnn_datatype_fp16 ? 1.0 / 128 : 1.0 / 32;
}

// The filter as the graph has it, from its numbers in any order: `at` finds one of [outer][inner].
template <typename At>
void put_filter(const Layer& layer, std::size_t outer, std::size_t inner, Data* data, At at) {
  const Type type = layer.types->filter;
  for (std::size_t i = 0; i < outer; ++i) {
    for (std::size_t k = 0; k < inner; ++k) {
      if (!has_four_bits(type)) {
        put(&data->filter, type, at(i, k));
      } else if (k % 2 == 0) {
        // The exporter puts a zero beside the last number of a row; XNNPACK multiplies by it.
        const std::int32_t next = k + 1 < inner ? at(i, k + 1) : 0;
        data->filter.push_back(static_cast<std::uint8_t>((at(i, k) + 8) | ((next + 8) << 4)));
      }
    }
  }
}

void fill_filter(const Layer& layer, AnyNumbers* any, Data* data, Numbers* numbers) {
  const Types& types = *layer.types;
  const Type type = types.filter;
  const bool floats = is_float(type);
  const std::int32_t most = is_small(types) ? 2 : 7;
  const std::size_t batches = layer.kind == Kind::kBatch && !types.dynamic ? layer.batch : 1;
  const std::size_t depth = layer.taps() * layer.depth;
  data->filter_zero = type == Type::xnn_datatype_quint8 ? 131 : 0;
  const std::int32_t low = floats ? -most : (has_four_bits(type) ? -8 : (data->filter_zero == 0 ? -128 : 0));
  const std::int32_t high = floats ? most : (has_four_bits(type) ? 7 : low + 255);
  std::vector<std::int32_t> stored(batches * layer.results() * depth);
  std::generate(stored.begin(), stored.end(), [&] { return any->between(low, high); });
  numbers->filter.resize(stored.size());
  const bool per_channel = type == Type::xnn_datatype_qcint8 || type == Type::xnn_datatype_qcint4;
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const std::size_t channel = i / depth;
    std::int32_t factor = 1;
    if (per_channel) {
      factor = scale_factor(channel);
    } else if (type == Type::xnn_datatype_qbint4) {
      factor = scale_factor(channel + i % depth / types.block);
    }
    numbers->filter[i] = factor * (stored[i] - data->filter_zero);
  }
  const double least = least_scale(types);
  numbers->unit *= floats ? 1 : least;
  for (std::size_t channel = 0; !floats && channel < layer.results(); ++channel) {
    data->scales.push_back(static_cast<float>(least * scale_factor(per_channel ? channel : 0)));
    for (std::size_t block = 0; types.block != 0 && block < depth / types.block; ++block) {
      const auto scale = static_cast<float>(least * scale_factor(channel + block));
      const std::uint16_t bits = slipway::lean::float_to_bfloat16(scale);
      data->block_scales.push_back(static_cast<std::uint8_t>(bits & 0xFFU));
      data->block_scales.push_back(static_cast<std::uint8_t>(bits >> 8U));
    }
  }
  const bool columns_last = layer.kind == Kind::kBatch ? !layer.weights_across : layer.weights_across;
  if (layer.kind == Kind::kDepthwise) {
    put_filter(layer, layer.taps(), layer.results(), data,
               [&](std::size_t tap, std::size_t channel) { return stored[channel * depth + tap]; });
  } else if (columns_last) {
    put_filter(layer, batches * depth, layer.columns, data, [&](std::size_t k, std::size_t column) {
      return stored[(k / depth * layer.columns + column) * depth + k % depth];
    });
  } else {
    put_filter(layer, batches * layer.results(), depth, data,
               [&](std::size_t channel, std::size_t k) { return stored[channel * depth + k]; });
  }
}

// Sums of products, exact.
std::vector<std::int64_t> multiply(const Layer& layer, const Numbers& numbers) {
  const std::size_t rows = layer.rows_out();
  const std::size_t columns = layer.columns_out();
  const std::size_t channels = layer.groups * layer.depth;
  const std::size_t window = layer.taps() * layer.depth;
  std::vector<std::int64_t> sums(layer.pixels() * layer.results());
  const auto add = [&](std::size_t batch, std::size_t in_y, std::size_t in_x, std::size_t out_y,
                       std::size_t out_x, std::size_t tap) {
    const std::int32_t* from =
        numbers.input.data() + ((batch * layer.height + in_y) * layer.width + in_x) * channels;
    std::int64_t* to = sums.data() + ((batch * rows + out_y) * columns + out_x) * layer.results();
    const std::size_t first = layer.kind == Kind::kBatch && !layer.types->dynamic ? batch * layer.columns : 0;
    for (std::size_t result = 0; result < layer.results(); ++result) {
      const std::int32_t* one = from + result / layer.columns * layer.depth;
      const std::int32_t* other = numbers.filter.data() + (first + result) * window + tap * layer.depth;
      std::int64_t sum = 0;
      for (std::size_t k = 0; k < layer.depth; ++k) {
        sum += std::int64_t{one[k]} * other[k];
      }
      to[result] += sum;
    }
  };
  const bool transposed = layer.kind == Kind::kTransposed;
  // Windows go over the input, or over the output of a transposed convolution.
  const std::size_t small_rows = transposed ? layer.height : rows;
  const std::size_t small_columns = transposed ? layer.width : columns;
  const std::size_t large_rows = transposed ? rows : layer.height;
  const std::size_t large_columns = transposed ? columns : layer.width;
  for (std::size_t at = 0; at < layer.batch * small_rows * small_columns; ++at) {
    const std::size_t x = at % small_columns;
    const std::size_t y = at / small_columns % small_rows;
    const std::size_t batch = at / small_columns / small_rows;
    for (std::size_t tap = 0; tap < layer.taps(); ++tap) {
      // Below 0 they wrap around to very large ones.
      const std::size_t large_y = y * layer.down + tap / layer.window_width * layer.dilation - layer.padding;
      const std::size_t large_x =
          x * layer.across + tap % layer.window_width * layer.dilation - layer.padding;
      if (large_y < large_rows && large_x < large_columns) {
        transposed ? add(batch, y, x, large_y, large_x, tap) : add(batch, large_y, large_x, y, x, tap);
      }
    }
  }
  return sums;
}

}  // namespace

std::size_t Layer::rows_out() const {
  return kind == Kind::kTransposed ? (height - 1) * down + window_height - 2 * padding
                                   : (height + 2 * padding - dilation * (window_height - 1) - 1) / down + 1;
}

std::size_t Layer::columns_out() const {
  return kind == Kind::kTransposed ? (width - 1) * across + window_width - 2 * padding
                                   : (width + 2 * padding - dilation * (window_width - 1) - 1) / across + 1;
}

bool Layer::quantized_by_rows() const {
  // The engine computes convolutions of single pixels as fully-connected layers.
  return kind == Kind::kConnected || kind == Kind::kBatch ||
         (kind == Kind::kConvolution && taps() == 1 && down == 1 && across == 1 && padding == 0 &&
          groups == 1);
}

std::string Layer::text() const {
  constexpr const char* kNames[] = {"fully connected", "convolution", "depthwise convolution",
                                    "transposed convolution", "batch product"};
  std::string found = std::string(kNames[static_cast<std::size_t>(kind)]) + " " + types->name;
  const auto add = [&](const char* what, std::size_t number, std::size_t usual) {
    found += number == usual ? "" : " " + std::string(what) + " " + std::to_string(number);
  };
  add("batch", batch, 1);
  add("height", height, 1);
  add(kind == Kind::kConnected ? "rows" : "width", width, 0);
  add("columns", columns, 0);
  add("depth", depth, 0);
  add("groups", groups, 1);
  if (taps() != 1) {
    found += " window " + std::to_string(window_height) + "x" + std::to_string(window_width);
  }
  add("down", down, 1);
  add("across", across, 1);
  add("dilation", dilation, 1);
  add("padding", padding, 0);
  return found + (given ? " given" : "") + (weights_across ? " across" : "") + (with_bias ? "" : " no bias");
}

Data make_data(const Layer& layer, std::uint32_t seed) {
  const Types& types = *layer.types;
  AnyNumbers any(seed);
  Data data;
  Numbers numbers;
  numbers.input.resize(layer.batch * layer.height * layer.width * layer.groups * layer.depth);
  types.dynamic ? fill_dynamic_input(layer, &any, &data, &numbers)
                : fill_static_input(layer, &any, &data, &numbers);
  fill_filter(layer, &any, &data, &numbers);
  const double deep = static_cast<double>(layer.taps() * layer.depth);
  data.spread = numbers.unit * std::sqrt(deep) * rms(numbers.input) * rms(numbers.filter);
  data.spread = data.spread == 0 ? 1 : data.spread;
  const bool whole = types.bias == Type::xnn_datatype_qint32 || types.bias == Type::xnn_datatype_qcint32;
  std::vector<double> bias(layer.results());
  const auto limit = static_cast<std::int32_t>(std::min(1e6, data.spread / numbers.unit)) + 1;
  for (std::size_t i = 0; i < bias.size() && layer.with_bias; ++i) {
    const std::int32_t factor = types.bias == Type::xnn_datatype_qcint32 ? scale_factor(i) : 1;
    const std::int32_t number = any.between(-limit, limit);
    bias[i] = number * numbers.unit * factor;
    put(&data.bias, types.bias, whole ? number : bias[i]);
    if (types.bias == Type::xnn_datatype_fp16) {
      bias[i] = slipway::lean::half_to_float(slipway::lean::float_to_half(static_cast<float>(bias[i])));
    }
  }
  if (!is_float(types.output)) {
    data.output_scale = static_cast<float>(std::exp2(std::ceil(std::log2(data.spread / 40))));
    data.output_zero = types.output == Type::xnn_datatype_qint8 ? 5 : 133;
  }
  // Batches of products have no limits.
  const auto range = layer.kind == Kind::kBatch ? Range::kAll : static_cast<Range>(seed % 3);
  const auto bound = static_cast<float>(std::exp2(std::floor(std::log2(data.spread))));
  data.low = range == Range::kAll ? static_cast<float>(-kInfinite) : (range == Range::kBetween ? -bound : 0);
  data.high = range == Range::kBetween ? bound : static_cast<float>(kInfinite);
  const std::vector<std::int64_t> sums = multiply(layer, numbers);
  data.expected.resize(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double number = static_cast<double>(sums[i]) * numbers.unit + bias[i % layer.results()];
    data.expected[i] = std::min<double>(std::max<double>(number, data.low), data.high);
  }
  return data;
}

std::string wrong_result(const Layer& layer, const Data& data, const std::uint8_t* results) {
  const Type type = layer.types->output;
  const std::size_t size = element_size(type);
  std::size_t wrong = 0;
  std::string text;
  const std::size_t count = layer.pixels() * layer.results();
  for (std::size_t i = 0; i < count; ++i) {
    double got = 0;
    double expected = data.expected[i];
    // Whole numbers are exact in float32; Winograd's method and roundings of scales need a little.
    double allowed = 1e-5 * (std::abs(expected) + data.spread);
    if (type == Type::xnn_datatype_fp32) {
      float number = 0;
      std::memcpy(&number, results + i * size, size);
      got = number;
    } else if (type == Type::xnn_datatype_fp16) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, results + i * size, size);
      got = slipway::lean::half_to_float(bits);
      allowed = 2e-3 * (std::abs(expected) + data.spread);
    } else {
      const bool has_sign = type == Type::xnn_datatype_qint8;
      got = has_sign ? static_cast<double>(static_cast<std::int8_t>(results[i])) : results[i];
      const double least = has_sign ? -128 : 0;
      expected = std::min(std::max(expected / data.output_scale + data.output_zero, least), least + 255);
      allowed = 0.5 + 1e-3;  // the nearest, or one of two
    }
    if (!(std::abs(got - expected) <= allowed)) {
      if (++wrong == 1) {
        text = "pixel " + std::to_string(i / layer.results()) + " of " + std::to_string(layer.pixels()) +
               ", channel " + std::to_string(i % layer.results()) + " is " + std::to_string(got) +
               " and not " + std::to_string(expected);
      }
    }
  }
  return wrong == 0 ? "" : text + " (" + std::to_string(wrong) + " wrong of " + std::to_string(count) + ")";
}

}  // namespace tails
