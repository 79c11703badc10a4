// CudaDevice: one NVIDIA card as a Device.
#ifndef WEFT_TENSOR_CUDA_CUDA_DEVICE_H_
#define WEFT_TENSOR_CUDA_CUDA_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "tensor/cuda/cuda_runtime.h"
#include "tensor/cuda/cuda_setup.h"
#include "tensor/cuda/cuda_stream.h"
#include "tensor/device.h"

namespace weft {

struct CudaDeviceOptions {
  int index = 0;  // of the name "cuda:0"
  // Which card it is; several devices may be on one.
  int card = 0;
  // Bytes that may be allocated; 0 = as much as is free on the card now.
  size_t memory_limit = 0;
  // What is freed stays with the process up to so many bytes.
  uint64_t keep_bytes = uint64_t{256} << 20;
  // What CUDA_VISIBLE_DEVICES says, for errors.
  std::optional<std::string> visible_devices = {};
  // Of waits that have no deadline of their own: for allocations, staging, the end of a stream.
  absl::Duration patience = absl::Seconds(60);
  CudaStagingOptions staging = {};  // its clock and timeout are those of the device
  // Null: the real one.
  Clock* clock = nullptr;
};

// A card, or a part of its memory, through CUDA's runtime. Buffers are 256-byte aligned, from a
// pool of the device, and usable on all its streams at once. Work launches kernels
// (DeviceInfo::runs_host_work is false). Copies of pageable memory are staged (cuda_staging.h).
// Thread-safe. Borrows the runtime. REQUIRES at its end: no buffer and no stream of it is alive.
class CudaDevice final : public Device {
 public:
  // The errors of SetUpCudaCard.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(CudaRuntime& runtime,
                                                            const CudaDeviceOptions& options);
  ~CudaDevice() override;

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t bytes) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::unique_ptr<Stream>> NewStream(const std::string& name) override;
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override;
  // Pinned. Not part of bytes_in_use.
  absl::StatusOr<std::shared_ptr<Buffer>> AllocateHostMemory(size_t bytes) override
      ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CopyFromHost(Stream& stream, const void* host, void* device, size_t bytes) override;
  absl::Status CopyToHost(Stream& stream, const void* device, void* host, size_t bytes) override;
  absl::Status CopyOnDevice(Stream& stream, const void* from, void* to, size_t bytes) override;
  // Directly where the cards reach each other; else CUDA takes the way through the host.
  absl::Status CopyToPeer(Stream& stream, const void* from, Device& peer, void* to,
                          size_t bytes) override ABSL_LOCKS_EXCLUDED(mutex_);
  size_t bytes_in_use() const override ABSL_LOCKS_EXCLUDED(mutex_);
  size_t peak_bytes() const override ABSL_LOCKS_EXCLUDED(mutex_);
  void ForgetPeakBytes() override ABSL_LOCKS_EXCLUDED(mutex_);

  const CudaProperties& properties() const { return properties_; }
  // Makes the card the current one of the calling thread: before a library of NVIDIA's is called.
  absl::Status MakeCurrent() const { return context_.MakeCurrent(); }

 private:
  friend class CudaBuffer;
  friend class PinnedBuffer;

  CudaDevice(const CudaContext& context, const CudaDeviceOptions& options,
             const CudaProperties& properties, size_t memory_limit);

  // Pool and stream of allocations.
  absl::Status OpenMemory();
  absl::StatusOr<void*> TakeMemory(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Exhausted(size_t bytes, const std::string& reason) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(void* data, size_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void ReleaseHost(void* data) ABSL_LOCKS_EXCLUDED(mutex_);
  // The stream as one of ours, or an error.
  absl::StatusOr<CudaStream*> Own(Stream& stream) const;
  // Lets this card write the peer's memory, as far as the two can.
  absl::Status Meet(CudaDevice& peer) ABSL_LOCKS_EXCLUDED(mutex_);

  const CudaContext context_;
  const CudaDeviceOptions options_;
  const CudaProperties properties_;
  const DeviceInfo info_;
  CudaPoolHandle pool_ = nullptr;             // null: the card has no pools
  CudaStreamHandle memory_stream_ = nullptr;  // orders allocations

  mutable Mutex mutex_;
  size_t bytes_in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t peak_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t buffers_ ABSL_GUARDED_BY(mutex_) = 0;        // also of the host
  std::set<int> met_devices_ ABSL_GUARDED_BY(mutex_);  // Their indices.
};

// Whether FindCudaDevice would give the device, as far as can be told without using the card:
// Unimplemented in a build without CUDA, else the errors of CheckCudaCard. Thread-safe.
absl::Status CheckCudaDevice(int index);

// "NVIDIA L4, compute capability 8.9"; "" where CheckCudaDevice refuses. Thread-safe.
std::string DescribeCudaDevice(int index);

// The process's device on card `index`, with as much memory as is free when it is first asked for.
// Lives for ever. Unimplemented in a build without CUDA; the errors of SetUpCudaCard, which the
// next call looks for anew. Thread-safe.
absl::StatusOr<Device*> FindCudaDevice(int index);

}  // namespace weft

#endif  // WEFT_TENSOR_CUDA_CUDA_DEVICE_H_
