/**
 * @file slipway.h
 * @brief Slipway's C API: run programs that ExecuTorch exported (.pte) inside of your own program.
 *
 *     slipway_program* program = NULL;
 *     slipway_error* error = slipway_program_load("model.pte", NULL, &program);
 *
 * **Errors** are values. A function that can fail returns NULL when it succeeded, else a slipway_error. The
 * caller frees it; the function's results stay as they were. The library never ends the process, prints,
 * throws or handles signals.
 *
 * **Handles** are opaque. Every `..._create` and `..._load` has a `..._free`; freeing NULL does nothing.
 * Methods and sessions belong to their program and end with it.
 *
 * **Threads.** Use a program, its methods, session and options from one thread at a time. Two threads may use
 * two programs at the same time, also when the programs share a pool: then their work takes turns on the
 * pool. Call functions without a handle, and those that only read a pool or an error, at any time.
 *
 * **Versions.** A program that was compiled with this header runs with every later library of the same
 * SLIPWAY_ABI_VERSION. Later libraries may add functions; structs and numbers stay as they are.
 *
 * Texts are UTF-8. Sizes are in bytes or elements, as each comment says. Tensors are row-major and in the
 * processor's byte order.
 */
#ifndef SLIPWAY_SLIPWAY_H_
#define SLIPWAY_SLIPWAY_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#if defined(SLIPWAY_BUILDING)
#define SLIPWAY_API __declspec(dllexport)
#elif defined(SLIPWAY_SHARED)
#define SLIPWAY_API __declspec(dllimport)
#else
#define SLIPWAY_API
#endif
#elif defined(__GNUC__)
#define SLIPWAY_API __attribute__((visibility("default")))
#else
#define SLIPWAY_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** The binary interface that this header describes. */
#define SLIPWAY_ABI_VERSION 1
/** The most dimensions of a tensor. */
#define SLIPWAY_MAX_DIMS 16
/** Bytes behind an input's last element that kernels may read; slipway_method_set_input says why. */
#define SLIPWAY_READ_BEHIND 64

/** Why something failed. The numbers are also pte_runner's exit codes. */
typedef enum slipway_code {
  SLIPWAY_OK = 0,
  SLIPWAY_USAGE = 2,            /**< a function was called in a wrong way */
  SLIPWAY_FILE = 3,             /**< a file cannot be read, or is damaged */
  SLIPWAY_MISSING_OPERATOR = 4, /**< the library has no kernel for an operator of the program */
  SLIPWAY_MISSING_BACKEND = 5,  /**< the library lacks a backend of the program */
  SLIPWAY_INPUT = 6,            /**< an input has another type or shape than the method takes */
  SLIPWAY_EXECUTION = 7,        /**< the method failed while it ran */
  SLIPWAY_OUTPUT = 8,           /**< a file cannot be written */
  SLIPWAY_MEMORY = 9,           /**< there is not enough memory */
  SLIPWAY_DEFECT = 10,          /**< a defect of the library */
  SLIPWAY_LIMIT = 11            /**< the method took more rounds than were allowed */
} slipway_code;

/** Types of elements. */
typedef enum slipway_dtype {
  SLIPWAY_UNKNOWN = 0, /**< a type that only the library itself can read */
  SLIPWAY_BOOL = 1,    /**< one byte: 0 or 1 */
  SLIPWAY_UINT8 = 2,
  SLIPWAY_INT8 = 3,
  SLIPWAY_UINT16 = 4,
  SLIPWAY_INT16 = 5,
  SLIPWAY_UINT32 = 6,
  SLIPWAY_INT32 = 7,
  SLIPWAY_UINT64 = 8,
  SLIPWAY_INT64 = 9,
  SLIPWAY_FLOAT16 = 10,
  SLIPWAY_BFLOAT16 = 11,
  SLIPWAY_FLOAT32 = 12,
  SLIPWAY_FLOAT64 = 13,
  SLIPWAY_NONE = 14,      /**< no tensor, but None: without memory and dimensions */
  SLIPWAY_COMPLEX64 = 15, /**< real and imaginary part, each float32 */
  SLIPWAY_COMPLEX128 = 16
} slipway_dtype;

/** How far the sizes of an input or output may differ from those that the program declares. */
typedef enum slipway_dynamism {
  SLIPWAY_STATIC = 0,   /**< not at all */
  SLIPWAY_BOUNDED = 1,  /**< each size may be smaller */
  SLIPWAY_UNBOUNDED = 2 /**< each size may be anything */
} slipway_dynamism;

/** What an input or output is. */
typedef enum slipway_kind {
  SLIPWAY_OTHER = 0,  /**< None (SLIPWAY_NONE), or what only the library itself can read */
  SLIPWAY_TENSOR = 1, /**< a tensor */
  SLIPWAY_NUMBER = 2  /**< a number: a tensor without dimensions, of int64, float64 or bool */
} slipway_kind;

/** A tensor in memory that somebody else owns. Fill it with zeros before you set its members. */
typedef struct slipway_tensor {
  void* data;        /**< the first element */
  uint64_t readable; /**< of an input: bytes at `data` that may be read, if they are more than its
                          elements take; else 0 */
  int32_t dtype;     /**< a slipway_dtype */
  uint32_t rank;     /**< the number of dimensions; 0 for a single number */
  int64_t sizes[SLIPWAY_MAX_DIMS]; /**< elements along each dimension, the outermost first */
} slipway_tensor;

/** What a method declares of an input or output. */
typedef struct slipway_spec {
  int32_t kind;                    /**< a slipway_kind */
  int32_t dtype;                   /**< a slipway_dtype */
  int32_t dynamism;                /**< a slipway_dynamism */
  uint32_t rank;                   /**< the number of dimensions */
  int64_t sizes[SLIPWAY_MAX_DIMS]; /**< in elements; the largest ones for SLIPWAY_BOUNDED */
} slipway_spec;

typedef struct slipway_error slipway_error;     /**< why something failed */
typedef struct slipway_options slipway_options; /**< how to load a program */
typedef struct slipway_pool slipway_pool;       /**< threads that compute */
typedef struct slipway_program slipway_program; /**< a program that is loaded */
typedef struct slipway_method slipway_method;   /**< one of its methods */
typedef struct slipway_session slipway_session; /**< a text that a language model reads and writes */

/** @name The library @{ */

/** The SLIPWAY_ABI_VERSION that the library was compiled with. */
SLIPWAY_API uint32_t slipway_abi_version(void);
/** The library's version, "0.1.0". */
SLIPWAY_API const char* slipway_version(void);
/** Bytes that an element of this type takes; 0 for SLIPWAY_UNKNOWN, SLIPWAY_NONE and other numbers. */
SLIPWAY_API size_t slipway_dtype_size(int32_t dtype);
/** NumPy's name of a type; "bfloat16" for the one that NumPy lacks, "unknown" for other numbers. */
SLIPWAY_API const char* slipway_dtype_name(int32_t dtype);

/** @} @name Errors @{ */

/** The class of an error; SLIPWAY_OK for NULL. */
SLIPWAY_API slipway_code slipway_error_code(const slipway_error* error);
/** What happened, as a sentence; valid until the error is freed. Empty for NULL. */
SLIPWAY_API const char* slipway_error_message(const slipway_error* error);
/** What to do about it; may be empty. Valid until the error is freed. */
SLIPWAY_API const char* slipway_error_fix(const slipway_error* error);
/** Frees an error. */
SLIPWAY_API void slipway_error_free(slipway_error* error);

/** @} @name Threads @{ */

/**
 * Starts threads that programs may share.
 *
 * @param threads how many compute, the caller's own among them; 0: one for each physical core of this
 * process.
 * @param[out] pool to free with slipway_pool_free. Programs that use it keep its threads until they end.
 * @return SLIPWAY_MEMORY when the threads cannot be started; SLIPWAY_MISSING_BACKEND on a processor that
 * XNNPACK does not run on.
 */
SLIPWAY_API slipway_error* slipway_pool_create(uint32_t threads, slipway_pool** pool);
/** How many threads compute. */
SLIPWAY_API uint32_t slipway_pool_threads(const slipway_pool* pool);
/** Frees a pool; its threads end when the last program that uses them is freed. */
SLIPWAY_API void slipway_pool_free(slipway_pool* pool);

/** @} @name Options @{ */

/** Options with their defaults; NULL when memory is short. */
SLIPWAY_API slipway_options* slipway_options_create(void);
/** Frees options; programs that were loaded with them do not need them afterwards. */
SLIPWAY_API void slipway_options_free(slipway_options* options);
/** Computes on these threads. Default: the program's own pool, with one thread for each physical core. */
SLIPWAY_API slipway_error* slipway_options_set_pool(slipway_options* options, const slipway_pool* pool);
/** A file of weights (.ptd) that was exported with the program. */
SLIPWAY_API slipway_error* slipway_options_set_data_path(slipway_options* options, const char* path);
/** A file that keeps packed weights for the next load; only for programs that are loaded from a path. */
SLIPWAY_API slipway_error* slipway_options_set_weights_cache(slipway_options* options, const char* path);
/** Makes this method ready; may be called several times. Default: all methods of the program. */
SLIPWAY_API slipway_error* slipway_options_add_method(slipway_options* options, const char* name);
/** Jumps backwards (rounds of loops) that one execution may take. 0, the default: ten million. */
SLIPWAY_API slipway_error* slipway_options_set_max_jumps(slipway_options* options, uint32_t jumps);

/** @} @name Programs @{ */

/**
 * Loads a program from a file, which is mapped into memory.
 *
 * The whole file is checked first: a damaged one is an error, never a crash. Do not change the file while the
 * program lives; replace it by a rename.
 *
 * @param options may be NULL; is not needed afterwards.
 * @param[out] program to free with slipway_program_free.
 * @return SLIPWAY_FILE, SLIPWAY_USAGE (the program lacks a method that the options name),
 * SLIPWAY_MISSING_OPERATOR, SLIPWAY_MISSING_BACKEND, SLIPWAY_MEMORY
 */
SLIPWAY_API slipway_error* slipway_program_load(const char* path, const slipway_options* options,
                                                slipway_program** program);
/**
 * Loads a program from memory. If `data` is a multiple of 64, the memory is not copied: do not change it
 * until the program is freed.
 *
 * @param size in bytes.
 */
SLIPWAY_API slipway_error* slipway_program_load_memory(const void* data, size_t size,
                                                       const slipway_options* options,
                                                       slipway_program** program);
/**
 * Loads a program from a part of an open file, for example from an asset of an Android package. On Windows
 * it fails with SLIPWAY_USAGE.
 *
 * @param descriptor stays open and stays the caller's; may be closed afterwards.
 * @param offset where the program begins, in bytes.
 * @param size in bytes; 0: up to the file's end.
 */
SLIPWAY_API slipway_error* slipway_program_load_descriptor(int descriptor, uint64_t offset, uint64_t size,
                                                           const slipway_options* options,
                                                           slipway_program** program);
/** Frees a program with its methods and the memory of their outputs. */
SLIPWAY_API void slipway_program_free(slipway_program* program);

/** How many methods are ready. */
SLIPWAY_API size_t slipway_program_method_count(const slipway_program* program);
/** The method at `index`, in the order of the options or of the file; NULL beyond the last one. */
SLIPWAY_API slipway_method* slipway_program_method_at(const slipway_program* program, size_t index);
/**
 * The method of that name ("forward").
 *
 * Methods of a program share its state (mutable buffers) as they do in upstream's runtime.
 *
 * @param[out] method ends with the program.
 * @return SLIPWAY_USAGE when it is not ready or does not exist.
 */
SLIPWAY_API slipway_error* slipway_program_find_method(const slipway_program* program, const char* name,
                                                       slipway_method** method);
/**
 * Writes packed weights to the file of slipway_options_set_weights_cache, unless the file has all of them.
 *
 * @return SLIPWAY_USAGE when the options do not name a file, SLIPWAY_OUTPUT when it cannot be written.
 */
SLIPWAY_API slipway_error* slipway_program_keep_weights(slipway_program* program);
/** How many blocks of packed weights this load found in that file. */
SLIPWAY_API uint64_t slipway_program_weights_found(const slipway_program* program);

/** @} @name Methods @{ */

/** The method's name; valid as long as the method. */
SLIPWAY_API const char* slipway_method_name(const slipway_method* method);
/** How many inputs a method takes. */
SLIPWAY_API size_t slipway_method_input_count(const slipway_method* method);
/** How many outputs a method gives. */
SLIPWAY_API size_t slipway_method_output_count(const slipway_method* method);
/** What the method declares of an input. @return SLIPWAY_USAGE when the method has fewer inputs. */
SLIPWAY_API slipway_error* slipway_method_input_spec(const slipway_method* method, size_t index,
                                                     slipway_spec* spec);
/** What the method declares of an output. @return SLIPWAY_USAGE when the method has fewer outputs. */
SLIPWAY_API slipway_error* slipway_method_output_spec(const slipway_method* method, size_t index,
                                                      slipway_spec* spec);

/**
 * Names the memory that each execution reads an input from, until another call names other memory.
 *
 * The method reads the elements where they are, without a copy, if all of these are true:
 *
 * - the input is row-major in the program (not channels-last);
 * - `data` is a multiple of the size of an element;
 * - SLIPWAY_READ_BEHIND bytes behind the last element may be read, too: they are on the same page of memory,
 *   or `readable` counts them. To be sure, allocate that many bytes more, and count them in `readable`.
 *
 * Otherwise each execution copies the input; slipway_method_input_copied says so.
 *
 * A method that writes to its own input (`x.add_(1)` on an argument) writes to this memory.
 *
 * @return SLIPWAY_INPUT when type or shape is wrong, SLIPWAY_USAGE when the method has fewer inputs.
 */
SLIPWAY_API slipway_error* slipway_method_set_input(slipway_method* method, size_t index,
                                                    const slipway_tensor* input);
/** 1 when the last execution copied this input, else 0. */
SLIPWAY_API int slipway_method_input_copied(const slipway_method* method, size_t index);

/**
 * Runs the method once, on the threads of its program's pool.
 *
 * @return SLIPWAY_INPUT when an input was not set or does not fit, SLIPWAY_EXECUTION, SLIPWAY_MEMORY,
 * SLIPWAY_LIMIT
 */
SLIPWAY_API slipway_error* slipway_method_execute(slipway_method* method);
/** Sets all inputs, `count` of them, and runs the method once. Errors: those of the two functions above. */
SLIPWAY_API slipway_error* slipway_method_forward(slipway_method* method, const slipway_tensor* inputs,
                                                  size_t count);

/**
 * An output of the last execution, by reference.
 *
 * @param[out] output points to the method's own memory. It is valid until a method of the program runs, or
 * until the next call of this function for the same output. Only a channels-last output is copied here, into
 * row-major order.
 * @return SLIPWAY_USAGE when the method has fewer outputs or did not run yet, SLIPWAY_EXECUTION when only the
 * library itself can read the output.
 */
SLIPWAY_API slipway_error* slipway_method_output(slipway_method* method, size_t index,
                                                 slipway_tensor* output);

/** @} @name Language models @{ */

/**
 * Begins a text with a program that reads the numbers of tokens, as export_llm and optimum-executorch write
 * it: `forward(tokens int64 [1, n], position int64 [1] or [n])`, which gives logits `[1, vocabulary]` or
 * `[1, n, vocabulary]`. Or with a program of several methods, where `token_embedding(tokens)` makes float32
 * `[1, n, width]` for `text_decoder(embeddings, position)`.
 *
 * The text is in the program's own memory: a program has one session at a time, and its method runs in no
 * other way meanwhile. For a second text, load the program once more.
 *
 * @param method which reads; NULL: "forward", or "text_decoder".
 * @param[out] session to free with slipway_session_free, or with its program.
 * @return SLIPWAY_USAGE when the method is not ready or reads no tokens, or the program has a session.
 */
SLIPWAY_API slipway_error* slipway_session_create(slipway_program* program, const char* method,
                                                  slipway_session** session);
/** Frees a session; not after its program, which has freed it then. */
SLIPWAY_API void slipway_session_free(slipway_session* session);

/**
 * Lets the model read tokens, in as few executions as it allows. Logits are then those of the token that
 * follows.
 *
 * @return SLIPWAY_INPUT when there is none, one is not in the vocabulary, or not all fit into the context:
 * nothing is read then. SLIPWAY_EXECUTION, SLIPWAY_MEMORY: slipway_session_position says how many were read.
 */
SLIPWAY_API slipway_error* slipway_session_feed(slipway_session* session, const int64_t* ids, size_t count);
/**
 * The same with embeddings in the place of tokens: what a vision encoder makes of a picture.
 *
 * @param rows `count` times slipway_session_width numbers.
 * @return SLIPWAY_USAGE when the model reads tokens alone; others as slipway_session_feed.
 */
SLIPWAY_API slipway_error* slipway_session_feed_embeddings(slipway_session* session, const float* rows,
                                                           size_t count);
/** The numbers of an embedding; 0 when the model reads tokens alone. */
SLIPWAY_API size_t slipway_session_width(const slipway_session* session);

/**
 * The scores of each token of the vocabulary to be the next; NULL before the first feed and after a
 * truncation.
 *
 * @param[out] count how many; may be NULL. They are valid until the next feed, truncation or restoration.
 */
SLIPWAY_API const float* slipway_session_logits(const slipway_session* session, size_t* count);
/**
 * How slipway_session_sample chooses, from now on. At first all are 0, and top_p is 1.
 *
 * @param temperature 0: the likeliest token, always.
 * @param top_k of the likeliest tokens only so many; 0: all.
 * @param top_p only the likeliest tokens whose probabilities together reach it; 1: all.
 * @param seed the same one gives the same text.
 * @return SLIPWAY_USAGE when a number is out of its range.
 */
SLIPWAY_API slipway_error* slipway_session_set_sampling(slipway_session* session, double temperature,
                                                        uint32_t top_k, double top_p, uint64_t seed);
/**
 * Chooses the next token. To go on, feed it.
 *
 * @return SLIPWAY_USAGE when there are no logits, SLIPWAY_EXECUTION when none of them is a number.
 */
SLIPWAY_API slipway_error* slipway_session_sample(slipway_session* session, int64_t* id);
/**
 * The tokens that end a text, as the program names them (get_eos_ids).
 *
 * @param[out] count how many. They are valid as long as the session.
 */
SLIPWAY_API const int64_t* slipway_session_stops(const slipway_session* session, size_t* count);

/** How many tokens were read. */
SLIPWAY_API int64_t slipway_session_position(const slipway_session* session);
/** How many tokens a text has at most; 0: the program does not say. */
SLIPWAY_API int64_t slipway_session_context(const slipway_session* session);
/**
 * Goes back: the model forgets what it read after the first `position` tokens. 0 begins another text.
 *
 * @return SLIPWAY_USAGE when fewer tokens were read.
 */
SLIPWAY_API slipway_error* slipway_session_truncate(slipway_session* session, int64_t position);

/**
 * Writes the text to a file: what the model remembers of it, its position and its logits. It replaces a file
 * of that name when it is whole. Sampling is not part of it.
 *
 * @return SLIPWAY_OUTPUT
 */
SLIPWAY_API slipway_error* slipway_session_save(slipway_session* session, const char* path);
/**
 * The same in memory.
 *
 * @param[out] data valid until this session feeds, truncates, restores a file or saves to memory again.
 * @param[out] size in bytes.
 */
SLIPWAY_API slipway_error* slipway_session_save_memory(slipway_session* session, const void** data,
                                                       size_t* size);
/**
 * Goes on with a text that was saved by the same method of the same program, also on another device. All of
 * it is checked first: the session stays as it is after an error.
 *
 * @return SLIPWAY_FILE when it cannot be read or is damaged, SLIPWAY_INPUT when it is another program's.
 */
SLIPWAY_API slipway_error* slipway_session_restore(slipway_session* session, const char* path);
/** The same from memory; `size` in bytes. */
SLIPWAY_API slipway_error* slipway_session_restore_memory(slipway_session* session, const void* data,
                                                          size_t size);

/** @} */

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SLIPWAY_SLIPWAY_H_ */
