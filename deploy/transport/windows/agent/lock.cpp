// The root's owner, and the lock of the device.
//
// The lock is an open file that Windows shares with nobody who writes. It is free as soon as its holder's
// process is gone, however that ended. The file says who the holder is, and counts its beats, which come from
// the other side: a contender that saw the same beat for long enough ends a holder whose connection hangs.

#include "agent.h"

#include <aclapi.h>

#include <cstdio>
#include <cstdlib>

namespace agent {

namespace {

constexpr char kMarker[] = ".slipway-root";
constexpr char kHolder[] = "lock/holder";
const char* const kFolders[] = {"lock", "incoming", "store",    "bundles", "programs",
                                "runs", "current",  "previous", "weights"};
constexpr DWORD kChanges = FILE_ADD_FILE | FILE_ADD_SUBDIRECTORY | FILE_DELETE_CHILD | DELETE | WRITE_DAC |
                           WRITE_OWNER | GENERIC_WRITE | GENERIC_ALL;
constexpr int kPatience = 30;  // tenths of a second for a process that was ended

bool is_own(PSID owner) {
  alignas(TOKEN_USER) unsigned char space[256];
  DWORD size = 0;
  const bool read = GetTokenInformation(GetCurrentProcessToken(), TokenUser, space, sizeof space, &size) != 0;
  // What an administrator makes belongs to the administrators.
  return (read && EqualSid(owner, reinterpret_cast<TOKEN_USER*>(space)->User.Sid) != 0) ||
         IsWellKnownSid(owner, WinBuiltinAdministratorsSid) != 0 ||
         IsWellKnownSid(owner, WinLocalSystemSid) != 0;
}

// Why others could change a folder: owner, open, unseen; empty if they cannot.
std::string exposure(const std::string& folder) {
  PSID owner = nullptr;
  PACL list = nullptr;
  PSECURITY_DESCRIPTOR descriptor = nullptr;
  std::wstring name = native(folder);
  const DWORD wanted = OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION;
  if (GetNamedSecurityInfoW(name.data(), SE_FILE_OBJECT, wanted, &owner, nullptr, &list, nullptr,
                            &descriptor) != 0) {
    return "unseen";
  }
  std::string why = is_own(owner) ? list == nullptr ? "open" : "" : "owner";
  for (DWORD i = 0; why.empty() && i < list->AceCount; ++i) {
    void* entry = nullptr;
    if (GetAce(list, i, &entry) == 0) {
      continue;
    }
    const auto* ace = static_cast<ACCESS_ALLOWED_ACE*>(entry);
    const bool counts = ace->Header.AceType == ACCESS_ALLOWED_ACE_TYPE &&
                        (ace->Header.AceFlags & INHERIT_ONLY_ACE) == 0 && (ace->Mask & kChanges) != 0;
    const auto sid = const_cast<PSID>(static_cast<const void*>(&ace->SidStart));
    const auto is = [sid](WELL_KNOWN_SID_TYPE kind) { return IsWellKnownSid(sid, kind) != 0; };
    if (counts && (is(WinWorldSid) || is(WinAuthenticatedUserSid) || is(WinBuiltinUsersSid))) {
      why = "open";
    }
  }
  LocalFree(descriptor);
  return why;
}

// Makes the root the working folder if it is ours, and gives the mark's id; else says why not, and gives
// none.
std::string claim(const std::string& root, const std::string& fresh, bool make) {
  const auto refused = [](const std::string& why, const std::string& path) {
    say("refused " + why + "\n" + path);
    return std::string();
  };
  if (!starts(root, "/")) {
    return refused("home", "");
  }
  if (is_link(root)) {
    return refused("link", root);
  }
  if (!is_folder(root)) {
    if (!make) {
      say("absent");
      return "";
    }
    if (!make_folders(root)) {
      std::exit(kFailed);
    }
  }
  if (!enter(root)) {
    return refused("unseen", root);
  }
  if (const std::string why = exposure(root); !why.empty()) {
    return refused(why, root);
  }
  for (const char* name : kFolders) {
    if (is_link(name) || (exists(name) && !is_folder(name))) {
      return refused(is_link(name) ? "link" : "kind", root + "/" + name);
    }
  }
  if (is_link(kMarker) || is_folder(kMarker)) {
    return refused("kind", root + "/" + kMarker);
  }
  if (!exists(kMarker)) {
    if (const Words names = names_in("."); !names.empty() && !exists(kMarker)) {
      return refused("unmarked", root + "/" + names[0]);
    }
    if (!make) {
      say("absent");
      return "";
    }
    // Of two sessions that make a root at the same time one makes the mark.
    const Handle file = open(kMarker, GENERIC_WRITE, CREATE_NEW, 0);
    const DWORD error = file ? 0 : GetLastError();
    if (file ? !write(file, "slipway-root 1 " + fresh + "\n")
             : error != ERROR_FILE_EXISTS && error != ERROR_SHARING_VIOLATION) {
      complain("marking", root);
      std::exit(kFailed);
    }
  }
  // The other session may be about to write the mark.
  std::string text = read_text(kMarker);
  for (int i = 0; i < kPatience && text.empty(); ++i) {
    Sleep(100);
    text = read_text(kMarker);
  }
  const Words words = split(text.substr(0, text.find('\n')), ' ');
  if (words.size() != 3 || words[0] != "slipway-root" || words[1] != "1") {
    return refused("marker", root + "/" + kMarker);
  }
  return words[2];
}

bool make_layout() {
  for (const char* name : kFolders) {
    if (!make_folders(name)) {
      return false;
    }
  }
  return true;
}

Handle take() {
  return open(kHolder, GENERIC_WRITE, OPEN_ALWAYS, FILE_SHARE_READ);
}

std::string program_of(HANDLE process) {
  wchar_t path[MAX_PATH];
  DWORD size = MAX_PATH;
  return QueryFullProcessImageNameW(process, 0, path, &size) != 0 ? narrow(std::wstring(path, size)) : "";
}

// Ends the holder, if the process with its number is one of this very program.
void end_holder(const std::string& pid) {
  const DWORD rights = PROCESS_TERMINATE | PROCESS_QUERY_LIMITED_INFORMATION;
  const Handle process(OpenProcess(rights, FALSE, static_cast<DWORD>(number(pid))));
  if (process && program_of(process.get()) == program_of(GetCurrentProcess())) {
    TerminateProcess(process.get(), kEnded);
  }
}

bool note(const Handle& file, const std::string& generation, int beat, const std::string& who) {
  SetFilePointer(file.get(), 0, nullptr, FILE_BEGIN);
  return write(file, generation + "\n" + std::to_string(beat) + "\n" + std::to_string(GetCurrentProcessId()) +
                         "\n" + who + "\n") &&
         SetEndOfFile(file.get()) != 0;
}

}  // namespace

// The words are root, owner, who, stale, make, id, and names for the survey.
int lock(const Words& words) {
  const std::string &owner = words[1], &who = words[2], &stale = words[3];
  const std::string id = claim(words[0], words[5], words[4] == "yes");
  if (id.empty()) {
    return 0;
  }
  if (!make_layout()) {
    return kFailed;
  }
  Handle file = take();
  const DWORD error = GetLastError();
  Words told = split(read_text(kHolder), '\n');
  told.resize(5);
  if (!file && stale == told[0] + ":" + told[1]) {
    end_holder(told[2]);
    for (int i = 0; i < kPatience && !file; ++i) {
      Sleep(100);
      file = take();
    }
  }
  const unsigned long long generation = number(told[0]);
  if (!file && error == ERROR_SHARING_VIOLATION) {
    // A holder that was just made has written nothing yet.
    say("busy " + std::to_string(generation) + ":" + told[1] + "\n" + told[3]);
    return 0;
  }
  const std::string mine = std::to_string(generation + 1);
  int beat = 1;
  if (!file || !note(file, mine, beat, who)) {
    SetLastError(file ? GetLastError() : error);
    complain("locking", kHolder);
    return kFailed;
  }
  say("acquired " + mine + " " + id);
  print_survey(Words(words.begin() + 6, words.end()));
  say("ready");
  std::fflush(stdout);
  char line[16];
  DWORD count = 0;
  while (ReadFile(GetStdHandle(STD_INPUT_HANDLE), line, sizeof line, &count, nullptr) != 0 && count > 0) {
    note(file, mine, ++beat, who);
  }
  discard_names({"runs/" + owner});
  return 0;
}

}  // namespace agent
