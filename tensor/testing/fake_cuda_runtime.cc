#include "tensor/testing/fake_cuda_runtime.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "platform/clock.h"

namespace weft::testing {
namespace {

constexpr size_t kPinnedAlignment = 4096;
constexpr size_t kStreamCapacity = size_t{1} << 16;

thread_local int current_card = 0;

// Calls that only look; cudaSetDevice makes the context of the card that it names. All others make
// that of the thread's current card, which is card 0 in a new thread.
bool NeedsNoContext(const std::string& call) {
  return call == "DriverVersion" || call == "RuntimeVersion" || call == "DeviceCount" ||
         call == "Properties" || call == "CanAccessPeer" || call == "SetDevice";
}

// Work that owns its code.
struct Closure {
  std::function<void()> code;

  static absl::Status Run(void* argument, Stream&) {
    const std::unique_ptr<Closure> closure(static_cast<Closure*>(argument));
    closure->code();
    return absl::OkStatus();
  }
};

absl::Status Put(FakeStream& stream, std::function<void()> code) {
  auto closure = std::make_unique<Closure>(Closure{std::move(code)});
  const absl::Status status = stream.Enqueue(Work{&Closure::Run, closure.get()});
  if (status.ok()) (void)closure.release();
  return status;
}

}  // namespace

struct FakeCudaRuntime::Node {
  std::function<void()> code;
  std::set<int> after;
};

struct FakeCudaRuntime::Graph {
  int card = 0;
  std::vector<Node> nodes;

  // Runs all nodes, in one of the orders that `after` allows.
  void Run(std::mt19937_64& random) const {
    std::vector<bool> done(nodes.size());
    for (size_t count = 0; count < nodes.size(); ++count) {
      std::vector<size_t> ready;
      for (size_t i = 0; i < nodes.size(); ++i) {
        const bool may = std::all_of(nodes[i].after.begin(), nodes[i].after.end(),
                                     [&](int before) { return done[static_cast<size_t>(before)]; });
        if (!done[i] && may) ready.push_back(i);
      }
      const size_t chosen = ready[random() % ready.size()];
      nodes[chosen].code();
      done[chosen] = true;
    }
  }

  // Whether the two differ in their code alone.
  bool HasFormOf(const Graph& other) const {
    return nodes.size() == other.nodes.size() &&
           std::equal(nodes.begin(), nodes.end(), other.nodes.begin(),
                      [](const Node& a, const Node& b) { return a.after == b.after; });
  }
};

struct FakeCudaRuntime::Capture {
  FakeCudaStream* origin = nullptr;
  Graph graph;
  bool is_invalid = false;
  bool has_ended = false;
};

struct FakeCudaRuntime::FakeCudaStream {
  int card = 0;
  std::unique_ptr<FakeStream> queue;
  std::shared_ptr<Capture> capture;  // null: it runs what it is given
  std::set<int> last;                // nodes of the capture that what comes next is after
};

struct FakeCudaRuntime::FakeCudaEvent {
  std::shared_ptr<FakeEvent> event;
  std::shared_ptr<Capture> capture;  // that it was recorded in
  std::set<int> last;
};

struct FakeCudaRuntime::Pool {
  int card = 0;
  std::set<int> shared_with;
};

FakeCudaRuntime::FakeCudaRuntime(const FakeCudaOptions& options)
    : options_(options),
      scheduler_(std::make_shared<FakeScheduler>(options.scheduling)),
      random_(options.scheduling.seed) {
  for (size_t card = 0; card < options.cards.size(); ++card) {
    const size_t capacity = 4 * options.cards[card].properties.total_bytes + (size_t{64} << 20);
    memories_.push_back(
        std::make_unique<FakeMemory>(absl::StrCat("card ", card), capacity, /*protect=*/true));
  }
}

FakeCudaRuntime::~FakeCudaRuntime() {
  std::map<void*, std::unique_ptr<FakeCudaStream>> streams;
  {
    MutexLock lock(mutex_);
    streams.swap(streams_);
    for (const auto& [data, bytes] : pinned_) std::free(const_cast<char*>(data));
  }
}

CudaCode FakeCudaRuntime::Launch(void* stream, std::function<void()> code) {
  MutexLock lock(mutex_);
  if (const std::optional<CudaCode> answer = Begin("Launch")) return *answer;
  const auto found = streams_.find(stream);
  if (found == streams_.end() || found->second->card != current_card) {
    return CudaCode::kInvalidHandle;
  }
  return Add(*found->second, std::move(code));
}

void FakeCudaRuntime::Fail(const std::string& call, CudaCode code, int skip, int times) {
  MutexLock lock(mutex_);
  failures_[call].push_back({code, skip, times});
}

int FakeCudaRuntime::Calls(const std::string& call) const {
  MutexLock lock(mutex_);
  const auto found = calls_.find(call);
  return found == calls_.end() ? 0 : found->second;
}

int FakeCudaRuntime::Leaks() const {
  MutexLock lock(mutex_);
  return static_cast<int>(streams_.size() + events_.size() + pools_.size() + graphs_.size() +
                          executables_.size() + codes_.size() + allocations_.size() +
                          pinned_.size());
}

std::set<int> FakeCudaRuntime::Contexts() const {
  MutexLock lock(mutex_);
  return contexts_;
}

absl::Status FakeCudaRuntime::Verify() {
  absl::Status status;
  for (const auto& memory : memories_) status.Update(memory->Verify());
  return status;
}

std::optional<CudaCode> FakeCudaRuntime::Begin(const std::string& call) {
  ++calls_[call];
  if (IsCard(current_card) && !NeedsNoContext(call)) contexts_.insert(current_card);
  for (Failure& failure : failures_[call]) {
    if (failure.skip > 0) {
      --failure.skip;
    } else if (failure.times != 0) {
      if (failure.times > 0) --failure.times;
      return failure.code;
    }
  }
  return std::nullopt;
}

#define WEFT_FAKE_CUDA_CALL(name) \
  MutexLock lock(mutex_);         \
  if (const std::optional<CudaCode> weft_answer = Begin(name)) return *weft_answer

CudaCode FakeCudaRuntime::DriverVersion(int* version) {
  WEFT_FAKE_CUDA_CALL("DriverVersion");
  *version = options_.driver_version;
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::RuntimeVersion(int* version) {
  WEFT_FAKE_CUDA_CALL("RuntimeVersion");
  *version = options_.runtime_version;
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::DeviceCount(int* count) {
  WEFT_FAKE_CUDA_CALL("DeviceCount");
  if (options_.driver_version < options_.runtime_version / 1000 * 1000) {
    return CudaCode::kInsufficientDriver;
  }
  if (options_.cards.empty()) return CudaCode::kNoDevice;
  *count = static_cast<int>(options_.cards.size());
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::Properties(int device, CudaProperties* properties) {
  WEFT_FAKE_CUDA_CALL("Properties");
  if (!IsCard(device)) return CudaCode::kInvalidDevice;
  *properties = options_.cards[static_cast<size_t>(device)].properties;
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::SetDevice(int device) {
  WEFT_FAKE_CUDA_CALL("SetDevice");
  if (!IsCard(device)) return CudaCode::kInvalidDevice;
  current_card = device;
  contexts_.insert(device);
  return CudaCode::kSuccess;
}

size_t FakeCudaRuntime::FreeBytes(int card) const {
  const FakeCudaCard& info = options_.cards[static_cast<size_t>(card)];
  size_t used = info.used_by_others;
  for (const auto& [data, where] : allocations_) used += where.first == card ? where.second : 0;
  return info.properties.total_bytes - std::min(used, info.properties.total_bytes);
}

CudaCode FakeCudaRuntime::MemoryInfo(size_t* free_bytes, size_t* total_bytes) {
  WEFT_FAKE_CUDA_CALL("MemoryInfo");
  *free_bytes = FreeBytes(current_card);
  *total_bytes = options_.cards[static_cast<size_t>(current_card)].properties.total_bytes;
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::PriorityRange(int* lowest, int* highest) {
  WEFT_FAKE_CUDA_CALL("PriorityRange");
  *lowest = 0;
  *highest = -5;
  return CudaCode::kSuccess;
}

std::vector<int> FakeCudaRuntime::Priorities() const {
  MutexLock lock(mutex_);
  return priorities_;
}

CudaCode FakeCudaRuntime::CanAccessPeer(int device, int peer, bool* can) {
  WEFT_FAKE_CUDA_CALL("CanAccessPeer");
  if (!IsCard(device) || !IsCard(peer)) return CudaCode::kInvalidDevice;
  *can = options_.cards[static_cast<size_t>(device)].peers.contains(peer);
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::EnablePeerAccess(int peer) {
  WEFT_FAKE_CUDA_CALL("EnablePeerAccess");
  return IsCard(peer) ? CudaCode::kSuccess : CudaCode::kInvalidDevice;
}

CudaCode FakeCudaRuntime::CreateStream(int priority, CudaStreamHandle* stream) {
  WEFT_FAKE_CUDA_CALL("CreateStream");
  priorities_.push_back(priority);
  auto made = std::make_unique<FakeCudaStream>();
  made->card = current_card;
  FakeStreamOptions options;
  options.name = "fake";
  options.device = absl::StrCat("card ", current_card);
  options.capacity = kStreamCapacity;
  options.clock = &RealClock();
  made->queue =
      std::make_unique<FakeStream>(std::move(options), scheduler_, MemoryOf(current_card));
  *stream = made.get();
  streams_[made.get()] = std::move(made);
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::DestroyStream(CudaStreamHandle stream) {
  std::unique_ptr<FakeCudaStream> ended;  // Its thread runs what is left.
  {
    WEFT_FAKE_CUDA_CALL("DestroyStream");
    const auto found = streams_.find(stream);
    if (found == streams_.end()) return CudaCode::kInvalidHandle;
    ended = std::move(found->second);
    streams_.erase(found);
  }
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::SynchronizeStream(CudaStreamHandle stream) {
  FakeStream* queue = nullptr;
  {
    WEFT_FAKE_CUDA_CALL("SynchronizeStream");
    FakeCudaStream& own = *streams_.at(stream);
    if (own.capture != nullptr) {
      own.capture->is_invalid = true;
      return CudaCode::kCaptureUnsupported;
    }
    queue = own.queue.get();
  }
  (void)queue->Synchronize(absl::InfiniteDuration());
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::QueryStream(CudaStreamHandle stream) {
  WEFT_FAKE_CUDA_CALL("QueryStream");
  FakeCudaStream& own = *streams_.at(stream);
  if (own.capture != nullptr) {
    own.capture->is_invalid = true;
    return CudaCode::kCaptureUnsupported;
  }
  return own.queue->Synchronize(absl::ZeroDuration()).ok() ? CudaCode::kSuccess
                                                           : CudaCode::kNotReady;
}

CudaCode FakeCudaRuntime::WaitForEvent(CudaStreamHandle stream, CudaEventHandle event) {
  WEFT_FAKE_CUDA_CALL("WaitForEvent");
  FakeCudaStream& own = *streams_.at(stream);
  const FakeCudaEvent& what = *events_.at(event);
  if (what.capture == nullptr && own.capture == nullptr) {
    return own.queue->Wait(*what.event).ok() ? CudaCode::kSuccess : CudaCode::kInvalidValue;
  }
  if (what.capture != nullptr && what.capture->has_ended) return CudaCode::kCapturedEvent;
  if (what.capture == nullptr || (own.capture != nullptr && own.capture != what.capture)) {
    own.capture->is_invalid = true;
    return CudaCode::kCaptureIsolation;
  }
  own.capture = what.capture;
  own.last.insert(what.last.begin(), what.last.end());
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::Add(FakeCudaStream& stream, std::function<void()> code) {
  if (stream.capture == nullptr) {
    return Put(*stream.queue, std::move(code)).ok() ? CudaCode::kSuccess : CudaCode::kInvalidValue;
  }
  std::vector<Node>& nodes = stream.capture->graph.nodes;
  nodes.push_back({std::move(code), stream.last});
  stream.last = {static_cast<int>(nodes.size()) - 1};
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::CallHost(CudaStreamHandle stream, void (*function)(void*),
                                   void* argument) {
  WEFT_FAKE_CUDA_CALL("CallHost");
  return Add(*streams_.at(stream), [function, argument] { function(argument); });
}

CudaCode FakeCudaRuntime::CreateEvent(bool /*with_time*/, CudaEventHandle* event) {
  WEFT_FAKE_CUDA_CALL("CreateEvent");
  auto made = std::make_unique<FakeCudaEvent>();
  made->event = std::make_shared<FakeEvent>(scheduler_);
  *event = made.get();
  events_[made.get()] = std::move(made);
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::DestroyEvent(CudaEventHandle event) {
  WEFT_FAKE_CUDA_CALL("DestroyEvent");
  return events_.erase(event) == 1 ? CudaCode::kSuccess : CudaCode::kInvalidHandle;
}

CudaCode FakeCudaRuntime::RecordEvent(CudaEventHandle event, CudaStreamHandle stream) {
  WEFT_FAKE_CUDA_CALL("RecordEvent");
  FakeCudaStream& own = *streams_.at(stream);
  FakeCudaEvent& what = *events_.at(event);
  what.capture = own.capture;
  what.last = own.last;
  if (own.capture != nullptr) return CudaCode::kSuccess;
  return own.queue->Record(*what.event).ok() ? CudaCode::kSuccess : CudaCode::kInvalidValue;
}

CudaCode FakeCudaRuntime::QueryEvent(CudaEventHandle event) {
  WEFT_FAKE_CUDA_CALL("QueryEvent");
  const FakeCudaEvent& what = *events_.at(event);
  if (what.capture != nullptr) return CudaCode::kCapturedEvent;
  return what.event->Done() ? CudaCode::kSuccess : CudaCode::kNotReady;
}

CudaCode FakeCudaRuntime::ElapsedTime(CudaEventHandle, CudaEventHandle, float* millis) {
  WEFT_FAKE_CUDA_CALL("ElapsedTime");
  *millis = 1;
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::CreatePool(int device, uint64_t /*keep_bytes*/, size_t /*max_bytes*/,
                                     CudaPoolHandle* pool) {
  WEFT_FAKE_CUDA_CALL("CreatePool");
  if (!IsCard(device)) return CudaCode::kInvalidDevice;
  auto made = std::make_unique<Pool>();
  made->card = device;
  made->shared_with.insert(device);
  *pool = made.get();
  pools_[made.get()] = std::move(made);
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::DestroyPool(CudaPoolHandle pool) {
  WEFT_FAKE_CUDA_CALL("DestroyPool");
  return pools_.erase(pool) == 1 ? CudaCode::kSuccess : CudaCode::kInvalidHandle;
}

CudaCode FakeCudaRuntime::SharePool(CudaPoolHandle pool, int device) {
  WEFT_FAKE_CUDA_CALL("SharePool");
  Pool& own = *pools_.at(pool);
  if (!IsCard(device)) return CudaCode::kInvalidDevice;
  own.shared_with.insert(device);
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::Take(int card, size_t bytes, void** data) {
  if (bytes > FreeBytes(card)) return CudaCode::kMemoryAllocation;
  // FakeMemory aligns to 64 bytes, CUDA to 256.
  void* const memory = MemoryOf(card).Allocate(bytes);
  if (memory == nullptr) return CudaCode::kMemoryAllocation;
  allocations_[memory] = {card, bytes};
  *data = memory;
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::Return(void* data) {
  const auto found = allocations_.find(data);
  if (found == allocations_.end()) return CudaCode::kInvalidValue;
  MemoryOf(found->second.first).Free(data);
  allocations_.erase(found);
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::AllocateFromPool(CudaPoolHandle pool, CudaStreamHandle stream,
                                           size_t bytes, void** data) {
  WEFT_FAKE_CUDA_CALL("AllocateFromPool");
  if (!streams_.contains(stream)) return CudaCode::kInvalidHandle;
  return Take(pools_.at(pool)->card, bytes, data);
}

CudaCode FakeCudaRuntime::FreeToPool(void* data, CudaStreamHandle stream) {
  WEFT_FAKE_CUDA_CALL("FreeToPool");
  if (!streams_.contains(stream)) return CudaCode::kInvalidHandle;
  return Return(data);
}

CudaCode FakeCudaRuntime::Allocate(size_t bytes, void** data) {
  WEFT_FAKE_CUDA_CALL("Allocate");
  return Take(current_card, bytes, data);
}

CudaCode FakeCudaRuntime::Free(void* data) {
  WEFT_FAKE_CUDA_CALL("Free");
  return Return(data);
}

CudaCode FakeCudaRuntime::AllocateHost(size_t bytes, void** data) {
  WEFT_FAKE_CUDA_CALL("AllocateHost");
  const size_t padded = (bytes + kPinnedAlignment - 1) / kPinnedAlignment * kPinnedAlignment;
  void* const memory = std::aligned_alloc(kPinnedAlignment, std::max(padded, kPinnedAlignment));
  if (memory == nullptr) return CudaCode::kMemoryAllocation;
  pinned_[static_cast<char*>(memory)] = bytes;
  *data = memory;
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::FreeHost(void* data) {
  WEFT_FAKE_CUDA_CALL("FreeHost");
  if (pinned_.erase(static_cast<char*>(data)) == 0) return CudaCode::kInvalidValue;
  std::free(data);
  return CudaCode::kSuccess;
}

bool FakeCudaRuntime::IsPinned(const void* data, size_t bytes) const {
  const char* const begin = static_cast<const char*>(data);
  auto next = pinned_.upper_bound(begin);
  if (next == pinned_.begin()) return false;
  const auto& [memory, size] = *std::prev(next);
  return begin + bytes <= memory + size;
}

CudaMemoryKind FakeCudaRuntime::Kind(const void* data) const {
  for (const auto& memory : memories_) {
    if (memory->Contains(data)) return CudaMemoryKind::kDevice;
  }
  return IsPinned(data, 1) ? CudaMemoryKind::kPinned : CudaMemoryKind::kPageable;
}

CudaCode FakeCudaRuntime::KindOf(const void* data, CudaMemoryKind* kind) {
  WEFT_FAKE_CUDA_CALL("KindOf");
  *kind = Kind(data);
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::Copy(void* to, const void* from, size_t bytes, CudaCopyKind kind,
                               CudaStreamHandle stream) {
  WEFT_FAKE_CUDA_CALL("Copy");
  FakeCudaStream& own = *streams_.at(stream);
  const FakeMemory& memory = MemoryOf(own.card);
  const bool to_fits =
      kind == CudaCopyKind::kDeviceToHost ? IsPinned(to, bytes) : memory.IsAllocated(to, bytes);
  const bool from_fits =
      kind == CudaCopyKind::kHostToDevice ? IsPinned(from, bytes) : memory.IsAllocated(from, bytes);
  if (!to_fits || !from_fits) return CudaCode::kInvalidValue;
  return Add(own, [to, from, bytes] { std::memmove(to, from, bytes); });
}

CudaCode FakeCudaRuntime::CopyPeer(void* to, int to_device, const void* from, int from_device,
                                   size_t bytes, CudaStreamHandle stream) {
  WEFT_FAKE_CUDA_CALL("CopyPeer");
  if (!IsCard(to_device) || !IsCard(from_device)) return CudaCode::kInvalidDevice;
  FakeMemory& target = MemoryOf(to_device);
  FakeMemory& source = MemoryOf(from_device);
  if (!target.IsAllocated(to, bytes) || !source.IsAllocated(from, bytes)) {
    return CudaCode::kInvalidValue;
  }
  return Add(*streams_.at(stream), [to, from, bytes, &target, &source] {
    const FakeMemoryAccess target_access(target);
    const FakeMemoryAccess source_access(source);
    std::memmove(to, from, bytes);
  });
}

CudaCode FakeCudaRuntime::BeginCapture(CudaStreamHandle stream) {
  WEFT_FAKE_CUDA_CALL("BeginCapture");
  FakeCudaStream& own = *streams_.at(stream);
  if (own.capture != nullptr) return CudaCode::kInvalidValue;
  own.capture = std::make_shared<Capture>();
  own.capture->origin = &own;
  own.capture->graph.card = own.card;
  own.last.clear();
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::EndCapture(CudaStreamHandle stream, CudaGraphHandle* graph) {
  WEFT_FAKE_CUDA_CALL("EndCapture");
  FakeCudaStream& own = *streams_.at(stream);
  const std::shared_ptr<Capture> capture = own.capture;
  if (capture == nullptr || capture->origin != &own) return CudaCode::kInvalidValue;
  // What the end of the first stream comes after.
  std::set<int> reached;
  std::vector<int> open(own.last.begin(), own.last.end());
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    if (!reached.insert(node).second) continue;
    const std::set<int>& after = capture->graph.nodes[static_cast<size_t>(node)].after;
    open.insert(open.end(), after.begin(), after.end());
  }
  bool is_joined = true;
  for (auto& [handle, other] : streams_) {
    if (other->capture != capture) continue;
    for (const int node : other->last) is_joined &= reached.contains(node);
    other->capture = nullptr;
    other->last.clear();
  }
  capture->has_ended = true;
  if (capture->is_invalid) return CudaCode::kCaptureInvalidated;
  if (!is_joined) return CudaCode::kCaptureUnjoined;
  auto made = std::make_unique<Graph>(capture->graph);
  *graph = made.get();
  graphs_[made.get()] = std::move(made);
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::IsCapturing(CudaStreamHandle stream, bool* is_capturing) {
  WEFT_FAKE_CUDA_CALL("IsCapturing");
  *is_capturing = streams_.at(stream)->capture != nullptr;
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::DestroyGraph(CudaGraphHandle graph) {
  WEFT_FAKE_CUDA_CALL("DestroyGraph");
  return graphs_.erase(graph) == 1 ? CudaCode::kSuccess : CudaCode::kInvalidHandle;
}

CudaCode FakeCudaRuntime::Instantiate(CudaGraphHandle graph, CudaExecutableHandle* executable) {
  WEFT_FAKE_CUDA_CALL("Instantiate");
  // A key of its own: the graph behind it changes with updates.
  void* const key = std::malloc(1);
  executables_[key] = std::make_shared<Graph>(*graphs_.at(graph));
  *executable = key;
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::UpdateExecutable(CudaExecutableHandle executable, CudaGraphHandle graph) {
  WEFT_FAKE_CUDA_CALL("UpdateExecutable");
  const Graph& now = *graphs_.at(graph);
  std::shared_ptr<Graph>& own = executables_.at(executable);
  if (!own->HasFormOf(now)) return CudaCode::kGraphUpdateFailure;
  own = std::make_shared<Graph>(now);
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::LaunchExecutable(CudaExecutableHandle executable,
                                           CudaStreamHandle stream) {
  WEFT_FAKE_CUDA_CALL("LaunchExecutable");
  const std::shared_ptr<Graph> graph = executables_.at(executable);
  FakeCudaStream& own = *streams_.at(stream);
  if (own.card != graph->card) return CudaCode::kInvalidHandle;
  return Add(own, [graph, seed = random_()] {
    std::mt19937_64 random(seed);
    graph->Run(random);
  });
}

void FakeCudaRuntime::AddKernel(const std::string& name,
                                std::function<void(const std::string& parameter)> body) {
  MutexLock lock(mutex_);
  kernels_[name] = std::move(body);
}

CudaCode FakeCudaRuntime::LoadCode(const void* image, CudaCodeHandle* code) {
  WEFT_FAKE_CUDA_CALL("LoadCode");
  if (image == nullptr) return CudaCode::kInvalidValue;
  auto loaded = std::make_unique<Kernels>(kernels_);
  *code = loaded.get();
  codes_[*code] = std::move(loaded);
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::UnloadCode(CudaCodeHandle code) {
  WEFT_FAKE_CUDA_CALL("UnloadCode");
  return codes_.erase(code) == 0 ? CudaCode::kInvalidHandle : CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::FindKernel(CudaCodeHandle code, const std::string& name,
                                     CudaKernelHandle* kernel) {
  WEFT_FAKE_CUDA_CALL("FindKernel");
  const auto loaded = codes_.find(code);
  if (loaded == codes_.end()) return CudaCode::kInvalidHandle;
  const auto found = loaded->second->find(name);
  if (found == loaded->second->end()) return CudaCode::kNoKernelImage;
  *kernel = &found->second;
  return CudaCode::kSuccess;
}

CudaCode FakeCudaRuntime::LaunchKernel(CudaKernelHandle kernel, int64_t blocks, int threads,
                                       const void* parameter, size_t bytes,
                                       CudaStreamHandle stream) {
  std::function<void(const std::string&)> body;
  {
    WEFT_FAKE_CUDA_CALL("LaunchKernel");
    if (blocks < 1 || threads < 1 || threads > 1024) return CudaCode::kInvalidValue;
    for (const auto& [handle, code] : codes_) {
      for (const auto& [name, function] : *code) {
        if (&function == kernel) body = function;
      }
    }
  }
  if (body == nullptr) return CudaCode::kInvalidHandle;
  return Launch(stream,
                [body = std::move(body),
                 copy = std::string(static_cast<const char*>(parameter), bytes)] { body(copy); });
}

CudaCode FakeCudaRuntime::DestroyExecutable(CudaExecutableHandle executable) {
  WEFT_FAKE_CUDA_CALL("DestroyExecutable");
  if (executables_.erase(executable) == 0) return CudaCode::kInvalidHandle;
  std::free(executable);
  return CudaCode::kSuccess;
}

#undef WEFT_FAKE_CUDA_CALL

std::string FakeCudaRuntime::ErrorName(CudaCode code) {
  return absl::StrCat("cudaError", static_cast<int>(code));
}

std::string FakeCudaRuntime::ErrorText(CudaCode code) {
  return absl::StrCat("the text of ", static_cast<int>(code));
}

}  // namespace weft::testing
