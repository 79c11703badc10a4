// StaleWatch: finds that a worker was stopped for so long that its job has gone on without it.
#ifndef WEFT_DISTRIBUTED_PROCESS_STALE_WATCH_H_
#define WEFT_DISTRIBUTED_PROCESS_STALE_WATCH_H_

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
  // `lost`: when the newest lease ended that did so with nothing kept, and without a goodbye of the
  // coordinator, which says one to those that are in its job to the end; InfinitePast: none. Looked
  // at a few times a second. Aborted with what to do, once, where the worker is stale; also where
  // another coordinator attends it already.
  absl::Status Look(absl::Time now, absl::Time lost);

 private:
  absl::Time looked_ = absl::InfiniteFuture();
  absl::Duration pause_;  // the newest
  // A lease that is lost in between is of that pause. It is lost before it, or seen after it: this
  // process does neither meanwhile.
  absl::Time judged_from_ = absl::InfiniteFuture();
  absl::Time judged_until_ = absl::InfinitePast();
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_PROCESS_STALE_WATCH_H_
