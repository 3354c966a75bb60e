// Every kind of layer with every number of rows, columns and depth that a kernel's tiles may leave over,
// against sums of whole numbers. docs/proofs.md has how to run all of it, and with the kernels of lesser
// processors.
#include <sys/mman.h>
#include <unistd.h>
#include <xnnpack.h>

#include <cstdio>
#include <cstdlib>
#include <set>

#include "check.h"
#include "lean/graph_maker.h"
#include "lean/xnnpack/own_kernels.h"
#include "lean/xnnpack/packed_weights.h"
#include "tail_layers.h"

using namespace slipway;
using namespace slipway::lean;

namespace tails {
namespace {

constexpr std::size_t kVectorBytes = 32;

// Memory behind which no page is, so that who reads further than XNNPACK may is seen.
class LastPage {
 public:
  std::uint8_t* put(const std::vector<std::uint8_t>& bytes) {
    // QEMU reads also what an x86 instruction with a mask leaves out.
    const bool emulated = std::getenv("SLIPWAY_TESTS_EMULATED") != nullptr;
    const std::size_t behind = XNN_EXTRA_BYTES + (emulated ? kVectorBytes : 0);
    const std::size_t size = bytes.size() + behind;
    reserve(size);
    std::uint8_t* at = end_ - size;
    std::memcpy(at, bytes.data(), bytes.size());
    std::memset(at + bytes.size(), 0xFF, behind);  // NaN
    return at;
  }
  ~LastPage() {
    if (memory_ != nullptr) {
      munmap(memory_, size_);
    }
  }

 private:
  void reserve(std::size_t size) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t needed = (size + page - 1) / page * page + page;
    if (needed <= size_) {
      return;
    }
    if (memory_ != nullptr) {
      munmap(memory_, size_);
    }
    size_ = needed;
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory_ != MAP_FAILED);
    end_ = static_cast<std::uint8_t*>(memory_) + size_ - page;
    CHECK(mprotect(end_, page, PROT_NONE) == 0);
  }

  void* memory_ = nullptr;
  std::size_t size_ = 0;
  std::uint8_t* end_ = nullptr;
};

constexpr std::size_t kGuard = 256;  // bytes around results
constexpr std::uint8_t kGuardByte = 0xA5;

using KernelNames = std::set<std::string>;

// What is wrong with the layer's results; empty if nothing is.
std::string compute(const Layer& layer, std::uint32_t seed, KernelNames* kernels) {
  static LastPage pages[3];
  const Data data = make_data(layer, seed);
  const ReadPayload read(make_payload(layer, data));
  TailBench& bench = tail_bench();
  PackedWeights weights(any_store());
  Result<std::unique_ptr<Delegate>> made =
      Delegate::load(seed % 2 == 0 ? bench.alone : bench.together, weights, std::move(*read.payload),
                     "Delegate 0", false, false);
  if (!made.ok()) {
    return made.status().message();
  }
  const std::size_t most = data.expected.size() * element_size(layer.types->output);
  std::vector<std::uint8_t> results(most + 2 * kGuard);
  std::vector<TensorView> views;
  views.push_back(view_of(layer.types->input, input_dims(layer), pages[0].put(data.input)));
  if (layer.given) {
    views.push_back(view_of(layer.types->filter, filter_dims(layer), pages[1].put(data.filter)));
    if (layer.with_bias) {
      views.push_back(
          view_of(layer.types->bias, {static_cast<std::uint32_t>(layer.results())}, pages[2].put(data.bias)));
    }
  }
  views.push_back(view_of(layer.types->output, output_dims(layer), results.data() + kGuard));
  std::vector<TensorView*> arguments;
  for (TensorView& view : views) {
    arguments.push_back(&view);
  }
  // Then with fewer rows: what was chosen for many computes them, too.
  const bool again = layer.kind == Kind::kConnected && layer.width > 2;
  for (const std::size_t rows :
       {layer.width, again ? 1 + layer.width * 5 % (layer.width - 1) : layer.width}) {
    Layer part = layer;
    part.width = rows;
    if (rows != layer.width) {
      views.front().sizes[0] = views.back().sizes[0] = static_cast<std::int64_t>(rows);
    }
    const std::size_t size = part.pixels() * part.results() * element_size(layer.types->output);
    std::fill(results.begin(), results.end(), kGuardByte);
    std::fill_n(results.begin() + kGuard, size, std::uint8_t{0xFF});
    const Status done = made.value()->execute(arguments);
    for (const KernelUse& use : made.value()->kernels()) {
      kernels->insert(use.kernel);
    }
    std::string fault = done.ok() ? wrong_result(part, data, results.data() + kGuard) : done.message();
    const auto guard = [](std::uint8_t one) { return one == kGuardByte; };
    if (!std::all_of(results.begin(), results.begin() + kGuard, guard) ||
        !std::all_of(results.begin() + static_cast<std::ptrdiff_t>(kGuard + size), results.end(), guard)) {
      fault += " bytes beside the results were written";
    }
    if (std::memcmp(views[0].data, data.input.data(), data.input.size()) != 0) {
      fault += " the input was written";
    }
    if (!fault.empty()) {
      return rows == layer.width ? fault : std::to_string(rows) + " rows: " + fault;
    }
  }
  return {};
}

constexpr Type kF32 = Type::xnn_datatype_fp32;
constexpr Type kF16 = Type::xnn_datatype_fp16;
constexpr Type kS8 = Type::xnn_datatype_qint8;
constexpr Type kU8 = Type::xnn_datatype_quint8;
constexpr Type kC8 = Type::xnn_datatype_qcint8;
constexpr Type kC4 = Type::xnn_datatype_qcint4;
constexpr Type kB4 = Type::xnn_datatype_qbint4;
constexpr Type kS32 = Type::xnn_datatype_qint32;
constexpr Type kC32 = Type::xnn_datatype_qcint32;

constexpr Types kFloats = {"f32", kF32, kF32, kF32, kF32};
constexpr Types kHalves = {"f16", kF16, kF16, kF16, kF16};
constexpr Types kRounded = {"f16 of f32", kF16, kF32, kF32, kF16};
constexpr Types kSigned = {"qs8", kS8, kS8, kS32, kS8};
constexpr Types kChannels = {"qs8 qc8w", kS8, kC8, kC32, kS8};
constexpr Types kUnsigned = {"qu8", kU8, kU8, kS32, kU8};
constexpr Types kDynamic = {"qd8 qc8w", kF32, kC8, kF32, kF32, true};
constexpr Types kDynamicHalves = {"qd8 qc8w f16", kF16, kC8, kF32, kF16, true};
constexpr Types kInt4 = {"qd8 qc4w", kF32, kC4, kF32, kF32, true};
constexpr Types kInt4Halves = {"qd8 qc4w f16", kF16, kC4, kF32, kF16, true};
constexpr Types kBlocks32 = {"qd8 qb4w of 32", kF32, kB4, kF32, kF32, true, 32};
constexpr Types kBlocks64 = {"qd8 qb4w of 64", kF32, kB4, kF32, kF32, true, 64};
constexpr Types kBlocks128 = {"qd8 qb4w of 128", kF32, kB4, kF32, kF32, true, 128};
constexpr Types kBlocksHalves = {"qd8 qb4w f16", kF16, kB4, kF32, kF16, true, 32};

// One kind of layer, whose rows, columns and depth are still open.
struct LayerFamily {
  Layer layer;
  bool fixed_depth = false;
};

std::size_t turn(const std::vector<std::size_t>& list, std::size_t index) {
  return list[index % list.size()];
}

const std::vector<std::size_t> kSomeRows = {1, 2, 3, 5, 6, 7, 8, 11, 16, 17, 4};
const std::vector<std::size_t> kSomeColumns = {17, 3, 64, 33, 8, 70, 1, 97, 48, 15, 31, 66, 16, 2, 80};
const std::vector<std::size_t> kSomeDepths = {7, 64, 33, 100, 4,  19, 32, 65, 130,
                                              8, 48, 1,  96,  12, 67, 16, 3};
// Of more than one step of the kernels that take most at a time.
const std::vector<std::size_t> kLargeDepths = {96, 130, 72, 128, 197, 65, 160};

// What a window covers.
std::size_t reach(const Layer& layer, std::size_t window) {
  return layer.dilation * (window - 1) + 1;
}

Layer sized(const LayerFamily& family, std::size_t rows, std::size_t columns, std::size_t depth,
            std::size_t index) {
  Layer layer = family.layer;
  const std::size_t block = layer.types->block;
  const std::size_t deep = block == 0 ? depth : block * (1 + depth % 5);
  layer.width = rows;
  layer.columns = columns;
  layer.depth = family.fixed_depth ? layer.depth : deep;
  switch (layer.kind) {
    case Kind::kConvolution:
    case Kind::kDepthwise:
      // So many windows side by side.
      layer.width = (rows - 1) * layer.across + reach(layer, layer.window_width);
      layer.width -= std::min<std::size_t>(layer.width - 1, std::size_t{2} * layer.padding);
      layer.height = reach(layer, layer.window_height);
      layer.height -= std::min<std::size_t>(layer.height - 1, std::size_t{2} * layer.padding);
      layer.height += index % 3 == 0 ? layer.down : 0;
      break;
    case Kind::kTransposed:
      layer.height = 1 + index % 2;
      break;
    default:
      break;
  }
  if (layer.kind == Kind::kDepthwise) {
    layer.columns = layer.groups;  // of the family: results of a channel
    layer.groups = columns;
    layer.depth = 1;
  } else if (layer.groups > 1) {
    layer.columns = (columns + 1) / 2;
    layer.depth = family.fixed_depth ? layer.depth : (layer.depth + 1) / 2;
  }
  layer.with_bias = layer.with_bias && index % 5 != 4;
  return layer;
}

class TailSweep {
 public:
  void run(const std::vector<LayerFamily>& families) {
    for (const LayerFamily& family : families) {
      ++family_;
      for (std::size_t round = 0; round < amount_.rounds; ++round) {
        run_round(family, round);
      }
    }
    if (names_) {
      for (const std::string& name : kernels_) {
        std::printf("kernel %s\n", name.c_str());
      }
      std::printf("%zu layers\n", layers_);
    }
  }

  void run_layer(const Layer& layer, std::uint32_t seed) {
    if (names_) {
      std::printf("%s (%u)\n", layer.text().c_str(), seed);
      std::fflush(stdout);
    }
    ++layers_;
    KernelNames kernels;
    const std::string fault = compute(layer, seed, &kernels);
    kernels_.insert(kernels.begin(), kernels.end());
    if (!fault.empty() && ++wrong_ <= kMostFaults) {
      std::string names;
      for (const std::string& name : kernels) {
        names += " " + name;
      }
      FAILED(layer.text() + " (" + std::to_string(seed) + "): " + fault + names);
    }
  }

  // A layer of ours was computed by another kernel; never in a sample.
  bool lacks(const std::string& kernel) const { return amount_.every == 1 && kernels_.count(kernel) == 0; }

 private:
  void run_round(const LayerFamily& family, std::size_t round) {
    std::size_t index = round * 1009;
    wrong_ = 0;
    const auto one = [&](std::size_t rows, std::size_t columns, std::size_t depth) {
      ++index;
      if ((index + family_) % amount_.every == 0) {
        run_layer(sized(family, rows, columns, depth, index), static_cast<std::uint32_t>(index));
      }
    };
    const bool shallow = family.fixed_depth || family.layer.kind == Kind::kDepthwise;
    for (std::size_t rows = 1; rows <= 50; ++rows) {
      one(rows, turn(kSomeColumns, rows + round), turn(kSomeDepths, rows + round));
      if (!shallow) {
        one(rows, turn(kSomeColumns, rows + 3 * round), turn(kLargeDepths, rows + round));
      }
    }
    for (std::size_t columns = 1; columns <= 70; ++columns) {
      one(turn(kSomeRows, columns + round), columns, turn(kSomeDepths, columns + 2 * round));
    }
    for (const std::size_t columns : {95U, 96U, 97U, 127U, 128U, 129U}) {
      one(turn(kSomeRows, columns + round), columns, turn(kSomeDepths, columns + 2 * round));
    }
    if (shallow) {
      return;
    }
    for (std::size_t depth = 1; depth <= 130; ++depth) {
      const std::size_t near = (depth + 1) % 16;
      if (depth <= 36 || near <= 2 || amount_.rounds > 1) {
        one(turn(kSomeRows, depth + round), turn(kSomeColumns, depth + 3 * round), depth);
      }
    }
    for (const std::size_t depth : {255U, 256U, 257U, 513U}) {
      one(turn(kSomeRows, depth + round), turn(kSomeColumns, depth + 3 * round), depth);
    }
  }

  static constexpr std::size_t kMostFaults = 8;  // of a kind

  const Amount amount_ = how_much();
  const bool names_ = std::getenv("SLIPWAY_TESTS_NAMES") != nullptr;
  std::size_t layers_ = 0;
  std::size_t wrong_ = 0;
  std::size_t family_ = 0;
  KernelNames kernels_;
};

LayerFamily connected(const Types& types, bool given = false, bool across = false) {
  Layer layer;
  layer.kind = Kind::kConnected;
  layer.types = &types;
  layer.given = given;
  layer.weights_across = across;
  return {layer};
}

LayerFamily windows(Kind kind, const Types& types, std::uint32_t window, std::uint32_t stride,
                    std::uint32_t padding, std::size_t groups = 1, std::size_t depth = 0,
                    std::size_t batch = 1) {
  Layer layer;
  layer.kind = kind;
  layer.types = &types;
  layer.window_height = layer.window_width = window;
  layer.down = layer.across = stride;
  layer.padding = padding;
  layer.groups = groups;
  layer.batch = batch;
  layer.depth = depth;
  return {layer, depth != 0};
}

LayerFamily batches(const Types& types, std::size_t batch, bool given, bool across) {
  Layer layer;
  layer.kind = Kind::kBatch;
  layer.types = &types;
  layer.batch = batch;
  layer.given = given;
  layer.weights_across = across;
  layer.with_bias = false;
  return {layer};
}

TEST("fully-connected layers leave no tail out") {
  TailSweep sweep;
  std::vector<LayerFamily> all = {connected(kFloats, true), connected(kFloats, true, true),
                                  connected(kHalves, true)};
  for (const Types* types :
       {&kFloats, &kHalves, &kRounded, &kSigned, &kChannels, &kUnsigned, &kDynamic, &kDynamicHalves, &kInt4,
        &kInt4Halves, &kBlocks32, &kBlocks64, &kBlocks128, &kBlocksHalves}) {
    all.push_back(connected(*types));
  }
  for (const Types* types : {&kFloats, &kHalves, &kChannels, &kDynamic}) {
    all.push_back(connected(*types, false, true));
  }
  sweep.run(all);
  if (const ByteTiles* bytes = byte_tiles()) {
    CHECK(!sweep.lacks(tile_name(reinterpret_cast<void (*)()>(bytes->many.gemm))));
    CHECK(!sweep.lacks(tile_name(reinterpret_cast<void (*)()>(bytes->many.dynamic_gemm))));
  }
}

// Deeper than a tile has room for rows of: fewer rows together, or XNNPACK's kernel.
TEST("deep layers with 4-bit weights leave no tail out") {
  TailSweep sweep;
  for (const std::size_t depth : {std::size_t{7168}, std::size_t{11008}}) {
    for (const std::size_t rows : {1U, 5U, 9U, 25U}) {
      Layer layer = connected(kBlocks128).layer;
      layer.width = rows;
      layer.columns = 17 + rows % 4;
      layer.depth = depth;
      sweep.run_layer(layer, static_cast<std::uint32_t>(rows / 4 + 1));
    }
  }
  const ByteTiles* bytes = byte_tiles();
  CHECK(bytes == nullptr || bytes->feature != std::string_view("avx2") ||
        (!sweep.lacks("slipway_qd8_f32_qb4w_gemm_1x16c4__avx2") &&
         !sweep.lacks("slipway_qd8_f32_qb4w_gemm_6x16c4__avx2")));
}

// So many weights that all threads pack them together, and that they are read for many rows at a time.
TEST("wide and deep layers leave no tail out") {
  TailSweep sweep;
  for (const Types* types : {&kFloats, &kRounded, &kChannels, &kDynamic, &kDynamicHalves}) {
    for (const std::uint32_t seed : {1U, 2U}) {  // with threads, and without
      Layer rows = connected(*types).layer;
      rows.width = 90;
      rows.columns = 1103;
      rows.depth = 601;
      sweep.run_layer(rows, seed);
      Layer window = windows(Kind::kConvolution, *types, 3, 1, 1).layer;
      window.height = 5;
      window.width = 9;
      window.columns = 303;
      window.depth = 250;
      sweep.run_layer(window, seed);
    }
  }
}

TEST("convolutions leave no tail out") {
  TailSweep sweep;
  std::vector<LayerFamily> all;
  for (const Types* types :
       {&kFloats, &kRounded, &kSigned, &kChannels, &kUnsigned, &kDynamic, &kDynamicHalves}) {
    all.push_back(windows(Kind::kConvolution, *types, 1, 1, 0));
    all.push_back(windows(Kind::kConvolution, *types, 1, 2, 0));
    all.push_back(windows(Kind::kConvolution, *types, 2, 2, 0));
    all.push_back(windows(Kind::kConvolution, *types, 3, 1, 1));
    all.push_back(windows(Kind::kConvolution, *types, 3, 2, 1, 1, 0, 2));
    all.push_back(windows(Kind::kConvolution, *types, 3, 1, 1, 2));
    all.push_back(windows(Kind::kConvolution, *types, 1, 1, 0, 3));
    all.push_back(windows(Kind::kConvolution, *types, 7, 2, 3, 1, 3));
    all.push_back(windows(Kind::kConvolution, *types, 5, 1, 2, 1, 1));
  }
  sweep.run(all);
  if (const ByteTiles* bytes = byte_tiles()) {
    CHECK(!sweep.lacks(tile_name(reinterpret_cast<void (*)()>(bytes->many.igemm))));
    CHECK(!sweep.lacks(tile_name(reinterpret_cast<void (*)()>(bytes->many.dynamic_igemm))));
  }
}

TEST("depthwise convolutions leave no tail out") {
  TailSweep sweep;
  std::vector<LayerFamily> all;
  for (const Types* types : {&kFloats, &kRounded, &kSigned, &kChannels, &kUnsigned}) {
    for (const std::uint32_t stride : {1U, 2U}) {
      all.push_back(windows(Kind::kDepthwise, *types, 3, stride, 1));
      all.push_back(windows(Kind::kDepthwise, *types, 5, stride, 2));
    }
    all.push_back(windows(Kind::kDepthwise, *types, 3, 1, 1, 2));  // two results a channel
    all.push_back(windows(Kind::kDepthwise, *types, 2, 1, 0));
    all.push_back(windows(Kind::kDepthwise, *types, 7, 1, 3));
  }
  all.push_back(windows(Kind::kDepthwise, kFloats, 1, 1, 0));
  all.push_back(windows(Kind::kDepthwise, kFloats, 9, 1, 4));
  all.push_back(windows(Kind::kDepthwise, kFloats, 11, 1, 5));
  for (const Types* types : {&kFloats, &kChannels}) {
    all.push_back(windows(Kind::kDepthwise, *types, 3, 1, 2));
    all.back().layer.dilation = 2;
    // Eight pixels, twenty, and twenty-one in columns of seven.
    for (const auto& [height, width] : {std::pair(2U, 4U), std::pair(4U, 5U), std::pair(7U, 3U)}) {
      all.push_back(windows(Kind::kDepthwise, *types, height, 1, 1));
      all.back().layer.window_width = width;
    }
  }
  sweep.run(all);
  for (std::size_t i = 0; byte_depthwise() != nullptr && i < kByteDepthwiseKernels; ++i) {
    CHECK(!sweep.lacks(tile_name(reinterpret_cast<void (*)()>(byte_depthwise()[i].kernel))));
  }
}

TEST("transposed convolutions leave no tail out") {
  TailSweep sweep;
  std::vector<LayerFamily> all;
  for (const Types* types : {&kFloats, &kRounded, &kSigned, &kChannels, &kUnsigned, &kDynamic}) {
    all.push_back(windows(Kind::kTransposed, *types, 2, 2, 0));
    all.push_back(windows(Kind::kTransposed, *types, 3, 2, 0));
    all.push_back(windows(Kind::kTransposed, *types, 3, 1, 0, 1, 0, 2));
    all.push_back(windows(Kind::kTransposed, *types, 4, 2, 1));
    all.push_back(windows(Kind::kTransposed, *types, 2, 2, 0, 2));
  }
  sweep.run(all);
}

TEST("batches of products leave no tail out") {
  TailSweep sweep;
  std::vector<LayerFamily> all;
  for (const bool across : {false, true}) {
    for (const Types* types : {&kFloats, &kHalves}) {
      all.push_back(batches(*types, 3, true, across));
      all.push_back(batches(*types, 2, false, across));
    }
    all.push_back(batches(kDynamic, 2, false, across));
  }
  sweep.run(all);
}

}  // namespace
}  // namespace tails
