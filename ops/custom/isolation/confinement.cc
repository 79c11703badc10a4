#include "ops/custom/isolation/confinement.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "platform/file_descriptor.h"
#include "platform/status_macros.h"
#include "platform/system_error.h"

namespace weft {
namespace {

constexpr char kThisProcess[] = "this process";

// -- Limits and rights

absl::Status LimitFiles() {
  const rlimit none = {0, 0};
  for (const auto resource : {RLIMIT_CORE, RLIMIT_FSIZE}) {
    if (setrlimit(resource, &none) != 0) return SystemError(errno, "limit", kThisProcess);
  }
  return absl::OkStatus();
}

// A network of its own with nothing in it. Where neither the process nor its user may make one, the
// filter alone keeps it from the network.
void LeaveNetwork() {
  if (unshare(CLONE_NEWNET) == 0) return;
  [[maybe_unused]] const int made = unshare(CLONE_NEWUSER | CLONE_NEWNET);
}

absl::Status DropCapabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capset, &header, none) != 0) {
    return SystemError(errno, "drop the capabilities of", kThisProcess);
  }
  return absl::OkStatus();
}

// -- Files that may be read

constexpr uint64_t kReading = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
// All that the first version knows.
constexpr uint64_t kAllAccess = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;

// What the loader, the C library and the runtimes of the languages look at.
const std::vector<std::string>& ReadableOfSystem() {
  static const auto* const paths = new std::vector<std::string>{"/lib",
                                                                "/lib64",
                                                                "/usr/lib",
                                                                "/usr/lib64",
                                                                "/usr/local/lib",
                                                                "/etc/ld.so.cache",
                                                                "/etc/ld.so.preload",
                                                                "/etc/localtime",
                                                                "/usr/share/zoneinfo",
                                                                "/sys/devices/system",
                                                                "/proc/cpuinfo",
                                                                "/proc/meminfo",
                                                                "/proc/self",
                                                                "/dev/null",
                                                                "/dev/zero",
                                                                "/dev/urandom"};
  return *paths;
}

// What is not there needs no permission.
absl::Status AllowReading(int ruleset, const std::string& path) {
  const FileDescriptor place(open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat info = {};
  if (!place.valid() || fstat(place.get(), &info) != 0) return absl::OkStatus();
  landlock_path_beneath_attr rule = {};
  rule.allowed_access = S_ISDIR(info.st_mode) ? kReading : LANDLOCK_ACCESS_FS_READ_FILE;
  rule.parent_fd = place.get();
  if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
    return SystemError(errno, "allow this process to read", path);
  }
  return absl::OkStatus();
}

absl::Status LimitReading(const std::vector<std::string>& folders) {
  landlock_ruleset_attr attributes = {};
  attributes.handled_access_fs = kAllAccess;
  const FileDescriptor ruleset(static_cast<int>(
      syscall(SYS_landlock_create_ruleset, &attributes, sizeof(attributes.handled_access_fs), 0)));
  if (!ruleset.valid()) {
    const bool is_missing = errno == ENOSYS || errno == EOPNOTSUPP;
    return is_missing ? absl::OkStatus() : SystemError(errno, "limit the files of", kThisProcess);
  }
  for (const auto* const paths : {&ReadableOfSystem(), &folders}) {
    for (const std::string& path : *paths) {
      WEFT_RETURN_IF_ERROR(AllowReading(ruleset.get(), path));
    }
  }
  if (syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0) {
    return SystemError(errno, "limit the files of", kThisProcess);
  }
  return absl::OkStatus();
}

// -- Calls of the system

// Whatever their arguments.
constexpr int kHarmlessCalls[] = {
    // The channel, and what is open.
    SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv), SCMP_SYS(writev), SCMP_SYS(pread64),
    SCMP_SYS(recvmsg), SCMP_SYS(sendmsg), SCMP_SYS(recvfrom), SCMP_SYS(sendto), SCMP_SYS(poll),
    SCMP_SYS(ppoll), SCMP_SYS(close), SCMP_SYS(lseek), SCMP_SYS(dup),
    // What files are, and where.
    SCMP_SYS(fstat), SCMP_SYS(stat), SCMP_SYS(lstat), SCMP_SYS(newfstatat), SCMP_SYS(statx),
    SCMP_SYS(access), SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(readlink),
    SCMP_SYS(readlinkat), SCMP_SYS(getdents64), SCMP_SYS(getcwd),
    // Memory.
    SCMP_SYS(mmap), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(mprotect), SCMP_SYS(madvise),
    SCMP_SYS(brk), SCMP_SYS(membarrier),
    // Threads and their signals.
    SCMP_SYS(futex), SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(set_tid_address),
    SCMP_SYS(sched_yield), SCMP_SYS(sched_getaffinity), SCMP_SYS(getcpu), SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(sigaltstack),
    SCMP_SYS(restart_syscall), SCMP_SYS(arch_prctl), SCMP_SYS(exit), SCMP_SYS(exit_group),
    // Who and when.
    SCMP_SYS(getpid), SCMP_SYS(gettid), SCMP_SYS(getppid), SCMP_SYS(getuid), SCMP_SYS(geteuid),
    SCMP_SYS(getgid), SCMP_SYS(getegid), SCMP_SYS(uname), SCMP_SYS(sysinfo), SCMP_SYS(getrusage),
    SCMP_SYS(getrlimit), SCMP_SYS(times), SCMP_SYS(time), SCMP_SYS(gettimeofday),
    SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(nanosleep), SCMP_SYS(clock_nanosleep),
    SCMP_SYS(getrandom)};

// Anything but opening what is there for reading.
constexpr uint64_t kWritingFlags =
    O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY);

struct ArgumentRule {
  int call;
  scmp_arg_cmp argument;
};

// Allowed where the argument is so.
std::vector<ArgumentRule> RulesOfArguments() {
  const auto self = static_cast<scmp_datum_t>(getpid());
  return {
      {SCMP_SYS(open), SCMP_A1(SCMP_CMP_MASKED_EQ, kWritingFlags, O_RDONLY)},
      {SCMP_SYS(openat), SCMP_A2(SCMP_CMP_MASKED_EQ, kWritingFlags, O_RDONLY)},
      {SCMP_SYS(clone), SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD)},
      {SCMP_SYS(kill), SCMP_A0(SCMP_CMP_EQ, self, 0)},
      {SCMP_SYS(tgkill), SCMP_A0(SCMP_CMP_EQ, self, 0)},
      {SCMP_SYS(sched_setaffinity), SCMP_A0(SCMP_CMP_EQ, 0, 0)},  // of the calling thread
      {SCMP_SYS(prlimit64), SCMP_A2(SCMP_CMP_EQ, 0, 0)},          // asks for a limit, sets none
      {SCMP_SYS(prctl), SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME, 0)},
      {SCMP_SYS(fcntl), SCMP_A1(SCMP_CMP_EQ, F_GETFD, 0)},
      {SCMP_SYS(fcntl), SCMP_A1(SCMP_CMP_EQ, F_SETFD, 0)},
      {SCMP_SYS(fcntl), SCMP_A1(SCMP_CMP_EQ, F_GETFL, 0)},
  };
}

absl::Status FilterError(int error, const char* action) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot ", action, " a filter of system calls (seccomp), error ", -error,
                   ": does this kernel, or the container around the program, have seccomp?"));
}

absl::Status FilterCalls() {
  const std::unique_ptr<void, decltype(&seccomp_release)> filter(
      seccomp_init(SCMP_ACT_ERRNO(EPERM)), &seccomp_release);
  if (filter == nullptr) return FilterError(-ENOMEM, "make");
  int error = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_NNP, 1);
  if (error == 0) error = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1);
  for (const int call : kHarmlessCalls) {
    if (error == 0) error = seccomp_rule_add_array(filter.get(), SCMP_ACT_ALLOW, call, 0, nullptr);
  }
  for (const ArgumentRule& rule : RulesOfArguments()) {
    if (error != 0) break;
    error = seccomp_rule_add_array(filter.get(), SCMP_ACT_ALLOW, rule.call, 1, &rule.argument);
  }
  // The C library starts threads with it, or with clone when the kernel has none: clone's flags can
  // be looked at.
  if (error == 0) {
    error =
        seccomp_rule_add_array(filter.get(), SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0, nullptr);
  }
  if (error != 0) return FilterError(error, "write");
  error = seccomp_load(filter.get());
  return error == 0 ? absl::OkStatus() : FilterError(error, "set");
}

}  // namespace

std::vector<std::string> FoldersOf(const char* path_list) {
  if (path_list == nullptr) return {};
  return absl::StrSplit(path_list, ':', absl::SkipEmpty());
}

absl::Status ConfineThisProcess(const std::vector<std::string>& library_folders) {
  WEFT_RETURN_IF_ERROR(LimitFiles());
  LeaveNetwork();
  WEFT_RETURN_IF_ERROR(DropCapabilities());
  // Other credentials may have cleared it.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return SystemError(errno, "end with its parent", kThisProcess);
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return SystemError(errno, "forbid new rights to", kThisProcess);
  }
  WEFT_RETURN_IF_ERROR(LimitReading(library_folders));
  return FilterCalls();
}

}  // namespace weft
