// What the exporter hands to the XNNPACK backend: a header, a graph, the graph's constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lean/data/data_store.h"
#include "slipway/status.h"
#include "xnnpack_runtime_generated.h"

namespace slipway::lean {

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

 private:
  Status find_constants(Bytes all, std::size_t base, const DataStore& store, const std::string& what);

  const xnn::XNNGraph* graph_ = nullptr;
  std::vector<std::uint64_t> aligned_;  // a copy, when the program has the graph at an odd address
  std::vector<Bytes> constants_;
};

}  // namespace slipway::lean
