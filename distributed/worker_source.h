// WorkerSource: where a job gets workers from while it runs.
#ifndef WEFT_DISTRIBUTED_WORKER_SOURCE_H_
#define WEFT_DISTRIBUTED_WORKER_SOURCE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "distributed/worker_client.h"

namespace weft {

// Of a worker that has come without being wanted for a certain place.
inline constexpr int kAnyPlace = -1;

// A worker that has come for a place, and has joined no job yet.
struct Arrival {
  int place = 0;                   // or kAnyPlace
  WorkerClient* client = nullptr;  // lives as long as the source, or until it is refused
  std::string address;             // of its data streams; "" in this process
  // The rest is of those that have come for any place.
  std::string device = {};  // "cuda:1", as it says itself or the cluster file does; "" = not known
  // It may also become a part of a further replica; else it waits for the place of a lost one.
  bool may_add = false;
};

// Places are the ranks of the job as it was planned first. One thread calls it.
class WorkerSource {
 public:
  virtual ~WorkerSource() = default;
  // Begins to get a worker for this place, whose earlier one is lost. Does not wait. Nothing
  // happens where that is under way already, or where none can come (any more).
  virtual void Want(int place) = 0;
  // Whether a worker may still come that was wanted.
  virtual bool is_expected() const = 0;
  // Those that have come since the last call. Waits for the first until `deadline`, as long as one
  // may still come; absl::InfinitePast(): does not wait.
  virtual std::vector<Arrival> Take(absl::Time deadline) = 0;
  // What becomes of those that have come for any place: this one is in the job.
  virtual void TakenIn(const WorkerClient&) {}
  // This one cannot be used: nobody uses its client any more, and it is told why.
  virtual void Refuse(WorkerClient&, const absl::Status&) {}
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_WORKER_SOURCE_H_
