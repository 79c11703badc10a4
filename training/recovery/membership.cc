#include "training/recovery/membership.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "training/recovery/survivor_plan.h"

namespace weft {

Membership::Membership(const Plan& plan)
    : plan_(plan), places_(static_cast<size_t>(plan.mesh.size())) {}

int Membership::further() const {
  return (size() - planned()) / (plan_.mesh.tensor * plan_.mesh.pipeline);
}

int Membership::PeerOf(int place) const {
  const Mesh& mesh = plan_.mesh;
  Mesh::Coordinate at;
  if (place < planned()) {
    at = mesh.CoordinateOf(RankId(place));
  } else {
    // Further replicas lie one behind the other, each stage by stage.
    const int within = (place - planned()) % (mesh.tensor * mesh.pipeline);
    at.pipeline = within / mesh.tensor;
    at.tensor = within % mesh.tensor;
  }
  at.data = 0;
  return mesh.RankOf(at).value;
}

int Membership::RankOf(int place) const {
  Mesh all = plan_.mesh;
  all.data += further();
  Mesh::Coordinate at = plan_.mesh.CoordinateOf(RankId(place < planned() ? place : PeerOf(place)));
  if (place >= planned()) {
    at.data = plan_.mesh.data + (place - planned()) / (plan_.mesh.tensor * plan_.mesh.pipeline);
  }
  return all.RankOf(at).value;
}

std::vector<std::vector<int>> Membership::replicas() const {
  std::vector<std::vector<int>> replicas(static_cast<size_t>(plan_.mesh.data + further()));
  for (int place = 0; place < size(); ++place) {
    const int replica =
        place < planned()
            ? plan_.mesh.CoordinateOf(RankId(place)).data
            : plan_.mesh.data + (place - planned()) / (plan_.mesh.tensor * plan_.mesh.pipeline);
    replicas[static_cast<size_t>(replica)].push_back(place);
  }
  return replicas;
}

bool Membership::has_room() const {
  int whole = 0;
  for (const std::vector<int>& replica : replicas()) {
    whole +=
        std::none_of(replica.begin(), replica.end(), [this](int place) { return is_empty(place); });
  }
  return HasRoomFor(plan_, whole + 1);
}

void Membership::Grow() {
  const size_t more = static_cast<size_t>(plan_.mesh.tensor * plan_.mesh.pipeline);
  places_.insert(places_.end(), more, Place{State::kEmpty, 0});
}

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

Plan Membership::wide_plan() const { return PlanWithMore(plan_, further()); }

std::map<int, int> Membership::PlacesByRank() const {
  std::map<int, int> places;
  for (int place = 0; place < size(); ++place) {
    if (!is_empty(place)) places[RankOf(place)] = place;
  }
  return places;
}

absl::StatusOr<NextMembers> Membership::Next() const {
  const std::map<int, int> taken = PlacesByRank();
  std::vector<int> ranks;
  for (const auto& [rank, place] : taken) ranks.push_back(rank);
  WEFT_ASSIGN_OR_RETURN(SurvivorPlan whole, PlanWithout(wide_plan(), ranks));
  NextMembers next = {std::move(whole.plan), {}, {}};
  for (const int rank : whole.ranks) next.places.push_back(taken.at(rank));
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
