#include "tools/chaos/run_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "platform/file_descriptor.h"

namespace weft {

std::vector<std::string> RunWatch::NewLines(GrowingFile& file) {
  std::vector<std::string> lines;
  const FileDescriptor opened(open(file.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.valid()) return lines;  // it has not been made yet
  std::array<char, 1 << 16> bytes;
  while (true) {
    const ssize_t got = pread(opened.get(), bytes.data(), bytes.size(), file.read);
    if (got <= 0) break;
    file.read += got;
    file.rest.append(bytes.data(), static_cast<size_t>(got));
  }
  size_t begin = 0;
  for (size_t end = file.rest.find('\n'); end != std::string::npos;
       end = file.rest.find('\n', begin)) {
    lines.push_back(file.rest.substr(begin, end - begin));
    begin = end + 1;
  }
  file.rest.erase(0, begin);
  return lines;
}

void RunWatch::TakeRow(const std::string& line) {
  const std::vector<absl::string_view> columns = absl::StrSplit(line, absl::MaxSplits(',', 2));
  int64_t step = 0;
  if (columns.size() < 2 || !absl::SimpleAtoi(columns[0], &step)) return;  // names of columns
  if (!losses_.empty() && step != steps() && complaint_.empty()) {
    complaint_ = absl::StrCat("step ", step, " is told after step ", steps() - 1);
  }
  losses_[step] = std::string(columns[1]);
}

std::vector<std::string> RunWatch::Look() {
  for (const std::string& line : NewLines(metrics_)) TakeRow(line);
  return NewLines(log_);
}

bool IsLoss(const std::string& line) { return absl::StartsWith(line, "lost "); }

bool IsNews(const std::string& line) {
  if (IsLoss(line)) return true;
  for (const char* const begin :
       {"left ", "joined ", "spare ", "warning: ", "error: ", "stopped by ", "resume "}) {
    if (absl::StartsWith(line, begin)) return true;
  }
  return false;
}

}  // namespace weft
