#include "distributed/replica_copies.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Of the names in a question; a message has 2 MiB.
constexpr size_t kMaxQuestionBytes = size_t{1} << 20;

// The next question of each rank: names of `copies` from `next` on, as many as a message takes.
// Moves `next` behind them.
std::vector<VariableDigestsRequest> NextQuestions(const std::vector<VariableCopies>& copies,
                                                  int ranks, size_t& next) {
  std::vector<VariableDigestsRequest> questions(static_cast<size_t>(ranks));
  size_t bytes = 0;
  while (next < copies.size() && bytes < kMaxQuestionBytes) {
    const VariableCopies& one = copies[next++];
    bytes += one.variable.size() + 16;
    for (const int rank : one.ranks) {
      questions[static_cast<size_t>(rank)].variables.push_back(one.variable);
    }
  }
  return questions;
}

// Of members with these digests, those that agree: the digest of more than half; null: no majority.
const uint64_t* MajorityOf(const std::map<uint64_t, size_t>& votes, size_t members) {
  for (const auto& [digest, count] : votes) {
    if (2 * count > members) return &digest;
  }
  return nullptr;
}

}  // namespace

std::vector<VariableCopies> FindCopies(const Coordinator& coordinator, const Mesh& mesh,
                                       const std::set<std::string>& variables) {
  std::map<std::tuple<std::string, int, int>, std::vector<int>> found;  // name, stage, shard
  for (int rank = 0; rank < coordinator.size(); ++rank) {
    const Mesh::Coordinate place = mesh.CoordinateOf(RankId(rank));
    for (const auto& [name, shard] : coordinator.shards(rank)) {
      if (shard.data_shards > 1 || !variables.contains(name)) continue;
      found[{name, place.pipeline, place.tensor}].push_back(rank);
    }
  }
  std::vector<VariableCopies> copies;
  for (auto& [key, ranks] : found) {
    if (ranks.size() > 1) copies.push_back({std::get<0>(key), std::move(ranks)});
  }
  return copies;
}

absl::StatusOr<CopyDigests> DigestCopies(Coordinator& coordinator,
                                         const std::vector<VariableCopies>& copies) {
  CopyDigests answers;
  answers.arithmetic.resize(static_cast<size_t>(coordinator.size()));
  for (size_t next = 0; next < copies.size();) {
    const size_t first = next;
    const auto questions = NextQuestions(copies, coordinator.size(), next);
    WEFT_ASSIGN_OR_RETURN(const auto replies, coordinator.AskEach(questions));
    for (size_t rank = 0; rank < replies.size(); ++rank) {
      const size_t asked = questions[rank].variables.size();
      if (replies[rank].digests.size() != asked) {
        return absl::DataLossError(
            absl::StrCat(coordinator.name(static_cast<int>(rank)), " has answered the digests of ",
                         replies[rank].digests.size(), " variables, and was asked for ", asked));
      }
      if (asked > 0) answers.arithmetic[rank] = replies[rank].arithmetic;
    }
    std::vector<size_t> taken(replies.size());  // of each rank's answers
    for (size_t i = first; i < next; ++i) {
      std::vector<uint64_t>& digests = answers.digests.emplace_back();
      for (const int rank : copies[i].ranks) {
        const auto r = static_cast<size_t>(rank);
        digests.push_back(replies[r].digests[taken[r]++]);
      }
    }
  }
  return answers;
}

std::vector<DivergedCopies> CompareCopies(const std::vector<VariableCopies>& copies,
                                          const CopyDigests& answers) {
  std::vector<DivergedCopies> diverged;
  for (size_t i = 0; i < copies.size(); ++i) {
    const std::vector<int>& ranks = copies[i].ranks;
    const std::vector<uint64_t>& digests = answers.digests[i];
    std::map<std::string, std::vector<size_t>> classes;  // members by arithmetic
    for (size_t m = 0; m < ranks.size(); ++m) {
      classes[answers.arithmetic[static_cast<size_t>(ranks[m])]].push_back(m);
    }
    for (const auto& [arithmetic, members] : classes) {
      std::map<uint64_t, size_t> votes;
      for (const size_t m : members) ++votes[digests[m]];
      if (votes.size() < 2) continue;
      const uint64_t* const right = MajorityOf(votes, members.size());
      DivergedCopies& one = diverged.emplace_back();
      one.variable = copies[i].variable;
      for (const size_t m : members) {
        one.ranks.push_back(ranks[m]);
        if (right == nullptr || digests[m] != *right) {
          one.wrong.push_back(ranks[m]);
        } else if (one.right < 0) {
          one.right = ranks[m];
        }
      }
    }
  }
  return diverged;
}

}  // namespace weft
