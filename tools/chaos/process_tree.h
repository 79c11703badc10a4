// The processes below a process, as /proc shows them.
#ifndef WEFT_TOOLS_CHAOS_PROCESS_TREE_H_
#define WEFT_TOOLS_CHAOS_PROCESS_TREE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "platform/file_system.h"

namespace weft {

// A process that runs.
struct RunningProcess {
  int64_t id = 0;
  std::vector<std::string> arguments;  // of its command line

  // Whether it is a worker of graph_runner.
  bool is_worker() const { return arguments.size() > 1 && arguments[1] == "worker"; }
};

// The children of a process, by id; those that have ended and wait for their parent are not among
// them. What cannot be read has ended. proc(5).
std::vector<RunningProcess> ChildrenOf(FileSystem& files, int64_t parent);

// From now on, processes below this one whose parents end become children of this one.
void AdoptOrphans();

// Takes the exit status of each child of this process that has ended, but for those in `known`,
// which belong to a Process. So adopted ones do not stay behind as zombies.
void ReapAdopted(FileSystem& files, const std::vector<int64_t>& known);

// Sends a signal to a child of `parent`, and to no other process that has got its id since.
// NotFound where it has ended.
absl::Status SignalChild(FileSystem& files, int64_t parent, int64_t id, int signal);

}  // namespace weft

#endif  // WEFT_TOOLS_CHAOS_PROCESS_TREE_H_
