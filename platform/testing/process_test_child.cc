// What process_test starts: does what its first argument says.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "platform/openmp_wait.h"
#include "platform/process.h"

namespace weft {
namespace {

int Run(int count, char** arguments) {
  const std::string_view command = count > 1 ? arguments[1] : "";
  if (command == "exit") return std::atoi(arguments[2]);
  if (command == "print") {
    for (int i = 2; i < count; ++i) std::printf("%s\n", arguments[i]);
    return 0;
  }
  if (command == "print-unfinished") return std::printf("no line end") > 0 ? 0 : 1;
  if (command == "environment") {
    const char* const value = std::getenv(arguments[2]);
    std::printf("%s\n", value == nullptr ? "(unset)" : value);
    return 0;
  }
  if (command == "openmp-wait") {
    RestartWithOpenMpWait(arguments);
    for (const char* const name : {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}) {
      const char* const value = std::getenv(name);
      std::printf("%s ", value == nullptr ? "(unset)" : value);
    }
    std::printf("%s\n", arguments[2]);
    return 0;
  }
  if (command == "complain") return std::fprintf(stderr, "complaint\n") > 0 ? 0 : 1;
  if (command == "group") {
    std::printf("%s\n", getpgid(0) == getpid() ? "own" : "inherited");
    return 0;
  }
  if (command == "read-input") {
    std::printf("%d\n", std::getchar());
    return 0;
  }
  if (command == "pause") {
    std::printf("ready\n");
    std::fflush(stdout);
    while (true) pause();
  }
  if (command == "die-with-parent") {
    const absl::Status status = DieWithParent(std::atoll(arguments[2]));
    std::printf("%s\n", status.ok() ? "tied" : "orphan");
    std::fflush(stdout);
    if (!status.ok()) return 0;
    while (true) pause();
  }
  if (command == "parent") {
    // Starts a grandchild that dies with this process, says its id, and waits to be killed.
    auto child = RealProcessLauncher().Start(
        {.arguments = {*CurrentExecutable(), "die-with-parent", std::to_string(getpid())},
         .standard_output = {.kind = ProcessOutput::Kind::kPipe}});
    if (!child.ok()) return 1;
    const auto line = (*child)->ReadLine(absl::InfiniteFuture());
    std::printf("%lld %s\n", static_cast<long long>((*child)->id()), line->c_str());
    std::fflush(stdout);
    while (true) pause();
  }
  return 99;
}

}  // namespace
}  // namespace weft

int main(int count, char** arguments) { return weft::Run(count, arguments); }
