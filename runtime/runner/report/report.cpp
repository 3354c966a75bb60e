#include "runner/report/report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <iterator>
#include <map>

#include "base/text.h"
#include "runner/report/json.h"

namespace slipway {

static void write_json(JsonWriter& json, const EngineInfo& engine) {
  json.object("name", engine.name, "version", engine.version);
}

static void write_json(JsonWriter& json, const CpuInfo& cpu) {
  json.object("arch", cpu.arch, "model", cpu.model, "features", cpu.features, "cores", cpu.cores);
}

static void write_json(JsonWriter& json, const FileDigest& file) {
  json.object("path", file.path, "size", file.size, "sha256", file.sha256);
}

// [least, most]; null where there is no bound.
static void write_json(JsonWriter& json, const SizeRange& range) {
  range.most == SizeRange::kAny ? json.array(range.least, nullptr) : json.array(range.least, range.most);
}

static void write_json(JsonWriter& json, const ValueSpec& spec) {
  const char* dynamism = spec.dynamism == Dynamism::kStatic    ? "static"
                         : spec.dynamism == Dynamism::kBounded ? "bounded"
                                                               : "unbounded";
  json.object("dtype", name_of(spec.dtype), "shape", spec.shape, "kind", spec.kind, "dynamism", dynamism,
              "ranges", size_ranges(spec));
}

static void write_json(JsonWriter& json, const NodeInfo& node) {
  json.object("name", node.name, "operator", node.op, "provider", node.provider);
}

// How many nodes each provider has.
static std::map<std::string, std::size_t> coverage(const Placement& placement) {
  std::map<std::string, std::size_t> counts;
  for (const NodeInfo& node : placement.nodes) {
    ++counts[node.provider];
  }
  return counts;
}

static void write_json(JsonWriter& json, const Placement& placement) {
  json.begin_object().members("nodes", placement.nodes).key("coverage").object_of(coverage(placement));
  json.members("hints", placement.hints).end_object();
}

static void write_json(JsonWriter& json, const KernelUse& use) {
  json.object("node", use.node, "kernel", use.kernel, "library", use.library, "feature", use.feature);
}

static void write_json(JsonWriter& json, const Fallback& fallback) {
  json.object("where", fallback.where, "wanted", fallback.wanted, "used", fallback.used, "why", fallback.why);
}

static void write_json(JsonWriter& json, const WeightsCacheInfo& cache) {
  json.object("path", cache.path, "state", cache.state, "why", cache.why, "bytes", cache.bytes, "found",
              cache.found, "packing_load_ms", cache.packing_load_ms);
}

static void write_json(JsonWriter& json, const WeightsInfo& weights) {
  json.begin_object().members("bytes", weights.bytes, "blocks", weights.blocks, "shared", weights.shared,
                              "shared_bytes", weights.shared_bytes, "packed", weights.packed);
  if (weights.cache) {
    json.members("cache", *weights.cache);
  }
  json.end_object();
}

static void write_json(JsonWriter& json, const Generated& text) {
  json.object("prompt_tokens", text.prompt_tokens, "prompt_ms", text.prompt_ms, "tokens", text.tokens,
              "token_ms", text.token_ms, "ended", text.ended, "context", text.model.context);
}

static void write_json(JsonWriter& json, const ProfileRow& row) {
  const LatencySummary times = summarize(row.times_ms);
  json.object("name", row.name, "operator", row.op, "provider", row.provider, "count", row.count, "total_ms",
              row.total_ms, "p10_ms", times.p10, "p50_ms", times.p50, "p90_ms", times.p90);
}

namespace {

void tensors_member(JsonWriter& json, const char* name, const std::vector<TensorReport>& tensors,
                    bool files) {
  json.key(name).list(tensors, [&](const TensorReport& tensor) {
    json.begin_object().members("dtype", name_of(tensor.dtype), "shape", tensor.shape, "sha256",
                                tensor.sha256);
    (files ? json.members("file", tensor.file) : json).end_object();
  });
}

// Only from engines that have such things: a result without them has no member of the name.
void engine_specific_members(JsonWriter& json, const RunReport& report) {
  if (!report.settings.empty()) {
    json.key("settings").object_of(report.settings);
  }
  if (!report.placement.nodes.empty()) {
    json.members("placement", report.placement);
  }
  if (!report.kernels.empty()) {
    json.members("kernels", report.kernels);
  }
  if (!report.fallbacks.empty()) {
    json.members("fallbacks", report.fallbacks);
  }
  if (report.weights) {
    json.members("weights", *report.weights);
  }
  if (!report.measured.instructions.empty()) {
    json.key("instructions").object("all", report.measured.instructions);
  }
  if (report.generated) {
    json.members("generated", *report.generated);
  }
  if (report.profiled) {
    json.members("profile", report.profile);
  }
}

std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

std::string format(const char* pattern, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(line, sizeof(line), pattern, arguments);
  va_end(arguments);
  return line;
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

// How many nodes each provider has, and what could be done about it.
std::string placement_text(const Placement& placement) {
  std::string text;
  for (const auto& [provider, count] : coverage(placement)) {
    text += format("nodes      %zu on ", count) + provider + "\n";
  }
  for (const std::string& hint : placement.hints) {
    text += "hint       " + hint + "\n";
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

std::string run_json(const RunReport& report) {
  const std::vector<double>& all = report.measured.latencies_ms;
  const LatencySummary latency = summarize(all);
  JsonWriter json;
  json.begin_object().members("schema", 1, "engine", report.engine);
  json.key("program").object("path", report.program_path, "size", report.program_size);
  json.members("method", report.method, "load_ms", report.load_ms).key("latency_ms");
  json.object("count", all.size(), "warmup", report.warmup, "min", latency.min, "p50", latency.p50, "p90",
              latency.p90, "p99", latency.p99, "mean", latency.mean, "all", all);
  json.members("peak_rss_bytes", report.peak_rss, "threads", report.threads);
  tensors_member(json, "inputs", report.inputs, false);
  tensors_member(json, "outputs", report.outputs, true);
  json.members("backends", report.capabilities.backends, "operators", report.capabilities.operators, "cpu",
               report.cpu);
  json.key("digests").object("files", report.digests);
  engine_specific_members(json, report);
  return json.end_object().text();
}

std::string describe_json(const EngineInfo& engine, const std::string& path, const ProgramInfo& program,
                          const Capabilities& capabilities, const std::vector<std::string>& found_missing) {
  JsonWriter json(JsonWriter::Form::kLines);
  json.begin_object().members("schema", 1, "engine", engine).key("program").begin_object();
  json.members("path", path, "size", program.size, "version", program.version);
  if (!program.opsets.empty()) {
    json.key("opsets").object_of(program.opsets).members("data_files", program.data_files);
  }
  json.end_object().key("methods").list(program.methods, [&](const MethodInfo& method) {
    json.begin_object().members("name", method.name, "inputs", method.inputs, "outputs", method.outputs,
                                "planned_bytes", method.planned_bytes, "external_weights",
                                method.external_weights, "backends", method.backends, "operators",
                                method.operators);
    if (!method.kernel_types.empty()) {
      json.members("kernel_types", method.kernel_types);
    }
    json.members("missing_backends", missing(method.backends, capabilities.backends), "missing_operators",
                 missing_operators(method, capabilities, found_missing));
    if (!method.kernels.empty()) {
      json.members("kernels", method.kernels);
    }
    json.end_object();
  });
  json.members("backends", capabilities.backends, "operators", capabilities.operators);
  return json.end_object().text();
}

std::string capabilities_json(const EngineInfo& engine, const Capabilities& capabilities,
                              const CpuInfo& cpu) {
  JsonWriter json(JsonWriter::Form::kLines);
  json.begin_object().members("schema", 1, "engine", engine, "backends", capabilities.backends, "operators",
                              capabilities.operators, "kleidiai", capabilities.kleidiai);
  if (capabilities.selective) {
    json.members("selective", true);
  }
  return json.members("cpu", cpu).end_object().text();
}

std::string error_json(const Status& status) {
  JsonWriter json;
  json.begin_object().key("error").object("kind", kind_of(status.code()), "exit_code",
                                          static_cast<int>(status.code()), "message", status.message(), "fix",
                                          status.fix(), "names", status.names());
  return json.end_object().text();
}

std::vector<std::string> missing_operators(const MethodInfo& method, const Capabilities& capabilities,
                                           const std::vector<std::string>& found) {
  std::vector<std::string> all =
      capabilities.lists_operators ? missing(method.operators, capabilities.operators) : found;
  if (!capabilities.kernel_types.empty()) {
    const std::vector<std::string> types = missing(method.kernel_types, capabilities.kernel_types);
    all.insert(all.end(), types.begin(), types.end());
  }
  return all;
}

std::vector<std::string> missing(const std::vector<std::string>& wanted,
                                 const std::vector<std::string>& offered) {
  std::vector<std::string> difference;
  std::set_difference(wanted.begin(), wanted.end(), offered.begin(), offered.end(),
                      std::back_inserter(difference));
  return difference;
}

std::string run_text(const RunReport& report) {
  const LatencySummary latency = summarize(report.measured.latencies_ms);
  std::string text = "program    " + report.program_path + ", method " + report.method + "\n";
  text += "engine     " + report.engine.name + " " + report.engine.version + ", " +
          (report.capabilities.backends.empty() ? "none" : joined(report.capabilities.backends)) +
          format(", %u threads\n", report.threads);
  std::vector<std::string> settings;
  for (const auto& [name, value] : report.settings) {
    settings.push_back(name + " " + value);
  }
  text += settings.empty() ? "" : "settings   " + joined(settings) + "\n";
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
  for (const FileDigest& file : report.digests) {
    text += "digest     sha256 " + file.sha256 + "  " + file.path + "\n";
  }
  for (const Fallback& fallback : report.fallbacks) {
    text += "instead    " + fallback.used + " for " + fallback.wanted + " in " + fallback.where + ": " +
            fallback.why + "\n";
  }
  return text + placement_text(report.placement) + profile_text(report);
}

std::string error_text(const Status& status) {
  std::string text = "pte_runner: " + status.message();
  if (!status.fix().empty()) {
    text += "\nTry: " + status.fix();
  }
  return text + "\n";
}

}  // namespace slipway
