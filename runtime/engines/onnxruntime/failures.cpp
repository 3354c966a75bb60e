#include "failures.h"

#include <string_view>
#include <utility>

namespace slipway::onnx {
namespace {

std::string& logged() {
  static std::string errors;
  return errors;
}

// How a failure is known by ONNX Runtime's own words (or its error code), and what it means here.
struct Known {
  std::string_view words;
  Code code;
  std::string_view fix;
};

constexpr Known kKnown[] = {
    {"Could not find an implementation for", Code::kMissingOperator,
     "export the model without the operator, or for another opset or element type"},
    {"No Op registered for", Code::kMissingOperator,
     "export the model without the operator, or for an older opset"},
    {"is not a registered function/op", Code::kMissingOperator,
     "export the model without the operator, or with a function that defines it"},
    {"max supported IR version", Code::kFile, "export the model for this IR version or an older one"},
    {"is under development and support for this is limited", Code::kFile,
     "export the model for an older opset"},
    {"Invalid rank for input", Code::kInput, "compare with pte_runner --describe"},
    {"Got invalid dimensions for input", Code::kInput, "compare with pte_runner --describe"},
    {"Unexpected input data type", Code::kInput, "compare with pte_runner --describe"},
    {"cannot get file size", Code::kFile, "put the model's data files beside it"},
    {"External data", Code::kFile, "put the model's data files beside it"},
    {"external initializer", Code::kFile, "put the model's data files beside it"},
    {"bad_alloc", Code::kMemory, "use a smaller model or input, or a device with more memory"},
    {"Failed to allocate memory", Code::kMemory,
     "use a smaller model or input, or a device with more memory"},
};

// The operator that a message names: "... for Foo(17) ...", "... for Foo with domain_version ...",
// "Fatal error: my.domain:Foo(-1) is not ...".
std::string operator_in(const std::string& message, std::string_view words) {
  const std::size_t at = message.find(words);
  std::size_t begin = at + words.size() + 1;
  if (words.front() == 'i') {  // the name comes before these words
    const std::size_t blank = at < 2 ? std::string::npos : message.rfind(' ', at - 2);
    begin = blank == std::string::npos ? 0 : blank + 1;
  }
  const std::size_t end = message.find_first_of(" (", begin);
  std::string name = message.substr(begin, end == std::string::npos ? end : end - begin);
  return name.rfind("ai.onnx:", 0) == 0 ? name.substr(8) : name;
}

Code code_of(OrtErrorCode error, Code otherwise) {
  const bool file = error == ORT_NO_SUCHFILE || error == ORT_NO_MODEL || error == ORT_INVALID_PROTOBUF ||
                    error == ORT_INVALID_GRAPH;
  return file ? Code::kFile : otherwise;
}

}  // namespace

void ORT_API_CALL keep_logged_error(void* /*unused*/, OrtLoggingLevel /*severity*/, const char* /*category*/,
                                    const char* /*logid*/, const char* /*location*/, const char* message) {
  if (logged().empty()) {  // what comes after is about the failure's consequences
    logged() = message;
  }
}

Status from_exception(const Ort::Exception& error, Code code) {
  std::string message = error.what();
  const std::string log = std::exchange(logged(), "");
  if (!log.empty() && log.find(message) == std::string::npos && message.find(log) == std::string::npos) {
    message += " (" + log + ")";
  }
  for (const Known& known : kKnown) {
    if (message.find(known.words) != std::string::npos) {
      std::vector<std::string> names;
      if (known.code == Code::kMissingOperator) {
        names.push_back(operator_in(message, known.words));
      }
      return {known.code, "ONNX Runtime: " + message, std::string(known.fix), std::move(names)};
    }
  }
  return {code_of(error.GetOrtErrorCode(), code), "ONNX Runtime: " + message,
          code == Code::kExecution ? "check the inputs' shapes and values against pte_runner --describe"
                                   : "copy the model again, or export it again"};
}

}  // namespace slipway::onnx
