// Seconds of collectives: small groups are simulated over the links, large ones counted.
#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "placement/cost/cost_model.h"
#include "placement/cost/published_specs.h"

namespace weft {
namespace {

// Beyond so many members a collective is counted instead of simulated.
constexpr int kMaxSimulated = 16;

// What carries messages from one worker to another in a collective, and what adds them up.
class CollectivePlace {
 public:
  using LinkOf = std::function<LinkCost(int from, int to)>;
  CollectivePlace(const ClusterProfile& profile, MessageWay way, LinkOf link_of)
      : profile_(profile), way_(way), link_of_(std::move(link_of)) {}

  const ClusterProfile& profile() const { return profile_; }
  const LinkCost& Between(int from, int to) const {
    const auto [known, is_new] = links_.try_emplace({from, to});
    if (is_new) known->second = link_of_(from, to);
    return known->second;
  }
  // Through hosts a thread of a common processor does what a device would.
  const DeviceProfile& Device(int worker) const {
    static const auto* const processor = new DeviceProfile(CommonCpu(1));
    const DeviceProfile& device = profile_.device(worker);
    const bool is_host = way_ == MessageWay::kHost && device.host_bytes_per_second > 0;
    return is_host ? *processor : device;
  }

 private:
  const ClusterProfile& profile_;
  const MessageWay way_;
  const LinkOf link_of_;
  mutable std::map<std::pair<int, int>, LinkCost> links_;
};

// Simulates the members' schedules in virtual time: always the member that is earliest and can go
// on.
class CollectiveSimulation {
 public:
  CollectiveSimulation(const CollectivePlace& place, std::span<const CollectiveSchedule> schedules,
                       int64_t element_bytes, std::span<const int> workers)
      : place_(place),
        profile_(place.profile()),
        schedules_(schedules),
        element_bytes_(static_cast<double>(element_bytes)),
        workers_(workers),
        now_(workers.size(), 0),
        next_(workers.size(), 0) {}

  // Infinity when a member waits for what nobody sends.
  double Run() {
    for (int member = Earliest(); member >= 0; member = Earliest()) Step(member);
    for (size_t m = 0; m < next_.size(); ++m) {
      if (next_[m] < schedules_[m].steps.size()) return std::numeric_limits<double>::infinity();
    }
    return *std::max_element(now_.begin(), now_.end());
  }

 private:
  // The member that can take its next step first; -1 when none can.
  int Earliest() const {
    int best = -1;
    double best_start = 0;
    for (int m = 0; m < static_cast<int>(now_.size()); ++m) {
      if (next_[m] >= schedules_[m].steps.size()) continue;
      const CollectiveStep& step = schedules_[m].steps[next_[m]];
      double start = now_[m];
      if (step.kind == CollectiveStep::Kind::kReceive) {
        const auto queue = arrivals_.find({step.peer, m});
        if (queue == arrivals_.end() || queue->second.empty()) continue;
        start = std::max(start, queue->second.front());
      }
      if (best < 0 || start < best_start) {
        best = m;
        best_start = start;
      }
    }
    return best;
  }

  void Step(int member) {
    const CollectiveStep& step = schedules_[member].steps[next_[member]++];
    double& now = now_[member];
    const DeviceProfile& device = place_.Device(workers_[member]);
    switch (step.kind) {
      case CollectiveStep::Kind::kSend:
        Send(member, step);
        return;
      case CollectiveStep::Kind::kReceive: {
        std::deque<double>& queue = arrivals_[{step.peer, member}];
        now = std::max(now, queue.front()) +
              place_.Between(workers_[step.peer], workers_[member]).receive_seconds;
        queue.pop_front();
        return;
      }
      case CollectiveStep::Kind::kReduce: {  // reads two, writes one
        const double bytes = 3 * element_bytes_ * static_cast<double>(step.source.count);
        if (bytes > 0) now += bytes / device.elementwise.At(bytes);
        return;
      }
      case CollectiveStep::Kind::kCopy: {
        const double bytes = 2 * element_bytes_ * static_cast<double>(step.source.count);
        if (bytes > 0) now += bytes / device.movement.At(bytes);
        return;
      }
    }
  }

  // A sender does not wait until its message has left; messages to one peer leave in order, and
  // those to other hosts share the host's rails.
  void Send(int member, const CollectiveStep& step) {
    const int from = workers_[member];
    const int to = workers_[step.peer];
    const LinkCost& link = place_.Between(from, to);
    now_[member] += link.send_seconds;
    const double seconds =
        element_bytes_ * static_cast<double>(step.source.count) / link.exchange_bytes_per_second;
    double& stream = stream_free_[{member, step.peer}];
    double start = std::max(now_[member], stream);
    const int host = profile_.host_of[from];
    if (host != profile_.host_of[to]) {
      std::vector<double>& rails = rails_free_[host];
      rails.resize(profile_.link(from, to).rails, 0);
      double& rail = *std::min_element(rails.begin(), rails.end());
      start = std::max(start, rail);
      rail = start + seconds;
    }
    stream = start + seconds;
    arrivals_[{member, step.peer}].push_back(stream + link.latency_seconds);
  }

  const CollectivePlace& place_;
  const ClusterProfile& profile_;
  const std::span<const CollectiveSchedule> schedules_;
  const double element_bytes_;
  const std::span<const int> workers_;
  std::vector<double> now_;
  std::vector<size_t> next_;
  std::map<std::pair<int, int>, std::deque<double>> arrivals_;
  std::map<std::pair<int, int>, double> stream_free_;
  std::map<int, std::vector<double>> rails_free_;  // by host
};

// The slowest way between members, when on each host `crossing` of them send to others at once.
struct SlowestLink {
  double round_seconds = 0;
  double seconds_per_byte = 0;

  void Add(const CollectivePlace& place, int from, int to, double crossing) {
    const ClusterProfile& profile = place.profile();
    const LinkCost& link = place.Between(from, to);
    const bool leaves = profile.host_of[from] != profile.host_of[to];
    const double sharing = leaves ? std::max(1.0, crossing / profile.link(from, to).rails) : 1.0;
    round_seconds =
        std::max(round_seconds, link.latency_seconds + link.send_seconds + link.receive_seconds);
    seconds_per_byte = std::max(seconds_per_byte, sharing / link.exchange_bytes_per_second);
  }
};

// Around the ring of the members in their order.
SlowestLink AroundRing(const CollectivePlace& place, std::span<const int> workers) {
  const ClusterProfile& profile = place.profile();
  std::map<int, double> crossing;  // by host
  const size_t n = workers.size();
  const auto host = [&](size_t m) { return profile.host_of[workers[m % n]]; };
  for (size_t m = 0; m < n; ++m) {
    if (host(m) != host(m + 1)) ++crossing[host(m)];
  }
  SlowestLink slowest;
  for (size_t m = 0; m < n; ++m) {
    slowest.Add(place, workers[m], workers[(m + 1) % n], crossing[host(m)]);
  }
  return slowest;
}

// All members of a host send to other hosts at once: from each worker to one on the next host, or
// to a neighbour where there is one host.
SlowestLink AcrossAll(const CollectivePlace& place, std::span<const int> workers) {
  const ClusterProfile& profile = place.profile();
  std::map<int, double> on_host;
  std::map<int, int> first_on;
  for (const int worker : workers) {
    ++on_host[profile.host_of[worker]];
    first_on.try_emplace(profile.host_of[worker], worker);
  }
  SlowestLink slowest;
  for (const int worker : workers) {
    const int host = profile.host_of[worker];
    auto next = first_on.upper_bound(host);
    if (next == first_on.end()) next = first_on.begin();
    int peer = next->second;
    if (peer == worker) peer = workers[0] == worker ? workers.back() : workers[0];
    slowest.Add(place, worker, peer, on_host[host]);
  }
  return slowest;
}

double ReduceSeconds(const DeviceProfile& device, double bytes) {
  return bytes > 0 ? 3 * bytes / device.elementwise.At(3 * bytes) : 0;
}

// An all-gather or a reduce-scatter.
double SecondsOfRing(const CollectivePlace& place, double bytes, std::span<const int> workers) {
  const double n = static_cast<double>(workers.size());
  if (n < 2) return 0;
  const SlowestLink link = AroundRing(place, workers);
  return (n - 1) * (link.round_seconds + bytes / n * link.seconds_per_byte);
}

double LogRounds(double members) { return std::ceil(std::log2(members)); }

// The workers with the same place in their hosts, and those of the first host.
struct HostGroups {
  std::vector<int> within;
  std::vector<int> owners;
  int fewest = 0;

  HostGroups(const ClusterProfile& profile, std::span<const int> workers) {
    std::map<int, std::vector<int>> by_host;
    for (const int worker : workers) by_host[profile.host_of[worker]].push_back(worker);
    for (const auto& [host, members] : by_host) {
      const int count = static_cast<int>(members.size());
      fewest = fewest == 0 ? count : std::min(fewest, count);
      owners.push_back(members.front());
    }
    within = by_host.begin()->second;
  }
};

}  // namespace

double CostModel::StagingSeconds(double bytes, std::span<const int> workers) const {
  double slowest = 0;
  for (const int worker : workers) {
    if (!HasOwnMemory(worker) || profile_->link(worker, workers[0]).through_host) continue;
    const DeviceProfile& device = profile_->device(worker);
    slowest = std::max(slowest, device.host_copy_seconds + bytes / device.host_bytes_per_second);
  }
  return 2 * slowest;
}

std::function<LinkCost(int, int)> CostModel::LinksOf(MessageWay way) const {
  return [this, way](int from, int to) {
    return way == MessageWay::kHost ? HostLink(from, to) : Link(from, to, way);
  };
}

double CostModel::CollectiveSeconds(std::span<const CollectiveSchedule> schedules,
                                    int64_t element_bytes, std::span<const int> workers,
                                    MessageWay way) const {
  if (workers.size() < 2) return 0;
  const CollectivePlace place(*profile_, way, LinksOf(way));
  const double seconds = CollectiveSimulation(place, schedules, element_bytes, workers).Run();
  if (way == MessageWay::kDirect || !has_devices_) return seconds;
  int64_t elements = 0;  // of the largest buffer of a member
  for (const CollectiveSchedule& schedule : schedules) {
    for (const int64_t own : schedule.buffer_elements) elements = std::max(elements, own);
  }
  return seconds + StagingSeconds(static_cast<double>(elements * element_bytes), workers);
}

double CostModel::AllReduceSeconds(const AllReduceTask& task, std::span<const int> workers,
                                   MessageWay way) const {
  const int n = static_cast<int>(workers.size());
  if (n < 2) return 0;
  const AllReduceAlgorithm algorithm = FastestAllReduce(task);
  if (n <= kMaxSimulated) {
    std::vector<CollectiveSchedule> schedules;
    for (int member = 0; member < n; ++member) {
      schedules.push_back(AllReduceBy(algorithm, task, member));
    }
    return CollectiveSeconds(schedules, task.element_bytes, workers, way);
  }
  const double bytes = static_cast<double>(task.elements) * static_cast<double>(task.element_bytes);
  const CollectivePlace place(*profile_, way, LinksOf(way));
  const double reduce = ReduceSeconds(place.Device(workers[0]), bytes);
  const double staging = way == MessageWay::kHost ? StagingSeconds(bytes, workers) : 0;
  switch (algorithm) {
    case AllReduceAlgorithm::kRing:
      return 2 * SecondsOfRing(place, bytes, workers) + reduce + staging;
    case AllReduceAlgorithm::kRecursiveDoubling: {
      const SlowestLink link = AcrossAll(place, workers);
      return LogRounds(n) * (link.round_seconds + bytes * link.seconds_per_byte + reduce) + staging;
    }
    case AllReduceAlgorithm::kHierarchical: {
      const HostGroups groups(*profile_, workers);
      const double piece = bytes / groups.fewest;
      // One owner of each piece per host: they send at once.
      SlowestLink between = AcrossAll(place, workers);
      const double hosts = static_cast<double>(groups.owners.size());
      return 2 * SecondsOfRing(place, bytes, groups.within) +
             2 * LogRounds(hosts) * between.round_seconds +
             2 * piece * (hosts - 1) / hosts * between.seconds_per_byte + reduce + staging;
    }
    case AllReduceAlgorithm::kHalvingDoubling:
    case AllReduceAlgorithm::kTree:
      break;
  }
  const SlowestLink link = AcrossAll(place, workers);
  return 2 * LogRounds(n) * link.round_seconds + 2 * bytes * (n - 1) / n * link.seconds_per_byte +
         reduce + staging;
}

double CostModel::RingSeconds(double bytes, std::span<const int> workers, MessageWay way) const {
  if (workers.size() < 2) return 0;
  const double staging = way == MessageWay::kHost ? StagingSeconds(bytes, workers) : 0;
  return SecondsOfRing({*profile_, way, LinksOf(way)}, bytes, workers) + staging;
}

double CostModel::AllToAllSeconds(double bytes, std::span<const int> workers) const {
  const double n = static_cast<double>(workers.size());
  if (n < 2) return 0;
  const MessageWay way = WayOfGroup(workers);
  const SlowestLink link = AcrossAll({*profile_, way, LinksOf(way)}, workers);
  const double staging = way == MessageWay::kHost ? StagingSeconds(bytes / n, workers) : 0;
  return (n - 1) * (link.round_seconds + bytes / n * link.seconds_per_byte) + staging;
}

}  // namespace weft
