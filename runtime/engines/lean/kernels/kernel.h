// Portable kernels: plain functions over typed arguments, found by the name their operator has in a program.
#pragma once

#include <pthreadpool.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lean/data/evalue.h"
#include "selection.h"

namespace slipway::lean {

class Arguments;

// Computes an operator. Arguments come in the order of the operator's schema, its outputs last.
using Kernel = Status (*)(Arguments& arguments);

// The memory that a call's result may lie in, besides memory that the call does not read. Exactly at an
// argument's place: with its address, element type, sizes and order.
enum class Sharing : std::uint8_t {
  kApart,
  kEach,   // exactly at any argument's: each element comes from those at its own place, and is written last
  kFirst,  // exactly at argument 0's: the result is that with some elements changed
  kView,   // at argument 0's address: the kernel writes nothing there
  kSelf,   // the result is argument 0 itself, Tensor(a!) self
  kSelfEach,  // the same, from arguments that may lie exactly there
  kCache,     // apart; argument 1 is written, too, Tensor(a!) cache, and lies apart from all others
  kCaches,    // apart; so are arguments 3 and 4
};

// A kernel and how many arguments its operator's schema has, outputs among them.
struct TypedKernel {
  Kernel function;
  std::uint8_t arguments;
};

// One that a selective build leaves out has neither name nor function: nothing refers to its code then.
struct KernelEntry {
  constexpr KernelEntry(const char* entry, TypedKernel kernel, Sharing memory = Sharing::kApart)
      : name(is_selected(entry) ? entry : ""),
        function(is_selected(entry) ? kernel.function : nullptr),
        arguments(kernel.arguments),
        sharing(memory) {}

  const char* name;  // "aten::add.out"
  Kernel function;
  std::uint8_t arguments;  // a call may name its results once more behind them
  Sharing sharing;
};

// The kernel of that name; nullptr when there is none.
const KernelEntry* find_kernel(std::string_view name);
// Whether there is one for a call that is named with its type, "aten::abs.out of complex64": of others, the
// operator is missing whatever the type.
bool has_kernel(std::string_view call);
// Names of all kernels, sorted.
std::vector<std::string> kernel_names();

// What kernels keep between calls: memory, threads, and how many random numbers were drawn.
class Scratch {
 public:
  // At least `bytes` bytes, aligned for every element type; valid until the next call.
  std::uint8_t* get(std::size_t bytes);

  // 64 random bits; the same sequence for every method that is loaded.
  std::uint64_t random();

  pthreadpool_t threads = nullptr;  // of somebody else; nullptr: the caller's own

 private:
  friend class Arguments;
  std::vector<std::int32_t> taken_;  // tensors that the call which runs has been given
  std::vector<std::max_align_t> memory_;
  std::array<std::vector<std::int64_t>, 8> lists_;  // of the call that runs: they keep their memory
  std::uint64_t drawn_ = 0;
};

// A Scalar argument, ready in every type that is computed in.
struct Number {
  double real = 0;
  std::int64_t integer = 0;  // of a float: towards zero, the nearest there is
  bool integral = false;     // an int or a bool
  bool flag = false;         // a bool

  template <typename T>
  T as() const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(integer);
    } else {
      return static_cast<T>(real);
    }
  }
};

// A Tensor argument of some operators, a Scalar one of others of the same name.
struct Other {
  const TensorView* tensor = nullptr;  // else the number
  Number number;
};

// A dimension of argument 0, where a negative number counts from the end. The call fails without one.
struct Dim {
  std::size_t at;
};
// The same, where a tensor without dimensions counts as one with a single element.
struct LineDim : Dim {};

// What a call is given. The accessors expect what the operator's schema says; a program that gives something
// else fails the call. A tensor that is given as two arguments (an input that is the output, too) keeps its
// sizes until the call ends: what a kernel has checked of one of them stays true.
class Arguments {
 public:
  Arguments(std::vector<EValue>* values, const std::int32_t* indices, std::size_t count, Scratch* scratch);
  ~Arguments();
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  Scratch& scratch() { return *scratch_; }

  // The first argument that was not what its accessor expects makes every later access answer with a
  // harmless default, and fails the call.
  const Status& fault() const { return fault_; }

  EValue& value(std::size_t i) {
    return i < count_ ? (*values_)[static_cast<std::size_t>(indices_[i])] : missing(i);
  }
  bool is_none(std::size_t i) { return std::holds_alternative<std::monostate>(value(i)); }
  TensorView& tensor(std::size_t i);
  TensorView& tensor_without_memory(std::size_t i);  // one that may have no memory yet
  TensorView* optional_tensor(std::size_t i) { return is_none(i) ? nullptr : &tensor(i); }
  std::int64_t integer(std::size_t i);
  double real(std::size_t i);    // a number of any kind, for arithmetic in floating point alone
  Number number(std::size_t i);  // the same, for arithmetic in any type
  std::size_t dimension(std::size_t i, bool of_lines);  // of argument 0
  bool boolean(std::size_t i) { return integer(i) != 0; }
  std::vector<std::int64_t>& integers(std::size_t i);  // until the next call
  std::vector<TensorView*> tensors(std::size_t i);     // nullptr for None

 private:
  void fail(std::size_t i, const char* expected);
  EValue& missing(std::size_t i);
  void take(std::int32_t index, TensorView* view, std::size_t i);

  std::vector<EValue>* values_;
  const std::int32_t* indices_;
  std::size_t count_;
  Scratch* scratch_;
  std::size_t lists_ = 0;
  Status fault_;
};

// An argument that a kernel does not look at.
struct Unused {};

template <typename T>
inline constexpr bool is_optional = false;
template <typename T>
inline constexpr bool is_optional<std::optional<T>> = true;

template <typename T>
decltype(auto) argument_as(Arguments& arguments, [[maybe_unused]] std::size_t i) {
  using Plain = std::remove_cv_t<std::remove_reference_t<T>>;
  if constexpr (std::is_same_v<Plain, TensorView>) {
    return arguments.tensor(i);
  } else if constexpr (std::is_pointer_v<Plain>) {
    return arguments.optional_tensor(i);
  } else if constexpr (std::is_same_v<Plain, std::int64_t>) {
    return arguments.integer(i);
  } else if constexpr (std::is_same_v<Plain, double>) {
    return arguments.real(i);
  } else if constexpr (std::is_same_v<Plain, Number>) {
    return arguments.number(i);
  } else if constexpr (std::is_same_v<Plain, Dim>) {
    return Dim{arguments.dimension(i, false)};
  } else if constexpr (std::is_same_v<Plain, LineDim>) {
    return LineDim{{arguments.dimension(i, true)}};
  } else if constexpr (std::is_same_v<Plain, Other>) {
    return std::holds_alternative<TensorView>(arguments.value(i)) ? Other{&arguments.tensor(i), {}}
                                                                  : Other{nullptr, arguments.number(i)};
  } else if constexpr (is_optional<Plain>) {
    return arguments.is_none(i) ? Plain() : argument_as<typename Plain::value_type>(arguments, i);
  } else if constexpr (std::is_same_v<Plain, bool>) {
    return arguments.boolean(i);
  } else if constexpr (std::is_same_v<Plain, std::vector<std::int64_t>>) {
    return arguments.integers(i);
  } else if constexpr (std::is_same_v<Plain, std::vector<TensorView*>>) {
    return arguments.tensors(i);
  } else if constexpr (std::is_same_v<Plain, EValue>) {
    return arguments.value(i);
  } else if constexpr (std::is_same_v<Plain, Scratch>) {
    return arguments.scratch();
  } else {
    return Plain();
  }
}

template <auto kFunction, typename Signature = decltype(kFunction)>
struct Typed;
template <auto kFunction, typename... Types>
struct Typed<kFunction, Status (*)(Types...)> {
  static constexpr std::uint8_t kArguments = (... + (std::is_same_v<Types, Scratch&> ? 0 : 1));

  static Status call(Arguments& arguments) { return call(arguments, std::index_sequence_for<Types...>()); }
  template <std::size_t... I>
  static Status call(Arguments& arguments, std::index_sequence<I...>) {
    std::tuple<decltype(argument_as<Types>(arguments, I))...> taken{argument_as<Types>(arguments, I)...};
    return arguments.fault().ok() ? std::apply(kFunction, std::move(taken)) : arguments.fault();
  }
};

// A function whose parameters have the types of the schema's arguments, in their order, and which is not
// called with others; it may want the call's Scratch& behind them.
template <auto kFunction>
inline constexpr TypedKernel typed{Typed<kFunction>::call, Typed<kFunction>::kArguments};

// The kernels of one file of this folder.
using KernelTable = std::initializer_list<KernelEntry>;

extern const KernelTable kAttentionKernels, kBinaryKernels, kConvolutionKernels, kFactoryKernels,
    kIndexingKernels, kLinearAlgebraKernels, kMaskedKernels, kNormalizationKernels, kPoolingKernels,
    kPrimKernels, kQuantizedKernels, kReduceKernels, kScatterGatherKernels, kTransformationKernels,
    kUnaryKernels, kUpsampleKernels, kViewKernels;

}  // namespace slipway::lean
