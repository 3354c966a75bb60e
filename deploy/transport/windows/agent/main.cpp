// `agent WORDS`: see agent.h.

#include "agent.h"

#include <fcntl.h>
#include <io.h>

#include <cstdio>
#include <cstring>

namespace agent {

namespace {

int probed(const Words& words) {
  probe(words);
  return 0;
}

int opened(const Words& words) {
  Words others = {probe(words)};
  others.insert(others.end(), words.begin() + 6, words.end());
  return lock(others);
}

int stated(const Words&) {
  state("now");
  return 0;
}

int unpinned(const Words&) {
  return 0;
}

constexpr int kAnywhere = -1;

struct Command {
  const char* name;
  size_t words;  // at least
  int (*function)(const Words&);
  int without;  // kAnywhere, or the exit code if the root, its first word, is not there
};

constexpr Command kCommands[] = {
    {"arrange", 5, arrange, kFailed},   {"commit", 3, commit, kFailed},
    {"discard", 1, discard, 0},         {"end", 1, end, kAnywhere},
    {"flip", 3, flip, kFailed},         {"holdings", 1, holdings, kFailed},
    {"keep", 3, keep, kFailed},         {"listing", 1, listing, 0},
    {"lock", 6, lock, kAnywhere},       {"open", 11, opened, kAnywhere},
    {"probe", 6, probed, kAnywhere},    {"resume", 2, resume, kFailed},
    {"rollback", 2, rollback, kFailed}, {"run", 8, run, kAnywhere},
    {"state", 1, stated, kAnywhere},    {"supervise", 5, supervise, kAnywhere},
    {"survey", 1, survey, 0},           {"unpin", 1, unpinned, kAnywhere},
    {"verify", 1, verify, kFailed},
};

// Words of base64url, each ended by a NUL.
bool decode(const char* token, Words* words) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string bytes;
  unsigned bits = 0, held = 0;
  for (; *token != '\0'; ++token) {
    const char* at = std::strchr(kDigits, *token);
    if (at == nullptr) {
      return false;
    }
    bits = (bits << 6 | static_cast<unsigned>(at - kDigits)) & 0xffffffu;
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes.push_back(static_cast<char>(bits >> held & 0xffu));
    }
  }
  if (bytes.empty() || bytes.back() != '\0') {
    return false;
  }
  bytes.pop_back();
  *words = split(bytes, '\0');
  return true;
}

}  // namespace

int call(const Words& words) {
  for (const Command& command : kCommands) {
    if (words[0] == command.name && words.size() > command.words) {
      const bool there = command.without == kAnywhere || enter(words[1]);
      return there ? command.function(Words(words.begin() + 1, words.end())) : command.without;
    }
  }
  std::fprintf(stderr, "agent: no command %s with %zu words\n", words[0].c_str(), words.size() - 1);
  return kNotStarted;
}

std::wstring wide(const std::string& text) {
  const int size = static_cast<int>(text.size());
  std::wstring found(text.size(), L'\0');  // UTF-16 never has more units than UTF-8 has bytes
  found.resize(static_cast<size_t>(MultiByteToWideChar(CP_UTF8, 0, text.data(), size, found.data(), size)));
  return found;
}

std::string narrow(const std::wstring& text) {
  const int size = static_cast<int>(text.size()), most = 3 * size;
  std::string found(static_cast<size_t>(most), '\0');
  found.resize(static_cast<size_t>(
      WideCharToMultiByte(CP_UTF8, 0, text.data(), size, found.data(), most, nullptr, nullptr)));
  return found;
}

Words split(const std::string& text, char at) {
  Words found(1);
  for (const char c : text) {
    if (c == at) {
      found.emplace_back();
    } else {
      found.back().push_back(c);
    }
  }
  return found;
}

bool starts(const std::string& text, const std::string& with) {
  return text.rfind(with, 0) == 0;
}

unsigned long long number(const std::string& text) {
  const bool good = text.size() < 19 && text.find_first_not_of("0123456789") == std::string::npos;
  return good && !text.empty() ? std::stoull(text) : 0;
}

void say(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
}

void complain(const std::string& what, const std::string& path) {
  const DWORD error = GetLastError();
  // The other side knows a full disk by these words, whatever the language of the system.
  const bool full = error == ERROR_DISK_FULL || error == ERROR_HANDLE_DISK_FULL;
  std::fprintf(stderr, "%s: %s: %s (Windows error %lu)\n", path.c_str(), what.c_str(),
               full ? "no space left on device" : "refused", error);
}

}  // namespace agent

int main(int count, char** words) {
  _setmode(_fileno(stdout), _O_BINARY);
  _setmode(_fileno(stderr), _O_BINARY);
  // No box on a screen that nobody sees.
  SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX | SEM_NOOPENFILEERRORBOX);
  // Comes before what the agent says, and behind what a profile or AutoRun printed
  // (deploy/transport/hearing.py).
  agent::say("@@slipway");
  std::fflush(stdout);
  std::fputs("@@slipway\n", stderr);
  agent::Words found;
  if (count != 2 || !agent::decode(words[1], &found)) {
    std::fputs("agent: one word in base64url, of words that each end with a NUL\n", stderr);
    return agent::kNotStarted;
  }
  const int code = agent::call(found);
  // Threads that wait for input must not keep it.
  if (std::fflush(stdout) != 0 && code == 0) {
    return agent::kFailed;
  }
  ExitProcess(static_cast<UINT>(code));
}
