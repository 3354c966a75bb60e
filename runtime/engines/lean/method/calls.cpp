#include "lean/method/calls.h"

#include <algorithm>

#include "program_file.h"

namespace slipway::lean {
namespace {

// Items of lists that calls name: a damaged file may name a list of a million items a million times.
constexpr std::size_t kMostItems = std::size_t{1} << 24;

Status wrong(const Call& call, const std::string& what) {
  return {Code::kFile,
          "Instruction " + std::to_string(call.instruction) + ", " + call.name + ", " + what + ".",
          kCopyAgain};
}

bool is_self(Sharing sharing) {
  return sharing == Sharing::kSelf || sharing == Sharing::kSelfEach;
}

// Whether the call writes to an argument that is not its result.
bool is_cache(Sharing sharing, std::size_t argument) {
  return (sharing == Sharing::kCache && argument == 1) ||
         (sharing == Sharing::kCaches && (argument == 3 || argument == 4));
}

}  // namespace

bool CallCheck::same_place(std::int32_t a, std::int32_t b) const {
  const auto* first = std::get_if<TensorView>(&value(a));
  const auto* second = std::get_if<TensorView>(&value(b));
  return a == b || (first != nullptr && second != nullptr && first->same_place(*second));
}

// Whether the last argument is one of those before it, a list of such, or the same list as one of them.
bool CallCheck::names_results(const KernelEntry& entry, const std::int32_t* arguments,
                              std::size_t count) const {
  const std::int32_t last = arguments[count - 1];
  if (is_self(entry.sharing)) {
    return same_place(last, arguments[0]);
  }
  const auto named = [&](std::int32_t item) {
    return std::find(arguments, arguments + count - 1, item) != arguments + count - 1;
  };
  const auto* list = std::get_if<TensorList>(&value(last));
  const auto same = [&](std::int32_t item) {
    const auto* other = std::get_if<TensorList>(&value(item));
    return list != nullptr && other != nullptr && list->items == other->items;
  };
  return named(last) || std::any_of(arguments, arguments + count - 1, same) ||
         (list != nullptr && list->items.size() < count &&
          std::all_of(list->items.begin(), list->items.end(), [&](std::int32_t one) { return named(one); }));
}

// Where a kernel's outputs begin among its arguments, which they are the last of.
std::size_t CallCheck::outputs_begin(const KernelEntry& entry, const std::int32_t* arguments,
                                     std::size_t count) const {
  const auto* list = std::get_if<TensorList>(&value(arguments[count - 1]));
  std::size_t begin = entry.arguments - 1U;
  if (list == nullptr || count == entry.arguments ||
      std::holds_alternative<TensorList>(value(arguments[begin]))) {
    return begin;
  }
  // Several, some of which may be None.
  const auto is_output = [&](std::int32_t index) {
    return std::holds_alternative<std::monostate>(value(index)) ||
           std::find(list->items.begin(), list->items.end(), index) != list->items.end();
  };
  while (begin > 0 && is_output(arguments[begin - 1])) {
    --begin;
  }
  return begin;
}

// The memory of an argument's tensor, or of those in its list; false beyond kMostItems.
bool CallCheck::add(const std::int32_t* arguments, std::size_t argument, std::vector<Part>* parts) {
  const auto one = [&](std::int32_t item) {
    const auto* view = item < 0 ? nullptr : std::get_if<TensorView>(&value(item));
    if (view != nullptr && view->data != nullptr && view->capacity != 0) {
      parts->push_back({view->data, view->data + view->capacity, item, argument});
    }
  };
  const auto* list = std::get_if<TensorList>(&value(arguments[argument]));
  if (list == nullptr) {
    one(arguments[argument]);
    return true;
  }
  items_ += list->items.size();
  if (items_ > kMostItems) {
    return false;
  }
  std::for_each(list->items.begin(), list->items.end(), one);
  return true;
}

// Whether a result may lie where it overlaps what a call reads.
bool CallCheck::allowed(Sharing sharing, const Part& result, const Part& part) const {
  switch (sharing) {
    case Sharing::kEach:
    case Sharing::kSelfEach:
      return same_place(result.value, part.value);
    case Sharing::kFirst:
      return part.argument == 0 && same_place(result.value, part.value);
    case Sharing::kView:
      return part.argument == 0 && result.begin == part.begin;
    case Sharing::kApart:
    case Sharing::kSelf:
    case Sharing::kCache:
    case Sharing::kCaches:
      break;
  }
  return false;
}

Status CallCheck::compare(const Call& call, Sharing sharing) {
  const auto before = [](const Part& a, const Part& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.value < b.value;
  };
  std::sort(results_.begin(), results_.end(), before);
  const auto shared = [&call](const Part& a, const Part& b) {
    return wrong(call, "has its result, value " + std::to_string(a.value) + ", in the memory of value " +
                           std::to_string(b.value));
  };
  for (std::size_t i = 1; i < results_.size(); ++i) {
    const bool same =
        results_[i].value == results_[i - 1].value && results_[i].argument == results_[i - 1].argument;
    if (!same && results_[i].begin < results_[i - 1].end) {
      return shared(results_[i], results_[i - 1]);
    }
  }
  // The results lie one behind the other now: those from the first that ends behind a tensor's begin on.
  for (const Part& part : others_) {
    auto next = std::upper_bound(results_.begin(), results_.end(), part.begin,
                                 [](const std::uint8_t* at, const Part& one) { return at < one.end; });
    for (; next != results_.end() && next->begin < part.end; ++next) {
      if (!allowed(sharing, *next, part)) {
        return shared(*next, part);
      }
    }
  }
  return {};
}

Status CallCheck::kernel(const KernelEntry& entry, const std::int32_t* arguments, std::size_t count,
                         std::size_t instruction, std::size_t* outputs) {
  const Call call = {instruction, entry.name};
  const bool again = count == entry.arguments + 1U;
  if (count != entry.arguments && !(again && names_results(entry, arguments, count))) {
    return wrong(call, again ? "is given its " + std::to_string(entry.arguments) +
                                   " arguments and one behind them that is not its result"
                             : "is given " + std::to_string(count) + " arguments and takes " +
                                   std::to_string(entry.arguments));
  }
  results_.clear();
  others_.clear();
  const bool self = is_self(entry.sharing);
  bool few = add(arguments, self ? 0 : count - 1, &results_);
  const std::size_t end = self ? entry.arguments : outputs_begin(entry, arguments, count);
  *outputs = self ? count : end;
  for (std::size_t i = self ? 1 : 0; few && i < end; ++i) {
    few = add(arguments, i, is_cache(entry.sharing, i) ? &results_ : &others_);
  }
  return few ? compare(call, entry.sharing) : wrong(call, "is one of too many that name long lists");
}

Status CallCheck::delegate(const Delegate& delegate, const std::int32_t* arguments, std::size_t count,
                           std::size_t instruction) {
  const Call call = {instruction, "a delegate's call"};
  results_.clear();
  others_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    static_cast<void>(add(arguments, i, delegate.produces(i) ? &results_ : &others_));
  }
  std::vector<std::int32_t> all(arguments, arguments + count);
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < count; ++i) {
    const auto same = std::equal_range(all.begin(), all.end(), arguments[i]);
    if (delegate.produces(i) && same.second - same.first > 1) {
      return wrong(call, "names its result, value " + std::to_string(arguments[i]) + ", twice");
    }
  }
  return compare(call, Sharing::kApart);
}

}  // namespace slipway::lean
