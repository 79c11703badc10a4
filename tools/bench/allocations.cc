// What a steady LeNet step on two worker processes over gRPC allocates from the heap, by whose
// code: `bazel run //tools/bench:allocations`.
//
// This program's malloc and its like (operator new ends there too) are counted in each worker on
// every thread, over kSteps steps after kWarmUp. A call belongs to the first frame of its stack
// that is not of the C or C++ library, of Abseil or of their templates: in this program it is ours,
// in a shared library (or in gRPC's templates, which are compiled into this program) it is the
// library's.
#include <cxxabi.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/bench/bench_job.h"
#include "tools/bench/lenet.h"

namespace {

constexpr int kFrames = 24;
constexpr size_t kStacks = 8192;

struct Stack {
  std::atomic<uint64_t> key{0};
  std::atomic<int64_t> count{0};
  int depth = 0;
  std::array<void*, kFrames> frames;
};
std::array<Stack, kStacks> stacks;
std::atomic<bool> counting{false};
std::atomic<int64_t> lost{0};
thread_local bool inside = false;

// Without a lock and without an allocation: stacks are found by hash in an open table.
void Count() {
  if (!counting.load(std::memory_order_relaxed) || inside) return;
  inside = true;
  std::array<void*, kFrames> frames;
  const int depth = backtrace(frames.data(), kFrames);
  uint64_t key = 1469598103934665603u;
  for (int i = 0; i < depth; ++i) {
    key = (key ^ reinterpret_cast<uintptr_t>(frames[i])) * 1099511628211u;
  }
  key |= 1;
  size_t tried = 0;
  for (; tried < kStacks; ++tried) {
    Stack& stack = stacks[(key + tried) % kStacks];
    uint64_t expected = 0;
    if (stack.key.compare_exchange_strong(expected, key)) {
      stack.depth = depth;
      stack.frames = frames;
      expected = key;
    }
    if (expected != key) continue;
    stack.count.fetch_add(1);
    break;
  }
  if (tried == kStacks) lost.fetch_add(1);
  inside = false;
}

}  // namespace

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  Count();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  Count();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  Count();
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  Count();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace weft {
namespace {

constexpr int64_t kWarmUp = 40;
constexpr int64_t kSteps = 100;
constexpr size_t kSitesShown = 12;
constexpr char kOurs[] = "weft";

std::string Demangled(const char* symbol) {
  int status = 0;
  char* text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  const std::string result = status == 0 ? text : symbol;
  std::free(text);
  return result;
}

struct Site {
  std::string owner;
  std::string place;
};

// Nothing where the frame only passes on what its caller asked for.
Site SiteOf(void* frame, const std::string& program) {
  Dl_info info;
  if (dladdr(frame, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string name = info.dli_sname == nullptr ? "" : Demangled(info.dli_sname);
  const std::string file = std::filesystem::path(info.dli_fname).filename();
  if (file != program) {
    for (const char* passing : {"libc.so", "libstdc++", "libabsl_", "ld-linux"}) {
      if (file.starts_with(passing)) return {};
    }
    return {file.substr(0, file.find(".so")), name};
  }
  if (name.find("weft::") == std::string::npos && !name.empty()) {
    if (name.starts_with("grpc::") || name.find(" grpc::") != std::string::npos) {
      return {"libgrpc++", name};
    }
    return {};  // templates of the C++ library or of Abseil; the functions above
  }
  char offset[32];
  std::snprintf(
      offset, sizeof(offset), "+0x%zx",
      static_cast<size_t>(static_cast<char*>(frame) - static_cast<char*>(info.dli_fbase)));
  return {kOurs, name.substr(0, 120) + " " + offset};
}

Site Blame(const Stack& stack, const std::string& program) {
  for (int i = 1; i < stack.depth; ++i) {
    Site site = SiteOf(stack.frames[i], program);
    if (!site.owner.empty()) return site;
  }
  return {"unknown", ""};
}

void Report(const std::string& worker) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").filename();
  std::map<std::string, int64_t> owners = {{kOurs, 0}};
  std::map<std::string, int64_t> sites;
  for (const Stack& stack : stacks) {
    if (stack.key == 0) continue;
    const Site site = Blame(stack, program);
    owners[site.owner] += stack.count;
    if (site.owner == kOurs) sites[site.place] += stack.count;
  }
  std::string text = worker + ": allocations per step:";
  const auto add = [&](const std::string& what, int64_t count) {
    char line[256];
    std::snprintf(line, sizeof(line), " %s %.2f", what.c_str(),
                  static_cast<double>(count) / kSteps);
    text += line;
  };
  for (const auto& [owner, count] : owners) add(owner, count);
  if (lost > 0) add("not told apart", lost);
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& [place, count] : sites) sorted.emplace_back(-count, place);
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < std::min(sorted.size(), kSitesShown); ++i) {
    text += "\n ";
    add("ours:", -sorted[i].first);
    text += " in " + sorted[i].second;
  }
  std::fprintf(stderr, "%s\n", text.c_str());
}

// Opens and closes the count at the steps' first look at their data.
class CountedSource final : public InputSource {
 public:
  CountedSource(std::unique_ptr<InputSource> source, std::string worker)
      : source_(std::move(source)), worker_(std::move(worker)) {}
  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override {
    if (step == kWarmUp) counting = true;
    if (step == kWarmUp + kSteps && counting.exchange(false)) Report(worker_);
    return source_->Fill(step, input, first, count, target);
  }

 private:
  const std::unique_ptr<InputSource> source_;
  const std::string worker_;
};

absl::Status Serve(const std::vector<std::string>& arguments) {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads what it needs
  const std::string worker = "worker " + arguments[2].substr(arguments[2].rfind('/') + 1);
  return ServeBenchWorker(arguments, [worker](FileSystem& files) -> InputSourceFactory {
    return [open = NewDataSetFactory(files),
            worker](const std::string& data) -> absl::StatusOr<std::unique_ptr<InputSource>> {
      WEFT_ASSIGN_OR_RETURN(std::unique_ptr<InputSource> source, open(data));
      return std::make_unique<CountedSource>(std::move(source), worker);
    };
  });
}

absl::Status Measure() {
  std::string folder = std::filesystem::temp_directory_path() / "weft-allocations-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no temporary folder");
  WEFT_ASSIGN_OR_RETURN(auto data, MakeLenetData(folder));
  WEFT_ASSIGN_OR_RETURN(const Graph model, LenetModel());
  WEFT_ASSIGN_OR_RETURN(BenchJob job, StartBenchJob(model, data, 2));
  const absl::Status trained = TrainSteps(job, kWarmUp + kSteps).status();
  std::filesystem::remove_all(folder);
  return trained;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool worker = arguments.size() > 2 && arguments.front() == "worker";
  const absl::Status status = worker ? weft::Serve(arguments) : weft::Measure();
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return 1;
}
