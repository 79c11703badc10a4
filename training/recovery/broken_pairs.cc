#include "training/recovery/broken_pairs.h"

#include <cstddef>

namespace weft {

std::set<int> BrokenPairs::Choose(const std::vector<std::pair<int, int>>& lost,
                                  const std::function<int(int rank)>& place_of) {
  for (const auto& [one, other] : lost) {
    apart_[place_of(one)].insert(place_of(other));
    apart_[place_of(other)].insert(place_of(one));
  }
  std::set<int> out;
  std::vector<std::pair<int, int>> pairs = lost;
  while (!pairs.empty()) {
    int goes = -1;
    size_t max_apart = 0;
    for (const auto& [one, other] : pairs) {
      for (const int rank : {one, other}) {
        const size_t apart = apart_[place_of(rank)].size();
        if (apart < max_apart || (apart == max_apart && rank <= goes)) continue;
        goes = rank;
        max_apart = apart;
      }
    }
    out.insert(goes);
    std::erase_if(pairs, [goes](const std::pair<int, int>& pair) {
      return pair.first == goes || pair.second == goes;
    });
  }
  return out;
}

}  // namespace weft
