#include "training/checkpoint/flag_record.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

bool AreFiles(const FlagValues& was, const FlagValues& is) {
  return was.content.has_value() && is.content.has_value();
}

bool AreSame(const FlagValues& was, const FlagValues& is) {
  if (AreFiles(was, is)) return was.content == is.content;
  return was.is_joined || is.is_joined ? was.Text() == is.Text() : was.values == is.values;
}

// Of two that differ.
std::string DifferenceOf(const std::string& flag, const FlagValues& was, const FlagValues& is) {
  const std::string before = was.Text(), now = is.Text();
  if (AreFiles(was, is)) {
    return before == now ? absl::StrCat(flag, " ", now, " has changed")
                         : absl::StrCat(flag, " was ", before, ", is ", now, ", which differs");
  }
  if (before != now) return absl::StrCat(flag, " was ", before, ", is ", now);
  // Values whose texts say the same.
  return absl::StrCat(flag, " was '", absl::StrJoin(was.values, "', '"), "', is '",
                      absl::StrJoin(is.values, "', '"), "'");
}

}  // namespace

FlagValues FlagValues::OfJoined(const std::string& text) {
  FlagValues values(std::vector<std::string>(absl::StrSplit(text, ',')));
  values.is_joined = values.values.size() > 1;
  return values;
}

std::string FlagValues::Text() const { return absl::StrJoin(values, ","); }

std::vector<std::string> ValuesOfFlag(const FlagRecord& record, const std::string& flag) {
  const auto found = record.find(flag);
  return found == record.end() ? std::vector<std::string>() : found->second.values;
}

std::string TextOfFlag(const FlagRecord& record, const std::string& flag) {
  return absl::StrJoin(ValuesOfFlag(record, flag), ",");
}

std::vector<std::string> FlagDifferences(const FlagRecord& saved, const FlagRecord& now) {
  std::set<std::string> flags;
  for (const FlagRecord* record : {&saved, &now}) {
    for (const auto& [flag, values] : *record) flags.insert(flag);
  }
  std::vector<std::string> lines;
  for (const std::string& flag : flags) {
    const auto was = saved.find(flag), is = now.find(flag);
    if (is == now.end()) {
      lines.push_back(absl::StrCat(flag, " was ", was->second.Text(), ", is not given"));
    } else if (was == saved.end()) {
      lines.push_back(absl::StrCat(flag, " was not given, is ", is->second.Text()));
    } else if (!AreSame(was->second, is->second)) {
      lines.push_back(DifferenceOf(flag, was->second, is->second));
    }
  }
  return lines;
}

}  // namespace weft
