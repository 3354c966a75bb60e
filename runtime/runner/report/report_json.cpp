#include <algorithm>
#include <iterator>
#include <map>

#include "runner/measure.h"
#include "runner/report/json.h"
#include "runner/report/report.h"

namespace slipway {
namespace {

void engine_member(JsonWriter& json, const EngineInfo& engine) {
  json.key("engine").begin_object();
  json.member("name", engine.name).member("version", engine.version).end_object();
}

void cpu_member(JsonWriter& json, const CpuInfo& cpu) {
  json.key("cpu").begin_object();
  json.member("arch", cpu.arch).member("model", cpu.model).member("features", cpu.features);
  json.member("cores", cpu.cores).end_object();
}

void tensors_member(JsonWriter& json, const char* name, const std::vector<TensorReport>& tensors,
                    bool files) {
  json.key(name).begin_array();
  for (const TensorReport& tensor : tensors) {
    json.begin_object().member("dtype", name_of(tensor.dtype)).member("shape", tensor.shape);
    json.member("sha256", tensor.sha256);
    if (files) {
      json.member("file", tensor.file);
    }
    json.end_object();
  }
  json.end_array();
}

void digests_member(JsonWriter& json, const std::vector<FileDigest>& digests) {
  json.key("digests").begin_object().key("files").begin_array();
  for (const FileDigest& file : digests) {
    json.begin_object().member("path", file.path).member("size", file.size);
    json.member("sha256", file.sha256).end_object();
  }
  json.end_array().end_object();
}

const char* name_of(Dynamism dynamism) {
  switch (dynamism) {
    case Dynamism::kStatic:
      return "static";
    case Dynamism::kBounded:
      return "bounded";
    case Dynamism::kUnbounded:
      return "unbounded";
  }
  return "";
}

// [least, most] for each dimension; null where there is no bound.
void ranges_member(JsonWriter& json, const std::vector<SizeRange>& ranges) {
  json.key("ranges").begin_array();
  for (const SizeRange& range : ranges) {
    json.begin_array().value(range.least);
    range.most == SizeRange::kAny ? json.null() : json.value(range.most);
    json.end_array();
  }
  json.end_array();
}

void specs_member(JsonWriter& json, const char* name, const std::vector<ValueSpec>& specs) {
  json.key(name).begin_array();
  for (const ValueSpec& spec : specs) {
    json.begin_object().member("dtype", slipway::name_of(spec.dtype)).member("shape", spec.shape);
    json.member("kind", spec.kind).member("dynamism", name_of(spec.dynamism));
    ranges_member(json, size_ranges(spec));
    json.end_object();
  }
  json.end_array();
}

void placement_member(JsonWriter& json, const Placement& placement) {
  json.key("placement").begin_object().key("nodes").begin_array();
  std::map<std::string, std::size_t> counts;
  for (const NodeInfo& node : placement.nodes) {
    json.begin_object().member("name", node.name).member("operator", node.op);
    json.member("provider", node.provider).end_object();
    ++counts[node.provider];
  }
  json.end_array().key("coverage").begin_object();
  for (const auto& [provider, count] : counts) {
    json.member(provider, count);
  }
  json.end_object().member("hints", placement.hints).end_object();
}

void kernels_member(JsonWriter& json, const std::vector<KernelUse>& kernels) {
  json.key("kernels").begin_array();
  for (const KernelUse& use : kernels) {
    json.begin_object().member("node", use.node).member("kernel", use.kernel);
    json.member("library", use.library).member("feature", use.feature);
    json.end_object();
  }
  json.end_array();
}

// Only from engines that have such things: a result without them has no member of the name.
void engine_specific_members(JsonWriter& json, const RunReport& report) {
  if (!report.settings.empty()) {
    json.key("settings").begin_object();
    for (const auto& [name, value] : report.settings) {
      json.member(name, value);
    }
    json.end_object();
  }
  if (!report.placement.nodes.empty()) {
    placement_member(json, report.placement);
  }
  if (!report.kernels.empty()) {
    kernels_member(json, report.kernels);
  }
  if (!report.fallbacks.empty()) {
    json.key("fallbacks").begin_array();
    for (const Fallback& fallback : report.fallbacks) {
      json.begin_object().member("where", fallback.where).member("wanted", fallback.wanted);
      json.member("used", fallback.used).member("why", fallback.why).end_object();
    }
    json.end_array();
  }
  if (report.weights) {
    json.key("weights").begin_object();
    json.member("bytes", report.weights->bytes).member("blocks", report.weights->blocks);
    json.member("shared", report.weights->shared).member("shared_bytes", report.weights->shared_bytes);
    json.member("packed", report.weights->packed);
    if (report.weights->cache) {
      const WeightsCacheInfo& cache = *report.weights->cache;
      json.key("cache").begin_object().member("path", cache.path).member("state", cache.state);
      json.member("why", cache.why).member("bytes", cache.bytes).member("found", cache.found);
      json.member("packing_load_ms", cache.packing_load_ms).end_object();
    }
    json.end_object();
  }
  if (!report.measured.instructions.empty()) {
    json.key("instructions").begin_object().member("all", report.measured.instructions).end_object();
  }
  if (report.generated) {
    const Generated& text = *report.generated;
    json.key("generated").begin_object().member("prompt_tokens", text.prompt_tokens);
    json.member("prompt_ms", text.prompt_ms).member("tokens", text.tokens).member("token_ms", text.token_ms);
    json.member("ended", text.ended).member("context", text.model.context).end_object();
  }
  if (report.profiled) {
    json.key("profile").begin_array();
    for (const ProfileRow& row : report.profile) {
      json.begin_object().member("name", row.name).member("operator", row.op);
      json.member("provider", row.provider).member("count", row.count);
      json.member("total_ms", row.total_ms);
      const LatencySummary times = summarize(row.times_ms);
      json.member("p10_ms", times.p10).member("p50_ms", times.p50).member("p90_ms", times.p90).end_object();
    }
    json.end_array();
  }
}

}  // namespace

std::string run_json(const RunReport& report) {
  const LatencySummary latency = summarize(report.measured.latencies_ms);
  JsonWriter json;
  json.begin_object().member("schema", 1);
  engine_member(json, report.engine);
  json.key("program").begin_object();
  json.member("path", report.program_path).member("size", report.program_size).end_object();
  json.member("method", report.method).member("load_ms", report.load_ms);
  json.key("latency_ms").begin_object();
  json.member("count", report.measured.latencies_ms.size()).member("warmup", report.warmup);
  json.member("min", latency.min).member("p50", latency.p50).member("p90", latency.p90);
  json.member("p99", latency.p99).member("mean", latency.mean).member("all", report.measured.latencies_ms);
  json.end_object();
  json.member("peak_rss_bytes", report.peak_rss).member("threads", report.threads);
  tensors_member(json, "inputs", report.inputs, false);
  tensors_member(json, "outputs", report.outputs, true);
  json.member("backends", report.capabilities.backends).member("operators", report.capabilities.operators);
  cpu_member(json, report.cpu);
  digests_member(json, report.digests);
  engine_specific_members(json, report);
  return json.end_object().text();
}

std::string describe_json(const EngineInfo& engine, const std::string& path, const ProgramInfo& program,
                          const Capabilities& capabilities, const std::vector<std::string>& found_missing) {
  JsonWriter json(JsonWriter::Form::kLines);
  json.begin_object().member("schema", 1);
  engine_member(json, engine);
  json.key("program").begin_object();
  json.member("path", path).member("size", program.size).member("version", program.version);
  if (!program.opsets.empty()) {
    json.key("opsets").begin_object();
    for (const auto& [domain, version] : program.opsets) {
      json.member(domain, version);
    }
    json.end_object().member("data_files", program.data_files);
  }
  json.end_object();
  json.key("methods").begin_array();
  for (const MethodInfo& method : program.methods) {
    json.begin_object().member("name", method.name);
    specs_member(json, "inputs", method.inputs);
    specs_member(json, "outputs", method.outputs);
    json.member("planned_bytes", method.planned_bytes);
    json.member("external_weights", method.external_weights);
    json.member("backends", method.backends).member("operators", method.operators);
    if (!method.kernel_types.empty()) {
      json.member("kernel_types", method.kernel_types);
    }
    json.member("missing_backends", missing(method.backends, capabilities.backends));
    json.member("missing_operators", missing_operators(method, capabilities, found_missing));
    if (!method.kernels.empty()) {
      kernels_member(json, method.kernels);
    }
    json.end_object();
  }
  json.end_array();
  json.member("backends", capabilities.backends).member("operators", capabilities.operators);
  return json.end_object().text();
}

std::string capabilities_json(const EngineInfo& engine, const Capabilities& capabilities,
                              const CpuInfo& cpu) {
  JsonWriter json(JsonWriter::Form::kLines);
  json.begin_object().member("schema", 1);
  engine_member(json, engine);
  json.member("backends", capabilities.backends).member("operators", capabilities.operators);
  json.member("kleidiai", capabilities.kleidiai);
  if (capabilities.selective) {
    json.member("selective", true);
  }
  cpu_member(json, cpu);
  return json.end_object().text();
}

std::string error_json(const Status& status) {
  JsonWriter json;
  json.begin_object().key("error").begin_object();
  json.member("kind", kind_of(status.code())).member("exit_code", static_cast<int>(status.code()));
  json.member("message", status.message()).member("fix", status.fix()).member("names", status.names());
  return json.end_object().end_object().text();
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
