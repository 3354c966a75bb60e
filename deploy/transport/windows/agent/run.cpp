// Programs under supervision: each in a job of its own, which Windows ends with this process, whatever ends
// that.

#include "agent.h"

#include <cstdio>

namespace agent {

namespace {

// Ends everything when the other side closes the command's input, as a broken connection does by itself.
DWORD WINAPI lifeline(void*) {
  char piece[256];
  DWORD count = 0;
  const HANDLE input = GetStdHandle(STD_INPUT_HANDLE);
  while (ReadFile(input, piece, sizeof piece, &count, nullptr) != 0 && count > 0) {
  }
  TerminateProcess(GetCurrentProcess(), kEnded);
  return 0;
}

DWORD WINAPI timer(void* seconds) {
  Sleep(static_cast<DWORD>(reinterpret_cast<uintptr_t>(seconds)) * 1000);
  TerminateProcess(GetCurrentProcess(), kEnded);
  return 0;
}

// A word as CommandLineToArgvW, and so every C library, reads it back.
std::wstring quoted(const std::wstring& word) {
  if (!word.empty() && word.find_first_of(L" \t\"") == std::wstring::npos) {
    return word;
  }
  std::wstring found = L"\"";
  size_t backslashes = 0;
  for (const wchar_t c : word) {
    if (c == L'\\') {
      ++backslashes;
      continue;
    }
    found.append(c == L'"' ? 2 * backslashes + 1 : backslashes, L'\\');
    backslashes = 0;
    found += c;
  }
  found.append(2 * backslashes, L'\\');
  return found + L'"';
}

// Paths with a drive, alone or after an option's name, as programs know them: --model=/C:/x becomes
// --model=C:/x.
std::string known(const std::string& word) {
  const size_t at = word.rfind('/', 0) == 0                ? 0
                    : word.find("=/") == std::string::npos ? word.size()
                                                           : word.find("=/") + 1;
  const bool drive = at + 2 < word.size() && word[at + 2] == ':';
  return drive ? word.substr(0, at) + word.substr(at + 1) : word;
}

// What a shell on Linux returns for the signal that the fault would be there.
int shell_code(DWORD code) {
  switch (code) {
    case EXCEPTION_ILLEGAL_INSTRUCTION:
    case EXCEPTION_PRIV_INSTRUCTION:
      return 132;
    case 0xC0000409u:  // STATUS_STACK_BUFFER_OVERRUN: abort, and what checks itself
      return 134;
    case EXCEPTION_INT_DIVIDE_BY_ZERO:
      return 136;
    case EXCEPTION_ACCESS_VIOLATION:
    case EXCEPTION_STACK_OVERFLOW:
      return 139;
    case 0xC0000135u:  // STATUS_DLL_NOT_FOUND
      return 127;
    default:
      return code > 255 ? 255 : static_cast<int>(code);
  }
}

int spawn(const Words& words, const std::string& pidfile, DWORD_PTR mask) {
  std::wstring line;
  for (size_t i = 0; i < words.size(); ++i) {
    line += (i == 0 ? L"" : L" ") + quoted(i == 0 ? native(words[0]) : wide(known(words[i])));
  }
  SECURITY_ATTRIBUTES inherited = {sizeof inherited, nullptr, TRUE};
  STARTUPINFOW start = {};
  start.cb = sizeof start;
  start.dwFlags = STARTF_USESTDHANDLES;
  start.hStdInput = CreateFileW(L"NUL", GENERIC_READ, FILE_SHARE_READ, &inherited, OPEN_EXISTING, 0, nullptr);
  start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
  start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
  SetHandleInformation(start.hStdOutput, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
  SetHandleInformation(start.hStdError, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
  const HANDLE job = CreateJobObjectW(nullptr, nullptr);
  JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {};
  limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
  SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof limits);
  std::fflush(stdout);
  PROCESS_INFORMATION child;
  if (CreateProcessW(native(words[0]).c_str(), line.data(), nullptr, nullptr, TRUE, CREATE_SUSPENDED, nullptr,
                     nullptr, &start, &child) == 0) {
    const bool missing = GetLastError() == ERROR_FILE_NOT_FOUND || GetLastError() == ERROR_PATH_NOT_FOUND;
    complain("starting it", words[0]);
    return missing ? 127 : kNotStarted;
  }
  if (AssignProcessToJobObject(job, child.hProcess) == 0) {
    complain("putting it into a job", words[0]);
    TerminateProcess(child.hProcess, kEnded);
    return kNotStarted;
  }
  if (mask != 0) {
    say(SetProcessAffinityMask(child.hProcess, mask) != 0 ? "note affinity set" : "note affinity not set");
    std::fflush(stdout);
  }
  if (!pidfile.empty()) {
    write_text(pidfile, std::to_string(child.dwProcessId) + "\n");
  }
  ResumeThread(child.hThread);
  WaitForSingleObject(child.hProcess, INFINITE);
  DWORD code = 0;
  GetExitCodeProcess(child.hProcess, &code);
  TerminateJobObject(job, kEnded);  // what it left running
  return shell_code(code);
}

std::string pid_file;  // of the command that is supervised

std::string clock_now() {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", static_cast<double>(GetTickCount64()) / 1000.0);
  return text;
}

bool taken(const std::string& name) {
  const bool output =
      name.rfind("output", 0) == 0 && name.size() > 10 && name.substr(name.size() - 4) == ".npy";
  return (name == "result.json" || output) &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.") == std::string::npos;
}

void take(long long left) {
  Words chosen;
  for (const std::string& name : names_in(".")) {
    const long long size = taken(name) ? size_of(name) : -1;
    if (size >= 0 && size <= left) {
      left -= size;
      chosen.push_back(name);
      say(std::to_string(size) + " " + name);
    }
  }
  say("@@data");
  for (const std::string& name : chosen) {
    const std::string data = read_text(name);
    std::fwrite(data.data(), 1, data.size(), stdout);
  }
}

}  // namespace

// The words are those of run.sh: sysfs, note, governor, mask, marker, most, the folder in use, and the
// program's.
int run(const Words& words) {
  if (words.size() < 8) {
    return kNotStarted;
  }
  state("before");
  if (!words[2].empty()) {
    say("note governor not set");
  }
  const auto mask = static_cast<DWORD_PTR>(words[3].empty() ? 0 : std::stoull(words[3], nullptr, 16));
  const std::string begun = clock_now();
  const int code = spawn(Words(words.begin() + 7, words.end()), pid_file, mask);
  const std::string now = clock_now();
  state("after");
  say("ran " + begun + " " + now);
  say("@@files " + words[4]);
  take(static_cast<long long>(number(words[5])));
  return code;
}

// The words are those of supervise.sh: the file for the number, seconds, pauses, working folder, then either
// settings of the environment after `env`, and a program's words; or `@NAME` and the words of one of this
// program's own commands.
int supervise(const Words& words) {
  if (words.size() < 5) {
    return kNotStarted;
  }
  const auto limit = static_cast<uintptr_t>(number(words[1]));
  CreateThread(nullptr, 0, timer, reinterpret_cast<void*>(limit), 0, nullptr);
  CreateThread(nullptr, 0, lifeline, nullptr, 0, nullptr);
  const std::string cwd = words[3] == "." ? "" : words[3];
  if (!cwd.empty() &&
      ((!is_folder(cwd) && CreateDirectoryW(native(cwd).c_str(), nullptr) == 0) || !enter(cwd))) {
    complain("entering", cwd);
    return kNotStarted;
  }
  Words inner(words.begin() + 4, words.end());
  if (inner[0] == "env") {
    inner.erase(inner.begin());
    while (!inner.empty() && inner[0].find('=') != std::string::npos) {
      const size_t at = inner[0].find('=');
      SetEnvironmentVariableW(wide(inner[0].substr(0, at)).c_str(), native(inner[0].substr(at + 1)).c_str());
      inner.erase(inner.begin());
    }
  }
  if (inner.empty()) {
    return kNotStarted;
  }
  pid_file = words[0];
  if (inner[0][0] == '@') {
    inner[0].erase(0, 1);
    return call(inner);
  }
  return spawn(inner, pid_file, 0);
}

// The word is the file with the number of a program's process, which is ended if it runs from the root of
// that file.
int end(const Words& words) {
  const std::string text = read_text(words[0]);
  const auto pid = static_cast<DWORD>(number(text.substr(0, text.find_first_of("\r\n"))));
  const DWORD wanted = PROCESS_TERMINATE | PROCESS_QUERY_LIMITED_INFORMATION | SYNCHRONIZE;
  const Handle process(OpenProcess(wanted, FALSE, pid));
  if (!process) {
    return 0;
  }
  wchar_t path[MAX_PATH];
  DWORD size = MAX_PATH;
  const std::string root = words[0].substr(0, words[0].find("/runs/")) + "/";
  if (QueryFullProcessImageNameW(process.get(), 0, path, &size) == 0 ||
      shown(std::wstring(path, size)).rfind(root, 0) != 0) {
    return 0;
  }
  TerminateProcess(process.get(), kEnded);
  return WaitForSingleObject(process.get(), 5000) == WAIT_OBJECT_0 ? 0 : kFailed;
}

}  // namespace agent
