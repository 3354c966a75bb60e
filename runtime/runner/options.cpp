#include "runner/options.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/platform.h"

namespace slipway {
namespace {

constexpr const char* kHelpHint = "see pte_runner --help";

Status usage(const std::string& message, const std::string& fix = kHelpHint) {
  return {Code::kUsage, message, fix};
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) {
      return parts;
    }
    begin = end + 1;
  }
}

bool parse_number(std::string_view text, std::int64_t limit, std::int64_t* value) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string_view::npos) {
    return false;
  }
  *value = std::stoll(std::string(text));
  return *value <= limit;
}

constexpr unsigned kMost = 1000000;
constexpr unsigned kMostJumps = 1000000000;

// What a flag does: `name` begins with its dashes, `value` is empty for flags that take none.
using Setter = Status (*)(Options* options, const std::string& name, const std::string& value);

Status need_value(Options* /*options*/, const std::string& name, const std::string& value) {
  return value.empty() ? usage(name + " needs a value.") : Status();
}

// The member of the options themselves, of what the engine is told, or of how tokens are chosen.
template <typename Member>
Member& member_of(Options* options, Member Options::* member) {
  return options->*member;
}
template <typename Member>
Member& member_of(Options* options, Member EngineOptions::* member) {
  return options->engine.*member;
}
template <typename Member>
Member& member_of(Options* options, Member Sampling::* member) {
  return options->sampling.*member;
}

template <auto kMember>
Status set_text(Options* options, const std::string& name, const std::string& value) {
  member_of(options, kMember) = value;
  return need_value(options, name, value);
}

template <auto kMember, unsigned kLeast, unsigned kGreatest>
Status set_count(Options* options, const std::string& name, const std::string& value) {
  std::int64_t number = 0;
  if (!parse_number(value, kGreatest, &number) || number < kLeast) {
    return usage(name + " wants a whole number from " + std::to_string(kLeast) + " to " +
                 std::to_string(kGreatest) + ", not '" + value + "'.");
  }
  auto& member = member_of(options, kMember);
  member = static_cast<std::remove_reference_t<decltype(member)>>(number);
  return {};
}

template <auto kMember>
Status set_switch(Options* options, const std::string& /*name*/, const std::string& /*value*/) {
  member_of(options, kMember) = true;
  return {};
}

template <Action kAction>
Status set_action(Options* options, const std::string& /*name*/, const std::string& /*value*/) {
  if (options->action != Action::kRun && options->action != kAction) {
    return usage("--describe, --roofline, --capabilities, --version and --help exclude each other.");
  }
  options->action = kAction;
  return {};
}

template <std::vector<std::string> Options::* kMember>
Status set_names(Options* options, const std::string& name, const std::string& value) {
  std::vector<std::string>& names = options->*kMember;
  names = split(value, ',');
  if (std::find(names.begin(), names.end(), "") != names.end()) {
    return usage(name + " has an empty name in '" + value + "'.",
                 name == "--inputs" ? "give a.npy,b.npy, without blanks" : "give A,B, without blanks");
  }
  return {};
}

Status set_shapes(Options* options, const std::string& /*name*/, const std::string& value) {
  SLIPWAY_TRY(options->input_shapes, parse_shapes(value));
  return {};
}

constexpr const char* kProviders[] = {"xnnpack", "cpu"};
constexpr const char* kOnOff[] = {"on", "off"};

// One of two words.
template <auto kMember, auto& kWords>
Status set_choice(Options* options, const std::string& name, const std::string& value) {
  member_of(options, kMember) = value;
  return value == kWords[0] || value == kWords[1]
             ? Status()
             : usage(name + " cannot be '" + value + "'.",
                     name + " " + kWords[0] + ", or " + name + " " + kWords[1]);
}

// "prefill=a.npy,b.npy", or "prefill" alone.
Status add_run(Options* options, const std::string& name, const std::string& value) {
  SLIPWAY_RETURN_IF_ERROR(need_value(options, name, value));
  const std::size_t equals = value.find('=');
  EarlierRun run{value.substr(0, equals), {}};
  if (equals != std::string::npos) {
    run.inputs = split(value.substr(equals + 1), ',');
  }
  if (run.method.empty() || std::find(run.inputs.begin(), run.inputs.end(), "") != run.inputs.end()) {
    return usage("--run_first has an empty name in '" + value + "'.",
                 "give METHOD=a.npy,b.npy, without blanks");
  }
  options->run_first.push_back(std::move(run));
  return {};
}

// "-sme2,-i8mm": what is left unused.
Status set_features(Options* options, const std::string& /*name*/, const std::string& value) {
  options->engine.unused_features.clear();
  for (const std::string& word : split(value, ',')) {
    if (word.size() < 2 || word.front() != '-') {
      return usage("--cpu_features cannot be '" + value + "'.",
                   "a minus before each feature to leave unused: --cpu_features=-sme2,-i8mm");
    }
    options->engine.unused_features.push_back(word.substr(1));
  }
  return {};
}

// "1,2", which are added to the program's own; "none": nothing ends a text early.
Status set_stops(Options* options, const std::string& /*name*/, const std::string& value) {
  options->own_stops = value != "none";
  options->stops.clear();
  for (const std::string& word : options->own_stops ? split(value, ',') : std::vector<std::string>()) {
    std::int64_t token = 0;
    if (!parse_number(word, INT32_MAX, &token)) {
      return usage("--stops cannot be '" + value + "'.", "--stops 1,2 for tokens by number, or --stops none");
    }
    options->stops.push_back(token);
  }
  return {};
}

// A share above 0, or a temperature.
template <auto kMember, bool kShare>
Status set_real(Options* options, const std::string& name, const std::string& value) {
  char* end = nullptr;
  const double real = std::strtod(value.c_str(), &end);
  member_of(options, kMember) = real;
  const bool inside = kShare ? real > 0 && real <= 1 : real >= 0 && real <= 100;
  return !value.empty() && *end == '\0' && inside
             ? Status()
             : usage(name + " wants " + (kShare ? "a number above 0, at most 1" : "a number from 0 to 100") +
                     ", not '" + value + "'.");
}

struct Flag {
  const char* name;
  Setter set;
  bool takes_value = true;
};

constexpr bool kAlone = false;  // a flag that takes no value

constexpr Flag kFlags[] = {
    {"model_path", set_text<&Options::model_path>},
    {"data_path", set_text<&Options::data_path>},
    {"inputs", set_names<&Options::inputs>},
    {"input_shapes", set_shapes},
    {"output_file", set_text<&Options::output_prefix>},
    {"num_executions", set_count<&Options::num_executions, 1, kMost>},
    {"warmup", set_count<&Options::warmup, 0, kMost>},
    {"cpu_threads", set_count<&Options::cpu_threads, 1, kMostThreads>},
    {"method_name", set_text<&Options::method_name>},
    {"also_load", set_names<&Options::also_load>},
    {"run_first", add_run},
    {"profile_path", set_text<&Options::profile_path>},
    {"etdump_path", set_text<&Options::profile_path>},
    {"dump_intermediate", set_text<&Options::values_path>},
    {"generate", set_count<&Options::generate, 1, kMost>},
    {"prompt", set_text<&Options::prompt_path>},
    {"stops", set_stops},
    {"temperature", set_real<&Sampling::temperature, false>},
    {"top_k", set_count<&Sampling::top_k, 0, INT32_MAX>},
    {"top_p", set_real<&Sampling::top_p, true>},
    {"seed", set_count<&Sampling::seed, 0, INT32_MAX>},
    {"stream", set_switch<&Options::stream>, kAlone},
    {"turns", set_switch<&Options::turns>, kAlone},
    {"profile", set_switch<&Options::profile>, kAlone},
    {"count_instructions", set_switch<&Options::count_instructions>, kAlone},
    {"provider", set_choice<&EngineOptions::provider, kProviders>},
    {"ort_threads", set_count<&EngineOptions::ort_threads, 1, kMostThreads>},
    {"ort_spinning", set_switch<&EngineOptions::ort_spinning>, kAlone},
    {"weights_cache", set_text<&EngineOptions::weights_cache>},
    {"kleidiai", set_choice<&EngineOptions::kleidiai, kOnOff>},
    {"cpu_features", set_features},
    {"max_jumps", set_count<&EngineOptions::max_jumps, 1, kMostJumps>},
    {"trust_provider", set_switch<&EngineOptions::trust_provider>, kAlone},
    {"json", need_value},  // find_json has read it
    {"digests", set_switch<&Options::digests>, kAlone},
    {"describe", set_action<Action::kDescribe>, kAlone},
    {"roofline", set_action<Action::kRoofline>, kAlone},
    {"capabilities", set_action<Action::kCapabilities>, kAlone},
    {"version", set_action<Action::kVersion>, kAlone},
    {"help", set_action<Action::kHelp>, kAlone},
};

Status check(const Options& options) {
  const bool needs_model = options.action == Action::kRun || options.action == Action::kDescribe;
  if (needs_model && options.model_path.empty()) {
    return usage("--model_path is missing.", "pte_runner --model_path FILE.pte");
  }
  if ((options.generate != 0) != !options.prompt_path.empty()) {
    return usage("--prompt and --generate belong together.", "--prompt TOKENS.npy --generate 32");
  }
  if (options.turns && options.generate == 0) {
    return usage("--turns goes with --prompt.", "--prompt TOKENS.npy --generate 32 --stream --turns");
  }
  if (options.generate != 0 && (!options.inputs.empty() || !options.input_shapes.empty() ||
                                !options.run_first.empty() || !options.values_path.empty())) {
    return usage("--generate makes the inputs itself.",
                 "drop --inputs, --input_shapes, --run_first and --dump_intermediate");
  }
  if (!options.values_path.empty() &&
      (options.profile_path.empty() || options.num_executions != 1 || options.warmup != 0)) {
    return usage("--dump_intermediate needs --etdump_path and a single execution.",
                 "--dump_intermediate FILE --etdump_path FILE --num_executions 1 --warmup 0");
  }
  return {};
}

}  // namespace

JsonWish find_json(const std::vector<std::string>& words) {
  JsonWish wish;
  for (const std::string& word : words) {
    if (word == "--json") {
      wish = {true, ""};
    } else if (word.rfind("--json=", 0) == 0) {
      wish = {true, word.substr(7)};
    }
  }
  return wish;
}

Result<std::vector<Shape>> parse_shapes(const std::string& text) {
  std::vector<Shape> shapes;
  for (const std::string& part : split(text, ',')) {
    Shape shape;
    if (part != "scalar") {
      for (const std::string& word : split(part, 'x')) {
        std::int64_t dim = 0;
        if (!parse_number(word, INT32_MAX, &dim)) {
          return usage("--input_shapes has the unreadable shape '" + part + "'.", "give 1x3x224x224,1x8");
        }
        shape.push_back(dim);
      }
    }
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

Result<Options> parse_options(const std::vector<std::string>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--json") {
      continue;
    }
    if (word.rfind("--", 0) != 0) {
      return usage("'" + word + "' is not a flag.");
    }
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    const Flag* flag = std::find_if(std::begin(kFlags), std::end(kFlags),
                                    [&](const Flag& candidate) { return name == candidate.name; });
    if (flag == std::end(kFlags)) {
      return usage("Unknown flag --" + name + ".");
    }
    if (flag->takes_value ? equals == std::string::npos && i + 1 == words.size()
                          : equals != std::string::npos) {
      return usage("--" + name + (flag->takes_value ? " needs a value." : " takes no value."));
    }
    const std::string value = !flag->takes_value            ? ""
                              : equals == std::string::npos ? words[++i]
                                                            : word.substr(equals + 1);
    SLIPWAY_RETURN_IF_ERROR(flag->set(&options, "--" + name, value));
  }
  SLIPWAY_RETURN_IF_ERROR(check(options));
  return options;
}

std::string help_text() {
  return R"(pte_runner: run a program on this device and measure it.

  pte_runner --model_path FILE [flags]                 run
  pte_runner --model_path FILE --describe              what the program asks for, without running it
  pte_runner --capabilities                            what this runner offers
  pte_runner --roofline                                what this processor can do at most

Flags are --flag=value or --flag value.
  --model_path FILE       the program: .pte, or .onnx and .ort for the engine onnxruntime
  --data_path FILE        weights stored apart from it (.ptd)
  --method_name NAME      the method to run (default: forward)
  --also_load A,B         methods that are made ready besides, as an application that uses several does
  --run_first M=A.npy,..  method M runs once before, with these inputs (none: ones); what it leaves in buffers that
                          methods share, the measured method finds. May be given several times
  --inputs A.npy,B.npy    the inputs, in the method's order
  --input_shapes 1x8,2x3  inputs of ones in these shapes; without this and --inputs: the declared shapes. ONNX
                          Runtime takes sizes that an .onnx leaves open as fixed to these, also with --inputs
  --output_file PREFIX    write the outputs as PREFIX0.npy, PREFIX1.npy, ...
  --prompt FILE.npy       the tokens (int64) that a language model reads before it writes
  --generate N            write at most N tokens after them, each of which the model reads to write the next
  --stops 1,2             tokens that end the text, beside those that the program names; none: nothing ends it early
  --temperature T --top_k K --top_p P --seed S
                          how the next token is chosen (default: T 0, always the likeliest; K 0 and P 1: among all)
  --stream                print each token when it is there, as "token 123"
  --turns                 go on with turn1.npy when turn1.end is there, then turn2.npy, ...: int64, how many of the
                          tokens read so far stay (-1: that was all), and tokens to read after these
  --num_executions N      timed executions (default: 1)
  --warmup N              executions before those, not timed (default: 0)
  --cpu_threads N         threads (default: one a physical core)
  --profile               the profile of the timed executions by operators, in the result; recording costs time
  --count_instructions    the instructions of each timed execution, in the result, where the device counts them:
                          Slipway's own virtual devices do
  --profile_path FILE     record the engine's own profile (ETDump, or ONNX Runtime's JSON); warm-up executions
                          are in it (--etdump_path is the same)
  --dump_intermediate FILE  also write the tensors that operators gave, which --etdump_path names: of one execution
  --provider NAME         onnxruntime: xnnpack (default) or cpu
  --ort_threads N         onnxruntime: threads of its own pool (default: 1; with --provider cpu: --cpu_threads)
  --ort_spinning          onnxruntime: let that pool's threads spin while they wait
  --weights_cache FILE    lean: keep packed weights in FILE and map them from there the next time: nothing is packed
                          then. A FILE that is damaged or made for something else is made again
  --kleidiai on|off       lean: compute without KleidiAI's kernels, or with them (default: on where they are built in)
  --cpu_features -A,-B    lean: leave features of this CPU unused and compute as a lesser one would: -sme2,-i8mm,
                          or -avx512f. Features that build on one are left unused with it
  --max_jumps N           lean: how often one execution may jump backwards, as loops do (default: 10000000)
  --trust_provider        onnxruntime: give XNNPACK's provider what it is known to get wrong, too
  --digests               SHA-256 of the files that ran, in the result, also where they take more than 5 % of the
                          time so far
  --json, --json=FILE     the result, or the error, as JSON to standard output or to FILE
  --roofline              measure here how many operations a second the processor does in float32, and how many bytes
                          a second it reads from memory: with one thread, and with all or --cpu_threads
  --describe, --capabilities, --version, --help
                          the first two and --roofline always print JSON

Tensors are NumPy .npy files, version 1.0, little-endian, C order. bfloat16 is two-byte void ('|V2', the bits
as they are), read and written.

Exit codes: 0 done, 2 command line, 3 program file, 4 missing operator, 5 missing backend, 6 input,
7 execution, 8 output cannot be written, 9 out of memory, 10 crash (a defect of Slipway or of the device),
11 a limit on rounds was reached.
)";
}

}  // namespace slipway
