// Normalizations over layers, groups and batches.
#include <xnnpack/common.h>
#include <xnnpack/hardware-config.h>

#include <cmath>

#include "lean/kernels/kernel.h"
#include "lean/kernels/reduction.h"
#include "lean/kernels/row_tile.h"
#include "lean/kernels/volume.h"

namespace slipway::lean {
namespace {

// A weight or bias as T: `count` numbers, all of them `missing` when the layer has none.
template <typename T>
std::vector<T> values_of(const TensorView* view, std::size_t count, T missing) {
  std::vector<T> found(count, missing);
  if (view != nullptr) {
    load(view->dtype, view->data, 1, count, found.data());
  }
  return found;
}

template <typename T>
struct Moments {
  T mean;
  T rstd;
};

template <typename T>
Moments<T> moments_of(const T* values, std::size_t count, double eps) {
  const T mean = sum_of_run(values, count) / static_cast<T>(count);
  const T squares = sum_of_each(values, count, [mean](T x) { return (x - mean) * (x - mean); });
  return {mean, T(1) / std::sqrt(squares / static_cast<T>(count) + static_cast<T>(eps))};
}

// The loops below take pointers: an index into a std::vector is checked for each element. What is read and
// what is written may be the same.

// All with one scale and shift.
template <typename T>
void standardize(const T* values, std::size_t count, const Moments<T>& moments, T scale, T shift, T* to) {
  const T mean = moments.mean;
  const T rstd = moments.rstd;
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = (values[i] - mean) * rstd * scale + shift;
  }
}

NormalizeRow* row_tile() {
#if XNN_ARCH_X86_64
  const xnn_hardware_config* hardware = xnn_init_hardware_config();
  if (hardware != nullptr && hardware->use_x86_avx512f) {
    return avx512f::kNormalizeRow;
  }
  if (hardware != nullptr && hardware->use_x86_avx2 && hardware->use_x86_fma3) {
    return avx2::kNormalizeRow;
  }
#endif
  return &rows::normalize<16>;
}

// Each element has its own scale and shift.
Moments<float> normalize(const float* values, std::size_t count, double eps, const float* scale,
                         const float* shift, float* to) {
  static NormalizeRow* const tile = row_tile();
  float moments[2];
  tile(values, count, static_cast<float>(eps), scale, shift, to, moments);
  return {moments[0], moments[1]};
}

Moments<double> normalize(const double* values, std::size_t count, double eps, const double* scale,
                          const double* shift, double* to) {
  const Moments<double> moments = moments_of(values, count, eps);
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = (values[i] - moments.mean) * moments.rstd * scale[i] + shift[i];
  }
  return moments;
}

// Where the elements of a row are when they are T's, else room for them in `line`.
template <typename T>
T* row_at(const TensorView& view, std::size_t first, std::size_t width, std::vector<T>* line) {
  if (view.dtype == dtype_of<T>()) {
    return reinterpret_cast<T*>(view.data) + first;
  }
  line->resize(width);
  return line->data();
}

void store_one(TensorView& out, std::size_t at, double value) {
  store(out.dtype, &value, 1, out.data + at * size_of(out.dtype), 1);
}

// Rows of `width` elements; `apply` gives each its scale and shift, of which there are `channels`.
template <typename Apply>
Status normalize_rows(const TensorView& in, std::size_t width, const TensorView* weight,
                      const TensorView* bias, std::size_t channels, TensorView& out, TensorView& means,
                      TensorView& rstds, Apply apply) {
  return in_floats(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::vector<T> scale = values_of<T>(weight, channels, T(1));
    const std::vector<T> shift = values_of<T>(bias, channels, T(0));
    share(in.count() / width, in.count(), [&](std::size_t first, std::size_t last) {
      std::vector<T> line;
      for (std::size_t row = first; row < last; ++row) {
        T* values = row_at(in, row * width, width, &line);
        T* target = row_at(out, row * width, width, &line);
        if (in.dtype != dtype_of<T>()) {
          load(in.dtype, in.data + row * width * size_of(in.dtype), 1, width, values);
        }
        const Moments<T> moments = apply(row, values, scale, shift, target);
        if (out.dtype != dtype_of<T>()) {
          store(out.dtype, target, width, out.data + row * width * size_of(out.dtype), 1);
        }
        store_one(means, row, static_cast<double>(moments.mean));
        store_one(rstds, row, static_cast<double>(moments.rstd));
      }
    });
    return Status();
  });
}

Status layer_norm(const TensorView& in, const Shape& normalized, const TensorView* weight,
                  const TensorView* bias, double eps, TensorView& out, TensorView& means, TensorView& rstds) {
  if (normalized.size() > in.rank || !in.contiguous() ||
      !std::equal(normalized.rbegin(), normalized.rend(),
                  std::make_reverse_iterator(in.sizes.begin() + in.rank))) {
    return mismatch("cannot normalise " + to_text(in.shape()) + " over " + to_text(normalized));
  }
  const std::size_t width = shaped(normalized).count();
  Shape outer = in.shape();
  std::fill_n(outer.rbegin(), normalized.size(), 1);
  SLIPWAY_RETURN_IF_ERROR(resize(&means, outer));
  SLIPWAY_RETURN_IF_ERROR(resize(&rstds, outer));
  SLIPWAY_RETURN_IF_EMPTY(resize(&out, in), in);
  if ((weight != nullptr && weight->count() != width) || (bias != nullptr && bias->count() != width)) {
    return mismatch("weight or bias of a normalisation does not fit " + to_text(normalized));
  }
  return normalize_rows(
      in, width, weight, bias, width, out, means, rstds,
      [&](std::size_t, const auto* values, const auto& scale, const auto& shift, auto* target) {
        return normalize(values, width, eps, scale.data(), shift.data(), target);
      });
}

Status group_norm(const TensorView& in, const TensorView* weight, const TensorView* bias, std::int64_t batch,
                  std::int64_t channels, std::int64_t area, std::int64_t groups, double eps, TensorView& out,
                  TensorView& means, TensorView& rstds) {
  std::size_t count = 0;
  const bool fits = count_elements({batch, channels, area}, 1, &count) && channels > 0 && groups > 0 &&
                    channels % groups == 0 && in.count() == count && in.contiguous() &&
                    (weight == nullptr || static_cast<std::int64_t>(weight->count()) == channels) &&
                    (bias == nullptr || static_cast<std::int64_t>(bias->count()) == channels);
  if (!fits) {
    return mismatch("cannot normalise " + to_text(in.shape()) + " in " + std::to_string(groups) + " groups");
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&means, Shape{batch, groups}));
  SLIPWAY_RETURN_IF_ERROR(resize(&rstds, Shape{batch, groups}));
  SLIPWAY_RETURN_IF_EMPTY(resize(&out, in), in);
  const auto plane = static_cast<std::size_t>(area);
  const auto width = static_cast<std::size_t>(channels / groups) * plane;
  return normalize_rows(
      in, width, weight, bias, static_cast<std::size_t>(channels), out, means, rstds,
      [&](std::size_t row, const auto* values, const auto& scale, const auto& shift, auto* target) {
        const auto moments = moments_of(values, width, eps);
        const std::size_t first = row % static_cast<std::size_t>(groups) * (width / plane);
        for (std::size_t c = 0; c < width / plane; ++c) {
          standardize(values + c * plane, plane, moments, scale[first + c], shift[first + c],
                      target + c * plane);
        }
        return moments;
      });
}

// Per channel, with statistics that were learned.
Status batch_norm_with(const TensorView& in, const TensorView* weight, const TensorView* bias,
                       const TensorView& mean, const TensorView& variance, double eps, TensorView& out) {
  const auto channels = in.rank < 2 ? 0 : static_cast<std::size_t>(in.sizes[1]);
  const auto fits = [channels](const TensorView* view) {
    return view == nullptr || view->count() == channels;
  };
  if (in.rank < 2 || !fits(weight) || !fits(bias) || !fits(&mean) || !fits(&variance)) {
    return mismatch("cannot normalise the channels of " + to_text(in.shape()));
  }
  SLIPWAY_RETURN_IF_EMPTY(resize(&out, in), in);
  return in_floats(in.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<T> scale = values_of<T>(&variance, channels, T(0));
    std::vector<T> shift = values_of<T>(&mean, channels, T(0));
    const std::vector<T> weights = values_of<T>(weight, channels, T(1));
    const std::vector<T> biases = values_of<T>(bias, channels, T(0));
    for (std::size_t c = 0; c < channels; ++c) {
      const T factor = weights[c] / std::sqrt(scale[c] + static_cast<T>(eps));
      shift[c] = biases[c] - shift[c] * factor;
      scale[c] = factor;
    }
    if (in.dtype == dtype_of<T>() && out.dtype == in.dtype && in.contiguous() && out.contiguous()) {
      const std::size_t planes = static_cast<std::size_t>(in.sizes[0]) * channels;
      const std::size_t plane = in.count() / planes;
      share(planes, in.count(), [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) {
          const T* from = in.as<T>() + i * plane;
          T* to = out.as<T>() + i * plane;
          const T factor = scale[i % channels];
          const T offset = shift[i % channels];
          for (std::size_t k = 0; k < plane; ++k) {
            to[k] = from[k] * factor + offset;
          }
        }
      });
      return Status();
    }
    const auto of_channels = [](const std::vector<T>& values) {
      return Operand{reinterpret_cast<const std::uint8_t*>(values.data()), dtype_of<T>(), {0, 1}};
    };
    map<In::kFloats>(out, std::array<Operand, 3>{operand_of(in, out), of_channels(scale), of_channels(shift)},
                     in.dtype, [](auto x, auto factor, auto offset) { return x * factor + offset; });
    return Status();
  });
}

Status batch_norm(const TensorView& in, const TensorView* weight, const TensorView* bias,
                  const TensorView& mean, const TensorView& variance, Unused /*momentum*/, double eps,
                  TensorView& out, Unused, Unused) {
  return batch_norm_with(in, weight, bias, mean, variance, eps, out);
}

struct Statistics {
  std::vector<double> means;
  std::vector<double> variances;  // biased
  double count = 0;               // elements of a channel
};

// Of every channel of the batch; gives `mean` and `inverse` their shape and values.
Result<Statistics> statistics_of(const TensorView& in, double eps, TensorView& mean, TensorView& inverse) {
  if (in.rank < 2) {
    return mismatch("cannot normalise the channels of " + to_text(in.shape()));
  }
  std::vector<std::int64_t> dims;
  for (std::int64_t i = 0; i < in.rank; ++i) {
    if (i != 1) {
      dims.push_back(i);
    }
  }
  SLIPWAY_RETURN_IF_ERROR(resize(&inverse, Shape{in.sizes[1]}));
  Reduction reduction;
  SLIPWAY_RETURN_IF_ERROR(reduction.plan(in, dims, false, &mean));
  Statistics found;
  reduction.each<double>(in, mean, [&found](const Line<double>& line) {
    double sum = 0;
    line.each([&sum](double x) { sum += x; });
    found.count = static_cast<double>(line.count());
    const double middle = sum / found.count;
    double squares = 0;
    line.each([&](double x) { squares += (x - middle) * (x - middle); });
    found.means.push_back(middle);
    found.variances.push_back(squares / found.count);
    return middle;
  });
  for (std::size_t c = 0; c < found.variances.size(); ++c) {
    store_one(inverse, c, 1.0 / std::sqrt(found.variances[c] + eps));
  }
  return found;
}

TensorView view_of(const std::vector<double>& values) {
  return straightened(shaped({static_cast<std::int64_t>(values.size())}), values.data());
}

Status batch_norm_of_batch(const TensorView& in, TensorView* weight, TensorView* bias, Unused /*training*/,
                           Unused /*momentum*/, double eps, TensorView& out, TensorView& mean,
                           TensorView& inverse) {
  SLIPWAY_TRY(const Statistics found, statistics_of(in, eps, mean, inverse));
  return batch_norm_with(in, weight, bias, view_of(found.means), view_of(found.variances), eps, out);
}

// running = (1 - momentum) * running + momentum * seen
void follow(TensorView& running, const std::vector<double>& seen, double momentum, double factor) {
  for (std::size_t c = 0; c < seen.size(); ++c) {
    const auto before = load_one<double>(running.dtype, running.data + c * size_of(running.dtype));
    store_one(running, c, (1 - momentum) * before + momentum * seen[c] * factor);
  }
}

// Training follows the batch's statistics, else the learned ones are used.
Status batch_norm_running(const TensorView& in, const TensorView* weight, const TensorView* bias,
                          TensorView& mean, TensorView& variance, bool training, double momentum, double eps,
                          TensorView& out, TensorView& save_mean, TensorView& save_inverse) {
  if (!training) {
    return batch_norm_with(in, weight, bias, mean, variance, eps, out);
  }
  SLIPWAY_TRY(const Statistics found, statistics_of(in, eps, save_mean, save_inverse));
  SLIPWAY_RETURN_IF_ERROR(
      batch_norm_with(in, weight, bias, view_of(found.means), view_of(found.variances), eps, out));
  if (mean.constant || variance.constant || mean.count() != found.means.size() ||
      variance.count() != found.means.size()) {
    return mismatch("the running statistics cannot follow");
  }
  follow(mean, found.means, momentum, 1);
  follow(variance, found.variances, momentum, found.count > 1 ? found.count / (found.count - 1) : 1);
  return {};
}

}  // namespace

constexpr KernelTable kNormalizationKernels = {
    {"aten::_native_batch_norm_legit.no_stats_out", typed<batch_norm_of_batch>},
    {"aten::_native_batch_norm_legit.out", typed<batch_norm_running>},
    {"aten::_native_batch_norm_legit_no_training.out", typed<batch_norm>},
    {"aten::native_group_norm.out", typed<group_norm>},
    {"aten::native_layer_norm.out", typed<layer_norm>},
};

}  // namespace slipway::lean
