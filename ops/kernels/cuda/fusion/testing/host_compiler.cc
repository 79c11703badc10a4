#include "ops/kernels/cuda/fusion/testing/host_compiler.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <typeinfo>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ops/testing/emulator/emulated_launch.h"
#include "platform/file_system.h"
#include "platform/process.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

constexpr absl::Duration kCompileDeadline = absl::Minutes(2);

using RunThread = void (*)(const void* arguments, EmulatedGpu& gpu);

// What makes a function for the emulator of a text.
constexpr char kEmulatedEntry[] = R"(
#include "ops/testing/emulator/emulated_gpu.h"
extern "C" void weft_generated(const void* arguments, weft::testing::EmulatedGpu& gpu) {
  weft::cuda::GeneratedBody{*static_cast<const weft::cuda::GeneratedArguments*>(arguments)}(gpu);
}
)";

// "" where there is none.
std::string CompilerInPath() {
  const char* const path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "/usr/bin" : path, ':')) {
    for (const char* const name : {"g++", "c++"}) {
      std::string file = absl::StrCat(folder, "/", name);
      if (access(file.c_str(), X_OK) == 0) return file;
    }
  }
  return "";
}

class HostKernel final : public cuda::GeneratedKernel {
 public:
  explicit HostKernel(RunThread run) : run_(run) {}
  int Launch(cuda::LaunchQueue queue, const cuda::LaunchGrid& grid,
             const cuda::GeneratedArguments& arguments) override {
    return EmulateGrid(queue.stream, grid, grid.threads,
                       {&arguments, sizeof(arguments), &typeid(arguments), run_});
  }

 private:
  const RunThread run_;
};

// A folder that is gone when the text is loaded.
class CompilerFolder {
 public:
  CompilerFolder() {
    const char* const parent = std::getenv("TEST_TMPDIR");
    path_ = absl::StrCat(parent == nullptr ? "/tmp" : parent, "/weft_generated_XXXXXX");
    is_made_ = mkdtemp(path_.data()) != nullptr;
  }
  CompilerFolder(const CompilerFolder&) = delete;
  CompilerFolder& operator=(const CompilerFolder&) = delete;
  ~CompilerFolder() {
    for (const char* const name : {"/text.cc", "/text.so", "/log"}) unlink((path_ + name).c_str());
    rmdir(path_.c_str());
  }
  bool is_made() const { return is_made_; }
  std::string File(const char* name) const { return absl::StrCat(path_, "/", name); }

 private:
  std::string path_;
  bool is_made_ = false;
};

absl::Status RunCompiler(const CompilerFolder& folder) {
  ProcessOptions options;
  options.arguments = {CompilerInPath(),
                       "-std=c++20",
                       "-O1",
                       "-Wall",
                       "-Wextra",
                       "-Werror",
                       "-fPIC",
                       "-shared",
                       "-iquote",
                       ".",
                       folder.File("text.cc"),
                       "-o",
                       folder.File("text.so")};
  options.standard_error = {ProcessOutput::Kind::kFile, folder.File("log")};
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Process> process,
                        RealProcessLauncher().Start(options));
  const std::optional<ExitStatus> end = process->WaitUntil(absl::Now() + kCompileDeadline);
  if (end && end->success()) return absl::OkStatus();
  const auto log = RealFileSystem().ReadFile(folder.File("log"));
  return absl::InternalError(absl::StrCat(
      "the system's compiler ends with ", end ? end->DebugString() : "no result in two minutes",
      ":\n", log.ok() ? *log : std::string(log.status().message())));
}

}  // namespace

HostCompiler& HostCompiler::Global() {
  static auto* const compiler = new HostCompiler();
  return *compiler;
}

bool HostCompiler::IsThere() { return !CompilerInPath().empty(); }

absl::StatusOr<std::shared_ptr<cuda::GeneratedKernel>> HostCompiler::Compile(
    const std::string& text) {
  const MutexLock lock(mutex_);
  std::shared_ptr<cuda::GeneratedKernel>& kernel = kernels_[text];
  if (kernel != nullptr) return kernel;
  const CompilerFolder folder;
  if (!folder.is_made()) return absl::InternalError("no folder for a text to compile");
  WEFT_RETURN_IF_ERROR(RealFileSystem().WriteFileAtomically(folder.File("text.cc"),
                                                            absl::StrCat(text, kEmulatedEntry)));
  const absl::Status compiled = RunCompiler(folder);
  if (!compiled.ok()) {
    return absl::InternalError(
        absl::StrCat(std::string(compiled.message()), "\nin the text\n", text));
  }
  void* const library = dlopen(folder.File("text.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::InternalError(dlerror());
  void* const run = dlsym(library, cuda::kGeneratedKernel);
  if (run == nullptr) return absl::InternalError(dlerror());
  texts_.push_back(text);
  kernel = std::make_shared<HostKernel>(reinterpret_cast<RunThread>(run));
  return kernel;
}

std::vector<std::string> HostCompiler::Texts() {
  const MutexLock lock(mutex_);
  return texts_;
}

namespace {

[[maybe_unused]] const bool is_host_compiler =
    std::getenv("WEFT_TEST_DEVICE") == nullptr &&
    cuda::SetKernelCompilerProvider(
        [](Device&) -> absl::StatusOr<cuda::KernelCompiler*> { return &HostCompiler::Global(); });

}  // namespace

}  // namespace weft::testing
