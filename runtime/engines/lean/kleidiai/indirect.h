// Convolutions on KleidiAI's kernels for rows that are not in one piece: a row is a window of an image.
#pragma once

#include <pthreadpool.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "lean/kleidiai/layer.h"

namespace slipway::lean {

// How rows are gathered and packed, from one pointer a pixel of a window. `chunks`: pixels, `length`:
// channels.
struct Gathering {
  std::size_t (*m_step)();
  std::size_t (*offset)(std::size_t row, std::size_t chunks, std::size_t length);
  std::size_t (*size)(std::size_t rows, std::size_t chunks, std::size_t length);
  void (*run)(std::size_t rows, std::size_t chunks, std::size_t length, const void* const* pointers,
              std::size_t pointer_offset, const void* padding, void* packed);
};

#define SLIPWAY_GATHERING(name) \
  {kai_get_m_step_##name, kai_get_lhs_packed_offset_##name, kai_get_lhs_packed_size_##name, kai_run_##name}

struct WindowRun {
  const Gathering& gathering;
  const MatrixLayer& layer;
  const LayerShape& shape;
  const std::uint8_t* input = nullptr;
  std::size_t element = 0;        // bytes
  const void* padding = nullptr;  // a pixel
  std::size_t column_step = 0;    // of the kernel
  // Computes `rows` rows from `row` on, which are packed, and `columns` columns.
  std::function<void(std::size_t row, const std::uint8_t* packed, std::size_t rows, std::size_t column,
                     std::size_t columns)>
      multiply;
};

// Packs some rows at a time into `packed`, for all rows of a large image are many times the image.
void run_windows(const WindowRun& run, std::vector<std::uint8_t>* packed, pthreadpool_t threads);

// Pixels of a window.
std::size_t chunks_of(const MatrixLayer& layer);

}  // namespace slipway::lean
