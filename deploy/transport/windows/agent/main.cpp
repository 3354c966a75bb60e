// `agent WORDS`: see agent.h.

#include "agent.h"

#include <fcntl.h>
#include <io.h>

#include <cstdio>

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

struct Command {
  const char* name;
  size_t words;  // at least
  int (*function)(const Words&);
};

constexpr Command kCommands[] = {
    {"adopt", 2, adopt},     {"arrange", 5, arrange},     {"commit", 3, commit},     {"discard", 1, discard},
    {"end", 1, end},         {"flip", 3, flip},           {"holdings", 1, holdings}, {"keep", 3, keep},
    {"listing", 1, listing}, {"lock", 6, lock},           {"open", 11, opened},      {"prepare", 2, prepare},
    {"probe", 6, probed},    {"resume", 2, resume},       {"rollback", 2, rollback}, {"run", 8, run},
    {"state", 1, stated},    {"supervise", 5, supervise}, {"survey", 1, survey},     {"unpin", 1, unpinned},
    {"verify", 1, verify},
};

}  // namespace

int call(const Words& words) {
  for (const Command& command : kCommands) {
    if (words[0] == command.name && words.size() > command.words) {
      return command.function(Words(words.begin() + 1, words.end()));
    }
  }
  std::fprintf(stderr, "agent: no command %s with %zu words\n", words[0].c_str(), words.size() - 1);
  return agent::kNotStarted;
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
