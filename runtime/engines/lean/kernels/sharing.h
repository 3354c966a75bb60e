// A kernel's work, divided among the threads of the call that it computes.
#pragma once

#include <pthreadpool.h>

#include <cstddef>

#include "lean/kernels/moves.h"

namespace slipway::lean {

// Threads that kernels called on this thread share their work with; nullptr: none.
void set_threads_of_call(pthreadpool_t threads);

// Whether work on so many elements is worth waking other threads.
bool worth_sharing(std::size_t elements);

// Calls work(context, first, last) for parts that make up [0, count), side by side, when work on so many
// elements in all is worth it. Parts write to places of their own: any number of threads gives the same bits.
// Throws std::bad_alloc when a part did.
void share(std::size_t count, std::size_t elements, void (*work)(const void*, std::size_t, std::size_t),
           const void* context);
template <typename F>
void share(std::size_t count, std::size_t elements, const F& work) {
  share(
      count, elements,
      [](const void* context, std::size_t first, std::size_t last) {
        (*static_cast<const F*>(context))(first, last);
      },
      &work);
}

// Calls f(part) for parts of the places, of which each is worth `cost` elements. The outermost `rank` axes
// may be divided, the last of all at multiples of `unit`.
void share_axes(const Axes& axes, std::size_t rank, std::size_t unit, std::size_t cost,
                void (*f)(const void*, const Axes&), const void* context);
template <typename F>
void share_axes(const Axes& axes, std::size_t rank, std::size_t unit, std::size_t cost, const F& f) {
  // By a pointer: what is in it is in the program once, with threads and without.
  share_axes(
      axes, rank, unit, cost,
      [](const void* context, const Axes& part) { (*static_cast<const F*>(context))(part); }, &f);
}

}  // namespace slipway::lean
