// RunWatch: what a job that runs has told so far.
#ifndef WEFT_TOOLS_CHAOS_RUN_WATCH_H_
#define WEFT_TOOLS_CHAOS_RUN_WATCH_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace weft {

// Follows two files that one process of a job adds to: its metrics (tools/reports/metrics_file.h)
// and what it says. Reads what is new at each look. One thread.
class RunWatch {
 public:
  RunWatch(std::string metrics, std::string log)
      : metrics_{std::move(metrics)}, log_{std::move(log)} {}

  // Lines that it has said since the last look.
  std::vector<std::string> Look();
  // Steps that are done: one more than the number of the last one that was told; 0: none was.
  int64_t steps() const { return losses_.empty() ? 0 : losses_.rbegin()->first + 1; }
  // By step, as they are written.
  const std::map<int64_t, std::string>& losses() const { return losses_; }
  // What is wrong with the rows: a step that was told twice or left out; "": nothing.
  const std::string& complaint() const { return complaint_; }

 private:
  struct GrowingFile {
    std::string path;
    int64_t read = 0;       // bytes
    std::string rest = {};  // of a line that has no end yet
  };
  static std::vector<std::string> NewLines(GrowingFile& file);
  void TakeRow(const std::string& line);

  GrowingFile metrics_;
  GrowingFile log_;
  std::map<int64_t, std::string> losses_;
  std::string complaint_;
};

// Whether a line tells of a member, a checkpoint or an end: "lost   worker:1 ...".
bool IsNews(const std::string& line);
bool IsLoss(const std::string& line);

}  // namespace weft

#endif  // WEFT_TOOLS_CHAOS_RUN_WATCH_H_
