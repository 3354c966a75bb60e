#include "runner/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include "base/platform.h"
#include "base/text.h"
#include "runner/crash_guard.h"
#include "runner/files/digests.h"
#include "runner/files/npy.h"
#include "runner/inputs.h"
#include "runner/measure.h"
#include "runner/options.h"
#include "runner/report/report.h"
#include "runner/roofline.h"

namespace slipway {
namespace {

using Clock = std::chrono::steady_clock;

const Clock::time_point g_start = Clock::now();

// Of the time since the start: what digests of the files that ran may cost.
constexpr double kDigestShare = 0.05;

// Where results and errors go; the handlers below need it when there is no way back to run_command.
JsonWish g_json;

Status print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return {Code::kOutput, "Cannot write to standard output.",
            "free some space, or check the pipe's other end"};
  }
  return {};
}

// JSON to standard output, or to the file that the command line names.
Status publish(const std::string& json) {
  const std::string line = json + "\n";
  return g_json.path.empty() ? print(line) : write_file(g_json.path, {{line.data(), line.size()}});
}

// The result as the command line wants it: JSON alone, the text alone, or JSON to a file and the text.
Status publish(const std::string& json, const std::string& text) {
  const Status status = g_json.wanted ? publish(json) : Status();
  const bool only_json = g_json.wanted && g_json.path.empty();
  return only_json || !status.ok() ? status : print(printable(text));
}

int fail(const Status& status) {
  std::fputs(printable(error_text(status)).c_str(), stderr);
  if (g_json.wanted) {
    const Status written = publish(error_json(status));
    if (!written.ok()) {
      std::fputs(printable(error_text(written)).c_str(), stderr);
    }
  }
  return static_cast<int>(status.code());
}

// Memory to say so with when there is no other left.
std::unique_ptr<char[]>& reserve() {
  static auto memory = std::make_unique<char[]>(std::size_t{256} * 1024);
  return memory;
}

// Also reached from inside libraries that cannot pass an exception on.
void on_no_memory() {
  std::set_new_handler(nullptr);
  reserve().reset();
  std::_Exit(fail(out_of_memory()));
}

void on_abort(const char* message) {
  const int code = fail({Code::kExecution, std::string("The engine gave up: ") + message,
                         "check the inputs' values; the program may hold a kernel bug"});
  std::_Exit(code);
}

// Method by method, in the order in which they were given, each with its inputs.
using EarlierInputs = std::vector<std::pair<MethodInfo, std::vector<Tensor>>>;

Result<EarlierInputs> prepare_earlier(const Options& options, const ProgramInfo& program) {
  EarlierInputs all;
  for (const EarlierRun& earlier : options.run_first) {
    SLIPWAY_TRY(const MethodInfo method, find_method(options, earlier.method, program));
    Options own = options;
    own.inputs = earlier.inputs;
    own.input_shapes.clear();
    std::string note;
    SLIPWAY_TRY(std::vector<Tensor> inputs, prepare_inputs(own, method, &note));
    all.emplace_back(method, std::move(inputs));
  }
  return all;
}

Status run_earlier(const Options& options, Engine& engine, const EarlierInputs& all) {
  for (const auto& [method, inputs] : all) {
    SLIPWAY_RETURN_IF_ERROR(engine.choose(method.name));
    SLIPWAY_RETURN_IF_ERROR(engine.set_inputs(inputs));
    SLIPWAY_RETURN_IF_ERROR(blame_inputs(engine.execute(), method, inputs));
  }
  return all.empty() ? Status() : engine.choose(options.method_name);
}

TensorReport report_of(const Tensor& tensor) {
  return {tensor.dtype, tensor.shape, sha256_hex(tensor.bytes.data(), tensor.bytes.size()), ""};
}

Status write_outputs(const Options& options, const std::vector<Tensor>& outputs, RunReport* report) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    report->outputs.push_back(report_of(outputs[i]));
    if (!options.output_prefix.empty()) {
      const std::string path = options.output_prefix + std::to_string(i) + ".npy";
      const std::vector<std::uint8_t> file = format_npy(outputs[i]);
      SLIPWAY_RETURN_IF_ERROR(write_file(path, {{file.data(), file.size()}}));
      report->outputs.back().file = path;
    }
  }
  return {};
}

// One token a line, each at once.
Status tell_token(const Options& options, std::int64_t token) {
  std::FILE* stream = g_json.wanted && g_json.path.empty() ? stderr : stdout;
  const bool told =
      !options.stream ||
      (std::fprintf(stream, "token %lld\n", static_cast<long long>(token)) > 0 && std::fflush(stream) == 0);
  return told ? Status() : print("");
}

// "turn stop 41 1024 12 83.0 9 310.5": why the text ended, the tokens that the model holds and can hold (0:
// unknown); of all texts so far the tokens read at once, their milliseconds; the further ones and theirs.
Status tell_turn(const Generated& found, std::int64_t position) {
  const double took = std::accumulate(found.token_ms.begin(), found.token_ms.end(), 0.0);
  return print("turn " + std::string(found.ended) + " " + std::to_string(position) + " " +
               std::to_string(found.model.context) + " " + std::to_string(found.prompt_tokens) + " " +
               std::to_string(found.prompt_ms) + " " + std::to_string(found.token_ms.size()) + " " +
               std::to_string(took) + "\n");
}

// Runs what is measured; the outputs.
Result<std::vector<Tensor>> run_measured(const Options& options, Engine& engine, const ProgramInfo& program,
                                         const MethodInfo& method, const std::vector<Tensor>& inputs,
                                         RunReport* report) {
  if (options.generate == 0) {
    SLIPWAY_RETURN_IF_ERROR(measure(options, engine, method, inputs, &report->measured));
    report->peak_rss = peak_rss_bytes();
    return engine.outputs();
  }
  const TextListener listener = {[&](std::int64_t token) { return tell_token(options, token); }, tell_turn};
  SLIPWAY_TRY(Generated text, generate(options, engine, program, method, listener));
  report->peak_rss = peak_rss_bytes();
  report->measured.latencies_ms = text.token_ms;
  if (report->measured.latencies_ms.empty()) {
    report->measured.latencies_ms = {text.prompt_ms};
  }
  report->measured.instructions = text.instructions;
  report->generated = std::move(text);
  return outputs_of(*report->generated);
}

Status write_profile(const Options& options, Engine& engine, RunReport* report) {
  if (options.profile) {
    SLIPWAY_TRY(const std::vector<ProfileRow> rows, engine.profile_rows(options.num_executions));
    report->profiled = true;
    report->profile = rows;
  }
  if (options.profile_path.empty()) {
    return {};
  }
  SLIPWAY_TRY(const std::vector<std::uint8_t> profile, engine.profile());
  SLIPWAY_RETURN_IF_ERROR(write_file(options.profile_path, {{profile.data(), profile.size()}}));
  if (options.values_path.empty()) {
    return {};
  }
  SLIPWAY_TRY(const std::vector<std::uint8_t> values, engine.values());
  return write_file(options.values_path, {{values.data(), values.size()}});
}

// After everything that is measured: reading the files warms caches and counts as resident memory.
std::vector<FileDigest> digests_of(const Options& options, const ProgramInfo& program) {
  std::vector<std::string> paths = {options.model_path};
  const std::string folder = options.model_path.substr(0, options.model_path.find_last_of("/\\") + 1);
  for (const std::string& name : program.data_files) {
    paths.push_back(folder + name);
  }
  if (!options.data_path.empty()) {
    paths.push_back(options.data_path);
  }
  const CrashGuard guard("read " + options.model_path + " once more", g_json);
  return digest_files(paths, options.digests ? INFINITY : kDigestShare * milliseconds_since(g_start));
}

// A run without its cache is a run all the same.
void keep_weights(const Options& options, Engine& engine, RunReport* report) {
  const CrashGuard guard("wrote " + options.engine.weights_cache, g_json);
  engine.keep_weights();
  report->weights = engine.weights();
  if (report->weights && report->weights->cache && report->weights->cache->state == "none") {
    std::fprintf(stderr, "%s",
                 printable("pte_runner: no weights cache: " + report->weights->cache->why + "\n").c_str());
  }
}

Status run(const Options& options, Engine& engine) {
  std::optional<CrashGuard> guard(std::in_place, "read " + options.model_path, g_json);
  SLIPWAY_TRY(const ProgramInfo program, engine.describe(options.model_path));
  SLIPWAY_TRY(const MethodInfo method, find_method(options, options.method_name, program));
  RunReport report;
  report.engine = engine.info();
  report.capabilities = engine.capabilities();
  SLIPWAY_RETURN_IF_ERROR(check_offers(options, method, report.capabilities));
  for (const std::string& name : also_loaded(options)) {
    SLIPWAY_TRY(const MethodInfo other, find_method(options, name, program));
    SLIPWAY_RETURN_IF_ERROR(check_offers(options, other, report.capabilities));
  }
  std::string note;
  SLIPWAY_TRY(const std::vector<Tensor> inputs, options.generate != 0
                                                    ? Result<std::vector<Tensor>>(std::vector<Tensor>())
                                                    : prepare_inputs(options, method, &note));
  if (!note.empty()) {
    std::fprintf(stderr, "pte_runner: %s\n", note.c_str());
  }
  SLIPWAY_TRY(const EarlierInputs earlier, prepare_earlier(options, program));
  const unsigned wanted =
      options.cpu_threads != 0 ? options.cpu_threads : std::min(usable_cores(), kMostThreads);
  SLIPWAY_RETURN_IF_ERROR(check_threads(wanted));
  SLIPWAY_TRY(const unsigned threads, engine.set_threads(wanted));
  SLIPWAY_RETURN_IF_ERROR(check_planned(options, program));
  guard.emplace("loaded " + options.model_path, g_json);
  const Clock::time_point start = Clock::now();
  const bool profile = options.profile || !options.profile_path.empty();
  LoadOptions load{options.model_path, options.data_path, options.method_name, also_loaded(options), profile};
  load.values = !options.values_path.empty();
  load.shapes = options.input_shapes;
  if (options.generate != 0) {
    const std::vector<std::string> others = text_methods_of(program);
    load.also.insert(load.also.end(), others.begin(), others.end());
  }
  const Status status = engine.load(load);
  report.load_ms = milliseconds_since(start);
  SLIPWAY_RETURN_IF_ERROR(status);
  guard.emplace("executed method " + options.method_name, g_json);
  SLIPWAY_RETURN_IF_ERROR(run_earlier(options, engine, earlier));
  const Result<std::vector<Tensor>> outputs = run_measured(options, engine, program, method, inputs, &report);
  guard.reset();
  SLIPWAY_RETURN_IF_ERROR(outputs);
  report.program_path = options.model_path;
  report.program_size = program.size;
  report.method = options.method_name;
  report.warmup = options.generate != 0 ? 0 : std::max(options.warmup, engine.least_warmup());
  report.threads = threads;
  report.cpu = cpu_info();
  report.settings = engine.settings();
  report.placement = engine.placement();
  report.kernels = engine.kernels();
  report.fallbacks = engine.fallbacks();
  keep_weights(options, engine, &report);
  for (const Tensor& input : inputs) {
    report.inputs.push_back(report_of(input));
  }
  SLIPWAY_RETURN_IF_ERROR(write_outputs(options, outputs.value(), &report));
  SLIPWAY_RETURN_IF_ERROR(write_profile(options, engine, &report));
  report.digests = digests_of(options, program);
  return publish(run_json(report), run_text(report));
}

Status describe(const Options& options, Engine& engine) {
  std::optional<CrashGuard> guard(std::in_place, "described " + options.model_path, g_json);
  SLIPWAY_TRY(ProgramInfo program, engine.describe(options.model_path));
  std::vector<std::string> lacking;
  const Status status = engine.examine(options.model_path, &lacking);
  for (MethodInfo& method : program.methods) {
    method.kernels = engine.kernels_of(options.model_path, method.name);
  }
  guard.reset();
  SLIPWAY_RETURN_IF_ERROR(status);
  const Capabilities capabilities = engine.capabilities();
  return publish(describe_json(engine.info(), options.model_path, program, capabilities, lacking));
}

Status roofline(const Options& options) {
  const CrashGuard guard("measured what the processor can do", g_json);
  SLIPWAY_TRY(const Roofline found,
              measure_roofline(options.cpu_threads != 0 ? options.cpu_threads : usable_cores()));
  return publish(roofline_json(found, cpu_info()));
}

Status act(const Options& options) {
  if (options.action == Action::kHelp) {
    return print(help_text());
  }
  if (options.action == Action::kRoofline) {
    return roofline(options);
  }
  const std::unique_ptr<Engine> engine = make_engine(on_abort);
  const EngineInfo info = engine->info();
  if (options.action == Action::kVersion) {
    return print("pte_runner " SLIPWAY_VERSION " (" + info.name + " " + info.version + ")\n");
  }
  if (options.action == Action::kCapabilities) {
    return publish(capabilities_json(info, engine->capabilities(), cpu_info()));
  }
  SLIPWAY_RETURN_IF_ERROR(engine->configure(options.engine));
  return options.action == Action::kDescribe ? describe(options, *engine) : run(options, *engine);
}

}  // namespace

int run_command(const std::vector<std::string>& words) {
  g_json = find_json(words);
  reserve();
  std::set_new_handler(on_no_memory);
#ifdef SIGXFSZ
  std::signal(SIGXFSZ, SIG_IGN);  // writing beyond the limit on file sizes is an error, not the end
#endif
  try {
    const Result<Options> options = parse_options(words);
    const Status status = options.ok() ? act(options.value()) : options.status();
    return status.ok() ? 0 : fail(status);
  } catch (const std::bad_alloc&) {
    return fail(out_of_memory());
  } catch (const std::exception& error) {
    return fail({Code::kCrash,
                 std::string("Unexpected failure: ") + error.what() + ". This is a defect of Slipway.",
                 "report it with the program and this message"});
  }
}

}  // namespace slipway
