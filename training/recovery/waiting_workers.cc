#include "training/recovery/waiting_workers.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

// "cuda" of "cuda:1".
std::string KindOf(const std::string& device) { return device.substr(0, device.find(':')); }

bool MayCompute(const std::string& device, const std::string& wanted) {
  return device.empty() || wanted.empty() || KindOf(device) == KindOf(wanted);
}

std::vector<int> VacanciesOf(const std::vector<int>& replica, const Membership& membership) {
  std::vector<int> vacant;
  for (const int place : replica) {
    if (membership.is_empty(place)) vacant.push_back(place);
  }
  return vacant;
}

}  // namespace

std::vector<Arrival> WaitingWorkers::TakeGone() {
  std::vector<Arrival> gone;
  for (auto one = waiting_.begin(); one != waiting_.end();) {
    if (!one->client->is_lost() && !one->client->is_leaving()) {
      ++one;
      continue;
    }
    gone.push_back(*one);
    one = waiting_.erase(one);
  }
  return gone;
}

std::vector<size_t> WaitingWorkers::ChooseFor(const std::vector<int>& places,
                                              const std::vector<std::string>& devices,
                                              bool adds) const {
  std::vector<size_t> chosen;
  for (const int place : places) {
    size_t next = 0;
    while (next < waiting_.size() &&
           ((adds && !waiting_[next].may_add) ||
            !MayCompute(waiting_[next].device, devices[static_cast<size_t>(place)]) ||
            std::find(chosen.begin(), chosen.end(), next) != chosen.end())) {
      ++next;
    }
    if (next == waiting_.size()) return {};
    chosen.push_back(next);
  }
  return chosen;
}

void WaitingWorkers::Move(const std::vector<int>& places, std::vector<size_t> chosen,
                          Membership& membership, std::vector<Placed>& placed) {
  for (size_t i = 0; i < places.size(); ++i) {
    membership.Come(places[i]);
    placed.push_back({places[i], waiting_[chosen[i]]});
  }
  std::sort(chosen.rbegin(), chosen.rend());
  for (const size_t index : chosen)
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(index));
}

std::vector<WaitingWorkers::Placed> WaitingWorkers::FillPlaces(Membership& membership,
                                                               std::vector<std::string> devices) {
  std::vector<Placed> placed;
  const auto planned = static_cast<size_t>(membership.planned_replicas());
  while (!waiting_.empty() && membership.has_room()) {
    const std::vector<std::vector<int>> replicas = membership.replicas();
    std::vector<int> fewest;
    std::vector<size_t> chosen;
    for (size_t replica = 0; replica < replicas.size(); ++replica) {
      const std::vector<int> vacant = VacanciesOf(replicas[replica], membership);
      if (vacant.empty() || (!fewest.empty() && vacant.size() >= fewest.size())) continue;
      std::vector<size_t> candidates = ChooseFor(vacant, devices, /*adds=*/replica >= planned);
      if (candidates.empty()) continue;
      fewest = vacant;
      chosen = std::move(candidates);
    }
    if (fewest.empty()) {
      chosen = ChooseFor(replicas.front(), devices, /*adds=*/true);
      if (chosen.empty()) break;
      membership.Grow();
      fewest = membership.replicas().back();
      for (const int place : fewest) {
        devices.push_back(devices[static_cast<size_t>(membership.PeerOf(place))]);
      }
    }
    Move(fewest, std::move(chosen), membership, placed);
  }
  return placed;
}

}  // namespace weft
