// StaleWatch: finds that a worker was stopped for so long that its job has gone on without it.
#ifndef WEFT_DISTRIBUTED_PROCESS_STALE_WATCH_H_
#define WEFT_DISTRIBUTED_PROCESS_STALE_WATCH_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace weft {

// A worker that a signal has stopped does not know it. It sees the time jump, and then that its
// coordinator has let it go. What it has of the job is old, so it ends. A pause of the coordinator
// alone, or of a worker that nobody attends, is none of this.
//
// The same is seen where the coordinator was lost during the pause, and what the worker has may be
// the newest that is left. So a lease whose end leaves a state to keep for the next coordinator
// (--keep-state) does not count: where it is old after all, another coordinator sees that by the
// job's number. One thread calls it.
class StaleWatch {
 public:
  // `lost`: leases that have ended so far with nothing kept, and without a goodbye of the
  // coordinator, which says one to those that are in its job to the end. Looked at a few times a
  // second. Aborted with what to do, once, where the worker is stale; also where another
  // coordinator attends it already.
  absl::Status Look(absl::Time now, int64_t lost);

 private:
  absl::Time looked_ = absl::InfiniteFuture();
  int64_t lost_ = 0;                                // at the last look
  absl::Duration pause_;                            // the newest
  absl::Time judged_until_ = absl::InfinitePast();  // an end until then is of that pause
  int64_t lost_before_ = 0;                         // leases, when it began
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_PROCESS_STALE_WATCH_H_
