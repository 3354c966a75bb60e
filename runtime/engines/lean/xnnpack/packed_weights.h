// Weights in the form that XNNPACK's kernels read them, in memory of our own.
#pragma once

#include <xnnpack.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/platform.h"
#include "lean/data/data_store.h"
#include "lean/xnnpack/rules.h"
#include "lean/xnnpack/weights_file.h"
#include "slipway/engine.h"

namespace slipway::lean {

// What makes the packed form of a constant what it is, by the constant's address: everything of the node but
// the constant's bytes. Constants that nodes use in different ways have an empty text.
using PackingForms = std::map<const void*, std::string>;
// For all layers of a graph.
PackingForms packing_forms(const GraphCheck& check);

// Packs weights in place of XNNPACK.
struct Packer {
  const void* weights = nullptr;
  const void* bias = nullptr;
  std::size_t size = 0;  // bytes that it writes
  std::function<void(std::uint8_t* packed)> pack;
  std::string layout = {};  // what tells them from the same weights in XNNPACK's order; empty: that order
};

// XNNPACK asks it for memory before it packs an operator's weights, and calls it when that is done: the pages
// of the program's file that the weights came from are given back to the system then, so that never all
// weights are in memory twice. Graphs that use the same weights in the same form share them, unpacked again;
// those that pack them to the same bytes for another reason share them, too. What a cache's file has is not
// packed at all, where XNNPACK asks before it packs: for all layers but depthwise and transposed
// convolutions.
//
// To outlive every graph that was made with it, and to end before the store.
class PackedWeights {
 public:
  // `file`: what was packed before, or nullptr; it must outlive this.
  explicit PackedWeights(const DataStore& store, const WeightsFile* file = nullptr);
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  // Graphs with these constants will be made: memory for all that are new is taken at once.
  void plan(const std::vector<Bytes>& constants);
  // A graph with these constants is about to be made, and this is what its nodes make of them.
  void expect(const std::vector<Bytes>& constants, PackingForms forms);
  // For the operator that is made next: XNNPACK finds its weights packed. Without a packer XNNPACK packs.
  void offer(Packer packer);
  // Whether these weights lie as was offered.
  bool has_offered(std::size_t index) const;
  xnn_weights_cache_t provider() { return &provider_; }

  // Bytes of packed weights.
  std::size_t size() const;
  std::size_t blocks() const { return packed_.size(); }
  // How often weights that were there already were used again, and how much memory that saved.
  std::size_t shared() const { return shared_; }
  std::size_t shared_size() const { return shared_size_; }

  // How many blocks were found in the file.
  std::size_t found() const { return found_; }
  // What a file could keep for the next time, also what it had already; `news`: whether it lacks some of it.
  std::vector<PackedBlock> to_keep(bool* news) const;

 private:
  struct Chunk {
    Pages pages;
    std::size_t used = 0;
  };
  using Source = std::pair<const void*, const void*>;
  struct Packed {
    std::uint8_t* data;
    std::size_t size;
    std::string form;
    std::uint32_t seed = 0;  // XNNPACK's word for the kernel's layout
    bool from_file = false;
    bool asked_for = false;  // before it was packed, so that a file would have spared it
    PackedKey key = {};
  };

  const std::string* form_of(const void* kernel) const;
  std::size_t find(const xnn_weights_cache_look_up_key& key) const;
  std::size_t look_up(const xnn_weights_cache_look_up_key& key);
  std::size_t pack(const xnn_weights_cache_look_up_key& key);
  std::size_t share(std::size_t index);
  bool find_key(const xnn_weights_cache_look_up_key& key, PackedKey* found) const;
  std::size_t take_from_file(const xnn_weights_cache_look_up_key& key);
  std::size_t add(const xnn_weights_cache_look_up_key& key, Packed packed);
  std::uint8_t* reserve(std::size_t bytes);
  std::size_t keep(const xnn_weights_cache_look_up_key& key, std::uint8_t* data, std::size_t size);
  void forget(const void* constant);

  const DataStore& store_;
  const WeightsFile* file_;
  xnn_weights_cache_provider provider_;
  std::size_t planned_ = 0;     // bytes of constants that no chunk was made for
  std::set<const void*> seen_;  // the constants that were ever planned for
  std::map<const void*, std::size_t> constants_;
  Bytes read_;  // of a file, packed, and not given back yet
  PackingForms forms_;
  Packer packer_;
  std::string offered_form_;  // of the packer's weights, with its layout
  std::vector<Chunk> chunks_;
  std::vector<Packed> packed_;
  std::multimap<Source, std::size_t> by_address_;  // in packed_
  std::size_t shared_ = 0;
  std::size_t shared_size_ = 0;
  xnn_weights_cache_look_up_key missed_ = {};  // what was looked up last, and not found
  std::size_t found_ = 0;
};

// The file of packed weights that a run was told to use (--weights_cache).

// To end after the packed weights that were found in it, and before the store.
class WeightsCache {
 public:
  explicit WeightsCache(const std::string& path) { info_.path = path; }

  // What is in the file for this program on this processor; nullptr when there is nothing to use. XNNPACK is
  // initialised by then. `kleidiai`: whether KleidiAI's kernels may be used.
  const WeightsFile* open(const DataStore& store, const std::string& model_path, const std::string& data_path,
                          bool kleidiai);
  // Writes what is new; the weights were loaded in so many milliseconds.
  void keep(const PackedWeights& weights, double load_ms);
  // There is no cache, for that reason.
  void give_up(const std::string& why);

  const WeightsCacheInfo& info() const { return info_; }

 private:
  WeightsOwner owner_;
  std::optional<MappedFile> program_;  // that we are
  std::optional<WeightsFile> file_;
  WeightsCacheInfo info_;
};

}  // namespace slipway::lean
