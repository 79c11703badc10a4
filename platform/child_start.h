// ChildStart: what every child of this process begins with, whoever starts it.
#ifndef WEFT_PLATFORM_CHILD_START_H_
#define WEFT_PLATFORM_CHILD_START_H_

#include <spawn.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// For posix_spawn: default signal handling, no signal blocked, a process group of its own if that
// is wanted, and the descriptors that the caller arranges. One thread; one child.
class ChildStart {
 public:
  // `own_process_group`: Ctrl-C in the terminal reaches this process, not the child.
  explicit ChildStart(bool own_process_group);
  ~ChildStart();
  ChildStart(const ChildStart&) = delete;
  ChildStart& operator=(const ChildStart&) = delete;

  // What the child opens, copies and closes, in order. The system's calls on it fail for want of
  // memory alone.
  posix_spawn_file_actions_t& files() { return files_; }
  // The child's id. `program` is a path, never looked up; `environment` has entries "NAME=value".
  // Errors name `program` and what was `doing`: "start".
  absl::StatusOr<pid_t> Spawn(const std::string& program, std::vector<std::string> arguments,
                              std::vector<std::string> environment,
                              const std::string& doing = "start");

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

}  // namespace weft

#endif  // WEFT_PLATFORM_CHILD_START_H_
