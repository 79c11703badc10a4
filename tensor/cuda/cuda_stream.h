// Streams, events and recordings of a CUDA device.
#ifndef WEFT_TENSOR_CUDA_CUDA_STREAM_H_
#define WEFT_TENSOR_CUDA_CUDA_STREAM_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "tensor/cuda/cuda_runtime.h"
#include "tensor/cuda/cuda_staging.h"
#include "tensor/device.h"

namespace weft {

// What the parts of a device share; copied into each. Runtime and clock are borrowed.
struct CudaContext {
  CudaRuntime* runtime = nullptr;
  Clock* clock = nullptr;
  int card = 0;
  std::string device;  // "cuda:0"
  // The longest wait of the host that nobody gave another deadline.
  absl::Duration patience = absl::Seconds(60);

  // Makes the card the current device of this thread.
  absl::Status MakeCurrent() const;
  absl::Status Check(CudaCode code, const std::string& action) const;
};

class CudaEvent final : public Event {
 public:
  static absl::StatusOr<std::unique_ptr<CudaEvent>> Create(const CudaContext& context);
  ~CudaEvent() override;

  // Also true when the device failed: nothing is to be waited for.
  bool Done() const override;
  CudaEventHandle handle() const { return handle_; }

 private:
  CudaEvent(const CudaContext& context, CudaEventHandle handle)
      : context_(context), handle_(handle) {}

  const CudaContext context_;
  const CudaEventHandle handle_;
};

// Whether the blocks of the stream's kernels come before those of other streams: true of streams
// that carry messages between devices, "collectives" and "lane 3" (executor/program) and "nccl"
// (distributed/nccl). Kernels of a collective are few blocks that others wait for; behind those of
// a large product they would start when the product ends, and hide nothing.
bool ComesFirst(std::string_view stream_name);

// A captured CUDA graph, ready to run.
class CudaRecording final : public RecordedWork {
 public:
  CudaRecording(const CudaContext& context, CudaExecutableHandle executable)
      : context_(context), executable_(executable) {}
  ~CudaRecording() override;

  // InvalidArgument for a stream of another device.
  absl::Status Run(Stream& stream) override;
  CudaExecutableHandle executable() const { return executable_; }
  int card() const { return context_.card; }

 private:
  const CudaContext context_;
  const CudaExecutableHandle executable_;
};

// A cudaStream_t. Work is called by Enqueue, with the card as the current device, and launches
// kernels. One thread at a time.
class CudaStream final : public Stream {
 public:
  static absl::StatusOr<std::unique_ptr<CudaStream>> Create(const CudaContext& context,
                                                            const std::string& name,
                                                            const CudaStagingOptions& staging);
  // Waits for the work for the device's patience; then leaves it alone, with what it uses.
  ~CudaStream() override;

  absl::Status Enqueue(Work work) override;
  absl::Status Record(Event& event) override;
  absl::Status Wait(Event& event) override;
  absl::Status Synchronize(absl::Duration timeout) override;
  void* native_handle() const override { return handle_; }
  DeviceFault* fault() const override { return fault_; }
  absl::Status BeginRecording() override;
  absl::StatusOr<std::unique_ptr<RecordedWork>> EndRecording(
      std::unique_ptr<RecordedWork> former) override;

  // As the device's. InvalidArgument where the host's side is memory of a device.
  absl::Status CopyFromHost(const void* host, void* device, size_t bytes);
  absl::Status CopyToHost(const void* device, void* host, size_t bytes);
  absl::Status CopyOnDevice(const void* from, void* to, size_t bytes);
  absl::Status CopyToCard(const void* from, int card, void* to, size_t bytes);
  // Runs a recording.
  absl::Status Launch(CudaExecutableHandle executable);

  const CudaContext& context() const { return context_; }

 private:
  CudaStream(const CudaContext& context, const std::string& name, CudaStreamHandle handle,
             DeviceFault* fault, const CudaStagingOptions& staging);

  // The stream's error, or OK with the card made current.
  absl::Status Begin();
  // Keeps the first error.
  absl::Status Keep(absl::Status status);
  absl::Status KeepCode(CudaCode code, const char* action);
  // Pinned, or what to do about it: pageable memory is staged, but not in a recording.
  absl::StatusOr<bool> IsPinned(const void* host, size_t bytes);
  bool IsRecorded() const;

  const CudaContext context_;
  const std::string subject_;  // "stream compute of cuda:0"
  const CudaStreamHandle handle_;
  DeviceFault* const fault_;  // pinned
  std::unique_ptr<CudaStaging> staging_;
  bool began_recording_ = false;
  absl::Status status_;  // the first error
};

}  // namespace weft

#endif  // WEFT_TENSOR_CUDA_CUDA_STREAM_H_
