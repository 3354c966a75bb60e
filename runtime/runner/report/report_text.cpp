#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>

#include "base/text.h"
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
