// Membership: who is in a job after workers were lost, have left or have come.
#ifndef WEFT_TRAINING_RECOVERY_MEMBERSHIP_H_
#define WEFT_TRAINING_RECOVERY_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/state_handover.h"
#include "graph/plan.h"

namespace weft {

// The members of a job from one step boundary to the next.
struct NextMembers {
  Plan plan;
  std::vector<int> places;          // by rank of the plan
  std::vector<Handover> handovers;  // by rank: what newcomers take before the next step
};

// The one place where members change. Pure: it calls nobody and reads no clock, and equal events in
// equal order give equal members. Places are the ranks of the plan that the job began with, and
// those of further replicas behind them; each has one worker at a time, with an incarnation of its
// own. What is said of an earlier incarnation of a place changes nothing.
class Membership {
 public:
  // All places have workers, of incarnation 1.
  explicit Membership(const Plan& plan);

  int size() const { return static_cast<int>(places_.size()); }
  // That the job began with, or was planned anew with (Membership is another one then).
  const Plan& plan() const { return plan_; }
  // Places of the plan that the job began with.
  int planned() const { return plan_.mesh.size(); }
  int planned_replicas() const { return plan_.mesh.data; }
  // The places of each replica, further ones last.
  std::vector<std::vector<int>> replicas() const;
  // Of the plan that the job began with: the rank that does what this place does in its replica,
  // in the first one.
  int PeerOf(int place) const;
  // That plan with the further replicas, and by its ranks the places that have somebody.
  Plan wide_plan() const;
  std::map<int, int> PlacesByRank() const;
  // Of the worker that is in the place, or was last.
  int64_t incarnation(int place) const { return At(place).incarnation; }
  bool is_empty(int place) const { return At(place).state == State::kEmpty; }
  bool has_state(int place) const { return At(place).state == State::kMember; }
  std::vector<int> vacancies() const;

  // The worker is gone, with its state. Whether that is news.
  bool Lose(int place, int64_t incarnation);
  // A worker without state has come for an empty place: its incarnation. 0: the place is taken.
  int64_t Come(int place);
  // Whether one replica more than the whole ones would have a micro-batch of its own.
  bool has_room() const;
  // Adds the places of a further replica, which are empty.
  void Grow();
  // The members from here on: all whole replicas, of members and newcomers. FailedPrecondition
  // where no replica is whole, or where no member has what a newcomer needs: then newcomers do not
  // help.
  absl::StatusOr<NextMembers> Next() const;
  // Newcomers among them have taken the state over.
  void Settle(const NextMembers& members);

 private:
  enum class State { kEmpty, kNewcomer, kMember };
  struct Place {
    State state = State::kMember;
    int64_t incarnation = 1;
  };
  const Place& At(int place) const { return places_[static_cast<size_t>(place)]; }
  Place& At(int place) { return places_[static_cast<size_t>(place)]; }
  // Of the plan with all replicas that it has now: `further` of them behind its own.
  int further() const;
  int RankOf(int place) const;

  Plan plan_;
  std::vector<Place> places_;
};

}  // namespace weft

#endif  // WEFT_TRAINING_RECOVERY_MEMBERSHIP_H_
