#include <xnnpack.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "run.h"

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

bool AllPassed(const std::vector<Result>& results) {
  return std::none_of(results.begin(), results.end(),
                      [](const Result& result) { return result.outcome == Outcome::kFailed; });
}

// A table for people.
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

// One JSON document. It holds no times: the same program on the same CPU says the same, but for samples.
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

constexpr char kUsage[] =
    "xnnpack_proof [--json] [--list] [--case NAME]... [--samples MILLISECONDS]\n"
    "Computes small graphs with XNNPACK and compares the results with a reference in plain C++.\n"
    "  --json       print one JSON document instead of a table\n"
    "  --list       print the cases' names and end\n"
    "  --case NAME  run this case only; may be given more than once\n"
    "  --samples MS repeat each case for this much processor time and note the program counter (not on "
    "Windows)\n"
    "Exit codes: 0 all right, 1 a case failed, 2 wrong usage, 3 XNNPACK refuses this CPU\n";

enum ExitCode { kRight = 0, kWrong = 1, kUsageError = 2, kRefused = 3 };

struct Options {
  bool json = false, list = false, help = false;
  unsigned sample_ms = 0;
  std::vector<std::string> cases;
  std::string error;
};

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--json") {
      options.json = true;
    } else if (word == "--list") {
      options.list = true;
    } else if (word == "--help") {
      options.help = true;
    } else if (word == "--case" && has_value) {
      options.cases.emplace_back(argv[++i]);
    } else if (word == "--samples" && has_value && std::atoi(argv[i + 1]) > 0) {
      options.sample_ms = static_cast<unsigned>(std::atoi(argv[++i]));
    } else {
      options.error = "xnnpack_proof: " + word + " is unknown, or its value is missing or wrong";
    }
  }
  if (options.sample_ms > 0 && !Sampler::Available()) {
    options.error = "xnnpack_proof: there is no sampling on this system";
  }
  return options;
}

// The cases that were asked for; an error for a name that none has.
std::vector<Case> Choose(const std::vector<Case>& all, Options* options) {
  if (options->cases.empty()) return all;
  std::vector<Case> chosen;
  for (const std::string& name : options->cases) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Case& item) { return item.name == name; });
    if (found == all.end()) {
      options->error = "xnnpack_proof: there is no case " + name + " (see --list)";
    } else {
      chosen.push_back(*found);
    }
  }
  return chosen;
}

}  // namespace
}  // namespace proof

int main(int argc, char** argv) {
  using namespace proof;
  Options options = Parse(argc, argv);
  const std::vector<Case> all = AllCases();
  const std::vector<Case> chosen = Choose(all, &options);
  if (!options.error.empty()) {
    std::fprintf(stderr, "%s\n%s", options.error.c_str(), kUsage);
    return kUsageError;
  }
  if (options.help) {
    std::fputs(kUsage, stdout);
    return kRight;
  }
  if (options.list) {
    for (const Case& item : chosen) std::puts(item.name.c_str());
    return kRight;
  }
  const Cpu cpu = ReadCpu();
  const xnn_status status = xnn_initialize(nullptr);
  if (!cpu.known || status != xnn_status_success) {
    std::fprintf(stderr, "xnnpack_proof: cpuinfo %s this CPU; XNNPACK's initialization: %s\n",
                 cpu.known ? "knows" : "does not know", StatusName(status));
    return kRefused;
  }
  std::vector<Result> results;
  for (const Case& item : chosen) results.push_back(RunCase(item, cpu, options.sample_ms));
  std::fputs((options.json ? Json(cpu, results) : Table(cpu, results)).c_str(), stdout);
  return AllPassed(results) ? kRight : kWrong;
}
