// WorkerSource: where a job gets workers from while it runs.
#ifndef WEFT_DISTRIBUTED_WORKER_SOURCE_H_
#define WEFT_DISTRIBUTED_WORKER_SOURCE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "distributed/worker_client.h"

namespace weft {

// A worker that has come for a place, and has joined no job yet.
struct Arrival {
  int place = 0;
  WorkerClient* client = nullptr;  // lives as long as the source
  std::string address;             // of its data streams; "" in this process
};

// Places are the ranks of the job as it was planned first. One thread calls it.
class WorkerSource {
 public:
  virtual ~WorkerSource() = default;
  // Begins to get a worker for this place, whose earlier one is lost. Does not wait. Nothing
  // happens where that is under way already, or where none can come (any more).
  virtual void Want(int place) = 0;
  // Whether a worker may still come.
  virtual bool is_expected() const = 0;
  // Those that have come since the last call. Waits for the first until `deadline`, as long as one
  // may still come; absl::InfinitePast(): does not wait.
  virtual std::vector<Arrival> Take(absl::Time deadline) = 0;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_WORKER_SOURCE_H_
