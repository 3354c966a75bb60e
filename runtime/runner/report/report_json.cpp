#include <algorithm>
#include <iterator>
#include <map>

#include "runner/measure.h"
#include "runner/report/json.h"
#include "runner/report/report.h"

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

static void write_json(JsonWriter& json, const Placement& placement) {
  std::map<std::string, std::size_t> counts;
  for (const NodeInfo& node : placement.nodes) {
    ++counts[node.provider];
  }
  json.begin_object().members("nodes", placement.nodes).key("coverage").object_of(counts);
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

}  // namespace slipway
