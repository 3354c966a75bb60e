// The native side of org.slipway.Native: each function calls the C API, and throws a SlipwayException for its
// error. The header is javac's (javac -h): a function that does not fit its declaration in Java does not
// compile. Nothing here uses the C++ library: an app may have one of its own.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "org_slipway_Native.h"
#include "slipway/slipway.h"

namespace {

template <typename Handle>
Handle* pointer(jlong handle) {
  return reinterpret_cast<Handle*>(static_cast<intptr_t>(handle));
}

jlong number(const void* handle) {
  return static_cast<jlong>(reinterpret_cast<intptr_t>(handle));
}

// A text of the C API; null when Java has no memory, and then an exception is pending.
jbyteArray bytes_of(JNIEnv* env, const char* text) {
  const auto size = static_cast<jsize>(strlen(text));
  jbyteArray bytes = env->NewByteArray(size);
  if (bytes != nullptr) {
    env->SetByteArrayRegion(bytes, 0, size, reinterpret_cast<const jbyte*>(text));
  }
  return bytes;
}

// Throws a SlipwayException. If Java cannot make one, what hinders it is thrown instead.
void throw_failure(JNIEnv* env, slipway_code code, const char* message, const char* fix) {
  jclass type = env->FindClass("org/slipway/SlipwayException");
  jmethodID make = type == nullptr ? nullptr : env->GetMethodID(type, "<init>", "(I[B[B)V");
  jbyteArray what = make == nullptr ? nullptr : bytes_of(env, message);
  jbyteArray instead = what == nullptr ? nullptr : bytes_of(env, fix);
  if (instead != nullptr) {
    jobject thrown = env->NewObject(type, make, static_cast<jint>(code), what, instead);
    if (thrown != nullptr) {
      env->Throw(static_cast<jthrowable>(thrown));
    }
  }
}

void throw_no_memory(JNIEnv* env) {
  throw_failure(env, SLIPWAY_MEMORY, "There is no memory for a text.", "");
}

// Whether a call succeeded; if it did not, its error is pending in Java.
bool succeeded(JNIEnv* env, slipway_error* error) {
  if (error == nullptr) {
    return true;
  }
  throw_failure(env, slipway_error_code(error), slipway_error_message(error), slipway_error_fix(error));
  slipway_error_free(error);
  return false;
}

// A text of Java's for the C API.
class Text {
 public:
  Text(JNIEnv* env, jbyteArray bytes) {
    if (bytes == nullptr) {
      return;
    }
    const jsize size = env->GetArrayLength(bytes);
    data_ = static_cast<char*>(malloc(static_cast<size_t>(size) + 1));
    if (data_ == nullptr) {
      throw_no_memory(env);
      good_ = false;
      return;
    }
    env->GetByteArrayRegion(bytes, 0, size, reinterpret_cast<jbyte*>(data_));
    data_[size] = '\0';
    if (strlen(data_) != static_cast<size_t>(size)) {
      throw_failure(env, SLIPWAY_USAGE, "A path or name has a zero in it.",
                    "texts end with a zero: give one without");
      good_ = false;
    }
  }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  ~Text() { free(data_); }

  // Null for null.
  const char* get() const { return data_; }
  // Whether it can be used; if it cannot, an exception is pending.
  bool good() const { return good_; }

 private:
  char* data_ = nullptr;
  bool good_ = true;
};

jlongArray numbers_of(JNIEnv* env, const jlong* numbers, size_t count) {
  jlongArray array = env->NewLongArray(static_cast<jsize>(count));
  if (array != nullptr) {
    env->SetLongArrayRegion(array, 0, static_cast<jsize>(count), numbers);
  }
  return array;
}

// An index of Java's; what is negative is beyond the last one for the C API, too.
size_t index_of(jint index) {
  return index < 0 ? SIZE_MAX : static_cast<size_t>(index);
}

}  // namespace

jint Java_org_slipway_Native_abiVersion(JNIEnv*, jclass) {
  return static_cast<jint>(slipway_abi_version());
}

jbyteArray Java_org_slipway_Native_version(JNIEnv* env, jclass) {
  return bytes_of(env, slipway_version());
}

jlong Java_org_slipway_Native_createPool(JNIEnv* env, jclass, jint threads) {
  slipway_pool* pool = nullptr;
  succeeded(env, slipway_pool_create(static_cast<uint32_t>(threads), &pool));
  return number(pool);
}

jint Java_org_slipway_Native_poolThreads(JNIEnv*, jclass, jlong pool) {
  return static_cast<jint>(slipway_pool_threads(pointer<slipway_pool>(pool)));
}

void Java_org_slipway_Native_freePool(JNIEnv*, jclass, jlong pool) {
  slipway_pool_free(pointer<slipway_pool>(pool));
}

jlong Java_org_slipway_Native_createOptions(JNIEnv* env, jclass, jlong pool, jbyteArray data_path,
                                            jbyteArray weights_cache, jobjectArray methods, jint max_jumps) {
  slipway_options* options = slipway_options_create();
  if (options == nullptr) {
    throw_no_memory(env);
    return 0;
  }
  const auto set = [&](jbyteArray bytes, slipway_error* (*call)(slipway_options*, const char*)) {
    const Text text(env, bytes);
    return text.good() && (bytes == nullptr || succeeded(env, call(options, text.get())));
  };
  bool good = set(data_path, slipway_options_set_data_path) &&
              set(weights_cache, slipway_options_set_weights_cache) &&
              (pool == 0 || succeeded(env, slipway_options_set_pool(options, pointer<slipway_pool>(pool)))) &&
              succeeded(env, slipway_options_set_max_jumps(options, static_cast<uint32_t>(max_jumps)));
  const jsize count = env->GetArrayLength(methods);
  for (jsize i = 0; good && i < count; ++i) {
    auto name = static_cast<jbyteArray>(env->GetObjectArrayElement(methods, i));
    good = set(name, slipway_options_add_method);
    env->DeleteLocalRef(name);
  }
  if (!good) {
    slipway_options_free(options);
    return 0;
  }
  return number(options);
}

void Java_org_slipway_Native_freeOptions(JNIEnv*, jclass, jlong options) {
  slipway_options_free(pointer<slipway_options>(options));
}

jlong Java_org_slipway_Native_load(JNIEnv* env, jclass, jbyteArray path, jobject data, jint descriptor,
                                   jlong offset, jlong size, jlong options) {
  slipway_program* program = nullptr;
  auto* how = pointer<slipway_options>(options);
  const Text text(env, path);
  if (data != nullptr) {
    auto* memory = static_cast<uint8_t*>(env->GetDirectBufferAddress(data));
    succeeded(env, slipway_program_load_memory(memory == nullptr ? nullptr : memory + offset,
                                               static_cast<size_t>(size), how, &program));
  } else if (size >= 0) {
    succeeded(env, slipway_program_load_descriptor(descriptor, static_cast<uint64_t>(offset),
                                                   static_cast<uint64_t>(size), how, &program));
  } else if (text.good()) {
    succeeded(env, slipway_program_load(text.get(), how, &program));
  }
  return number(program);
}

void Java_org_slipway_Native_freeProgram(JNIEnv*, jclass, jlong program) {
  slipway_program_free(pointer<slipway_program>(program));
}

jlongArray Java_org_slipway_Native_methods(JNIEnv* env, jclass, jlong program) {
  auto* loaded = pointer<slipway_program>(program);
  const size_t count = slipway_program_method_count(loaded);
  jlongArray handles = env->NewLongArray(static_cast<jsize>(count));
  for (size_t i = 0; handles != nullptr && i < count; ++i) {
    const jlong handle = number(slipway_program_method_at(loaded, i));
    env->SetLongArrayRegion(handles, static_cast<jsize>(i), 1, &handle);
  }
  return handles;
}

void Java_org_slipway_Native_keepWeights(JNIEnv* env, jclass, jlong program) {
  succeeded(env, slipway_program_keep_weights(pointer<slipway_program>(program)));
}

jlong Java_org_slipway_Native_weightsFound(JNIEnv*, jclass, jlong program) {
  return static_cast<jlong>(slipway_program_weights_found(pointer<slipway_program>(program)));
}

jbyteArray Java_org_slipway_Native_methodName(JNIEnv* env, jclass, jlong method) {
  return bytes_of(env, slipway_method_name(pointer<slipway_method>(method)));
}

jint Java_org_slipway_Native_count(JNIEnv*, jclass, jlong method, jboolean of_outputs) {
  auto* found = pointer<slipway_method>(method);
  return static_cast<jint>(of_outputs != JNI_FALSE ? slipway_method_output_count(found)
                                                   : slipway_method_input_count(found));
}

jlongArray Java_org_slipway_Native_spec(JNIEnv* env, jclass, jlong method, jboolean of_output, jint index) {
  slipway_spec spec = {};
  const auto call = of_output != JNI_FALSE ? slipway_method_output_spec : slipway_method_input_spec;
  if (!succeeded(env, call(pointer<slipway_method>(method), index_of(index), &spec))) {
    return nullptr;
  }
  jlong numbers[3 + SLIPWAY_MAX_DIMS] = {spec.kind, spec.dtype, spec.dynamism};
  for (uint32_t i = 0; i < spec.rank; ++i) {
    numbers[3 + i] = spec.sizes[i];
  }
  return numbers_of(env, numbers, 3 + spec.rank);
}

void Java_org_slipway_Native_setInput(JNIEnv* env, jclass, jlong method, jint index, jobject data, jint dtype,
                                      jlongArray shape) {
  slipway_tensor tensor = {};
  const jsize rank = env->GetArrayLength(shape);
  if (rank > SLIPWAY_MAX_DIMS) {
    throw_failure(env, SLIPWAY_INPUT, "A tensor has too many dimensions.", "give at most 16");
    return;
  }
  env->GetLongArrayRegion(shape, 0, rank, reinterpret_cast<jlong*>(tensor.sizes));
  tensor.data = env->GetDirectBufferAddress(data);
  tensor.readable = static_cast<uint64_t>(env->GetDirectBufferCapacity(data));
  tensor.dtype = dtype;
  tensor.rank = static_cast<uint32_t>(rank);
  succeeded(env, slipway_method_set_input(pointer<slipway_method>(method), index_of(index), &tensor));
}

jboolean Java_org_slipway_Native_inputCopied(JNIEnv*, jclass, jlong method, jint index) {
  return slipway_method_input_copied(pointer<slipway_method>(method), index_of(index)) != 0 ? JNI_TRUE
                                                                                            : JNI_FALSE;
}

void Java_org_slipway_Native_execute(JNIEnv* env, jclass, jlong method) {
  succeeded(env, slipway_method_execute(pointer<slipway_method>(method)));
}

jobject Java_org_slipway_Native_output(JNIEnv* env, jclass, jlong method, jint index, jlongArray numbers) {
  static uint8_t nothing[1];
  slipway_tensor tensor = {};
  if (!succeeded(env, slipway_method_output(pointer<slipway_method>(method), index_of(index), &tensor))) {
    return nullptr;
  }
  jlong told[2 + SLIPWAY_MAX_DIMS] = {tensor.dtype, tensor.rank};
  uint64_t size = slipway_dtype_size(tensor.dtype);
  for (uint32_t i = 0; i < tensor.rank; ++i) {
    told[2 + i] = tensor.sizes[i];
    size *= static_cast<uint64_t>(tensor.sizes[i]);
  }
  if (size > INT32_MAX) {
    throw_failure(env, SLIPWAY_EXECUTION, "An output has more bytes than a buffer of Java's: 2147483647.",
                  "split it in the model");
    return nullptr;
  }
  env->SetLongArrayRegion(numbers, 0, 2 + SLIPWAY_MAX_DIMS, told);
  return env->NewDirectByteBuffer(size == 0 ? nothing : tensor.data, static_cast<jlong>(size));
}

jlong Java_org_slipway_Native_createSession(JNIEnv* env, jclass, jlong program, jbyteArray method) {
  slipway_session* session = nullptr;
  const Text text(env, method);
  if (text.good()) {
    succeeded(env, slipway_session_create(pointer<slipway_program>(program), text.get(), &session));
  }
  return number(session);
}

void Java_org_slipway_Native_freeSession(JNIEnv*, jclass, jlong session) {
  slipway_session_free(pointer<slipway_session>(session));
}

void Java_org_slipway_Native_feed(JNIEnv* env, jclass, jlong session, jlongArray ids) {
  if (jlong* elements = env->GetLongArrayElements(ids, nullptr)) {
    succeeded(env,
              slipway_session_feed(pointer<slipway_session>(session), reinterpret_cast<int64_t*>(elements),
                                   static_cast<size_t>(env->GetArrayLength(ids))));
    env->ReleaseLongArrayElements(ids, elements, JNI_ABORT);
  }
}

void Java_org_slipway_Native_feedEmbeddings(JNIEnv* env, jclass, jlong session, jfloatArray rows,
                                            jint count) {
  if (jfloat* elements = env->GetFloatArrayElements(rows, nullptr)) {
    succeeded(env, slipway_session_feed_embeddings(pointer<slipway_session>(session), elements,
                                                   static_cast<size_t>(count)));
    env->ReleaseFloatArrayElements(rows, elements, JNI_ABORT);
  }
}

jfloatArray Java_org_slipway_Native_logits(JNIEnv* env, jclass, jlong session) {
  size_t count = 0;
  const float* scores = slipway_session_logits(pointer<slipway_session>(session), &count);
  jfloatArray array = env->NewFloatArray(static_cast<jsize>(count));
  if (array != nullptr && scores != nullptr) {
    env->SetFloatArrayRegion(array, 0, static_cast<jsize>(count), scores);
  }
  return array;
}

void Java_org_slipway_Native_setSampling(JNIEnv* env, jclass, jlong session, jdouble temperature, jint top_k,
                                         jdouble top_p, jlong seed) {
  succeeded(env,
            slipway_session_set_sampling(pointer<slipway_session>(session), temperature,
                                         static_cast<uint32_t>(top_k), top_p, static_cast<uint64_t>(seed)));
}

jlong Java_org_slipway_Native_sample(JNIEnv* env, jclass, jlong session) {
  int64_t id = 0;
  succeeded(env, slipway_session_sample(pointer<slipway_session>(session), &id));
  return static_cast<jlong>(id);
}

jlongArray Java_org_slipway_Native_stops(JNIEnv* env, jclass, jlong session) {
  size_t count = 0;
  const int64_t* ids = slipway_session_stops(pointer<slipway_session>(session), &count);
  return numbers_of(env, reinterpret_cast<const jlong*>(ids), count);
}

jlong Java_org_slipway_Native_sessionNumber(JNIEnv*, jclass, jlong session, jint index) {
  auto* text = pointer<slipway_session>(session);
  return static_cast<jlong>(index == 0   ? slipway_session_position(text)
                            : index == 1 ? slipway_session_context(text)
                                         : static_cast<int64_t>(slipway_session_width(text)));
}

void Java_org_slipway_Native_truncate(JNIEnv* env, jclass, jlong session, jlong position) {
  succeeded(env, slipway_session_truncate(pointer<slipway_session>(session), position));
}

jbyteArray Java_org_slipway_Native_saveText(JNIEnv* env, jclass, jlong session, jbyteArray path) {
  auto* text = pointer<slipway_session>(session);
  const void* data = nullptr;
  size_t size = 0;
  const Text name(env, path);
  const bool done =
      name.good() && succeeded(env, path != nullptr ? slipway_session_save(text, name.get())
                                                    : slipway_session_save_memory(text, &data, &size));
  if (!done || path != nullptr) {
    return nullptr;
  }
  if (size > INT32_MAX) {
    throw_failure(env, SLIPWAY_MEMORY, "The text has more bytes than an array of Java's.",
                  "save it to a file");
    return nullptr;
  }
  jbyteArray array = env->NewByteArray(static_cast<jsize>(size));
  if (array != nullptr) {
    env->SetByteArrayRegion(array, 0, static_cast<jsize>(size), static_cast<const jbyte*>(data));
  }
  return array;
}

void Java_org_slipway_Native_restoreText(JNIEnv* env, jclass, jlong session, jbyteArray path,
                                         jbyteArray saved) {
  auto* text = pointer<slipway_session>(session);
  const Text name(env, path);
  if (saved == nullptr && name.good()) {
    succeeded(env, slipway_session_restore(text, name.get()));
  } else if (jbyte* elements = saved == nullptr ? nullptr : env->GetByteArrayElements(saved, nullptr)) {
    succeeded(
        env, slipway_session_restore_memory(text, elements, static_cast<size_t>(env->GetArrayLength(saved))));
    env->ReleaseByteArrayElements(saved, elements, JNI_ABORT);
  }
}
