/**
 * @file slipway.hpp
 * @brief Slipway's C++17 API, in the manner of ExecuTorch's Module; a header over the C API (slipway.h).
 *
 *     auto program = slipway::Program::load("model.pte");
 *     if (!program.ok()) { std::cerr << program.error().message(); return 1; }
 *     std::vector<float> pixels(3 * 224 * 224);
 *     auto outputs = program->forward({slipway::from_blob(pixels.data(), {1, 3, 224, 224})});
 *     if (outputs.ok()) { const float* logits = outputs->at(0).const_data<float>(); }
 *
 * Only the standard library's containers throw. Errors are values: a Result has a value or an Error.
 * Threads and lifetimes are as slipway.h says: use a program from one thread at a time; two threads may use
 * two programs, also on one Pool; outputs are valid until the next execution.
 */
#ifndef SLIPWAY_SLIPWAY_HPP_
#define SLIPWAY_SLIPWAY_HPP_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "slipway/slipway.h"

namespace slipway {
inline namespace v1 {

/** Types of elements; the numbers are slipway_dtype's. */
enum class ScalarType : std::int32_t {
  kUnknown = SLIPWAY_UNKNOWN,
  kBool = SLIPWAY_BOOL,
  kUInt8 = SLIPWAY_UINT8,
  kInt8 = SLIPWAY_INT8,
  kUInt16 = SLIPWAY_UINT16,
  kInt16 = SLIPWAY_INT16,
  kUInt32 = SLIPWAY_UINT32,
  kInt32 = SLIPWAY_INT32,
  kUInt64 = SLIPWAY_UINT64,
  kInt64 = SLIPWAY_INT64,
  kFloat16 = SLIPWAY_FLOAT16,
  kBFloat16 = SLIPWAY_BFLOAT16,
  kFloat32 = SLIPWAY_FLOAT32,
  kFloat64 = SLIPWAY_FLOAT64,
  kNone = SLIPWAY_NONE,
  kComplex64 = SLIPWAY_COMPLEX64,
  kComplex128 = SLIPWAY_COMPLEX128,
};

/** The type of elements that a C++ type stands for; kUnknown for others. */
template <typename T>
constexpr ScalarType scalar_type() {
  if constexpr (std::is_same_v<T, bool>) {
    return ScalarType::kBool;
  } else if constexpr (std::is_same_v<T, float>) {
    return ScalarType::kFloat32;
  } else if constexpr (std::is_same_v<T, double>) {
    return ScalarType::kFloat64;
  } else if constexpr (std::is_integral_v<T>) {
    constexpr ScalarType kUnsigned[] = {ScalarType::kUInt8, ScalarType::kUInt16, ScalarType::kUInt32,
                                        ScalarType::kUInt64};
    constexpr ScalarType kSigned[] = {ScalarType::kInt8, ScalarType::kInt16, ScalarType::kInt32,
                                      ScalarType::kInt64};
    constexpr int kIndex = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return std::is_signed_v<T> ? kSigned[kIndex] : kUnsigned[kIndex];
  } else {
    return ScalarType::kUnknown;
  }
}

/** Why something failed. */
class Error {
 public:
  /** Takes over an error of the C API; NULL: success. */
  explicit Error(slipway_error* error) {
    if (error != nullptr) {
      error_.reset(error, &slipway_error_free);
    }
  }

  /** The class of the error. */
  slipway_code code() const { return slipway_error_code(error_.get()); }
  /** What happened, as a sentence. */
  std::string message() const { return slipway_error_message(error_.get()); }
  /** What to do about it; may be empty. */
  std::string fix() const { return slipway_error_fix(error_.get()); }

 private:
  std::shared_ptr<slipway_error> error_;
};

/** A value, or the error that says why it is missing. */
template <typename T>
class [[nodiscard]] Result {
 public:
  /** Holds a value. */
  Result(T value) : state_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  /** Holds an error. */
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  /** Whether there is a value. */
  bool ok() const { return state_.index() == 0; }
  /** The same as ok(). */
  explicit operator bool() const { return ok(); }
  /** The value; only when ok(). */
  T& get() { return *std::get_if<0>(&state_); }
  const T& get() const { return *std::get_if<0>(&state_); }
  /** The same as get(). */
  T& operator*() { return get(); }
  const T& operator*() const { return get(); }
  /** A member of the value: only when ok(). */
  T* operator->() { return &get(); }
  const T* operator->() const { return &get(); }
  /** The error; only when not ok(). */
  const Error& error() const { return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

/** Success, or an error. */
class [[nodiscard]] Status {
 public:
  /** Success. */
  Status() = default;
  /** Takes over an error of the C API; NULL: success. */
  Status(slipway_error* error) : error_(error) {}  // NOLINT(google-explicit-constructor)

  /** Whether it is a success. */
  bool ok() const { return error_.code() == SLIPWAY_OK; }
  /** The same as ok(). */
  explicit operator bool() const { return ok(); }
  /** The error; only when not ok(). */
  const Error& error() const { return error_; }

 private:
  Error error_{nullptr};
};

/** A row-major tensor in memory that somebody else owns. A copy has the same memory. */
class Tensor {
 public:
  /** A tensor without memory, of type kUnknown. */
  Tensor() = default;
  /** A tensor over the memory of the C API's tensor. */
  explicit Tensor(const slipway_tensor& tensor) : tensor_(tensor) {}

  /** The type of the elements. */
  ScalarType scalar_type() const { return static_cast<ScalarType>(tensor_.dtype); }
  /** The number of dimensions. */
  std::size_t dim() const { return tensor_.rank; }
  /** Elements along a dimension; 0 beyond the last dimension. */
  std::int64_t size(std::size_t dimension) const {
    return dimension < tensor_.rank ? tensor_.sizes[dimension] : 0;
  }
  /** Elements along each dimension, the outermost first. */
  std::vector<std::int64_t> sizes() const { return {tensor_.sizes, tensor_.sizes + tensor_.rank}; }
  /** The number of elements. */
  std::size_t numel() const {
    std::size_t count = 1;
    for (std::size_t i = 0; i < tensor_.rank; ++i) {
      count *= static_cast<std::size_t>(tensor_.sizes[i]);
    }
    return count;
  }
  /** Bytes of all elements. */
  std::size_t nbytes() const { return numel() * slipway_dtype_size(tensor_.dtype); }

  /** The elements, of any type. */
  void* data() const { return tensor_.data; }
  /** The elements; nullptr if their type is not T. */
  template <typename T>
  const T* const_data() const {
    return mutable_data<T>();
  }
  /** The same to write to. */
  template <typename T>
  T* mutable_data() const {
    return scalar_type() == v1::scalar_type<T>() ? static_cast<T*>(tensor_.data) : nullptr;
  }

  /** The C API's tensor. */
  const slipway_tensor& c_tensor() const { return tensor_; }

 private:
  friend class Method;

  slipway_tensor tensor_ = {};
};

/**
 * A tensor over the caller's memory. It is not copied: keep it as long as the tensor is used.
 *
 * @param sizes elements along each dimension, the outermost first; at most SLIPWAY_MAX_DIMS.
 * @param readable bytes that may be read at `data`, if they are more than the elements take. With
 * SLIPWAY_READ_BEHIND more, a method need not copy the input (slipway_method_set_input).
 */
inline Tensor from_blob(void* data, const std::vector<std::int64_t>& sizes, ScalarType type,
                        std::size_t readable = 0) {
  slipway_tensor tensor = {};
  tensor.data = data;
  tensor.readable = readable;
  // A rank that is too large is an error where the tensor is used.
  tensor.dtype = sizes.size() > SLIPWAY_MAX_DIMS ? SLIPWAY_UNKNOWN : static_cast<std::int32_t>(type);
  for (std::size_t i = 0; i < sizes.size() && i < SLIPWAY_MAX_DIMS; ++i) {
    tensor.sizes[tensor.rank++] = sizes[i];
  }
  return Tensor(tensor);
}

/** The same with the type of the elements that `data` points to. */
template <typename T>
Tensor from_blob(T* data, const std::vector<std::int64_t>& sizes, std::size_t readable = 0) {
  static_assert(scalar_type<T>() != ScalarType::kUnknown, "name the type: from_blob(data, sizes, type)");
  return from_blob(static_cast<void*>(data), sizes, scalar_type<T>(), readable);
}

/** Threads that programs may share. A copy has the same threads. */
class Pool {
 public:
  /**
   * Starts threads.
   *
   * @param threads how many compute, the caller's own among them; 0: one for each physical core.
   */
  static Result<Pool> create(std::uint32_t threads = 0) {
    slipway_pool* pool = nullptr;
    if (slipway_error* error = slipway_pool_create(threads, &pool)) {
      return Error(error);
    }
    return Pool(pool);
  }

  /** How many threads compute. */
  std::uint32_t threads() const { return slipway_pool_threads(pool_.get()); }
  /** The C API's pool; this object still owns it. */
  const slipway_pool* c_pool() const { return pool_.get(); }

 private:
  explicit Pool(slipway_pool* pool) : pool_(pool, &slipway_pool_free) {}

  std::shared_ptr<slipway_pool> pool_;
};

/** How to load a program. The values here are the defaults. */
struct LoadOptions {
  std::string data_path;            /**< a file of weights (.ptd) that was exported with the program */
  std::string weights_cache;        /**< a file that keeps packed weights for the next load */
  std::vector<std::string> methods; /**< which to make ready; empty: all */
  const Pool* pool = nullptr;       /**< nullptr: the program's own pool */
  std::uint32_t max_jumps = 0;      /**< rounds of loops in one execution; 0: ten million */
};

/** One method of a program; the program must outlive it. A copy is the same method. */
class Method {
 public:
  /** The C API's method; its program still owns it. */
  explicit Method(slipway_method* method) : method_(method) {}

  /** The name that the program has for it. */
  std::string name() const { return slipway_method_name(method_); }
  /** How many inputs it takes. */
  std::size_t num_inputs() const { return slipway_method_input_count(method_); }
  /** How many outputs it gives. */
  std::size_t num_outputs() const { return slipway_method_output_count(method_); }
  /** What the method declares of an input; an error if the method has fewer inputs. */
  Result<slipway_spec> input_spec(std::size_t index) const { return spec(&slipway_method_input_spec, index); }
  /** What the method declares of an output; an error if the method has fewer outputs. */
  Result<slipway_spec> output_spec(std::size_t index) const {
    return spec(&slipway_method_output_spec, index);
  }

  /** Names the memory that each execution reads an input from, until another call. */
  Status set_input(std::size_t index, const Tensor& input) {
    return slipway_method_set_input(method_, index, &input.c_tensor());
  }
  /** Whether the last execution had to copy this input. */
  bool input_copied(std::size_t index) const { return slipway_method_input_copied(method_, index) != 0; }
  /** Runs the method with the inputs that were set. */
  Status execute() { return slipway_method_execute(method_); }
  /** An output of the last execution, by reference: valid until the next one. */
  Result<Tensor> output(std::size_t index) const {
    slipway_tensor tensor = {};
    if (slipway_error* error = slipway_method_output(method_, index, &tensor)) {
      return Error(error);
    }
    return Tensor(tensor);
  }

  /** Sets all inputs, runs the method, and returns all outputs by reference: `forward({image, scale})`. */
  Result<std::vector<Tensor>> forward(const std::vector<Tensor>& inputs) {
    return forward(inputs.data(), inputs.size());
  }
  /** The same with `count` inputs in an array. */
  Result<std::vector<Tensor>> forward(const Tensor* inputs, std::size_t count) {
    static_assert(sizeof(Tensor) == sizeof(slipway_tensor), "a Tensor is a slipway_tensor");
    const auto* tensors = reinterpret_cast<const slipway_tensor*>(inputs);
    if (slipway_error* error = slipway_method_forward(method_, tensors, count)) {
      return Error(error);
    }
    std::vector<Tensor> outputs(num_outputs());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (slipway_error* error = slipway_method_output(method_, i, &outputs[i].tensor_)) {
        return Error(error);
      }
    }
    return outputs;
  }

  /** The C API's method; its program still owns it. */
  slipway_method* c_method() const { return method_; }

 private:
  template <typename Call>
  Result<slipway_spec> spec(Call call, std::size_t index) const {
    slipway_spec found = {};
    if (slipway_error* error = call(method_, index, &found)) {
      return Error(error);
    }
    return found;
  }

  slipway_method* method_;
};

/** A program that is loaded. */
class Program {
 public:
  /** Loads a program from a file; errors as slipway_program_load. */
  static Result<Program> load(const std::string& path, const LoadOptions& options = {}) {
    return load_with(options, [&](const slipway_options* c_options, slipway_program** program) {
      return slipway_program_load(path.c_str(), c_options, program);
    });
  }
  /** Loads a program from memory that must outlive it; `size` in bytes. */
  static Result<Program> load(const void* data, std::size_t size, const LoadOptions& options = {}) {
    return load_with(options, [&](const slipway_options* c_options, slipway_program** program) {
      return slipway_program_load_memory(data, size, c_options, program);
    });
  }
  /** Loads a program from a part of an open file; offset and size in bytes, a size of 0 up to the end. */
  static Result<Program> load_descriptor(int descriptor, std::uint64_t offset = 0, std::uint64_t size = 0,
                                         const LoadOptions& options = {}) {
    return load_with(options, [&](const slipway_options* c_options, slipway_program** program) {
      return slipway_program_load_descriptor(descriptor, offset, size, c_options, program);
    });
  }

  /** The methods that are ready. */
  std::vector<std::string> method_names() const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < slipway_program_method_count(program_.get()); ++i) {
      names.emplace_back(slipway_method_name(slipway_program_method_at(program_.get(), i)));
    }
    return names;
  }
  /** The method of that name; it ends with the program. */
  Result<Method> method(const std::string& name = "forward") const {
    slipway_method* found = nullptr;
    if (slipway_error* error = slipway_program_find_method(program_.get(), name.c_str(), &found)) {
      return Error(error);
    }
    return Method(found);
  }
  /** Runs the method "forward"; outputs are valid until the next execution. */
  Result<std::vector<Tensor>> forward(const std::vector<Tensor>& inputs) {
    return execute("forward", inputs);
  }
  /** Runs a method by its name. */
  Result<std::vector<Tensor>> execute(const std::string& name, const std::vector<Tensor>& inputs) {
    Result<Method> found = method(name);
    return found.ok() ? found->forward(inputs) : found.error();
  }

  /** Writes packed weights to LoadOptions::weights_cache. */
  Status keep_weights() { return slipway_program_keep_weights(program_.get()); }

  /** The C API's program; this object still owns it. */
  slipway_program* c_program() const { return program_.get(); }

 private:
  explicit Program(slipway_program* program) : program_(program, &slipway_program_free) {}

  template <typename Load>
  static Result<Program> load_with(const LoadOptions& options, Load load) {
    const std::unique_ptr<slipway_options, void (*)(slipway_options*)> made(slipway_options_create(),
                                                                            &slipway_options_free);
    slipway_options* c_options = made.get();
    slipway_error* error = slipway_options_set_max_jumps(c_options, options.max_jumps);
    if (error == nullptr && options.pool != nullptr) {
      error = slipway_options_set_pool(c_options, options.pool->c_pool());
    }
    if (error == nullptr && !options.data_path.empty()) {
      error = slipway_options_set_data_path(c_options, options.data_path.c_str());
    }
    if (error == nullptr && !options.weights_cache.empty()) {
      error = slipway_options_set_weights_cache(c_options, options.weights_cache.c_str());
    }
    for (std::size_t i = 0; error == nullptr && i < options.methods.size(); ++i) {
      error = slipway_options_add_method(c_options, options.methods[i].c_str());
    }
    slipway_program* program = nullptr;
    if (error == nullptr) {
      error = load(c_options, &program);
    }
    if (error != nullptr) {
      return Error(error);
    }
    return Program(program);
  }

  std::unique_ptr<slipway_program, void (*)(slipway_program*)> program_;
};

/** How a Session chooses the next token. The values here are the defaults. */
struct Sampling {
  double temperature = 0;  /**< 0: the likeliest token, always */
  std::uint32_t top_k = 0; /**< of the likeliest tokens only so many; 0: all */
  double top_p = 1;        /**< only the likeliest whose probabilities together reach it; 1: all */
  std::uint64_t seed = 0;  /**< the same one gives the same text */
};

/** A text that a language model reads and writes. Its program must outlive it, and has one at a time. */
class Session {
 public:
  /** Begins a text; `method` as slipway_session_create, "" for its NULL. */
  static Result<Session> create(const Program& program, const std::string& method = "") {
    slipway_session* session = nullptr;
    if (slipway_error* error = slipway_session_create(program.c_program(),
                                                      method.empty() ? nullptr : method.c_str(), &session)) {
      return Error(error);
    }
    return Session(session);
  }

  /** Lets the model read tokens; logits() are then those of the token that follows. */
  Status feed(const std::vector<std::int64_t>& ids) {
    return slipway_session_feed(session_.get(), ids.data(), ids.size());
  }
  /** The same with embeddings: `count` rows of width() numbers. */
  Status feed_embeddings(const float* rows, std::size_t count) {
    return slipway_session_feed_embeddings(session_.get(), rows, count);
  }
  /** The numbers of an embedding; 0 when the model reads tokens alone. */
  std::size_t width() const { return slipway_session_width(session_.get()); }

  /** The next token's scores, valid until the next feed; nullptr before the first one. */
  const float* logits(std::size_t* count = nullptr) const {
    return slipway_session_logits(session_.get(), count);
  }
  /** How sample() chooses, from now on. */
  Status set_sampling(const Sampling& sampling) {
    return slipway_session_set_sampling(session_.get(), sampling.temperature, sampling.top_k, sampling.top_p,
                                        sampling.seed);
  }
  /** Chooses the next token. To go on, feed it. */
  Result<std::int64_t> sample() {
    std::int64_t id = 0;
    if (slipway_error* error = slipway_session_sample(session_.get(), &id)) {
      return Error(error);
    }
    return id;
  }
  /** The tokens that end a text, as the program names them. */
  std::vector<std::int64_t> stops() const {
    std::size_t count = 0;
    const std::int64_t* ids = slipway_session_stops(session_.get(), &count);
    return {ids, ids + count};
  }

  /** How many tokens were read. */
  std::int64_t position() const { return slipway_session_position(session_.get()); }
  /** How many tokens a text has at most; 0: the program does not say. */
  std::int64_t context() const { return slipway_session_context(session_.get()); }
  /** Forgets what was read after the first `position` tokens. */
  Status truncate(std::int64_t position) { return slipway_session_truncate(session_.get(), position); }
  /** Begins another text. */
  Status reset() { return truncate(0); }

  /** Writes the text to a file, as slipway_session_save. */
  Status save(const std::string& path) { return slipway_session_save(session_.get(), path.c_str()); }
  /** The same in memory. */
  Result<std::vector<std::uint8_t>> save() {
    const void* data = nullptr;
    std::size_t size = 0;
    if (slipway_error* error = slipway_session_save_memory(session_.get(), &data, &size)) {
      return Error(error);
    }
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    return std::vector<std::uint8_t>(bytes, bytes + size);
  }
  /** Goes on with a text of the same program that was saved in a file. */
  Status restore(const std::string& path) { return slipway_session_restore(session_.get(), path.c_str()); }
  /** The same from memory. */
  Status restore(const std::vector<std::uint8_t>& saved) {
    return slipway_session_restore_memory(session_.get(), saved.data(), saved.size());
  }

  /** The C API's session; this object still owns it. */
  slipway_session* c_session() const { return session_.get(); }

 private:
  explicit Session(slipway_session* session) : session_(session, &slipway_session_free) {}

  std::unique_ptr<slipway_session, void (*)(slipway_session*)> session_;
};

}  // namespace v1
}  // namespace slipway

#endif  // SLIPWAY_SLIPWAY_HPP_
