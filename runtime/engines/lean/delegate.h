// What the program delegated to XNNPACK: one graph of XNNPACK's, or several with layers on other kernels
// between.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kai_linear.h"
#include "xnn_delegate.h"

namespace slipway::lean {

class Delegate {
 public:
  // As XnnDelegate::load.
  static Result<std::unique_ptr<Delegate>> load(const XnnContext& context, const DataStore& store,
                                                PackedWeights& weights, Bytes payload,
                                                const std::string& what, bool profile);

  Status execute(const std::vector<View*>& arguments);
  std::vector<OperatorTime> times() const;
  std::vector<KernelUse> kernels() const;
  // What this processor made the delegate do otherwise; nothing where it does as exported.
  std::optional<Fallback> fallback() const;

 private:
  struct Part {
    std::unique_ptr<XnnDelegate> graph;  // this one
    std::unique_ptr<KaiLinear> layer;    // or that
    std::size_t rows = 0;                // of the layer, in the last execution or as exported
    std::uint64_t nanoseconds = 0;
  };
  struct Crossed {
    View view;
    std::vector<std::uint8_t> memory;
  };

  Delegate(const XnnContext& context, std::string what, bool profile)
      : context_(context), what_(std::move(what)), profile_(profile) {}
  Status make_parts(const Split& split, const DataStore& store, PackedWeights& weights, Bytes payload);
  Status make_crossings(const Split& split);
  Status run_layer(Part* part);

  const XnnContext& context_;
  std::string what_;
  bool profile_;
  std::size_t externals_ = 0;
  std::unique_ptr<XnnPayload> payload_;  // of a graph in parts
  std::vector<Part> parts_;
  std::vector<Crossed> crossings_;
  std::vector<View*> arguments_;  // the call's, then the crossings
};

}  // namespace slipway::lean
