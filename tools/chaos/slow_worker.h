// SlowWorker: a process that may use a fifth of a processor.
#ifndef WEFT_TOOLS_CHAOS_SLOW_WORKER_H_
#define WEFT_TOOLS_CHAOS_SLOW_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "platform/file_system.h"

namespace weft {

// Puts a process into a control group of its own with a CPU quota of 20 %, of version 1 or 2. Where
// none can be made, the process is stopped for 80 ms of each 100 ms instead, by whoever calls
// Turn. The destructor ends the slowness and removes the group, once nothing is in it. One thread.
class SlowWorker {
 public:
  // `signal` sends a signal to the process and says whether it lives. Borrows `files`.
  SlowWorker(FileSystem& files, int64_t id, std::function<bool(int signal)> signal);
  SlowWorker(const SlowWorker&) = delete;
  SlowWorker& operator=(const SlowWorker&) = delete;
  ~SlowWorker();

  // Why there is no control group; "": there is one.
  const std::string& why_no_group() const { return why_no_group_; }
  // Call it every 10 ms or so.
  void Turn(absl::Time now);
  // The process has all of its processor again.
  void End();

 private:
  absl::Status MakeGroup(int64_t id);
  absl::Status WriteQuota(bool limited) const;

  FileSystem& files_;
  const std::function<bool(int signal)> signal_;
  std::string parent_;  // the folder of this process's control group
  std::string group_;   // of the new one; "": none
  std::string why_no_group_;
  bool is_stopped_ = false;
  bool has_ended_ = false;
};

}  // namespace weft

#endif  // WEFT_TOOLS_CHAOS_SLOW_WORKER_H_
