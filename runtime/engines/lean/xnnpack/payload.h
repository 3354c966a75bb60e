// What the exporter hands to the XNNPACK backend: a header, a graph, the graph's constants.
#pragma once

#include <xnnpack.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "lean/data/data_store.h"
#include "slipway/status.h"
#include "xnnpack_runtime_generated.h"

namespace slipway::lean {

// Of values that the program gives to the graph or takes from it.
inline constexpr std::uint32_t kExternalFlags =
    XNN_VALUE_FLAG_EXTERNAL_INPUT | XNN_VALUE_FLAG_EXTERNAL_OUTPUT;

// 1x1 convolutions whose input is quantized while the graph runs.
//
// The exporter quantizes each image by itself. Upstream's runtime (ExecuTorch 1.5) computes such a layer as a
// fully connected one: its rows are the pixels, and each is quantized by itself. That is nearer to the float
// result, and the kernels for rows serve it. So this engine does the same.
class PixelLayers {
 public:
  PixelLayers() = default;
  // Of a graph that may be damaged: what it leaves out is left out here.
  explicit PixelLayers(const xnn::XNNGraph& graph);

  // Whether the convolution is computed as rows.
  bool has(const xnn::_XNNNodeConv& node) const { return rows_.count(node.input1_id()) != 0; }
  // Whether the value, by the exporter's id, is quantized by pixels. Only such convolutions read it.
  bool is_rows(std::uint32_t id) const { return rows_.count(id) != 0; }

 private:
  std::set<std::uint32_t> rows_;
};

class XnnPayload {
 public:
  // Checks header, flatbuffer and every constant's extent. `what` names the delegate in messages. The bytes
  // and the store must outlive the payload. kFile when something is wrong.
  static Result<XnnPayload> read(Bytes bytes, const DataStore& store, const std::string& what);

  const xnn::XNNGraph& graph() const { return *graph_; }
  // The constant that values and scales refer to; index 0 stands for "not a constant", and answers with
  // nullptr, as does an index that is out of the table.
  Bytes constant(std::size_t index) const;
  const std::vector<Bytes>& constants() const { return constants_; }
  const PixelLayers& pixel_layers() const { return pixel_layers_; }

 private:
  Status find_constants(Bytes all, std::size_t base, const DataStore& store, const std::string& what);

  const xnn::XNNGraph* graph_ = nullptr;
  std::vector<std::uint64_t> aligned_;  // a copy, when the program has the graph at an odd address
  std::vector<Bytes> constants_;
  PixelLayers pixel_layers_;
};

// What a value is besides its quantization. Null for a kind of value that is none of a tensor.
const xnn::XNNTensorValue* tensor_of(const xnn::XValue& value);

}  // namespace slipway::lean
