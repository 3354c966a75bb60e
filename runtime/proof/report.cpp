#include "report.h"

#include <xnnpack.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace proof {

namespace {

std::string Format(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string Hex(const std::uint8_t* bytes, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

// Differs from any other choice of microkernels.
std::string BuildIdentifier() {
  return Hex(static_cast<const std::uint8_t*>(xnn_experimental_get_build_identifier_data()),
             xnn_experimental_get_build_identifier_size());
}

std::string Quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      quoted += '\\';
      quoted += letter;
    } else if (code < 0x20 || code >= 0x7F) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", code);
      quoted += escape;
    } else {
      quoted += letter;
    }
  }
  return quoted + '"';
}

std::string Array(const std::vector<std::string>& texts) {
  std::string array;
  for (const std::string& text : texts) array += (array.empty() ? "" : ", ") + Quote(text);
  return "[" + array + "]";
}

// Infinity and NaN are not JSON.
std::string Number(double value) {
  return std::isfinite(value) ? Format("%.9g", value) : "null";
}

std::string Samples(const Result& result) {
  std::string object;
  for (const auto& [address, count] : result.samples) {
    char text[64];
    std::snprintf(text, sizeof text, "\"0x%llx\": %u", static_cast<unsigned long long>(address), count);
    object += (object.empty() ? "" : ", ") + std::string(text);
  }
  return "{" + object + "}";
}

std::string CaseJson(const Result& result) {
  std::string text = "    {\"name\": " + Quote(result.name) + ", \"op\": " + Quote(result.op) +
                     ", \"dtype\": " + Quote(result.dtype) + ", \"shape\": " + Quote(result.shape) +
                     ",\n     \"outcome\": " + Quote(OutcomeName(result.outcome)) +
                     ", \"status\": " + Quote(result.status) + ", \"why\": " + Quote(result.why);
  text += ",\n     \"max_error\": ";
  text += result.status == "success" ? Number(result.max_error) : "null";
  text +=
      ", \"tolerance\": " + Number(result.tolerance) + ",\n     \"operators\": " + Array(result.operators);
  return text + ", \"samples\": " + Samples(result) + "}";
}

std::string Join(const std::vector<std::string>& texts, const char* between) {
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : between) + text;
  return joined;
}

}  // namespace

bool AllPassed(const std::vector<Result>& results) {
  return std::none_of(results.begin(), results.end(),
                      [](const Result& result) { return result.outcome == Outcome::kFailed; });
}

std::string Table(const Cpu& cpu, const std::vector<Result>& results) {
  std::string text = "XNNPACK " + XnnpackVersion() + ", KleidiAI " +
                     (KleidiaiVersion().empty() ? "none" : KleidiaiVersion()) + "\nCPU: " + cpu.name + " (" +
                     Join(cpu.features, " ") + ")\n\n";
  std::size_t width = 0;
  for (const Result& result : results) width = std::max(width, result.name.size());
  for (const Result& result : results) {
    std::string name = result.name;
    name.resize(width, ' ');
    text += name + "  " + OutcomeName(result.outcome);
    if (result.status == "success") {
      text += "  error " + Format("%.3g", result.max_error) + " of " + Format("%.3g", result.tolerance) +
              "  " + Join(result.operators, " > ");
    } else {
      text += "  (" + result.status + ")";
    }
    text += (result.why.empty() ? "" : ": " + result.why) + "\n";
  }
  const auto count = [&](Outcome outcome) {
    return std::to_string(std::count_if(results.begin(), results.end(),
                                        [&](const Result& result) { return result.outcome == outcome; }));
  };
  return text + "\n" + count(Outcome::kPassed) + " passed, " + count(Outcome::kFailed) + " failed, " +
         count(Outcome::kUnsupported) + " unsupported by this CPU\n";
}

std::string Json(const Cpu& cpu, const std::vector<Result>& results) {
  std::string text = "{\n  \"schema_version\": 1,\n  \"xnnpack\": {\"version\": " + Quote(XnnpackVersion()) +
                     ", \"build_identifier\": " + Quote(BuildIdentifier()) +
                     "},\n  \"kleidiai\": " + Quote(KleidiaiVersion()) +
                     ",\n  \"cpu\": {\"name\": " + Quote(cpu.name) +
                     ", \"features\": " + Array(cpu.features) +
                     "},\n  \"passed\": " + (AllPassed(results) ? "true" : "false") + ",\n  \"cases\": [\n";
  for (std::size_t i = 0; i < results.size(); ++i) {
    text += CaseJson(results[i]) + (i + 1 < results.size() ? ",\n" : "\n");
  }
  return text + "  ]\n}\n";
}

}  // namespace proof
