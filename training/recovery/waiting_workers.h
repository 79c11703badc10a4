// WaitingWorkers: workers that have no place in a job, and the places that they take.
#ifndef WEFT_TRAINING_RECOVERY_WAITING_WORKERS_H_
#define WEFT_TRAINING_RECOVERY_WAITING_WORKERS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "distributed/worker_source.h"
#include "training/recovery/membership.h"

namespace weft {

// A queue: who has come first is taken first. Spares and others wait together; a spare only takes
// the place of a lost worker. Borrows the clients of the arrivals. One thread.
class WaitingWorkers {
 public:
  struct Placed {
    int place = 0;
    Arrival arrival;
  };

  void Add(const Arrival& arrival) { waiting_.push_back(arrival); }
  bool empty() const { return waiting_.empty(); }
  const std::vector<Arrival>& all() const { return waiting_; }
  // Takes out those that are lost, or want to leave, meanwhile.
  std::vector<Arrival> TakeGone();
  // Gives as many as fit their places, as newcomers: first those of replicas that lack few workers,
  // then those of further replicas, as long as the job has micro-batches for one more. A replica is
  // filled or left as it is. `devices`: what each place of `membership` computes on, "" = not
  // known; a worker takes the place of another device of the same kind alone.
  std::vector<Placed> FillPlaces(Membership& membership, std::vector<std::string> devices);

 private:
  // Who would take these places, by index; empty where somebody is missing.
  std::vector<size_t> ChooseFor(const std::vector<int>& places,
                                const std::vector<std::string>& devices, bool adds) const;
  // Empties `chosen` into the places.
  void Move(const std::vector<int>& places, std::vector<size_t> chosen, Membership& membership,
            std::vector<Placed>& placed);

  std::vector<Arrival> waiting_;
};

}  // namespace weft

#endif  // WEFT_TRAINING_RECOVERY_WAITING_WORKERS_H_
