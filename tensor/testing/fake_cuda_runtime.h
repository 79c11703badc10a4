// CUDA's runtime without a card, for tests of what stands on it.
#ifndef WEFT_TENSOR_TESTING_FAKE_CUDA_RUNTIME_H_
#define WEFT_TENSOR_TESTING_FAKE_CUDA_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "platform/mutex.h"
#include "tensor/cuda/cuda_runtime.h"
#include "tensor/testing/fake_memory.h"
#include "tensor/testing/fake_stream.h"

namespace weft::testing {

// A card of a fake machine: a compute capability that this build has, 1 GiB, nobody else on it.
struct FakeCudaCard {
  FakeCudaCard() {
    properties.name = "Fake GPU";
    properties.major = 9;
    properties.total_bytes = size_t{1} << 30;
    properties.multiprocessors = 4;
    properties.clock_khz = 1'500'000;
    properties.memory_clock_khz = 2'000'000;
    properties.memory_bus_bits = 4096;
    properties.pci_bus = "0000:01:00.0";
  }

  CudaProperties properties;
  size_t used_by_others = 0;
  std::set<int> peers;  // cards whose memory it reaches
};

struct FakeCudaOptions {
  int driver_version = 13000;  // 0: no driver
  int runtime_version = 13000;
  std::vector<FakeCudaCard> cards = {FakeCudaCard{}};
  // Decides the interleaving of streams, and of the parts of a graph.
  FakeSchedulerOptions scheduling = {};
};

// Streams are threads, which run what they are given later, in an order drawn from a seed
// (fake_stream.h). Memory of the cards is memory that the host cannot touch (fake_memory.h). Any
// call can be made to fail. A captured graph knows what came before what, and nothing else: each
// run of it takes another order that keeps to that. It is stricter than CUDA: a launch for another
// card than the current one, a copy outside of an allocation, and a copy of pageable memory are
// refused. Thread-safe. Ends after what was made with it.
class FakeCudaRuntime final : public CudaRuntime {
 public:
  explicit FakeCudaRuntime(const FakeCudaOptions& options = {});
  ~FakeCudaRuntime() override;

  // Stands for a kernel: `code` runs in its turn on the stream, and may touch the card's memory.
  CudaCode Launch(void* stream, std::function<void()> code) ABSL_LOCKS_EXCLUDED(mutex_);
  // A kernel that all code has which is loaded from now on: `body` gets the bytes of the parameter,
  // in its turn on the stream, and may touch the card's memory.
  void AddKernel(const std::string& name, std::function<void(const std::string& parameter)> body)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // From the (skip + 1)-th of them on, `times` calls of that name ("CreateStream") answer `code`
  // and do nothing: also with kSuccess, where nobody sees that. times < 0: all.
  void Fail(const std::string& call, CudaCode code, int skip = 0, int times = -1)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // How often the call was made.
  int Calls(const std::string& call) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Streams, events, pools, graphs, executables, code and pinned memory that were not given back.
  int Leaks() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Cards that have a context of this process: those that were the current one of a thread that
  // made a call which needs one. Each costs memory of its card.
  std::set<int> Contexts() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Of the streams that were made, in order.
  std::vector<int> Priorities() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Damage done to the memory of the cards, as FakeMemory::Verify.
  absl::Status Verify();
  FakeScheduler& scheduler() { return *scheduler_; }

  CudaCode DriverVersion(int* version) override;
  CudaCode RuntimeVersion(int* version) override;
  CudaCode DeviceCount(int* count) override;
  CudaCode Properties(int device, CudaProperties* properties) override;
  CudaCode SetDevice(int device) override;
  CudaCode MemoryInfo(size_t* free_bytes, size_t* total_bytes) override;
  CudaCode PriorityRange(int* lowest, int* highest) override;
  CudaCode CanAccessPeer(int device, int peer, bool* can) override;
  CudaCode EnablePeerAccess(int peer) override;
  CudaCode CreateStream(int priority, CudaStreamHandle* stream) override;
  CudaCode DestroyStream(CudaStreamHandle stream) override;
  CudaCode SynchronizeStream(CudaStreamHandle stream) override;
  CudaCode QueryStream(CudaStreamHandle stream) override;
  CudaCode WaitForEvent(CudaStreamHandle stream, CudaEventHandle event) override;
  CudaCode CallHost(CudaStreamHandle stream, void (*function)(void*), void* argument) override;
  CudaCode CreateEvent(bool with_time, CudaEventHandle* event) override;
  CudaCode DestroyEvent(CudaEventHandle event) override;
  CudaCode RecordEvent(CudaEventHandle event, CudaStreamHandle stream) override;
  CudaCode QueryEvent(CudaEventHandle event) override;
  CudaCode ElapsedTime(CudaEventHandle begin, CudaEventHandle end, float* millis) override;
  CudaCode CreatePool(int device, uint64_t keep_bytes, size_t max_bytes,
                      CudaPoolHandle* pool) override;
  CudaCode DestroyPool(CudaPoolHandle pool) override;
  CudaCode SharePool(CudaPoolHandle pool, int device) override;
  CudaCode AllocateFromPool(CudaPoolHandle pool, CudaStreamHandle stream, size_t bytes,
                            void** data) override;
  CudaCode FreeToPool(void* data, CudaStreamHandle stream) override;
  CudaCode Allocate(size_t bytes, void** data) override;
  CudaCode Free(void* data) override;
  CudaCode AllocateHost(size_t bytes, void** data) override;
  CudaCode FreeHost(void* data) override;
  CudaCode KindOf(const void* data, CudaMemoryKind* kind) override;
  CudaCode Copy(void* to, const void* from, size_t bytes, CudaCopyKind kind,
                CudaStreamHandle stream) override;
  CudaCode CopyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes,
                    CudaStreamHandle stream) override;
  CudaCode BeginCapture(CudaStreamHandle stream) override;
  CudaCode EndCapture(CudaStreamHandle stream, CudaGraphHandle* graph) override;
  CudaCode IsCapturing(CudaStreamHandle stream, bool* is_capturing) override;
  CudaCode DestroyGraph(CudaGraphHandle graph) override;
  CudaCode Instantiate(CudaGraphHandle graph, CudaExecutableHandle* executable) override;
  CudaCode UpdateExecutable(CudaExecutableHandle executable, CudaGraphHandle graph) override;
  CudaCode LaunchExecutable(CudaExecutableHandle executable, CudaStreamHandle stream) override;
  CudaCode DestroyExecutable(CudaExecutableHandle executable) override;
  CudaCode LoadCode(const void* image, CudaCodeHandle* code) override;
  CudaCode UnloadCode(CudaCodeHandle code) override;
  CudaCode FindKernel(CudaCodeHandle code, const std::string& name,
                      CudaKernelHandle* kernel) override;
  CudaCode LaunchKernel(CudaKernelHandle kernel, int64_t blocks, int threads, const void* parameter,
                        size_t bytes, CudaStreamHandle stream) override;
  std::string ErrorName(CudaCode code) override;
  std::string ErrorText(CudaCode code) override;
  CudaCode LastError() override { return CudaCode::kSuccess; }

 private:
  struct Node;
  struct Graph;
  struct Capture;
  struct FakeCudaStream;
  struct FakeCudaEvent;
  struct Pool;
  struct Failure {
    CudaCode code;
    int skip;
    int times;
  };

  // Counts the call, and makes the context that it needs; what it answers, without doing anything,
  // if the test asked for that.
  std::optional<CudaCode> Begin(const std::string& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts the code on the stream, or into what it captures.
  CudaCode Add(FakeCudaStream& stream, std::function<void()> code)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  CudaCode Take(int card, size_t bytes, void** data) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  CudaCode Return(void* data) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  CudaMemoryKind Kind(const void* data) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t FreeBytes(int card) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsCard(int card) const {
    return card >= 0 && static_cast<size_t>(card) < options_.cards.size();
  }
  FakeMemory& MemoryOf(int card) { return *memories_[static_cast<size_t>(card)]; }
  bool IsPinned(const void* data, size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const FakeCudaOptions options_;
  const std::shared_ptr<FakeScheduler> scheduler_;
  std::vector<std::unique_ptr<FakeMemory>> memories_;  // of the cards

  mutable Mutex mutex_;
  std::map<std::string, std::vector<Failure>> failures_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> calls_ ABSL_GUARDED_BY(mutex_);
  std::set<int> contexts_ ABSL_GUARDED_BY(mutex_);
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  std::map<void*, std::unique_ptr<FakeCudaStream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> priorities_ ABSL_GUARDED_BY(mutex_);
  std::map<void*, std::unique_ptr<FakeCudaEvent>> events_ ABSL_GUARDED_BY(mutex_);
  std::map<void*, std::unique_ptr<Pool>> pools_ ABSL_GUARDED_BY(mutex_);
  std::map<void*, std::unique_ptr<Graph>> graphs_ ABSL_GUARDED_BY(mutex_);
  std::map<void*, std::shared_ptr<Graph>> executables_ ABSL_GUARDED_BY(mutex_);
  // Kernels by name, of which each loaded code has a copy.
  using Kernels = std::map<std::string, std::function<void(const std::string&)>>;
  Kernels kernels_ ABSL_GUARDED_BY(mutex_);
  std::map<void*, std::unique_ptr<Kernels>> codes_ ABSL_GUARDED_BY(mutex_);
  std::map<void*, std::pair<int, size_t>> allocations_ ABSL_GUARDED_BY(mutex_);  // card, bytes
  std::map<const char*, size_t> pinned_ ABSL_GUARDED_BY(mutex_);                 // bytes
};

}  // namespace weft::testing

#endif  // WEFT_TENSOR_TESTING_FAKE_CUDA_RUNTIME_H_
