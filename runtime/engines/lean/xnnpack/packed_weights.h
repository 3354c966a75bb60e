// Weights in the form that XNNPACK's kernels read them, in memory of our own.
#pragma once

#include <xnnpack.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lean/method/data_store.h"
#include "platform.h"

namespace slipway::lean {

// What makes the packed form of a constant what it is, by the constant's address: everything of the node but
// the constant's bytes. Constants that nodes use in different ways have an empty text.
using PackingForms = std::map<const void*, std::string>;

// XNNPACK asks it for memory before it packs an operator's weights, and calls it when that is done: the pages
// of the program's file that the weights came from are given back to the system then, so that never all
// weights are in memory twice. Graphs that use the same weights in the same form share them, unpacked again;
// those that pack them to the same bytes for another reason share them, too.
//
// To outlive every graph that was made with it, and to end before the store.
class PackedWeights {
 public:
  explicit PackedWeights(const DataStore& store);
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  // A graph with these constants is about to be made: bytes of all of them, and what their nodes make of
  // them.
  void expect(const std::vector<Bytes>& constants, PackingForms forms);
  xnn_weights_cache_t provider() { return &provider_; }

  // Bytes of packed weights.
  std::size_t size() const;
  std::size_t blocks() const { return packed_.size(); }
  // How often weights that were there already were used again, and how much memory that saved.
  std::size_t shared() const { return shared_; }
  std::size_t shared_size() const { return shared_size_; }

 private:
  struct Chunk {
    Pages pages;
    std::size_t used = 0;
  };
  using Source = std::pair<const void*, const void*>;
  struct Packed {
    std::uint8_t* data;
    std::size_t size;
    std::uint32_t seed;  // XNNPACK's word for the kernel's layout
    std::string form;
  };

  const std::string* form_of(const void* kernel) const;
  std::size_t find(const xnn_weights_cache_look_up_key& key) const;
  std::size_t look_up(const xnn_weights_cache_look_up_key& key);
  std::size_t share(std::size_t index);
  std::uint8_t* reserve(std::size_t bytes);
  std::size_t keep(const xnn_weights_cache_look_up_key& key, std::uint8_t* data, std::size_t size);
  void forget(const void* constant) const;

  const DataStore& store_;
  xnn_weights_cache_provider provider_;
  std::size_t expected_ = 0;
  std::map<const void*, std::size_t> constants_;
  PackingForms forms_;
  std::vector<Chunk> chunks_;
  std::vector<Packed> packed_;
  std::multimap<Source, std::size_t> by_address_;  // in packed_
  std::size_t shared_ = 0;
  std::size_t shared_size_ = 0;
};

}  // namespace slipway::lean
