// StaleWatch: finds that a worker was stopped for so long that its job has gone on without it.
#ifndef WEFT_DISTRIBUTED_PROCESS_STALE_WATCH_H_
#define WEFT_DISTRIBUTED_PROCESS_STALE_WATCH_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace weft {

// A worker that a signal has stopped does not know it. It sees the time jump, and then that its
// coordinator has let it go. What it has of the job is old, so it ends. A pause of the coordinator
// alone, or of a worker that nobody attends, is none of this. One thread calls it.
class StaleWatch {
 public:
  // `ended`: leases of coordinators that have ended so far. Looked at a few times a second. Aborted
  // with what to do, once, where the worker is stale.
  absl::Status Look(absl::Time now, int64_t ended);

 private:
  absl::Time looked_ = absl::InfiniteFuture();
  int64_t ended_ = 0;                               // at the last look
  absl::Duration pause_;                            // the newest
  absl::Time judged_until_ = absl::InfinitePast();  // an end until then is of that pause
  int64_t ended_before_ = 0;                        // leases, when it began
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_PROCESS_STALE_WATCH_H_
