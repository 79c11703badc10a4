#include "tensor/cuda/cuda_device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "tensor/cuda/cuda_status.h"
#include "tensor/cuda/cuda_wait.h"

namespace weft {
namespace {

constexpr size_t kCudaAlignment = 256;
// Larger requests than this cannot be served, and are kept out of the arithmetic below.
constexpr size_t kLargestAllocation = std::numeric_limits<size_t>::max() / 4;

DeviceInfo InfoOf(const CudaDeviceOptions& options, const std::string& name, size_t memory_limit) {
  DeviceInfo info;
  info.kind = DeviceKind::kCuda;
  info.index = options.index;
  info.memory_limit = memory_limit;
  info.host_accessible = false;
  info.runs_host_work = false;
  info.name = name;
  return info;
}

// Empty buffers get an address too.
size_t Padded(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + kCudaAlignment - 1) / kCudaAlignment * kCudaAlignment;
}

std::optional<std::string> VisibleDevices() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? std::optional<std::string>() : visible;
}

}  // namespace

class CudaBuffer final : public Buffer {
 public:
  CudaBuffer(CudaDevice& device, void* data, size_t size)
      : Buffer(device, data, size), device_(device) {}
  ~CudaBuffer() override { device_.Release(data(), size()); }

 private:
  CudaDevice& device_;
};

// Memory of the host: its device is the CPU.
class PinnedBuffer final : public Buffer {
 public:
  PinnedBuffer(CudaDevice& owner, void* data, size_t size)
      : Buffer(CpuDevice(), data, size), owner_(owner) {}
  ~PinnedBuffer() override { owner_.ReleaseHost(data()); }

 private:
  CudaDevice& owner_;
};

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(CudaRuntime& runtime,
                                                               const CudaDeviceOptions& options) {
  CudaContext context;
  context.runtime = &runtime;
  context.clock = options.clock != nullptr ? options.clock : &RealClock();
  context.card = options.card;
  context.device = absl::StrCat("cuda:", options.index);
  context.patience = options.patience;
  WEFT_ASSIGN_OR_RETURN(
      const CudaProperties properties,
      SetUpCudaCard(runtime, {options.card, context.device, options.visible_devices}));
  size_t limit = options.memory_limit;
  if (limit == 0) {
    size_t total = 0;
    WEFT_RETURN_IF_ERROR(
        context.Check(runtime.MemoryInfo(&limit, &total), "say how much of its memory is free"));
  }
  std::unique_ptr<CudaDevice> device(new CudaDevice(context, options, properties, limit));
  WEFT_RETURN_IF_ERROR(device->OpenMemory());
  return device;
}

CudaDevice::CudaDevice(const CudaContext& context, const CudaDeviceOptions& options,
                       const CudaProperties& properties, size_t memory_limit)
    : context_(context),
      options_(options),
      properties_(properties),
      info_(InfoOf(options, context.device, memory_limit)) {}

CudaDevice::~CudaDevice() {
  MutexLock lock(mutex_);
  if (buffers_ != 0) {
    std::fprintf(stderr, "device %s ends before its buffers (%lld of them, %zu bytes)\n",
                 info_.name.c_str(), static_cast<long long>(buffers_), bytes_in_use_);
    std::abort();
  }
  CudaRuntime& runtime = *context_.runtime;
  runtime.SetDevice(context_.card);
  if (memory_stream_ != nullptr) {
    AwaitCuda([&] { return runtime.QueryStream(memory_stream_); }, *context_.clock,
              context_.clock->Now() + context_.patience);
    runtime.DestroyStream(memory_stream_);
  }
  if (pool_ != nullptr) runtime.DestroyPool(pool_);
}

absl::Status CudaDevice::OpenMemory() {
  CudaRuntime& runtime = *context_.runtime;
  WEFT_RETURN_IF_ERROR(context_.MakeCurrent());
  WEFT_RETURN_IF_ERROR(context_.Check(runtime.CreateStream(/*priority=*/0, &memory_stream_),
                                      "make the stream of its allocations"));
  if (!properties_.has_memory_pools) return absl::OkStatus();
  // The limit is ours to keep: CUDA rounds what it holds up to whole pages.
  return context_.Check(
      runtime.CreatePool(context_.card, options_.keep_bytes, /*max_bytes=*/0, &pool_),
      "make its pool of memory");
}

absl::StatusOr<std::shared_ptr<Buffer>> CudaDevice::Allocate(size_t bytes) {
  MutexLock lock(mutex_);
  const size_t limit = std::min(info_.memory_limit, kLargestAllocation);
  if (bytes > limit || bytes_in_use_ > limit - bytes) {
    return Exhausted(bytes, absl::StrCat("its limit is ", limit, " bytes"));
  }
  WEFT_ASSIGN_OR_RETURN(void* const data, TakeMemory(bytes));
  bytes_in_use_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, bytes_in_use_);
  ++buffers_;
  return std::make_shared<CudaBuffer>(*this, data, bytes);
}

absl::StatusOr<void*> CudaDevice::TakeMemory(size_t bytes) {
  CudaRuntime& runtime = *context_.runtime;
  WEFT_RETURN_IF_ERROR(context_.MakeCurrent());
  void* data = nullptr;
  CudaCode code = pool_ != nullptr
                      ? runtime.AllocateFromPool(pool_, memory_stream_, Padded(bytes), &data)
                      : runtime.Allocate(Padded(bytes), &data);
  if (code == CudaCode::kMemoryAllocation) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    WEFT_RETURN_IF_ERROR(context_.Check(runtime.MemoryInfo(&free_bytes, &total_bytes),
                                        "say how much of its memory is free"));
    return Exhausted(bytes, absl::StrCat(free_bytes, " of the ", total_bytes,
                                         " bytes of the card (", properties_.name, ") are free"));
  }
  WEFT_RETURN_IF_ERROR(context_.Check(code, absl::StrCat("allocate ", bytes, " bytes")));
  if (pool_ == nullptr) return data;
  // Until here it belongs to one stream; afterwards to whoever got it.
  code = AwaitCuda([&] { return runtime.QueryStream(memory_stream_); }, *context_.clock,
                   context_.clock->Now() + context_.patience);
  if (code == CudaCode::kSuccess) return data;
  runtime.FreeToPool(data, memory_stream_);
  if (code == CudaCode::kNotReady) {
    return absl::DeadlineExceededError(
        absl::StrCat(info_.name, " has not given ", bytes, " bytes within ",
                     absl::FormatDuration(context_.patience), "; the card does not answer"));
  }
  return context_.Check(code, absl::StrCat("allocate ", bytes, " bytes"));
}

absl::Status CudaDevice::Exhausted(size_t bytes, const std::string& reason) const {
  return absl::ResourceExhaustedError(absl::StrCat(
      info_.name, " cannot allocate ", bytes, " bytes: ", bytes_in_use_, " bytes are in use and ",
      reason, "; use a smaller batch or more devices, or end what else uses the card"));
}

void CudaDevice::Release(void* data, size_t bytes) {
  MutexLock lock(mutex_);
  CudaRuntime& runtime = *context_.runtime;
  runtime.SetDevice(context_.card);
  if (pool_ != nullptr) {
    runtime.FreeToPool(data, memory_stream_);
  } else {
    runtime.Free(data);
  }
  bytes_in_use_ -= bytes;
  --buffers_;
}

absl::StatusOr<std::shared_ptr<Buffer>> CudaDevice::AllocateHostMemory(size_t bytes) {
  MutexLock lock(mutex_);
  WEFT_RETURN_IF_ERROR(context_.MakeCurrent());
  void* data = nullptr;
  WEFT_RETURN_IF_ERROR(
      context_.Check(context_.runtime->AllocateHost(Padded(bytes), &data),
                     absl::StrCat("get ", bytes, " bytes of pinned memory of the host")));
  ++buffers_;
  return std::make_shared<PinnedBuffer>(*this, data, bytes);
}

void CudaDevice::ReleaseHost(void* data) {
  MutexLock lock(mutex_);
  context_.runtime->SetDevice(context_.card);
  context_.runtime->FreeHost(data);
  --buffers_;
}

absl::StatusOr<std::unique_ptr<Stream>> CudaDevice::NewStream(const std::string& name) {
  CudaStagingOptions staging = options_.staging;
  staging.clock = context_.clock;
  staging.timeout = context_.patience;
  return CudaStream::Create(context_, name, staging);
}

absl::StatusOr<std::unique_ptr<Event>> CudaDevice::NewEvent() {
  return CudaEvent::Create(context_);
}

absl::Status CudaDevice::CopyFromHost(Stream& stream, const void* host, void* device,
                                      size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(CudaStream* const own, Own(stream));
  return own->CopyFromHost(host, device, bytes);
}

absl::Status CudaDevice::CopyToHost(Stream& stream, const void* device, void* host, size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(CudaStream* const own, Own(stream));
  return own->CopyToHost(device, host, bytes);
}

absl::Status CudaDevice::CopyOnDevice(Stream& stream, const void* from, void* to, size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(CudaStream* const own, Own(stream));
  return own->CopyOnDevice(from, to, bytes);
}

absl::Status CudaDevice::CopyToPeer(Stream& stream, const void* from, Device& peer, void* to,
                                    size_t bytes) {
  auto* const other = dynamic_cast<CudaDevice*>(&peer);
  if (other == nullptr || other->context_.runtime != context_.runtime) {
    return Device::CopyToPeer(stream, from, peer, to, bytes);
  }
  WEFT_ASSIGN_OR_RETURN(CudaStream* const own, Own(stream));
  WEFT_RETURN_IF_ERROR(Meet(*other));
  return own->CopyToCard(from, other->context_.card, to, bytes);
}

absl::Status CudaDevice::Meet(CudaDevice& peer) {
  if (peer.context_.card == context_.card) return absl::OkStatus();
  MutexLock lock(mutex_);
  if (met_devices_.contains(peer.options_.index)) return absl::OkStatus();
  CudaRuntime& runtime = *context_.runtime;
  bool can = false;
  WEFT_RETURN_IF_ERROR(
      context_.Check(runtime.CanAccessPeer(context_.card, peer.context_.card, &can),
                     absl::StrCat("learn whether it reaches ", peer.info_.name)));
  if (!can) {
    met_devices_.insert(peer.options_.index);
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(context_.MakeCurrent());
  const std::string action = absl::StrCat("reach the memory of ", peer.info_.name);
  const CudaCode code = runtime.EnablePeerAccess(peer.context_.card);
  if (code != CudaCode::kPeerAccessAlreadyEnabled) {
    WEFT_RETURN_IF_ERROR(context_.Check(code, action));
  }
  if (peer.pool_ != nullptr) {
    WEFT_RETURN_IF_ERROR(context_.Check(runtime.SharePool(peer.pool_, context_.card), action));
  }
  met_devices_.insert(peer.options_.index);
  return absl::OkStatus();
}

absl::StatusOr<CudaStream*> CudaDevice::Own(Stream& stream) const {
  auto* const own = dynamic_cast<CudaStream*>(&stream);
  if (own == nullptr || own->context().runtime != context_.runtime ||
      own->context().device != context_.device) {
    return absl::InvalidArgumentError(
        absl::StrCat("a copy of ", info_.name, " needs a stream of that device"));
  }
  return own;
}

size_t CudaDevice::bytes_in_use() const {
  MutexLock lock(mutex_);
  return bytes_in_use_;
}

size_t CudaDevice::peak_bytes() const {
  MutexLock lock(mutex_);
  return peak_bytes_;
}

void CudaDevice::ForgetPeakBytes() {
  MutexLock lock(mutex_);
  peak_bytes_ = bytes_in_use_;
}

absl::Status CheckCudaDevice(int index) {
  WEFT_ASSIGN_OR_RETURN(CudaRuntime* const runtime, SystemCudaRuntime());
  return CheckCudaCard(*runtime, {index, absl::StrCat("cuda:", index), VisibleDevices()}).status();
}

std::string DescribeCudaDevice(int index) {
  const absl::StatusOr<CudaRuntime*> runtime = SystemCudaRuntime();
  if (!runtime.ok()) return "";
  const absl::StatusOr<CudaProperties> card =
      CheckCudaCard(**runtime, {index, absl::StrCat("cuda:", index), VisibleDevices()});
  if (!card.ok()) return "";
  return CudaCardText(*card);
}

absl::StatusOr<Device*> FindCudaDevice(int index) {
  static Mutex* const mutex = new Mutex;
  static auto* const devices = new std::map<int, std::unique_ptr<CudaDevice>>;
  WEFT_ASSIGN_OR_RETURN(CudaRuntime* const runtime, SystemCudaRuntime());
  MutexLock lock(*mutex);
  const auto found = devices->find(index);
  if (found != devices->end()) return found->second.get();
  CudaDeviceOptions options;
  options.index = index;
  options.card = index;
  options.visible_devices = VisibleDevices();
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, CudaDevice::Create(*runtime, options));
  return devices->emplace(index, std::move(device)).first->second.get();
}

}  // namespace weft
