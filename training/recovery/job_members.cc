#include "training/recovery/job_members.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "distributed/state_handover.h"
#include "platform/log.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// How often a wait looks whether it shall end.
constexpr absl::Duration kLook = absl::Milliseconds(200);

bool IsLoss(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

JobMembers::JobMembers(PreparedJob& job, const JobRecoveryOptions& options)
    : job_(job),
      options_(options),
      clock_(options.clock != nullptr ? *options.clock : RealClock()),
      membership_(job.plan) {}

void JobMembers::Begin(const Coordinator& coordinator) {
  if (!places_.empty()) return;
  places_ = coordinator.members();
  for (int rank = 0; rank < coordinator.size(); ++rank) ranks_.push_back(rank);
}

void JobMembers::LosePlaces(const std::vector<int>& places) {
  std::vector<WorkerClient*> gone;
  for (const int place : places) {
    if (membership_.Lose(place, membership_.incarnation(place))) gone.push_back(At(place).client);
  }
  if (!gone.empty() && options_.on_lost != nullptr) options_.on_lost(gone);
}

void JobMembers::Lose(const Coordinator& coordinator, const std::vector<int>& ranks) {
  Begin(coordinator);
  std::vector<int> places;
  for (const int rank : ranks) places.push_back(PlaceOf(rank));
  LosePlaces(places);
}

void JobMembers::Leave(const Coordinator& coordinator, const std::vector<int>& ranks) {
  Begin(coordinator);
  for (const int rank : ranks) {
    membership_.Lose(PlaceOf(rank), membership_.incarnation(PlaceOf(rank)));
  }
}

bool JobMembers::CanSpare(const Coordinator& coordinator, const std::vector<int>& ranks) {
  Begin(coordinator);
  Membership without = membership_;
  for (const int rank : ranks) {
    without.Lose(PlaceOf(rank), without.incarnation(PlaceOf(rank)));
  }
  return without.Next().ok();
}

void JobMembers::Place(const Arrival& arrival) {
  if (membership_.Come(arrival.place) == 0) return;
  JobMember& member = At(arrival.place);
  member.client = arrival.client;
  member.address = arrival.address;
  Log(LogLevel::kInfo, arrival.client->name(), " has come for place ", arrival.place);
}

bool JobMembers::TakeArrivals(const Coordinator& coordinator) {
  if (options_.source == nullptr) return false;
  const std::vector<Arrival> arrivals = options_.source->Take(absl::InfinitePast());
  if (arrivals.empty()) return false;
  Begin(coordinator);
  for (const Arrival& arrival : arrivals) Place(arrival);
  const auto next = membership_.Next();
  return next.ok() && next->places != ranks_;
}

void JobMembers::WantVacancies() {
  if (options_.source == nullptr) return;
  for (const int place : membership_.vacancies()) {
    if (!refused_.contains(place)) options_.source->Want(place);
  }
}

void JobMembers::Await() {
  if (options_.source == nullptr) return;
  WantVacancies();
  const absl::Time deadline = clock_.Now() + options_.wait;
  while (!membership_.vacancies().empty() && options_.source->is_expected()) {
    if (clock_.Now() >= deadline || (options_.stop != nullptr && options_.stop())) return;
    const absl::Time look = std::min(deadline, clock_.Now() + kLook);
    for (const Arrival& arrival : options_.source->Take(look)) Place(arrival);
    WantVacancies();  // one that was under way may have failed
  }
}

absl::Status JobMembers::TakeIn(Coordinator& coordinator, const NextMembers& next) {
  WEFT_ASSIGN_OR_RETURN(job_.programs, options_.repartition(next.plan));
  job_.plan = next.plan;
  job_.planned = {};
  std::vector<JobMember> members;
  for (const int place : next.places) {
    members.push_back(At(place));
    members.back().keeps_state = membership_.has_state(place);
  }
  WEFT_RETURN_IF_ERROR(coordinator.GoOnAs(members));
  const PreparedJob* evaluation = nullptr;
  if (options_.evaluation != nullptr) {
    WEFT_ASSIGN_OR_RETURN(evaluation, options_.evaluation());
  }
  WEFT_RETURN_IF_ERROR(AddPrograms(coordinator, job_, evaluation));
  WEFT_RETURN_IF_ERROR(HandOverState(coordinator, next.handovers));
  if (options_.on_plan != nullptr) options_.on_plan(job_.plan);
  return absl::OkStatus();
}

std::vector<int> JobMembers::FindLost(const NextMembers& next) {
  std::vector<int> lost;
  for (const int place : next.places) {
    const absl::Status answer = At(place).client->Ask(StepProgressRequest{}).status();
    if (absl::IsUnavailable(answer) || absl::IsDeadlineExceeded(answer)) lost.push_back(place);
  }
  return lost;
}

bool JobMembers::LeaveNewcomersOut(const NextMembers& next, const absl::Status& why) {
  std::vector<int> newcomers;
  for (const int place : next.places) {
    if (!membership_.has_state(place)) newcomers.push_back(place);
  }
  if (newcomers.empty()) return false;
  refused_.insert(newcomers.begin(), newcomers.end());
  LosePlaces(newcomers);
  options_.say(absl::StrCat("warning: a worker in the place of a lost one cannot be used: ",
                            std::string(why.message())));
  return true;
}

absl::Status JobMembers::Change(Coordinator& coordinator) {
  Begin(coordinator);
  while (true) {
    if (options_.wait > absl::ZeroDuration()) Await();
    WEFT_ASSIGN_OR_RETURN(const NextMembers next, membership_.Next());
    // The rest of a replica that is not whole: its state gets old.
    std::vector<int> rest;
    for (int place = 0; place < membership_.size(); ++place) {
      const bool is_in = std::binary_search(next.places.begin(), next.places.end(), place);
      if (!is_in && membership_.has_state(place)) rest.push_back(place);
    }
    LosePlaces(rest);
    const absl::Status taken = TakeIn(coordinator, next);
    if (taken.ok()) {
      come_.clear();
      for (const Handover& one : next.handovers) {
        come_.push_back(At(next.places[static_cast<size_t>(one.to)]).client->name());
      }
      membership_.Settle(next);
      ranks_ = next.places;
      WantVacancies();
      return absl::OkStatus();
    }
    Log(LogLevel::kWarning, "members could not change: ", taken.ToString());
    const std::vector<int> lost = IsLoss(taken) ? FindLost(next) : std::vector<int>();
    if (lost.empty() && !LeaveNewcomersOut(next, taken)) return taken;
    LosePlaces(lost);
  }
}

}  // namespace weft
