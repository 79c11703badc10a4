// Ops that do what no op should: the attribute `what` says what, `where` in which function.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

#include "ops/custom_op.h"

namespace op = weft::custom;

namespace {

void Loop() {
  for (volatile int i = 0; i == 0;) {
  }
}

[[noreturn]] void ThrowAnything() { throw std::runtime_error("no way out"); }
[[noreturn]] void ThrowWhereNothingMay() noexcept { ThrowAnything(); }

void WriteGarbage() {
  const std::string garbage(100, 'x');
  for (int descriptor = 0; descriptor < 5; ++descriptor) {
    [[maybe_unused]] const ssize_t count = write(descriptor, garbage.data(), garbage.size());
  }
}

void HangUp() {
  close(3);
  Loop();
}

// Ends the process, or what it is good for.
void Act(const std::string& what) {
  static const auto* const acts = new std::map<std::string, void (*)()>{
      {"crash", [] { raise(SIGSEGV); }},
      {"null", [] { *static_cast<volatile int*>(nullptr) = 1; }},
      {"abort", [] { std::abort(); }},
      {"exit", [] { std::exit(0); }},
      {"loop", Loop},
      {"terminate", [] { ThrowWhereNothingMay(); }},
      {"garbage", WriteGarbage},
      {"hang up", HangUp},
      {"throw", [] { throw std::runtime_error("out of ideas"); }},
      // After the call has ended.
      {"later", [] { std::thread([] { usleep(20'000), raise(SIGSEGV); }).detach(); }}};
  if (const auto act = acts->find(what); act != acts->end()) act->second();
}

void ActIf(const op::Context& context, const char* function) {
  if (context.String("where", "Compute") == function) Act(context.String("what", ""));
}

// The error number of the attempt; 0 where it succeeds.
int ErrorOf(long result) { return result < 0 ? errno : 0; }

int Fork() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  return ErrorOf(child);
}

int Execute() {
  char name[] = "/bin/true";
  char* const arguments[] = {name, nullptr};
  return ErrorOf(execv(name, arguments));
}

int ReadOfParent() {
  const std::string path = "/proc/" + std::to_string(getppid()) + "/mem";
  return ErrorOf(open(path.c_str(), O_RDONLY));
}

int OpenCoreAgain() {
  const rlimit much = {1 << 20, 1 << 20};
  return ErrorOf(setrlimit(RLIMIT_CORE, &much));
}

// What the op tries on the file that `path` names, or elsewhere.
int Try(const std::string& what, const std::string& path) {
  const char* const file = path.c_str();
  const std::map<std::string, std::function<int()>> attempts = {
      {"nothing", [] { return 0; }},
      {"socket", [] { return ErrorOf(socket(AF_INET, SOCK_STREAM, 0)); }},
      {"unix socket", [] { return ErrorOf(socket(AF_UNIX, SOCK_STREAM, 0)); }},
      {"write", [&] { return ErrorOf(open(file, O_WRONLY)); }},
      {"read and write", [&] { return ErrorOf(open(file, O_RDWR)); }},
      {"create", [&] { return ErrorOf(open((path + ".new").c_str(), O_CREAT | O_RDONLY, 0600)); }},
      {"truncate", [&] { return ErrorOf(open(file, O_RDONLY | O_TRUNC)); }},
      {"openat2", [&] { return ErrorOf(syscall(SYS_openat2, AT_FDCWD, file, nullptr, 0)); }},
      {"read", [&] { return ErrorOf(open(file, O_RDONLY)); }},
      {"remove", [&] { return ErrorOf(unlink(file)); }},
      {"rename", [&] { return ErrorOf(rename(file, (path + ".moved").c_str())); }},
      {"mode", [&] { return ErrorOf(chmod(file, 0777)); }},
      {"folder", [&] { return ErrorOf(mkdir((path + ".d").c_str(), 0700)); }},
      {"fork", Fork},
      {"run a program", Execute},
      {"kill the parent", [] { return ErrorOf(kill(getppid(), 0)); }},
      {"kill all", [] { return ErrorOf(kill(-1, 0)); }},
      {"queue a signal",
       [] { return ErrorOf(syscall(SYS_rt_sigqueueinfo, getppid(), 0, nullptr)); }},
      {"trace the parent", [] { return ErrorOf(ptrace(PTRACE_ATTACH, getppid(), 0, 0)); }},
      {"memory of the parent", ReadOfParent},
      {"outlive the parent", [] { return ErrorOf(syscall(SYS_prctl, 1, 0, 0, 0, 0)); }},
      {"core file", OpenCoreAgain},
      {"ring", [] { return ErrorOf(syscall(SYS_io_uring_setup, 1, nullptr)); }},
      {"name space", [] { return ErrorOf(unshare(CLONE_NEWUSER)); }},
      // What it may do.
      {"thread",
       [] {
         int error = EPERM;
         std::thread([&error] { error = 0; }).join();
         return error;
       }},
      {"memory", [] { return std::string(1 << 24, 'x').size() == 1 << 24 ? 0 : ENOMEM; }},
      {"processors", [] { return ErrorOf(open("/proc/cpuinfo", O_RDONLY)); }}};
  const auto attempt = attempts.find(what);
  if (attempt == attempts.end()) throw std::invalid_argument("there is no attempt " + what);
  return attempt->second();
}

void LikeInput(op::InferContext& context) {
  ActIf(context, "Infer");
  context.SetOutput(0, context.InputType(0));
}

// y = x, or the error number of an attempt in all elements.
void Run(op::KernelContext& context) {
  ActIf(context, "Compute");
  const std::string attempt = context.String("try", "");
  const float* x = context.Input(0).Data<float>();
  float* y = context.Output(0).Data<float>();
  const int64_t elements = context.Output(0).Elements();
  const int error = attempt.empty() ? 0 : Try(attempt, context.String("path", "/"));
  for (int64_t i = 0; i < elements; ++i) y[i] = attempt.empty() ? x[i] : static_cast<float>(error);
}

}  // namespace

WEFT_OP_LIBRARY(library) {
  library.Op("evil", "Act")
      .Input("x", {op::kFloat32})
      .Output("y")
      .Attr("what", WEFT_STRING)
      .Attr("where", WEFT_STRING)
      .Attr("try", WEFT_STRING)
      .Attr("path", WEFT_STRING)
      .Infer(LikeInput)
      .Cpu(Run)
      .Gradient([](op::GradientContext& context) {
        ActIf(context, "Gradient");
        context.SetInputGradient(0, context.OutputGradient(0));
      })
      .Flops([](op::CostContext& context) {
        ActIf(context, "Flops");
        return 1.0;
      })
      .Sharding("... -> ...");
}
