#include "distributed/process/memory_kills.h"

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace weft {

int64_t MemoryKills(FileSystem& files) {
  const auto text = files.ReadFile("/proc/vmstat");
  if (!text.ok()) return 0;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    int64_t count = 0;
    if (words.size() == 2 && words[0] == "oom_kill" && absl::SimpleAtoi(words[1], &count)) {
      return count;
    }
  }
  return 0;
}

}  // namespace weft
