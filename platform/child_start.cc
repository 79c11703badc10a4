#include "platform/child_start.h"

#include <signal.h>

#include "platform/system_error.h"

namespace weft {
namespace {

// A null-terminated array of pointers into `strings`, as exec wants it.
std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ChildStart::ChildStart(bool own_process_group) {
  posix_spawn_file_actions_init(&files_);
  posix_spawnattr_init(&attributes_);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes_, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes_, &signals);
  posix_spawnattr_setpgroup(&attributes_, 0);
  const int group = own_process_group ? POSIX_SPAWN_SETPGROUP : 0;
  posix_spawnattr_setflags(
      &attributes_, static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | group));
}

ChildStart::~ChildStart() {
  posix_spawnattr_destroy(&attributes_);
  posix_spawn_file_actions_destroy(&files_);
}

absl::StatusOr<pid_t> ChildStart::Spawn(const std::string& program,
                                        std::vector<std::string> arguments,
                                        std::vector<std::string> environment,
                                        const std::string& doing) {
  pid_t id = -1;
  const int failure = posix_spawn(&id, program.c_str(), &files_, &attributes_,
                                  Pointers(arguments).data(), Pointers(environment).data());
  if (failure != 0) return SystemError(failure, doing, program);
  return id;
}

}  // namespace weft
