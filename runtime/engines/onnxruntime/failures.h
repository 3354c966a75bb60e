// Exceptions of ONNX Runtime's as status values: none leaves the engine.
#pragma once

#include <onnxruntime_cxx_api.h>

#include <exception>
#include <new>
#include <string>

#include "slipway/status.h"

namespace slipway::onnx {

// Keeps errors of ONNX Runtime's log, which would go to standard error, for the failure's message.
void ORT_API_CALL keep_logged_error(void* unused, OrtLoggingLevel severity, const char* category,
                                    const char* logid, const char* location, const char* message);

// The failure, with the code that fits what ONNX Runtime says, else `code`.
Status from_exception(const Ort::Exception& error, Code code);

// Calls into ONNX Runtime.
template <typename Call>
auto contained(Code code, Call call) -> decltype(call()) {
  try {
    return call();
  } catch (const Ort::Exception& error) {
    return from_exception(error, code);
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return Status(code, std::string("The engine failed: ") + error.what() + ".",
                  "copy the model again, or export it again");
  }
}

}  // namespace slipway::onnx
