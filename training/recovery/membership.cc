#include "training/recovery/membership.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "training/recovery/survivor_plan.h"

namespace weft {

Membership::Membership(const Plan& plan)
    : plan_(plan), places_(static_cast<size_t>(plan.mesh.size())) {}

std::vector<int> Membership::vacancies() const {
  std::vector<int> vacant;
  for (int place = 0; place < size(); ++place) {
    if (is_empty(place)) vacant.push_back(place);
  }
  return vacant;
}

bool Membership::Lose(int place, int64_t incarnation) {
  if (is_empty(place) || At(place).incarnation != incarnation) return false;
  At(place).state = State::kEmpty;
  return true;
}

int64_t Membership::Come(int place) {
  if (!is_empty(place)) return 0;
  At(place).state = State::kNewcomer;
  return ++At(place).incarnation;
}

absl::StatusOr<NextMembers> Membership::Next() const {
  std::vector<int> taken;
  for (int place = 0; place < size(); ++place) {
    if (!is_empty(place)) taken.push_back(place);
  }
  WEFT_ASSIGN_OR_RETURN(SurvivorPlan whole, PlanWithout(plan_, taken));
  NextMembers next = {std::move(whole.plan), std::move(whole.ranks), {}};
  // A rank has what those have that differ from it in their replica alone.
  for (int to = 0; to < next.plan.mesh.size(); ++to) {
    if (has_state(next.places[static_cast<size_t>(to)])) continue;
    int giver = -1;
    for (const RankId peer : next.plan.mesh.Group(RankId(to), MeshAxis::kData)) {
      if (giver < 0 && has_state(next.places[static_cast<size_t>(peer.value)])) giver = peer.value;
    }
    if (giver < 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("no worker that is left has the state of rank ", to, " under ",
                       next.plan.mesh.ToString()));
    }
    next.handovers.push_back({giver, to});
  }
  return next;
}

void Membership::Settle(const NextMembers& members) {
  for (const int place : members.places) At(place).state = State::kMember;
}

}  // namespace weft
