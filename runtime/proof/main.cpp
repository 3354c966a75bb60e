#include <xnnpack.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "attempt.h"
#include "cases.h"
#include "cpu.h"
#include "report.h"
#include "run.h"
#include "sampler.h"

namespace {

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
  if (options.sample_ms > 0 && !proof::Sampler::Available()) {
    options.error = "xnnpack_proof: there is no sampling on this system";
  }
  return options;
}

// The cases that were asked for; an error for a name that none has.
std::vector<proof::Case> Choose(const std::vector<proof::Case>& all, Options* options) {
  if (options->cases.empty()) return all;
  std::vector<proof::Case> chosen;
  for (const std::string& name : options->cases) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const proof::Case& item) { return item.name == name; });
    if (found == all.end()) {
      options->error = "xnnpack_proof: there is no case " + name + " (see --list)";
    } else {
      chosen.push_back(*found);
    }
  }
  return chosen;
}

}  // namespace

int main(int argc, char** argv) {
  Options options = Parse(argc, argv);
  const std::vector<proof::Case> all = proof::AllCases();
  const std::vector<proof::Case> chosen = Choose(all, &options);
  if (!options.error.empty()) {
    std::fprintf(stderr, "%s\n%s", options.error.c_str(), kUsage);
    return kUsageError;
  }
  if (options.help) {
    std::fputs(kUsage, stdout);
    return kRight;
  }
  if (options.list) {
    for (const proof::Case& item : chosen) std::puts(item.name.c_str());
    return kRight;
  }
  const proof::Cpu cpu = proof::ReadCpu();
  const xnn_status status = xnn_initialize(nullptr);
  if (!cpu.known || status != xnn_status_success) {
    std::fprintf(stderr, "xnnpack_proof: cpuinfo %s this CPU; XNNPACK's initialization: %s\n",
                 cpu.known ? "knows" : "does not know", proof::StatusName(status));
    return kRefused;
  }
  std::vector<proof::Result> results;
  for (const proof::Case& item : chosen) results.push_back(proof::RunCase(item, cpu, options.sample_ms));
  std::fputs((options.json ? proof::Json(cpu, results) : proof::Table(cpu, results)).c_str(), stdout);
  return proof::AllPassed(results) ? kRight : kWrong;
}
