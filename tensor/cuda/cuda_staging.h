// Copies between a device and host memory that is not pinned.
#ifndef WEFT_TENSOR_CUDA_CUDA_STAGING_H_
#define WEFT_TENSOR_CUDA_CUDA_STAGING_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "tensor/cuda/cuda_runtime.h"

namespace weft {

struct CudaStagingOptions {
  int slots = 4;
  size_t slot_bytes = size_t{2} << 20;
  // How long the host waits for a slot that the device still uses.
  absl::Duration timeout = absl::Seconds(60);
  Clock* clock = nullptr;
};

// A ring of pinned slots of one stream, made at the first copy: parts of the host's bytes go
// through them, so that the device copies one part while the host copies the next. CopyIn reads the
// host's bytes before it returns. CopyOut returns at once; a thread of CUDA writes the host's bytes
// when the stream comes to it. Belongs to its stream: one thread. Ends after the stream's work has.
class CudaStaging {
 public:
  // `owner` is named in errors: "stream compute of cuda:0". The current device of the calls is that
  // of the stream.
  CudaStaging(CudaRuntime& runtime, std::string owner, const CudaStagingOptions& options);
  ~CudaStaging();
  CudaStaging(const CudaStaging&) = delete;
  CudaStaging& operator=(const CudaStaging&) = delete;

  // Both are ordered on `stream`. DeadlineExceeded when the device does not give a slot back in
  // time; then it is not known which bytes were copied.
  absl::Status CopyIn(CudaStreamHandle stream, const void* host, void* device, size_t bytes);
  absl::Status CopyOut(CudaStreamHandle stream, const void* device, void* host, size_t bytes);

 private:
  // A copy that a thread of CUDA makes.
  struct Unload {
    const void* from = nullptr;
    void* to = nullptr;
    size_t bytes = 0;
  };
  struct Slot {
    void* memory = nullptr;
    CudaEventHandle is_free = nullptr;
    Unload unload;
  };

  static void RunUnload(void* unload);
  absl::Status MakeSlots();
  // The next slot, once the device has passed its last use.
  absl::StatusOr<Slot*> TakeSlot();
  absl::Status Check(CudaCode code, const char* action) const;

  CudaRuntime& runtime_;
  const std::string owner_;
  const CudaStagingOptions options_;
  std::vector<Slot> slots_;
  size_t next_ = 0;
};

}  // namespace weft

#endif  // WEFT_TENSOR_CUDA_CUDA_STAGING_H_
