#include <cstdio>
#include <string>

#include "runner/report/json.h"
#include "runner/tune/tune.h"

namespace slipway {
namespace {

double in_ms(std::uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e6;
}

double in_us(std::uint64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e3;
}

void layer_entry(JsonWriter& json, const LayerTimes& layer) {
  const CandidateTimes& pick = layer.pick();
  const TimedPair times = layer.times();
  json.begin_object().member("layer", layer.layer).member("node", layer.node).member("own", layer.own);
  json.member("choice", pick.choice).member("leader", layer.leader().choice);
  json.member("own_us", in_us(times.own)).member("tuned_us", in_us(times.tuned));
  json.key("candidates").begin_array();
  for (const CandidateTimes& candidate : layer.candidates) {
    json.begin_object().member("choice", candidate.choice).member("rejected", candidate.rejected);
    json.member("us", in_us(median_of(candidate.samples))).member("samples", candidate.samples.size());
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace

std::string tune_json(const TuneReport& report) {
  JsonWriter json;
  json.begin_object().member("schema", 1).key("engine").begin_object();
  json.member("name", report.engine.name).member("version", report.engine.version).end_object();
  json.key("program").begin_object().member("path", report.program_path).end_object();
  json.member("method", report.method).key("tuning").begin_object();
  json.member("phase", report.phase).member("progress", report.progress).member("already", report.already);
  json.member("kept", report.kept).member("why", report.why).member("own_threads", report.own_threads);
  json.member("threads", report.already ? report.choices.threads : report.found.threads);
  json.member("own_ms", in_ms(report.choices.own_ns)).member("tuned_ms", in_ms(report.choices.tuned_ns));
  json.member("pairs", report.found.pairs.size()).member("wins", report.wins).key("runs").begin_array();
  for (const ThreadTimes& run : report.found.runs) {
    json.begin_object().member("threads", run.threads).member("ms", in_ms(median_of(run.samples)));
    json.member("samples", run.samples.size()).end_object();
  }
  json.end_array().key("layers").begin_array();
  for (const LayerTimes& layer : report.found.layers) {
    layer_entry(json, layer);
  }
  // Of a file that was made before, no more is known than what is in it.
  for (const ChosenLayer& layer : report.already ? report.choices.layers : std::vector<ChosenLayer>()) {
    json.begin_object().member("layer", layer.layer).member("node", "").member("own", layer.own);
    json.member("choice", layer.choice).member("own_us", in_us(layer.own_ns));
    json.member("tuned_us", in_us(layer.tuned_ns)).key("candidates").begin_array().end_array().end_object();
  }
  return json.end_array().end_object().end_object().text();
}

std::string tune_text(const TuneReport& report) {
  char line[256];
  std::string text = "program    " + report.program_path + ", method " + report.method + "\n";
  std::snprintf(line, sizeof(line), "phase      %s, %.0f %%\n", report.phase.c_str(), 100 * report.progress);
  text += line;
  for (const LayerTimes& layer : report.found.layers) {
    const TimedPair times = layer.times();
    std::snprintf(line, sizeof(line), "  %10.1f us with %s, %10.1f us with %s  ", in_us(times.own),
                  layer.own.c_str(), in_us(times.tuned), layer.pick().choice.c_str());
    text += line + layer.layer + " " + layer.node + "\n";
  }
  if (report.choices.own_ns != 0) {
    std::snprintf(line, sizeof(line), "latency    %.3f ms, tuned %.3f ms, %u threads\n",
                  in_ms(report.choices.own_ns), in_ms(report.choices.tuned_ns),
                  report.already ? report.choices.threads : report.found.threads);
    text += line;
  }
  return text + (report.kept ? "kept\n" : report.why.empty() ? "" : "not kept   " + report.why + "\n");
}

}  // namespace slipway
