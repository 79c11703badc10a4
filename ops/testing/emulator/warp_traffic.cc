#include "ops/testing/emulator/warp_traffic.h"

#include <algorithm>
#include <set>

namespace weft::testing {
namespace {

constexpr uintptr_t kSector = 32;
constexpr uintptr_t kBankBytes = 4;
constexpr uintptr_t kBanks = 32;

int64_t CeilDivide(size_t a, size_t b) { return static_cast<int64_t>((a + b - 1) / b); }

}  // namespace

void TrafficCount::operator+=(const TrafficCount& other) {
  requests += other.requests;
  sectors += other.sectors;
  needed_sectors += other.needed_sectors;
  shared_requests += other.shared_requests;
  shared_turns += other.shared_turns;
  needed_shared_turns += other.needed_shared_turns;
}

double TrafficCount::Coalescing() const {
  return sectors == 0 ? 1 : static_cast<double>(needed_sectors) / static_cast<double>(sectors);
}

double TrafficCount::BankConflicts() const {
  if (needed_shared_turns == 0) return 1;
  return static_cast<double>(shared_turns) / static_cast<double>(needed_shared_turns);
}

void WarpTraffic::Add(int lane, const void* place, uintptr_t address, size_t bytes,
                      bool is_shared) {
  Place& at = places_[reinterpret_cast<uintptr_t>(place)];
  const uint32_t visit = at.visits[lane]++;
  if (visit >= at.requests.size()) at.requests.resize(visit + 1);
  Request& request = at.requests[visit];
  request.is_shared = is_shared;
  request.accesses.push_back({address, static_cast<uint8_t>(lane), static_cast<uint8_t>(bytes)});
}

void WarpTraffic::CountGlobal(const Request& request, TrafficCount& count) {
  std::set<uintptr_t> sectors;
  std::set<uintptr_t> bytes;  // several lanes may read one
  for (const Access& access : request.accesses) {
    for (uintptr_t i = 0; i < access.bytes; ++i) {
      bytes.insert(access.address + i);
      sectors.insert((access.address + i) / kSector);
    }
  }
  ++count.requests;
  count.sectors += static_cast<int64_t>(sectors.size());
  count.needed_sectors += CeilDivide(bytes.size(), kSector);
}

void WarpTraffic::CountShared(const Request& request, TrafficCount& count) {
  ++count.shared_requests;
  const size_t widest =
      std::max_element(request.accesses.begin(), request.accesses.end(),
                       [](const Access& a, const Access& b) { return a.bytes < b.bytes; })
          ->bytes;
  const int lanes_at_once = widest <= 4 ? 32 : widest <= 8 ? 16 : 8;
  for (int first = 0; first < 32; first += lanes_at_once) {
    std::set<uintptr_t> words[kBanks];
    std::set<uintptr_t> all;
    for (const Access& access : request.accesses) {
      if (access.lane < first || access.lane >= first + lanes_at_once) continue;
      const uintptr_t end = (access.address + access.bytes - 1) / kBankBytes;
      for (uintptr_t word = access.address / kBankBytes; word <= end; ++word) {
        words[word % kBanks].insert(word);
        all.insert(word);
      }
    }
    size_t turns = 0;
    for (const auto& bank : words) turns = std::max(turns, bank.size());
    count.shared_turns += static_cast<int64_t>(turns);
    count.needed_shared_turns += CeilDivide(all.size(), kBanks);
  }
}

TrafficCount WarpTraffic::Take() {
  TrafficCount count;
  for (const auto& [address, place] : places_) {
    for (const Request& request : place.requests) {
      request.is_shared ? CountShared(request, count) : CountGlobal(request, count);
    }
  }
  places_.clear();
  return count;
}

}  // namespace weft::testing
