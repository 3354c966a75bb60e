#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>

#include "runner/measure.h"
#include "runner/report/report.h"

namespace slipway {
namespace {

std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

std::string format(const char* pattern, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(line, sizeof(line), pattern, arguments);
  va_end(arguments);
  return line;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text.empty() ? "none" : text;
}

template <typename T>
T load(const std::uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

std::string element_text(DType dtype, const std::uint8_t* bytes) {
  switch (dtype) {
    case DType::kBool:
      return *bytes != 0 ? "true" : "false";
    case DType::kUInt8:
      return std::to_string(*bytes);
    case DType::kInt8:
      return std::to_string(load<std::int8_t>(bytes));
    case DType::kUInt16:
      return std::to_string(load<std::uint16_t>(bytes));
    case DType::kInt16:
      return std::to_string(load<std::int16_t>(bytes));
    case DType::kUInt32:
      return std::to_string(load<std::uint32_t>(bytes));
    case DType::kInt32:
      return std::to_string(load<std::int32_t>(bytes));
    case DType::kUInt64:
      return std::to_string(load<std::uint64_t>(bytes));
    case DType::kInt64:
      return std::to_string(load<std::int64_t>(bytes));
    case DType::kFloat16:
      return format("%.5g", double{float16_value(load<std::uint16_t>(bytes))});
    case DType::kBFloat16:
      return format("%.4g", double{bfloat16_value(load<std::uint16_t>(bytes))});
    case DType::kFloat32:
      return format("%.9g", static_cast<double>(load<float>(bytes)));
    case DType::kFloat64:
      return format("%.17g", load<double>(bytes));
    case DType::kComplex64:
      return element_text(DType::kFloat32, bytes) + format("%+.9gj", double{load<float>(bytes + 4)});
    case DType::kComplex128:
      return element_text(DType::kFloat64, bytes) + format("%+.17gj", load<double>(bytes + 8));
    case DType::kUnknown:
    case DType::kNone:
      break;
  }
  return "?";
}

std::string tensor_line(const char* what, std::size_t index, const TensorReport& tensor) {
  std::string line = format("%s %zu   %s %s  sha256 ", what, index, name_of(tensor.dtype),
                            to_text(tensor.shape).substr(0, 100).c_str());
  line += tensor.sha256;
  if (!tensor.file.empty()) {
    line += "  " + tensor.file;
  }
  return line + "\n";
}

std::string spec_line(const char* what, std::size_t index, const ValueSpec& spec) {
  std::string line = format("  %s %zu  ", what, index) + spec.kind;
  if (spec.kind == "tensor") {
    line += std::string(" ") + name_of(spec.dtype) + " ";
    line += spec.dynamism == Dynamism::kBounded ? "at most " : "";
    line += to_text(spec.shape);
    line += spec.dynamism == Dynamism::kUnbounded ? " (any size)" : "";
  }
  return line + "\n";
}

// How many nodes each provider has, and those that the provider asked for left to another, with the reason.
std::string kernels_text(const std::vector<KernelUse>& kernels) {
  std::string text;
  for (const KernelUse& use : kernels) {
    text += "  kernel     " + use.node + ": " + use.kernel + " (" + use.library + ", " + use.feature + ")\n";
  }
  return text;
}

std::string placement_text(const Placement& placement) {
  std::map<std::string, std::size_t> counts;
  for (const NodeInfo& node : placement.nodes) {
    ++counts[node.provider];
  }
  std::string text;
  for (const auto& [provider, count] : counts) {
    text += format("nodes      %zu on ", count) + provider + "\n";
  }
  for (const std::string& hint : placement.hints) {
    text += "hint       " + hint + "\n";
  }
  return text;
}

std::string digests_text(const Digests& digests) {
  std::string text;
  for (const FileDigest& file : digests.files) {
    text += "digest     sha256 " + file.sha256 + "  " + file.path + "\n";
  }
  if (text.empty() && digests.estimate_ms > digests.limit_ms) {
    text = format("digest     left out: %.1f ms, and no more than %.1f were wanted (--digests always)\n",
                  digests.estimate_ms, digests.limit_ms);
  }
  return text;
}

std::string profile_text(const RunReport& report) {
  std::string text;
  for (const ProfileRow& row : report.profile) {
    text += format("profile    %10.3f ms in %llu executions, p50 %.4f ms  ", row.total_ms,
                   static_cast<unsigned long long>(row.count), summarize(row.times_ms).p50);
    text += row.op + " " + row.name + (row.provider.empty() ? "" : ", " + row.provider) + "\n";
  }
  return text;
}

}  // namespace

std::string run_text(const RunReport& report) {
  const LatencySummary latency = summarize(report.measured.latencies_ms);
  std::string text = "program    " + report.program_path + ", method " + report.method + "\n";
  text += "engine     " + report.engine.name + " " + report.engine.version + ", " +
          joined(report.capabilities.backends) + format(", %u threads\n", report.threads);
  std::string settings;
  for (const auto& [name, value] : report.settings) {
    settings += (settings.empty() ? "" : ", ") + name + " " + value;
  }
  text += settings.empty() ? "" : "settings   " + settings + "\n";
  text += format("load       %.3f ms\n", report.load_ms);
  text += format(
      "latency    min %.3f  p50 %.3f  p90 %.3f  p99 %.3f  mean %.3f ms (%zu executions, %u to warm up)\n",
      latency.min, latency.p50, latency.p90, latency.p99, latency.mean, report.measured.latencies_ms.size(),
      report.warmup);
  if (const std::vector<std::uint64_t>& counts = report.measured.instructions; !counts.empty()) {
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    text += "executed   " + std::to_string(*least) + " to " + std::to_string(*most) +
            " instructions in each execution\n";
  }
  text += format("peak RSS   %.1f MiB\n", static_cast<double>(report.peak_rss) / (1024.0 * 1024.0));
  for (std::size_t i = 0; i < report.inputs.size(); ++i) {
    text += tensor_line("input ", i, report.inputs[i]);
  }
  for (std::size_t i = 0; i < report.outputs.size(); ++i) {
    text += tensor_line("output", i, report.outputs[i]);
  }
  text += report.digests ? digests_text(*report.digests) : "";
  for (const Fallback& fallback : report.fallbacks) {
    text += "instead    " + fallback.used + " for " + fallback.wanted + " in " + fallback.where + ": " +
            fallback.why + "\n";
  }
  return text + placement_text(report.placement) + profile_text(report);
}

std::string describe_text(const std::string& path, const ProgramInfo& program,
                          const Capabilities& capabilities, const std::vector<std::string>& found_missing) {
  std::string text =
      path + format(": %llu bytes, version %llu\n", static_cast<unsigned long long>(program.size),
                    static_cast<unsigned long long>(program.version));
  for (const auto& [domain, version] : program.opsets) {
    text += "opset      " + domain + " " + std::to_string(version) + "\n";
  }
  for (const std::string& file : program.data_files) {
    text += "data file  " + file + "\n";
  }
  for (const MethodInfo& method : program.methods) {
    text += "method " + method.name + "\n";
    for (std::size_t i = 0; i < method.inputs.size(); ++i) {
      text += spec_line("input ", i, method.inputs[i]);
    }
    for (std::size_t i = 0; i < method.outputs.size(); ++i) {
      text += spec_line("output", i, method.outputs[i]);
    }
    text += "  backends   " + joined(method.backends) + "\n";
    text += "  operators  " + joined(method.operators) + "\n";
    for (const std::string& name : missing(method.backends, capabilities.backends)) {
      text += "  missing    backend " + name + "\n";
    }
    for (const std::string& name : missing_operators(method, capabilities, found_missing)) {
      text += "  missing    operator " + name + "\n";
    }
    text += kernels_text(method.kernels);
  }
  return text;
}

std::string capabilities_text(const EngineInfo& engine, const Capabilities& capabilities,
                              const CpuInfo& cpu) {
  std::string text = "engine     " + engine.name + " " + engine.version + "\n";
  text += "backends   " + joined(capabilities.backends) + "\n";
  text += std::string("KleidiAI   ") + (capabilities.kleidiai ? "yes" : "no") + "\n";
  text += "processor  " + cpu.arch + ", " + (cpu.model.empty() ? "model unknown" : cpu.model) +
          format(", %u cores\n", cpu.cores);
  text += "features   " + joined(cpu.features) + "\n";
  return text + "operators  " + joined(capabilities.operators) + "\n";
}

std::string error_text(const Status& status) {
  std::string text = "pte_runner: " + status.message();
  if (!status.fix().empty()) {
    text += "\nTry: " + status.fix();
  }
  return text + "\n";
}

std::string values_text(const Tensor& tensor, std::size_t most) {
  if (tensor.dtype == DType::kNone) {
    return "None";
  }
  const std::size_t element = size_of(tensor.dtype);
  const std::size_t count = element == 0 ? 0 : tensor.bytes.size() / element;
  std::string text = "[";
  for (std::size_t i = 0; i < count && i < most; ++i) {
    text += (i == 0 ? "" : ", ") + element_text(tensor.dtype, tensor.bytes.data() + i * element);
  }
  return text + (count > most ? ", ... " + std::to_string(count) + " in all]" : "]");
}

}  // namespace slipway
