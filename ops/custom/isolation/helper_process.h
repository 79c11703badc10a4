// HelperProcess: the worker's side of the process that runs an op library.
#ifndef WEFT_OPS_CUSTOM_ISOLATION_HELPER_PROCESS_H_
#define WEFT_OPS_CUSTOM_ISOLATION_HELPER_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ops/custom/isolation/helper_channel.h"

namespace weft {

// A child process in which RunOpHelper (op_helper.h) runs. The destructor kills it and waits for
// its end. It ends with this process, whatever happens to that. One thread at a time.
class HelperProcess {
 public:
  // Starts `program`, or the executable of this process where that is empty, and gives it `image`,
  // the library. The helper's standard streams go nowhere. Of the environment it gets what says
  // where libraries are and how its runtimes work, and no more: secrets stay here.
  // FailedPrecondition in a process that is a helper itself: a program that does not know
  // kOpHelperArgument would start itself without an end.
  static absl::StatusOr<std::unique_ptr<HelperProcess>> Start(const std::string& program,
                                                              const FileDescriptor& image);
  ~HelperProcess();
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;

  HelperChannel& channel() { return channel_; }
  pid_t id() const { return id_; }

  // Ends it, unless it ends by itself within `patience`, and says how it has ended: "died of
  // SIGSEGV", "ended its process with exit code 0", or `alive` where it had to be ended.
  std::string End(absl::Duration patience, const std::string& alive);

 private:
  HelperProcess(pid_t id, FileDescriptor handle, FileDescriptor channel);

  const pid_t id_;
  const FileDescriptor handle_;  // readable once the process has ended
  HelperChannel channel_;
  bool has_ended_ = false;
};

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_ISOLATION_HELPER_PROCESS_H_
