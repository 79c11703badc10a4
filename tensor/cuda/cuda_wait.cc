#include "tensor/cuda/cuda_wait.h"

#include <algorithm>
#include <thread>

#include "platform/mutex.h"

namespace weft {
namespace {

// Work of a device ends within microseconds as a rule: so long the host only asks.
constexpr int kEagerQueries = 200;
constexpr absl::Duration kFirstPause = absl::Microseconds(20);
constexpr absl::Duration kLongestPause = absl::Milliseconds(1);

}  // namespace

CudaCode AwaitCuda(absl::FunctionRef<CudaCode()> query, Clock& clock, absl::Time deadline) {
  for (int i = 0; i < kEagerQueries; ++i) {
    const CudaCode code = query();
    if (code != CudaCode::kNotReady) return code;
    std::this_thread::yield();
  }
  Mutex mutex;
  CondVar nobody_notifies;
  absl::Duration pause = kFirstPause;
  while (true) {
    const bool is_late = clock.Now() >= deadline;
    const CudaCode code = query();
    if (code != CudaCode::kNotReady || is_late) return code;
    MutexLock lock(mutex);
    clock.WaitUntil(nobody_notifies, mutex, std::min(deadline, clock.Now() + pause));
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace weft
