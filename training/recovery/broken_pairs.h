// BrokenPairs: of workers that have lost each other, though all of them answer, who goes.
#ifndef WEFT_TRAINING_RECOVERY_BROKEN_PAIRS_H_
#define WEFT_TRAINING_RECOVERY_BROKEN_PAIRS_H_

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace weft {

// Of each pair one goes: the one that is in more such pairs of this job so far, of two alike the
// higher rank. It depends on nothing else, such as who has noticed first. Places are those of
// Membership, which stay when ranks change.
class BrokenPairs {
 public:
  // `lost`: a rank, and another that it has lost, as of Coordinator::lost_peers. The ranks to go on
  // without: one of each pair at least, as few as it takes going by that rule; none of no pair.
  std::set<int> Choose(const std::vector<std::pair<int, int>>& lost,
                       const std::function<int(int rank)>& place_of);

 private:
  std::map<int, std::set<int>> apart_;  // by place: whom it has lost, or who has lost it
};

}  // namespace weft

#endif  // WEFT_TRAINING_RECOVERY_BROKEN_PAIRS_H_
