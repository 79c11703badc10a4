#include "tensor/cpu_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// Larger requests than this cannot be served, and are kept out of the arithmetic below.
constexpr size_t kMaxAllocation = std::numeric_limits<size_t>::max() / 4;

// Of this machine. Some systems promise more and end the process that comes to use it.
size_t PhysicalMemory() {
  const auto pages = static_cast<size_t>(std::max<int64_t>(sysconf(_SC_PHYS_PAGES), 0));
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

bool IsMapped(size_t bytes) { return bytes >= kHugePage; }

size_t MappedSize(size_t bytes) {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return RoundUp(bytes, page);
}

// Whole pages that start at a huge-page boundary, or null.
void* MapMemory(size_t bytes) {
  const size_t size = MappedSize(bytes);
  const size_t reserved = size + kHugePage;
  void* const base =
      mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(base);
  const size_t head =
      RoundUp(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin);
  char* const data = begin + head;
  if (head > 0) munmap(begin, head);
  const size_t tail = reserved - head - size;
  if (tail > 0) munmap(data + size, tail);
  madvise(data, size, MADV_HUGEPAGE);  // Advice: without huge pages it is slower, not wrong.
  return data;
}

void* AllocateMemory(size_t bytes) {
  if (IsMapped(bytes)) return MapMemory(bytes);
  // Empty buffers get an address too, so that null always means "no buffer".
  return std::aligned_alloc(kAlignment, RoundUp(bytes == 0 ? 1 : bytes, kAlignment));
}

void FreeMemory(void* data, size_t bytes) {
  if (IsMapped(bytes)) {
    munmap(data, MappedSize(bytes));
  } else {
    std::free(data);
  }
}

class CpuEvent final : public Event {
 public:
  bool Done() const override { return true; }
};

class CpuStream final : public Stream {
 public:
  CpuStream(std::string name, std::string device) : name_(std::move(name)), device_(device) {}

  absl::Status Enqueue(Work work) override {
    if (status_.ok()) status_ = work.run(work.argument, *this);
    return status_;
  }

  absl::Status Record(Event&) override { return status_; }

  absl::Status Wait(Event& event) override {
    if (status_.ok() && !event.Done()) {
      return absl::FailedPreconditionError(
          absl::StrCat("stream ", name_, " of ", device_,
                       " runs its work at once and cannot wait for an event that is not done; "
                       "synchronize the stream that recorded it first"));
    }
    return status_;
  }

  absl::Status Synchronize(absl::Duration) override { return status_; }

 private:
  const std::string name_;
  const std::string device_;
  absl::Status status_;  // of the first work item that failed
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(DeviceInfo info) : info_(std::move(info)) {}

  ~HostDevice() override {
    if (bytes_in_use() == 0) return;
    std::fprintf(stderr, "device %s ends before its buffers (%zu bytes in use)\n",
                 info_.name.c_str(), bytes_in_use());
    std::abort();
  }

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t bytes) override;

  absl::StatusOr<std::unique_ptr<Stream>> NewStream(const std::string& name) override {
    return std::make_unique<CpuStream>(name, info_.name);
  }

  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override {
    return std::make_unique<CpuEvent>();
  }

  absl::Status CopyFromHost(Stream& stream, const void* host, void* device, size_t bytes) override {
    return Copy(stream, host, device, bytes);
  }

  absl::Status CopyToHost(Stream& stream, const void* device, void* host, size_t bytes) override {
    return Copy(stream, device, host, bytes);
  }

  absl::Status CopyOnDevice(Stream& stream, const void* from, void* to, size_t bytes) override {
    return Copy(stream, from, to, bytes);
  }

  size_t bytes_in_use() const override { return bytes_in_use_.load(std::memory_order_relaxed); }
  size_t peak_bytes() const override { return peak_bytes_.load(std::memory_order_relaxed); }
  void ForgetPeakBytes() override {
    peak_bytes_.store(0);
    RaisePeak(bytes_in_use_.load());
  }

  // While no other thread uses the device. Gives the limit that was.
  size_t ExchangeLimit(size_t bytes) { return std::exchange(info_.memory_limit, bytes); }

  void Release(size_t bytes) { bytes_in_use_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  struct CopyArguments {
    const void* from;
    void* to;
    size_t bytes;
  };

  // The stream runs the work before Enqueue returns, so the arguments may live on the stack.
  static absl::Status Copy(Stream& stream, const void* from, void* to, size_t bytes) {
    CopyArguments arguments{from, to, bytes};
    return stream.Enqueue(Work{&RunCopy, &arguments});
  }

  static absl::Status RunCopy(void* argument, Stream&) {
    const CopyArguments& copy = *static_cast<const CopyArguments*>(argument);
    if (copy.bytes > 0) std::memmove(copy.to, copy.from, copy.bytes);
    return absl::OkStatus();
  }

  absl::Status Reserve(size_t bytes);
  // To `bytes` at least.
  void RaisePeak(size_t bytes) {
    size_t peak = peak_bytes_.load();
    while (peak < bytes && !peak_bytes_.compare_exchange_weak(peak, bytes)) {
    }
  }

  DeviceInfo info_;
  std::atomic<size_t> bytes_in_use_{0};
  std::atomic<size_t> peak_bytes_{0};
};

class CpuBuffer final : public Buffer {
 public:
  CpuBuffer(HostDevice& device, void* data, size_t size)
      : Buffer(device, data, size), device_(device) {}

  ~CpuBuffer() override {
    FreeMemory(data(), size());
    device_.Release(size());
  }

 private:
  HostDevice& device_;
};

absl::Status HostDevice::Reserve(size_t bytes) {
  const size_t limit = info_.memory_limit == 0 ? kMaxAllocation : info_.memory_limit;
  size_t used = bytes_in_use_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit || used > limit - bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat(info_.name, " cannot allocate ", bytes, " bytes: ", used,
                       " bytes are in use and its limit is ", limit,
                       " bytes; use a smaller batch or more devices"));
    }
  } while (!bytes_in_use_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  RaisePeak(used + bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Buffer>> HostDevice::Allocate(size_t bytes) {
  if (absl::Status reserved = Reserve(bytes); !reserved.ok()) return reserved;
  void* const data = AllocateMemory(bytes);
  if (data == nullptr) {
    Release(bytes);
    return absl::ResourceExhaustedError(absl::StrCat(
        info_.name, " cannot allocate ", bytes, " bytes: the system has no memory left (",
        bytes_in_use(), " bytes are in use by this device); use a smaller batch or more machines"));
  }
  return std::make_shared<CpuBuffer>(*this, data, bytes);
}

}  // namespace

std::unique_ptr<Device> NewCpuDevice(DeviceInfo info) {
  info.kind = DeviceKind::kCpu;
  info.host_accessible = true;
  if (info.name.empty()) info.name = absl::StrCat("cpu:", info.index);
  return std::make_unique<HostDevice>(std::move(info));
}

static HostDevice& ProcessDevice() {
  // Never destroyed: tensors in static storage may outlive any order of destruction.
  static HostDevice* const device = [] {
    DeviceInfo info;
    info.memory_limit = PhysicalMemory();
    return static_cast<HostDevice*>(NewCpuDevice(std::move(info)).release());
  }();
  return *device;
}

Device& CpuDevice() { return ProcessDevice(); }

CpuMemoryLimit::CpuMemoryLimit(size_t bytes)
    : before_(ProcessDevice().ExchangeLimit(
          std::clamp<size_t>(bytes, 1, std::max<size_t>(PhysicalMemory(), 1)))) {}

CpuMemoryLimit::~CpuMemoryLimit() { ProcessDevice().ExchangeLimit(before_); }

}  // namespace weft
