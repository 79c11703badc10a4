#include "tensor/testing/fake_device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

constexpr size_t kMaxCapacity = size_t{8} << 30;
constexpr size_t kMinCapacity = size_t{64} << 20;

DeviceInfo InfoOf(const FakeDeviceOptions& options) {
  DeviceInfo info;
  info.kind = options.kind;
  info.index = options.index;
  info.memory_limit = options.memory_limit;
  info.host_accessible = false;
  info.runs_host_work = options.runs_host_work;
  info.name = absl::StrCat(options.kind == DeviceKind::kCuda ? "cuda:" : "fake:", options.index);
  return info;
}

// Address space for the limit, with room for guards and gaps between blocks.
size_t CapacityFor(size_t memory_limit) {
  if (memory_limit == 0 || memory_limit > kMaxCapacity / 4) return kMaxCapacity;
  return std::max(kMinCapacity, 4 * memory_limit);
}

}  // namespace

class FakeBuffer final : public Buffer {
 public:
  FakeBuffer(FakeDevice& device, void* data, size_t size)
      : Buffer(device, data, size), device_(device) {}
  ~FakeBuffer() override { device_.Release(data(), size()); }

 private:
  FakeDevice& device_;
};

// Memory of the CPU device that the fake one knows.
class FakeHostBuffer final : public Buffer {
 public:
  FakeHostBuffer(FakeDevice& owner, std::shared_ptr<Buffer> memory)
      : Buffer(memory->device(), memory->data(), memory->size()),
        owner_(owner),
        memory_(std::move(memory)) {}
  ~FakeHostBuffer() override { owner_.ReleaseHost(data()); }

 private:
  FakeDevice& owner_;
  const std::shared_ptr<Buffer> memory_;
};

FakeDevice::FakeDevice(const FakeDeviceOptions& options)
    : options_(options),
      info_(InfoOf(options)),
      scheduler_(options.scheduler != nullptr
                     ? options.scheduler
                     : std::make_shared<FakeScheduler>(options.scheduling)),
      memory_(info_.name, CapacityFor(options.memory_limit), options.protect_memory) {}

FakeDevice::~FakeDevice() {
  MutexLock lock(mutex_);
  if (buffers_ == 0) return;
  std::fprintf(stderr, "device %s ends before its buffers (%lld of them, %zu bytes)\n",
               info_.name.c_str(), static_cast<long long>(buffers_), bytes_in_use_);
  std::abort();
}

absl::StatusOr<std::shared_ptr<Buffer>> FakeDevice::Allocate(size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(void* const data, TakeMemory(bytes));
  OnAllocate(data, bytes);
  return std::make_shared<FakeBuffer>(*this, data, bytes);
}

absl::StatusOr<void*> FakeDevice::TakeMemory(size_t bytes) {
  MutexLock lock(mutex_);
  if (failing_allocation_ > 0 && --failing_allocation_ == 0) {
    return Exhausted(bytes, "the test made this allocation fail");
  }
  const size_t limit = info_.memory_limit == 0 ? kMaxCapacity : info_.memory_limit;
  if (bytes > limit || bytes_in_use_ > limit - bytes) {
    return Exhausted(bytes, absl::StrCat("its limit is ", limit, " bytes"));
  }
  void* const data = memory_.Allocate(bytes);
  if (data == nullptr) return Exhausted(bytes, "its address space has no gap of that size");
  bytes_in_use_ += bytes;
  peak_bytes_ = std::max(peak_bytes_, bytes_in_use_);
  ++buffers_;
  return data;
}

absl::Status FakeDevice::Exhausted(size_t bytes, const std::string& reason) const {
  return absl::ResourceExhaustedError(absl::StrCat(info_.name, " cannot allocate ", bytes,
                                                   " bytes: ", bytes_in_use_,
                                                   " bytes are in use and ", reason));
}

void FakeDevice::Release(void* data, size_t bytes) {
  OnFree(data);
  MutexLock lock(mutex_);
  memory_.Free(data);
  bytes_in_use_ -= bytes;
  --buffers_;
}

absl::StatusOr<std::unique_ptr<Stream>> FakeDevice::NewStream(const std::string& name) {
  FakeStreamOptions options;
  options.name = name;
  options.device = info_.name;
  options.capacity = options_.stream_capacity;
  options.enqueue_timeout = options_.enqueue_timeout;
  options.clock = options_.clock != nullptr ? options_.clock : &RealClock();
  options.runs_host_work = options_.runs_host_work;
  WEFT_ASSIGN_OR_RETURN(options.hooks, NewHooks(name));
  return std::make_unique<FakeStream>(std::move(options), scheduler_, memory_);
}

absl::StatusOr<std::unique_ptr<Event>> FakeDevice::NewEvent() {
  return std::make_unique<FakeEvent>(scheduler_);
}

absl::Status FakeDevice::CopyFromHost(Stream& stream, const void* host, void* device,
                                      size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(FakeStream* const own, Own(stream));
  if (bytes > 0) {
    WEFT_RETURN_IF_ERROR(CheckHostSide(*own, host, bytes));
    WEFT_RETURN_IF_ERROR(CheckDeviceSide(device, bytes));
  }
  return own->EnqueueCopy(host, device, bytes);
}

absl::Status FakeDevice::CopyToHost(Stream& stream, const void* device, void* host, size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(FakeStream* const own, Own(stream));
  if (bytes > 0) {
    WEFT_RETURN_IF_ERROR(CheckHostSide(*own, host, bytes));
    WEFT_RETURN_IF_ERROR(CheckDeviceSide(device, bytes));
  }
  return own->EnqueueCopy(device, host, bytes);
}

absl::Status FakeDevice::CopyOnDevice(Stream& stream, const void* from, void* to, size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(FakeStream* const own, Own(stream));
  if (bytes > 0) {
    WEFT_RETURN_IF_ERROR(CheckDeviceSide(from, bytes));
    WEFT_RETURN_IF_ERROR(CheckDeviceSide(to, bytes));
  }
  return own->EnqueueCopy(from, to, bytes);
}

absl::StatusOr<FakeStream*> FakeDevice::Own(Stream& stream) const {
  auto* const own = dynamic_cast<FakeStream*>(&stream);
  if (own == nullptr || &own->memory() != &memory_) {
    return absl::InvalidArgumentError(
        absl::StrCat("a copy of ", info_.name, " needs a stream of that device"));
  }
  return own;
}

absl::Status FakeDevice::CheckDeviceSide(const void* data, size_t bytes) const {
  if (memory_.IsAllocated(data, bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the ", bytes, " bytes of a copy are not inside ",
                                                 "one buffer of ", info_.name));
}

absl::Status FakeDevice::CheckHostSide(const FakeStream& stream, const void* data,
                                       size_t bytes) const {
  if (memory_.Contains(data)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the host side of a copy is memory of ", info_.name));
  }
  if (!stream.IsRecording()) return absl::OkStatus();
  const char* const begin = static_cast<const char*>(data);
  MutexLock lock(mutex_);
  auto next = host_memory_.upper_bound(begin);
  if (next != host_memory_.begin()) {
    const auto& [memory, size] = *std::prev(next);
    if (begin + bytes <= memory + size) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("a stream of ", info_.name, " records, and a recorded copy needs memory of ",
                   "Device::AllocateHostMemory on the host's side"));
}

absl::StatusOr<std::shared_ptr<Buffer>> FakeDevice::AllocateHostMemory(size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory, CpuDevice().Allocate(bytes));
  MutexLock lock(mutex_);
  host_memory_[static_cast<const char*>(memory->data())] = bytes;
  ++buffers_;
  return std::make_shared<FakeHostBuffer>(*this, std::move(memory));
}

void FakeDevice::ReleaseHost(const void* data) {
  MutexLock lock(mutex_);
  host_memory_.erase(static_cast<const char*>(data));
  --buffers_;
}

size_t FakeDevice::bytes_in_use() const {
  MutexLock lock(mutex_);
  return bytes_in_use_;
}

size_t FakeDevice::peak_bytes() const {
  MutexLock lock(mutex_);
  return peak_bytes_;
}

void FakeDevice::ForgetPeakBytes() {
  MutexLock lock(mutex_);
  peak_bytes_ = bytes_in_use_;
}

void FakeDevice::FailAllocation(int64_t k) {
  MutexLock lock(mutex_);
  failing_allocation_ = k;
}

}  // namespace weft::testing
