#include "ops/testing/emulator/emulated_stream.h"

#include <cstddef>
#include <cstring>
#include <utility>

#include "ops/testing/emulator/work_order.h"
#include "tensor/testing/fake_memory.h"

namespace weft::testing {
namespace {

// The stream whose work this thread runs.
thread_local EmulatedStream* running_stream = nullptr;

constexpr int64_t kMaxBlocks = 0x7FFFFFFF;
constexpr int64_t kMaxBlocksYZ = 65535;
constexpr int kMaxThreadsOfBlock = 1024;
constexpr size_t kMaxSharedOfBlock = 227 << 10;

bool IsValid(const cuda::LaunchGrid& grid, int max_threads) {
  return grid.blocks >= 0 && grid.blocks <= kMaxBlocks && grid.blocks_y >= 0 &&
         grid.blocks_y <= kMaxBlocksYZ && grid.blocks_z >= 0 && grid.blocks_z <= kMaxBlocksYZ &&
         grid.threads >= 1 && grid.threads <= kMaxThreadsOfBlock && grid.threads <= max_threads;
}

}  // namespace

EmulatedStream::EmulatedStream(Emulator& emulator, FakeMemory& memory, std::string name,
                               std::shared_ptr<DeviceFault> fault)
    : emulator_(emulator),
      memory_(memory),
      name_(std::move(name)),
      fault_(std::move(fault)),
      number_(WorkOrder::Global().AddStream()) {}

EmulatedStream::~EmulatedStream() { WorkOrder::Global().RemoveStream(number_); }

absl::Status EmulatedStream::RunWork(const Work& work, Stream& stream) {
  running_stream = this;
  absl::Status status = work.run(work.argument, stream);
  running_stream = nullptr;
  return status;
}

void EmulatedStream::OnCopy(const void* from, void* to, size_t bytes) {
  emulator_.Copy(number_, name_, from, to, bytes);
}

std::shared_ptr<const FakePast> EmulatedStream::PastOfHost() {
  return WorkOrder::Global().PastOfHost();
}

std::shared_ptr<const FakePast> EmulatedStream::PastOfStream() {
  return WorkOrder::Global().PastOf(number_);
}

void EmulatedStream::ComesAfter(const std::shared_ptr<const FakePast>& past) {
  const auto* const clock = dynamic_cast<const WorkPast*>(past.get());
  if (clock != nullptr) WorkOrder::Global().Join(number_, clock->clock());
}

absl::Status EmulatedStream::Launch(const cuda::LaunchGrid& grid, const EmulatedBody& body) {
  if (running_stream == this) {
    const FakeMemoryAccess access(memory_);
    emulator_.RunGrid(number_, name_, grid, body);
    return absl::OkStatus();
  }
  Waiting* waiting = nullptr;
  {
    MutexLock lock(mutex_);
    waiting = &waiting_.emplace_back();
  }
  const size_t unit = sizeof(std::max_align_t);
  waiting->stream = this;
  waiting->grid = grid;
  waiting->bytes = std::make_unique<std::max_align_t[]>((body.bytes + unit - 1) / unit);
  std::memcpy(waiting->bytes.get(), body.data, body.bytes);
  waiting->body = body;
  waiting->body.data = waiting->bytes.get();
  return stream_->EnqueueLater(Work{&RunWaiting, waiting});
}

absl::Status EmulatedStream::RunWaiting(void* argument, Stream& /*stream*/) {
  auto* const waiting = static_cast<Waiting*>(argument);
  EmulatedStream& self = *waiting->stream;
  self.emulator_.RunGrid(self.number_, self.name_, waiting->grid, waiting->body);
  MutexLock lock(self.mutex_);
  self.waiting_.remove_if([waiting](const Waiting& other) { return &other == waiting; });
  return absl::OkStatus();
}

int EmulateGrid(void* stream, const cuda::LaunchGrid& grid, int max_threads,
                const EmulatedBody& body) {
  if (stream == nullptr) return kCudaInvalidResourceHandle;
  if (!IsValid(grid, max_threads)) return kCudaInvalidConfiguration;
  if (grid.shared_bytes > kMaxSharedOfBlock) return kCudaInvalidValue;
  if (grid.blocks == 0 || grid.blocks_y == 0 || grid.blocks_z == 0) return 0;
  const absl::Status status = static_cast<EmulatedStream*>(stream)->Launch(grid, body);
  return status.ok() ? 0 : kCudaInvalidResourceHandle;
}

}  // namespace weft::testing
