#include <cstdio>

#include "runner/report/json.h"
#include "runner/roofline/roofline.h"

namespace slipway {

std::string roofline_json(const Roofline& found, const CpuInfo& cpu) {
  JsonWriter json;
  json.begin_object().member("schema", 1).key("roofline").begin_array();
  for (const RooflinePoint& point : found.points) {
    json.begin_object().member("threads", point.threads).member("feature", found.feature);
    json.member("gflops", point.gflops).member("gbytes_per_s", point.gbytes_per_s).end_object();
  }
  json.end_array().member("buffer_bytes", found.buffer_bytes).member("cache_bytes", found.cache_bytes);
  json.key("cpu").begin_object().member("arch", cpu.arch).member("model", cpu.model);
  return json.member("cores", cpu.cores).end_object().end_object().text();
}

std::string roofline_text(const Roofline& found, const CpuInfo& cpu) {
  char line[160];
  std::string text = "processor  " + (cpu.model.empty() ? cpu.arch : cpu.model) + "\n";
  for (const RooflinePoint& point : found.points) {
    std::snprintf(line, sizeof(line), "%-11s%.4g GFLOP/s in float32 (%s), %.4g GB/s read from memory\n",
                  (std::to_string(point.threads) + (point.threads == 1 ? " thread" : " threads")).c_str(),
                  point.gflops, found.feature.c_str(), point.gbytes_per_s);
    text += line;
  }
  std::snprintf(line, sizeof(line), "read       %llu MiB, the caches of the last level have ",
                static_cast<unsigned long long>(found.buffer_bytes >> 20));
  text += line;
  if (found.cache_bytes == 0) {
    return text + "an unknown size\n";
  }
  std::snprintf(line, sizeof(line), "%.4g MiB\n", static_cast<double>(found.cache_bytes) / (1 << 20));
  return text + line;
}

#ifdef SLIPWAY_NO_ROOFLINE
// A runner that was linked for some programs has nothing else.
Result<Roofline> measure_roofline(unsigned /*threads*/) {
  return Status(Code::kUsage, "This runner was linked for some programs only and measures no roofline.",
                "build one without --ops-from");
}
#endif

}  // namespace slipway
