// What the tests of layers and of functions share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lean/data/data_store.h"
#include "lean/data/evalue.h"
#include "lean/method/delegate.h"
#include "tail_layers.h"
#include "temporary_folder.h"

namespace tails {

// What delegates need besides: a store (of some program), XNNPACK without the features that this run leaves
// out (SLIPWAY_TESTS_WITHOUT).
struct TailBench {
  TailBench();

  TemporaryFolder folder;
  std::unique_ptr<slipway::lean::DataStore> store;
  slipway::lean::XnnContext alone;
  slipway::lean::XnnContext together;
};

TailBench& tail_bench();

// A tensor of that type and shape at `data`; it may become smaller.
slipway::lean::TensorView view_of(Type type, const std::vector<std::uint32_t>& dims, std::uint8_t* data);

// SLIPWAY_TESTS_TAILS: "all" for six rounds of different sizes; a number, for one of so many layers.
struct Amount {
  std::size_t rounds = 1;
  std::size_t every = 1;
};

Amount how_much();

}  // namespace tails
