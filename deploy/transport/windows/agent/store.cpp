// The store: what the commands of the same names in deploy/scripts do. There are no symbolic links, which
// need a right on Windows: current/KEY and previous/KEY are small files that name the bundle.
//
// The root's owner, and the lock of the device: it is an open file that Windows shares with nobody who
// writes. It is free as soon as its holder's process is gone, however that ended. The file says who the
// holder is, and counts its beats, which come from the other side: a contender that saw the same beat for
// long enough ends a holder whose connection hangs.

#include "agent.h"

#include <aclapi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace agent {

namespace {

constexpr long long kEpoch = 11644473600LL;  // seconds from 1601, where Windows begins, to 1970
const char* const kFolders[] = {"incoming/", "runs/", "bundles/", "programs/", "store/", "weights/", "lock/"};

bool ends(const std::string& text, const std::string& with) {
  return text.size() >= with.size() && text.compare(text.size() - with.size(), with.size(), with) == 0;
}

bool make_above(const std::string& path) {
  return make_folders(path.substr(0, path.rfind('/')));
}

std::string part_of(const std::string& sha256, const std::string& owner) {
  return "incoming/" + sha256 + "." + owner + ".part";
}

std::string pointed(const std::string& link) {
  const std::string found = read_text(link);
  return found.substr(0, found.find('\n'));
}

// The rows of a manifest: the digest, and the path below the manifest's folder.
std::vector<std::pair<std::string, std::string>> sums(const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> found;
  for (const std::string& line : split(read_text(folder + "/SHA256SUMS"), '\n')) {
    if (line.size() > 66) {
      found.emplace_back(line.substr(0, 64), line.substr(66));
    }
  }
  return found;
}

void print_row(const std::string& path) {
  const BY_HANDLE_FILE_INFORMATION found = information(path);
  const FILETIME& time = found.ftLastWriteTime;
  const auto ticks = static_cast<long long>(time.dwHighDateTime) << 32 | time.dwLowDateTime;
  const std::string changed = std::to_string(ticks == 0 ? 0 : ticks / 10000000 - kEpoch);
  say(is_folder(path) ? "folder 0 " + changed + " 0 " + path
                      : "file " + std::to_string(size_of(path)) + " " + changed + " " +
                            std::to_string(found.nNumberOfLinks) + " " + path);
}

long long usage(const std::string& folder) {
  long long total = 0;
  for (const std::string& name : names_in(folder)) {
    const std::string path = folder + "/" + name;
    if (is_folder(path)) {
      total += is_link(path) ? 0 : usage(path);
    } else {
      // A file with several names counts once, as du has it.
      total += size_of(path) / std::max(1LL, static_cast<long long>(information(path).nNumberOfLinks));
    }
  }
  return total;
}

void touch(const std::string& path) {
  FILETIME now;
  GetSystemTimeAsFileTime(&now);
  if (const Handle file = open(path, FILE_WRITE_ATTRIBUTES)) {
    SetFileTime(file.get(), nullptr, nullptr, &now);
  }
}

bool merge(const std::string& part, const std::string& final) {
  for (const auto& [sha256, name] : sums(part)) {
    const std::string to = final + "/" + name;
    // A program that runs cannot be replaced on Windows; another deploy may be running this very file.
    if (!make_above(to) ||
        (!same_file(part + "/" + name, to) && !move_over(part + "/" + name, to) && digest(to) != sha256)) {
      complain("replacing", to);
      return false;
    }
  }
  return move_over(part + "/SHA256SUMS", final + "/SHA256SUMS");
}

}  // namespace

void print_survey(const Words& names) {
  for (const std::string& name : names) {
    if (ends(name, "/")) {
      for (const std::string& each : names_in(name.substr(0, name.size() - 1))) {
        look(name + each);
      }
    } else {
      look(name);
    }
  }
  for (const std::string folder : {"incoming", "runs", "bundles", "programs", "weights"}) {
    for (const std::string& name : names_in(folder)) {
      if (folder == "runs" || ends(name, ".part") || ends(name, ".tmp")) {
        say("leftover " + folder + "/" + name);
      }
    }
  }
  for (const std::string& key : names_in("current")) {
    if (!ends(key, ".part")) {
      say("current/" + key + " " + pointed("current/" + key));
    }
  }
}

int survey(const Words& words) {
  print_survey(Words(words.begin() + 1, words.end()));
  say("usage " + std::to_string((usage(".") + 1023) / 1024) + " .");
  return 0;
}

void discard_names(const Words& names) {
  for (const std::string& name : names) {
    const bool below = std::any_of(std::begin(kFolders), std::end(kFolders), [&](const std::string& folder) {
      return starts(name, folder) && name.size() > folder.size();
    });
    const bool blob = !starts(name, "store/") || name.find_first_not_of("0123456789abcdef", 6) == name.npos;
    if (below && blob && name.find("..") == name.npos && name.find_first_of("\\:") == name.npos) {
      remove_all(name);  // a program of a run ends with its supervisor, by Windows' own job objects
    }
  }
}

int discard(const Words& words) {
  discard_names(Words(words.begin() + 1, words.end()));
  return 0;
}

int commit(const Words& words) {
  for (size_t i = 3; i + 1 < words.size(); i += 2) {
    const std::string& sha256 = words[i];
    const std::string part = part_of(sha256, words[1]);
    if (!write(open(part, GENERIC_WRITE), "")) {  // its bytes to the disk
      complain("reading", part);
      return kFailed;
    }
    const std::string got = words[2] == "yes" ? sha256 : digest(part);
    if (got == sha256 && !move_over(part, "store/" + sha256)) {
      complain("renaming", part);
      return kFailed;
    }
    if (got != sha256 && got != "unable") {
      remove_all(part);
    }
    say(sha256 + " " + got);
  }
  return 0;
}

int resume(const Words& words) {
  for (size_t i = 2; i + 1 < words.size(); i += 2) {
    const std::string mine = part_of(words[i], words[1]);
    const auto most = static_cast<long long>(number(words[i + 1]));
    long long best = 0;
    for (const std::string& name : names_in("incoming")) {
      const std::string part = "incoming/" + name;
      if (!starts(name, words[i] + ".") || !ends(name, ".part") || is_link(part)) {
        continue;
      }
      const long long size = size_of(part);
      if (size > best && size <= most) {
        best = size;
        if (part != mine && !move_over(part, mine)) {
          return kFailed;
        }
      } else if (part != mine) {
        remove_all(part);
      }
    }
    if (best > 0) {
      say(words[i] + " " + std::to_string(best) + " " + digest(mine));
    }
  }
  return 0;
}

int arrange(const Words& words) {
  const std::string &final = words[1], &part = words[2];
  if (words[3] == "yes") {
    remove_all(part);
    if (!make_folders(part)) {
      return kFailed;
    }
  }
  std::string rows = read_text(part + "/SHA256SUMS");
  bool good = true;
  for (size_t i = 5; good && i + 2 < words.size(); i += 3) {
    const std::string from = "store/" + words[i], to = part + "/" + words[i + 1];
    good = make_above(to) && (CreateHardLinkW(native(to).c_str(), native(from).c_str(), nullptr) != 0 ||
                              CopyFileW(native(from).c_str(), native(to).c_str(), TRUE) != 0);
    if (!good) {
      complain("linking", to);
    }
    rows += words[i] + "  " + words[i + 1] + "\n";
  }
  good = good && write_text(part + "/SHA256SUMS", rows);
  if (good && words[4] != "yes") {
    return 0;
  }
  if (!good || !(is_folder(final) ? merge(part, final) : move_over(part, final))) {
    complain("arranging", final);
    remove_all(part);
    return kFailed;
  }
  remove_all(part);
  for (const auto& [sha256, name] : sums(final)) {
    if (same_file(final + "/" + name, "store/" + sha256)) {
      look(final + "/" + name);
    }
  }
  return 0;
}

int verify(const Words& words) {
  const Words names(words.begin() + 1, words.end());
  for (const std::string& name : names) {
    look(name);
  }
  for (const std::string& name : names) {
    if (exists(name) && !is_folder(name) && !is_link(name)) {
      say("digest " + digest(name) + " " + name);
    }
  }
  return 0;
}

int flip(const Words& words) {
  const std::string current = "current/" + words[1], wanted = "../bundles/" + words[2];
  const std::string now = pointed(current);
  if (now == wanted) {
    return 0;
  }
  touch(wanted.substr(3));
  return make_folders("current") && make_folders("previous") &&
                 (now.empty() || write_text("previous/" + words[1], now + "\n")) &&
                 write_text(current, wanted + "\n")
             ? 0
             : kFailed;
}

int listing(const Words&) {
  say("now " + std::to_string(static_cast<long long>(std::time(nullptr))));
  for (const std::string kind : {"current/", "previous/"}) {
    for (const std::string& key : names_in(kind)) {
      say("link " + kind + key + " " + pointed(kind + key));
    }
  }
  for (const std::string kind : {"store/", "incoming/", "weights/", "runs/", "bundles/", "programs/"}) {
    for (const std::string& name : names_in(kind)) {
      print_row(kind + name);
    }
  }
  for (const std::string kind : {"bundles/", "programs/"}) {
    for (const std::string& name : names_in(kind)) {
      for (const auto& [sha256, file] : sums(kind + name)) {
        say("of " + sha256 + " " + kind + name + "/" + file);
      }
    }
  }
  return 0;
}

namespace {

constexpr char kMarker[] = ".slipway-root";
constexpr char kHolder[] = "lock/holder";
const char* const kLayout[] = {"lock", "incoming", "store",    "bundles", "programs",
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
  for (const char* name : kLayout) {
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
  for (const char* name : kLayout) {
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
