#include <algorithm>

#include "graph/schedule/collective_schedule.h"
#include "graph/schedule/schedule_writer.h"

namespace weft {
namespace {

// Members of each host, hosts in the order of their first member.
std::vector<std::vector<int>> MembersByHost(const std::vector<int>& hosts) {
  std::vector<int> names;
  std::vector<std::vector<int>> members;
  for (size_t m = 0; m < hosts.size(); ++m) {
    const auto it = std::find(names.begin(), names.end(), hosts[m]);
    const size_t host = static_cast<size_t>(it - names.begin());
    if (it == names.end()) {
      names.push_back(hosts[m]);
      members.emplace_back();
    }
    members[host].push_back(static_cast<int>(m));
  }
  return members;
}

// The fewest bytes of each member, in the fewest rounds.
CollectiveSchedule BetweenHosts(int hosts, int host, int64_t elements) {
  if (hosts == 2) return RecursiveDoublingAllReduce(hosts, host, elements);
  return PowerOfTwoIn(hosts) == hosts ? HalvingDoublingAllReduce(hosts, host, elements)
                                      : RingAllReduce(hosts, host, elements);
}

}  // namespace

CollectiveSchedule HierarchicalAllReduce(const std::vector<int>& hosts, int member,
                                         int64_t elements) {
  const std::vector<std::vector<int>> by_host = MembersByHost(hosts);
  size_t fewest = hosts.size();
  int own_host = 0;
  for (size_t h = 0; h < by_host.size(); ++h) {
    fewest = std::min(fewest, by_host[h].size());
    if (hosts[by_host[h].front()] == hosts[member]) own_host = static_cast<int>(h);
  }
  const int owners = static_cast<int>(fewest);
  const std::vector<BufferRange> pieces = EvenRanges(owners, elements);
  const std::vector<int>& group = by_host[own_host];
  const int n = static_cast<int>(group.size());
  const int own = static_cast<int>(std::find(group.begin(), group.end(), member) - group.begin());
  ScheduleWriter writer;
  for (int round = 1; round < n; ++round) {  // reduce-scatter inside the host
    const int to = (own + round) % n;
    const int from = (own + n - round) % n;
    if (to < owners) writer.Send(group[to], pieces[to]);
    if (own < owners) writer.ReceiveAndAdd(group[from], pieces[own]);
  }
  if (own < owners) {
    std::vector<int> peers;
    for (const std::vector<int>& others : by_host) peers.push_back(others[own]);
    writer.Embed(BetweenHosts(static_cast<int>(peers.size()), own_host, pieces[own].count), peers,
                 pieces[own].first);
  }
  for (int round = 1; round < n; ++round) {  // all-gather inside the host
    const int to = (own + round) % n;
    const int from = (own + n - round) % n;
    if (own < owners) writer.Send(group[to], pieces[own]);
    if (from < owners) writer.Receive(group[from], pieces[from]);
  }
  return writer.FinishWithScratch(elements);
}

}  // namespace weft
